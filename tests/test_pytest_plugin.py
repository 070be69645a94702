"""The pytest plugin, in tests of an application."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
from contextlib import suppress
from importlib.metadata import entry_points

import pytest

# pytester forgets the modules that a run imports, and numpy's cannot be imported twice in one process.
with suppress(ImportError):
    import numpy.fft
    import numpy.random  # noqa: F401

pytest_plugins = ["pytester"]

REGISTERED = any(entry.name == "rageval_hooks" for entry in entry_points(group="pytest11"))

TURN = """
import pytest
from rageval_hooks import Passage, Turn

PASSAGES = ["The new pier was opened in September 2019."]
GOOD = Turn(query="When was the pier opened?", response="The pier was opened in September 2019.",
            passages=tuple(Passage(text=text) for text in PASSAGES))
BAD = GOOD.model_copy(update={"response": "The bridge was opened in 1978 by Carl."})
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    """Run the tests of an application, with the lexical models."""
    monkeypatch.setenv("RAGEVAL_MODELS", "lexical")

    def run(code: str, conftest: str = "", ini: str = "") -> pytest.RunResult:
        pytester.makepyfile(TURN + code)
        if conftest:
            pytester.makeconftest(conftest)
        pytester.makeini(f"[pytest]\n{ini}")
        plugin = () if REGISTERED else ("-p", "rageval_hooks.pytest_plugin")
        with warnings.catch_warnings():
            # The run collects garbage, and must not report sockets of earlier tests as its own.
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        return pytester.runpytest_inprocess("-p", "no:phoenix", "-p", "no:cacheprovider", *plugin)

    return run


def test_good_answers_pass(run) -> None:
    """From texts or from a turn, with the fixture or the function."""
    run(
        """
from rageval_hooks.pytest_plugin import assert_scores as check

def test_texts(rageval, assert_scores):
    evaluation = rageval(query="When was it opened?", response="It was opened in 2019.", passages=PASSAGES)
    assert evaluation["unsupported_facts"] == 0
    assert_scores(evaluation, groundedness=0.5, unsupported_facts=0)

def test_turn(assert_scores):
    evaluation = assert_scores(GOOD, {"tokens.output": 50}, groundedness=0.7, unsupported_facts=0)
    assert {result.metric for result in evaluation.results} == {"groundedness", "unsupported_facts", "tokens"}

def test_function():
    check(GOOD, groundedness=0.7)
"""
    ).assert_outcomes(passed=3)


def test_a_bad_answer_fails_and_says_why(run) -> None:
    """Score, bound, explanation, question and answer; both scores, each in its direction."""
    result = run(
        """
def test_it(assert_scores):
    assert_scores(BAD, groundedness=0.7, unsupported_facts=0, tokens=1000)
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E * AssertionError: groundedness is 0.*, and it should be at least 0.7",
            "E *0.* *The bridge was opened in 1978 by Carl.* missing: bridge, 1978, Carl",
            "E *unsupported_facts is 2, and it should be at most 0",
            "E *no passage has: *1978*",
            "E *question: When was the pier opened?",
            "E *answer: The bridge was opened in 1978 by Carl.",
        ]
    )
    result.stdout.no_fnmatch_line("*tokens is*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_only_a_refusal_is_right_for_an_unanswerable_question(run, pytester: pytest.Pytester) -> None:
    """As ``generate --unanswerable`` marks them. Bounds are for the other questions."""
    lines = [{"id": "a", "question": "When was the pier opened?"}]
    lines += [
        {"id": name, "question": f"What will a ticket cost {name}?", "answerable": False} for name in ("now", "then")
    ]
    (pytester.path / "ts.jsonl").write_text("\n".join(map(json.dumps, lines)))
    result = run(
        """
import pytest
from rageval_hooks.pytest_plugin import golden_questions

def app(question):
    known = "It was opened in 2019." if "pier" in question else "It will cost 5 euros."
    return ("I do not know; the documents do not say." if "now" in question else known), ["It was opened in 2019."]

@pytest.mark.parametrize("question", golden_questions("ts.jsonl"))
def test_the_chain(question, rageval_ask, assert_scores):
    assert_scores(rageval_ask(app, question), groundedness=0.7)
"""
    )
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["E * AssertionError: bad: should_decline: the question is marked as unanswerable, and the answer does not *"]
    )


def test_labels_are_compared_as_labels(run) -> None:
    """A verdict is a word, also where it is skipped: an answer may rightly decline. Its cause is next to it."""
    result = run(
        """
def test_good(assert_scores):
    assert_scores(GOOD, verdict="good")

def test_declined(rageval, assert_scores):
    declined = rageval(query="Who built it?", response="I do not know.", passages=PASSAGES, metrics="verdict")
    assert_scores(declined, verdict="declined")

def test_cause(rageval, assert_scores):
    declined = rageval(query="Who built it?", response="I do not know.", passages=PASSAGES, metrics="verdict")
    assert_scores(declined, verdict="declined: nothing_found")

def test_bad(assert_scores):
    assert_scores(BAD, verdict="good")

def test_number(assert_scores):
    assert_scores(BAD, verdict=1)

def test_skipped(assert_scores):
    assert_scores(GOOD.model_copy(update={"passages": ()}), verdict=1)
"""
    )
    result.assert_outcomes(passed=3, failed=3)
    result.stdout.fnmatch_lines(["E * AssertionError: verdict is bad: unsupported, and it should be good", "E *1978*"])
    result.stdout.fnmatch_lines(["E * AssertionError: verdict is 0 (bad: unsupported), and it should be at least 1"])
    result.stdout.fnmatch_lines(
        ["E * AssertionError: verdict was skipped (not_evaluable: no_passages): the turn has no passages"]
    )


def test_a_score_that_is_none_fails_with_its_reason(run) -> None:
    """Skipped, failed or absent: the test fails."""
    result = run(
        """
from rageval_hooks import Evaluation, Failed, Score

def test_skipped(assert_scores):
    assert_scores(GOOD.model_copy(update={"passages": ()}), groundedness=0.1)

def test_failed(assert_scores):
    failed = Failed(name="trace", error_type="unavailable", message="no connection", metric="trace")
    assert_scores(Evaluation(turn=GOOD, results=(failed,)), {"trace.adherence": 1})

def test_absent(assert_scores):
    assert_scores(Evaluation(turn=GOOD, results=(Score(name="mine", value=1),)), groundedness=0.1)
"""
    )
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(
        [
            "*AssertionError: groundedness was skipped: the turn has no passages",
            "*AssertionError: trace.adherence failed: unavailable: no connection",
            "*AssertionError: no score named 'groundedness'; there are: mine",
        ]
    )


def test_a_wrong_name_is_an_error_that_lists_the_right_ones(run) -> None:
    """The message lists the valid names."""
    result = run(
        """
def test_it(assert_scores):
    assert_scores(GOOD, groundednes=0.7)
"""
    )
    result.stdout.fnmatch_lines(["*UnknownNameError: unknown score 'groundednes'. Did you mean 'groundedness'?*"])


def test_a_judge_metric_that_was_not_computed(run) -> None:
    """The message says what it needs."""
    result = run(
        """
def test_it(rageval, assert_scores):
    assert_scores(rageval(GOOD), {"nuggets.all": 0.5})
"""
    )
    result.stdout.fnmatch_lines(
        ["E *AssertionError: nuggets.all was not computed: it needs a judge, and metrics that*"]
    )


def test_no_bound_at_all_is_an_error(run) -> None:
    """Such a test would always pass."""
    result = run(
        """
def test_it(assert_scores):
    assert_scores(GOOD)
"""
    )
    result.stdout.fnmatch_lines(["*TypeError: assert_scores needs a score and its bound, such as groundedness=0.7"])


def test_metrics_of_ones_own(run) -> None:
    """They are arguments of the fixture."""
    run(
        """
from rageval_hooks import metric

@metric(requires=["response"], high=None)
def words(turn):
    return len(turn.response.split())

def test_it(rageval, assert_scores):
    assert_scores(rageval(GOOD, metrics=[words]), words=7)
"""
    ).assert_outcomes(passed=1)


def test_a_judge_of_ones_own(run) -> None:
    """A session fixture returns it; the test names the score of the judge."""
    run(
        """
def test_it(assert_scores):
    evaluation = assert_scores(GOOD, {"trace.adherence": 1})
    assert evaluation.score("trace.adherence").annotator == "LLM"
""",
        conftest="""
import pytest
from rageval_hooks.testing import FakeJudge

@pytest.fixture(scope="session")
def rageval_judge():
    answer = {
        "relevance_explanation": "", "all_relevant_sentence_keys": ["0a"], "overall_supported_explanation": "",
        "overall_supported": True, "all_utilized_sentence_keys": ["0a"],
        "sentence_support_information": [
            {"response_sentence_key": "a", "explanation": "", "supporting_sentence_keys": ["0a"],
             "fully_supported": True}],
    }
    return FakeJudge(lambda *_: answer)
""",
    ).assert_outcomes(passed=1)


def test_options_stand_in_the_ini_file(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the environment says something else."""
    code = """
def test_it(rageval):
    assert {score.metric for score in rageval(GOOD).scores} == {"tokens"}
"""
    monkeypatch.delenv("RAGEVAL_MODELS")
    run(code, ini="rageval_models = lexical\nrageval_metrics = tokens").assert_outcomes(passed=1)
    monkeypatch.setenv("RAGEVAL_METRICS", "latency")
    run(code, ini="rageval_models = lexical\nrageval_metrics = tokens").assert_outcomes(failed=1)


def test_the_rates_of_an_application_do_not_matter(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test evaluates every turn, so its scores have the probability 1."""
    monkeypatch.setenv("RAGEVAL_SAMPLE_RATE", "0.5")
    code = "def test_it(rageval): assert {score.probability for score in rageval(GOOD).scores} == {1}"
    run(code).assert_outcomes(passed=1)


def test_an_option_that_is_wrong_is_said(run, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a test needs it, and not before."""
    monkeypatch.delenv("RAGEVAL_MODELS")
    result = run("def test_a(): pass\ndef test_b(rageval): rageval(GOOD)", ini="rageval_models = huge")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*ConfigurationError: *huge*"])


def test_pytest_starts_without_anything_heavy() -> None:
    """The plugin is imported in every session of everybody who has the package."""
    code = (
        "import sys, rageval_hooks.pytest_plugin;"
        "heavy = 'torch numpy spacy matplotlib pandas rich typer'.split();"
        "print([name for name in heavy if name in sys.modules])"
    )
    output = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    ).stdout
    assert output == "[]\n"


QUESTIONS = """id,question,ground_truth_answer
pier,When was the pier opened?,In September 2019.
dogs,Are dogs allowed?,No.
"""

CHAIN = """
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from rageval_hooks.pytest_plugin import golden_questions

class Retriever(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(page_content=text) for text in PASSAGES]

def answer(state):
    return "The pier was opened in September 2019." if "pier" in state["question"] else state["context"][5].page_content

chain = {"context": Retriever(), "question": RunnablePassthrough()} | RunnableLambda(answer)
"""


def test_a_chain_is_run_and_its_turn_is_tested(run, pytester: pytest.Pytester) -> None:
    """Once per question of a test set, whose reference the turn has; a failure of the chain fails the test."""
    pytester.makefile(".csv", testset=QUESTIONS)
    result = run(
        CHAIN
        + """
@pytest.mark.parametrize("question", golden_questions("testset.csv"))
def test_it(question, rageval_ask, assert_scores):
    turn = rageval_ask(chain, question)
    assert [passage.text for passage in turn.passages] == PASSAGES
    assert_scores(turn, {"reference_overlap.recall": 1}, groundedness=0.7)

def test_a_text(rageval_ask):
    assert rageval_ask(chain, "When was the pier opened?").response == "The pier was opened in September 2019."

async def in_a_loop(rageval_ask):
    return rageval_ask(lambda question: ("Yes.", ["A passage."]), "Is it?")

def test_a_function_in_a_running_loop(rageval_ask):
    import asyncio
    turn = asyncio.run(in_a_loop(rageval_ask))
    assert (turn.query, turn.response, turn.passages[0].text) == ("Is it?", "Yes.", "A passage.")
"""
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(
        ["*test_it?are-dogs-allowed?*", "E *AssertionError: the application failed: IndexError: *"]
    )


def test_a_label_of_a_score_that_is_not_there(run) -> None:
    """The reason says how to get it."""
    result = run(
        """
def test_it(rageval, assert_scores):
    assert_scores(rageval(GOOD, metrics=["tokens"]), verdict="good", **{"trace.adherence": "pass"})
"""
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*no score named 'verdict'; there are: tokens*", "*trace.adherence was not computed: it needs a judge*"]
    )
