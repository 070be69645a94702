"""The pytest plugin: evaluate a turn in a test, and assert its scores. Nothing is loaded until a test needs it.

    def test_the_answer(rageval, assert_scores):
        turn = ask("When was the pier opened?")  # a Turn, or rageval(query=…, response=…, passages=[…])
        assert_scores(turn, groundedness=0.7, unsupported_facts=0)

    @pytest.mark.parametrize("question", golden_questions("testset.jsonl"))
    def test_the_chain(question, rageval_ask, assert_scores):
        turn = rageval_ask(chain, question)  # runs the chain, and returns its turn with passages and answer
        assert_scores(turn, {"reference_overlap.recall": 0.5}, groundedness=0.7)

Models, judge and metrics come from the environment (``RAGEVAL_MODELS``, ``RAGEVAL_JUDGE``, ``RAGEVAL_METRICS``), or
from the ini options ``rageval_models``, ``rageval_judge`` and ``rageval_metrics``. To use a judge object, define a
session fixture ``rageval_judge`` that returns it.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from rageval_hooks.score import VERDICT, Evaluation, label_with_cause, missing_score, shown_name
from rageval_hooks.text.formatting import shorten
from rageval_hooks.turn import Passage, Turn

if TYPE_CHECKING:
    from _pytest.mark.structures import ParameterSet

    from rageval_hooks.offline.testsets import GoldenQuestion
    from rageval_hooks.online.pipeline import Pipeline

__all__ = ["Evaluator", "assert_scores", "golden_questions"]

_OPTIONS = {
    "models": "the local models: default, lexical, or a mapping as JSON",
    "judge": "the judge, such as openai:gpt-5-mini",
    "metrics": "names of the metrics, separated by commas",
}

# In the metadata of a turn: False if the test set says that the question has no answer.
_ANSWERABLE = "answerable"

# Characters of a question in the name of a test.
_MAX_SLUG = 60

# Characters of a question or an answer in the message of a failed test.
_MAX_LENGTH = 200


class Evaluator:
    """Evaluates turns. The fixture ``rageval`` is one.

    Args:
        options: ``models``, ``judge`` and ``metrics``; see :func:`rageval_hooks.instrument`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._pipelines: dict[tuple[Any, ...] | str | None, Pipeline] = {}

    def __call__(
        self,
        turn: Turn | None = None,
        /,
        *,
        query: str = "",
        response: str = "",
        passages: Iterable[str | Passage] = (),
        metrics: Iterable[Any] | str | None = None,
        **fields: Any,
    ) -> Evaluation:
        """Evaluate a turn, or a question, an answer and passages.

        Args:
            turn: the turn; without it, the other arguments describe one.
            query: the question.
            response: the answer.
            passages: the retrieved passages; a text is one.
            metrics: names, classes or instances; by default those of the session.
            fields: further fields of the turn, such as ``reference``.

        Raises:
            ConfigurationError: a setting is wrong.
        """
        if turn is None:
            items = [passages] if isinstance(passages, str) else passages
            found = tuple(Passage(text=item) if isinstance(item, str) else item for item in items)
            turn = Turn(query=query, response=response, passages=found, **fields)
        return self._pipeline(metrics).evaluate(turn)

    def assert_scores(
        self, subject: Turn | Evaluation, bounds: Mapping[str, float | str] | None = None, /, **more: float | str
    ) -> Evaluation:
        """Assert that scores reach their bounds: at least, or at most where lower is better; or have a label.

        Args:
            subject: an evaluation; or a turn, which is evaluated with the metrics that make these scores.
            bounds: bounds by score, for names that are not valid keywords: ``{"trace.adherence": 1}``.
            more: bounds or labels by score: ``groundedness=0.7``, ``verdict="good"``; of a verdict also with its
                cause: ``verdict="declined: nothing_found"``.

        Returns:
            The evaluation.

        Raises:
            AssertionError: a score is worse than its bound or has another label, was skipped, or failed. Of a question
                that is marked as unanswerable: the answer does not decline.
            UnknownNameError: no metric makes a score of that name.
        """
        # pytest then shows the line of the test, not this one.
        __tracebackhide__ = True
        wanted = {**(bounds or {}), **more}
        if not wanted:
            raise TypeError("assert_scores needs a score and its bound, such as groundedness=0.7")
        if isinstance(subject, Turn):
            subject = self(subject, metrics=list(dict.fromkeys(map(_metric_of, wanted))))
        if subject.turn.metadata.get(_ANSWERABLE) is False:
            lines = _complaints_about_answer(subject)
        else:
            lines = [line for name, bound in wanted.items() if (line := _complaint(subject, name, bound)) is not None]
        if lines:
            lines.append(f"question: {shorten(subject.turn.query, _MAX_LENGTH)}")
            lines.append(f"answer: {shorten(subject.turn.response, _MAX_LENGTH)}")
            raise AssertionError("\n".join(lines))
        return subject

    def _pipeline(self, metrics: Iterable[Any] | str | None) -> Pipeline:
        from rageval_hooks.evaluation import build_pipeline

        chosen = self._options.get("metrics") if metrics is None else metrics
        # Metrics of any iterable become a tuple, which can be a key; an iterator could be read only once.
        key = chosen if chosen is None or isinstance(chosen, str) else tuple(chosen)
        if key not in self._pipelines:
            self._pipelines[key] = build_pipeline(**{**self._options, "metrics": key})
        return self._pipelines[key]


def assert_scores(
    subject: Turn | Evaluation, bounds: Mapping[str, float | str] | None = None, /, **more: float | str
) -> Evaluation:
    """Assert that scores reach their bounds, with the options of the running session; see :class:`Evaluator`.

    A judge from a fixture ``rageval_judge`` is known only to the fixture of the same name.
    """
    __tracebackhide__ = True
    return _session.assert_scores(subject, bounds, **more)


_session = Evaluator()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options."""
    for name, text in _OPTIONS.items():
        parser.addini(f"rageval_{name}", f"rageval-hooks: {text}", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Read the options of this session, for the function ``assert_scores``."""
    global _session
    _session = Evaluator(**_options(config))


@pytest.fixture(scope="session")
def rageval_judge() -> Any:
    """Return no judge. Override this fixture to return a judge object."""
    return None


@pytest.fixture(scope="session")
def rageval(pytestconfig: pytest.Config, rageval_judge: Any) -> Evaluator:
    """Evaluate a turn: ``rageval(turn)``, or ``rageval(query=…, response=…, passages=[…])``."""
    options: dict[str, Any] = dict(_options(pytestconfig))
    if rageval_judge is not None:
        options["judge"] = rageval_judge
    return Evaluator(**options)


@pytest.fixture(scope="session", name="assert_scores")
def _assert_scores(rageval: Evaluator) -> Callable[..., Evaluation]:
    """Assert scores: ``assert_scores(turn, groundedness=0.7, unsupported_facts=0)``."""
    return rageval.assert_scores


@pytest.fixture(scope="session")
def rageval_ask() -> Callable[..., Turn]:
    """Ask an application: ``rageval_ask(chain, "When was the pier opened?")`` returns its turn."""
    return _ask


def _ask(app: Any, question: str | GoldenQuestion, /, *, input_key: str | None = None, timeout: float = 300.0) -> Turn:
    """Run an application with a question, and return the turn that was captured.

    Args:
        app: a LangChain runnable, a LlamaIndex query engine, or a function of the question that returns the answer or
            (answer, passages): what ``rageval-hooks run --app`` accepts.
        question: a text, or a question of :func:`golden_questions`, whose reference answer the turn gets.
        input_key: key of the question in the application's input.
        timeout: seconds.

    Raises:
        AssertionError: the application failed, or took longer.
    """
    __tracebackhide__ = True
    from rageval_hooks.offline.asking import ask_once
    from rageval_hooks.offline.testsets import GoldenQuestion

    if isinstance(question, str):
        question = GoldenQuestion(id="question", question=question)
    turn = ask_once(app, question, input_key=input_key, timeout=timeout).turn
    if turn.error is not None:
        raise AssertionError(f"the application failed: {turn.error.type}: {turn.error.message}")
    return turn if question.answerable else turn.model_copy(update={"metadata": {**turn.metadata, _ANSWERABLE: False}})


def golden_questions(path: str | os.PathLike[str]) -> list[ParameterSet]:
    """Return the questions of a test set as parameters of a test, each named by its words.

    Example: ``@pytest.mark.parametrize("question", golden_questions("testset.jsonl"))``.

    Args:
        path: what ``rageval-hooks generate`` wrote, or any file with a column of questions.

    Raises:
        ConfigurationError: there is no such file, or no question in it.
    """
    from rageval_hooks.offline.testsets import read_questions

    questions, _ = read_questions(Path(path))
    # "when-was-the-pier-opened" says more in a report than a hash; pytest numbers equal ones.
    slugs = [re.sub(r"\W+", "-", question.question.lower())[:_MAX_SLUG].strip("-") for question in questions]
    return [pytest.param(question, id=slug or question.id) for question, slug in zip(questions, slugs, strict=True)]


def _options(config: pytest.Config) -> dict[str, str]:
    """Return the ini options that apply."""
    found = {}
    for name in _OPTIONS:
        text = str(config.getini(f"rageval_{name}")).strip()
        # The environment takes precedence; the pipeline reads it itself.
        if text and not os.environ.get(f"RAGEVAL_{name.upper()}"):
            found[name] = text
    return found


def _metric_of(score: str) -> str:
    """Return the name of the metric that makes a score."""
    __tracebackhide__ = True
    from rageval_hooks.errors import UnknownNameError
    from rageval_hooks.metrics.base import REGISTRY

    makers = {definition.name: metric.name for metric in REGISTRY.builtin().values() for definition in metric.scores}
    # A metric of another package has the name of its score, or the part before its dot: "mine" makes "mine.recall".
    for name in (makers.get(score), score, score.partition(".")[0]):
        if name is not None and name in REGISTRY.names():
            return name
    hint = "For a metric of your own: assert_scores(rageval(turn, metrics=[…]), …)."
    raise UnknownNameError("score", score, makers, hint)


def _complaints_about_answer(evaluation: Evaluation) -> list[str]:
    """Return what is wrong with the answer to a question that is marked as unanswerable: only a refusal is right."""
    from rageval_hooks.offline.answerability import SHOULD_DECLINE, is_refusal

    return [] if is_refusal(evaluation.turn.response) else [f"bad: should_decline: {SHOULD_DECLINE}"]


def _why_not(evaluation: Evaluation, name: str) -> str:
    """Return why there is no score of this name."""
    from rageval_hooks.metrics.base import REGISTRY

    makers = {score.name: metric for metric in REGISTRY.builtin().values() for score in metric.scores}
    maker = makers.get(name)
    if maker and missing_score(name, evaluation.results) is None and inspect.iscoroutinefunction(maker.evaluate):
        needs = f"a judge, and metrics that name it: rageval(turn, metrics=[{maker.name!r}])"
        return f"{name} was not computed: it needs {needs}"
    return evaluation.why_not(name)


def _complaint(evaluation: Evaluation, name: str, bound: float | str) -> str | None:
    """Return what is wrong with a score, or None if nothing is."""
    score = evaluation.score(name)
    if isinstance(bound, str):
        found = score or missing_score(name, evaluation.results)
        if found is None:
            return _why_not(evaluation, name)
        # A verdict that was skipped has a label, too: an answer may rightly be `declined`.
        label = label_with_cause(found) or "without a label"
        line = f"{shown_name(name)} is {label}, and it should be {bound}"
        return None if bound in (found.label, label) else "\n    ".join([line, *(found.explanation or "").splitlines()])
    if score is None:
        return _why_not(evaluation, name)
    is_lower_better = score.direction == "lower"
    if score.value <= bound if is_lower_better else score.value >= bound:
        return None
    label = f" ({label_with_cause(score)})" if name == VERDICT else ""
    side = "most" if is_lower_better else "least"
    line = f"{shown_name(name)} is {score.value:.4g}{label}, and it should be at {side} {bound:g}"
    return "\n    ".join([line, *(score.explanation or "").splitlines()])
