"""What the judge is shown: the passages of the prompt for the answer, all passages for retrieval."""

from __future__ import annotations

import pytest

from rageval_hooks import Passage, Turn, evaluate
from rageval_hooks.metrics.judged.citation import Citation
from rageval_hooks.metrics.judged.nuggets import Nuggets
from rageval_hooks.metrics.judged.trace import Trace
from rageval_hooks.metrics.judged.umbrela import Umbrela
from tests.metrics.good_judge import by_schema

PASSAGES = (
    Passage(text="The pier was opened in 2019.", id="pier", in_prompt=False),
    Passage(text="The museum is free on Sundays.", id="museum", in_prompt=True),
    Passage(text="The harbour has a crane.", id="harbour", in_prompt=True),
)
TURN = Turn(
    query="When is the museum free?", response="On Sundays [1]. The pier opened in 2019 [pier].", passages=PASSAGES
)


def prompts(schema: str, *metrics: object) -> list[str]:
    """Return the prompts of the calls with one form of answer."""
    judge = by_schema()
    evaluate(TURN, metrics=list(metrics), judge=judge)  # type: ignore[arg-type]
    return [call.prompt for call in judge.calls if call.schema.__name__ == schema]


def test_metrics_of_the_answer_show_the_passages_of_the_prompt() -> None:
    """With the numbers that they have in the turn."""
    for schema, metric in (("TraceLabels", Trace()), ("CitationSupport", Citation())):
        [prompt] = prompts(schema, metric)
        assert "1a: The museum is free on Sundays." in prompt
        assert "The pier was opened in 2019." not in prompt


def test_metrics_of_retrieval_show_all_passages() -> None:
    """Those that were not in the prompt come after the shared beginning."""
    [prompt] = prompts("PassageGrades", Umbrela())

    assert "0a: The pier was opened in 2019." in prompt
    assert prompt.index("The harbour has a crane.") < prompt.index("The pier was opened in 2019.")


def test_scores_of_passages_keep_their_positions() -> None:
    """Position 0 is the passage that was not in the prompt."""
    evaluation = evaluate(TURN, metrics=[Umbrela()], judge=by_schema())

    assert {score.target.index: score.target.id for score in evaluation.scores if score.target.kind == "passage"} == {
        0: "pier",
        1: "museum",
        2: "harbour",
    }


def test_nuggets_come_from_the_passages_of_the_prompt() -> None:
    """An answer cannot have facts that the model never saw."""
    evaluation = evaluate(TURN, metrics=[Nuggets()], judge=by_schema())
    score = evaluation.score("nuggets.all")

    assert score is not None
    assert score.metadata["passages"] == [1, 2]


def test_a_citation_of_an_unseen_passage_counts_as_made_up() -> None:
    """The marker "[1]" is the first passage of the prompt; "[pier]" was not in it, and the explanation says so."""
    evaluation = evaluate(TURN, metrics=[Citation()], judge=by_schema())
    score = evaluation.score("citation.precision")

    assert score is not None
    assert score.value == 0.5
    assert [part["citations"][0]["passages"] for part in score.metadata["parts"]] == [[1], []]
    assert "[pier] a passage that was not in the prompt" in (score.explanation or "")


def test_an_unsupported_sentence_names_the_unseen_passage_that_has_it() -> None:
    """In the explanation of adherence."""
    labels = {
        "relevance_explanation": "why",
        "all_relevant_sentence_keys": ["1a"],
        "all_utilized_sentence_keys": ["1a"],
        "overall_supported": False,
        "sentence_support_information": [
            {
                "response_sentence_key": key,
                "explanation": "",
                "supporting_sentence_keys": ["1a"] if supported else [],
                "fully_supported": supported,
            }
            for key, supported in (("a", True), ("b", False))
        ],
    }
    evaluation = evaluate(TURN, metrics=[Trace()], judge=by_schema({"TraceLabels": labels}))
    score = evaluation.score("trace.adherence")

    assert score is not None
    assert "in a passage that was not in the prompt, by its words: pier" in (score.explanation or "")


def test_the_longest_texts_are_cut_to_what_the_judge_reads(caplog: pytest.LogCaptureFixture) -> None:
    """A passage of 20 MB does not become a prompt of 25 MB, and does not hide the others. The scores say so."""
    long = Passage(text="The crane is red. " * 1_200_000)
    turn = TURN.model_copy(update={"passages": (long, *PASSAGES)})
    judge = by_schema()
    evaluation = evaluate(turn, metrics=[Trace(), Umbrela()], judge=judge)

    assert max(len(call.prompt) for call in judge.calls) < 4 * judge.max_prompt_tokens
    for call in judge.calls:
        assert "The museum is free on Sundays." in call.prompt
        assert "When is the museum free?" in call.prompt
    for name in ("trace.adherence", "umbrela.mean"):
        score = evaluation.score(name)
        assert score is not None
        assert "the judge saw about 72,000 of 5,400," in str(score.explanation)
        assert "longest texts were cut" in score.metadata["cut"]
    assert "RAGEVAL-305" in caplog.text
    assert evaluation.turn == turn


def test_a_turn_that_fits_is_shown_whole() -> None:
    score = evaluate(TURN, metrics=[Trace()], judge=by_schema()).score("trace.adherence")
    assert score is not None
    assert "cut" not in score.metadata
