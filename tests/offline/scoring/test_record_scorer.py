"""A batch of records gets the results that each record gets alone."""

from __future__ import annotations

import pytest

from rageval_hooks import Passage, Turn, metric
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.score_file import build_pipeline, required_fields
from rageval_hooks.offline.scoring.workers import RecordScorer

PASSAGE = Passage(text="The pier was opened in May 2019 by the mayor of Kent. It cost 4 million pounds.")


def records() -> list[Record]:
    turns = [
        Turn(query="When was the pier opened?", response="In May 2019.", passages=(PASSAGE,)),
        Turn(query="What did it cost?", response="5 million pounds.", passages=(PASSAGE,)),
        Turn(query="Who opened it?", response=""),
        # Longer than the texts that are scored together.
        Turn(query="When?", response="In 2019.", passages=(Passage(text=PASSAGE.text * 400),)),
        Turn(query="Who opened it?", response="The mayor of Kent.", passages=(PASSAGE,)),
    ]
    return [Record(id=str(number), turn=turn, answerable=number != 1) for number, turn in enumerate(turns)]


def test_a_batch_gets_the_results_that_each_record_gets_alone() -> None:
    scorer = RecordScorer(build_pipeline(models="lexical", concurrency=1).engine, (), "all")

    together = scorer.score(records())

    assert together == [scored for record in records() for scored in scorer.score([record])]
    assert [record.id for record in together] == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("response", "label", "cause"),
    [
        ("The pier was opened in 2019.", "bad", "should_decline"),
        ("It will cost 5 euros.", "bad", "should_decline"),
        ("I don't know.", "declined", None),
        ("The documents do not say what a ticket will cost.", "declined", None),
    ],
)
def test_an_answer_to_an_unanswerable_question_is_bad(response: str, label: str, cause: str | None) -> None:
    """Also one that its passages support. A refusal is right."""
    turn = Turn(query="When?", response=response, passages=(Passage(text="The pier was opened in 2019."),))
    [record] = RecordScorer(build_pipeline(metrics="verdict", models="lexical", concurrency=1).engine, (), "all").score(
        [Record(id="a", turn=turn, answerable=False)]
    )
    [verdict] = [result for result in record.results if result.name == "verdict"]
    assert verdict.label == label
    assert cause is None or verdict.cause == cause


def test_a_metric_that_needs_an_answerable_question_is_skipped_at_its_place() -> None:
    scorer = RecordScorer(build_pipeline(models="lexical", concurrency=1).engine, (), "all")

    answerable, unanswerable = scorer.score(records()[:2])

    def metrics(record: Record) -> list[str | None]:
        return list(dict.fromkeys(result.metric for result in record.results))

    assert metrics(unanswerable) == metrics(answerable)
    assert "answer_relevance" in {result.name for result in unanswerable.results if result.status == "skipped"}


@metric
def anything(turn: Turn) -> int:
    """A metric that does not say what it reads."""
    return len(turn.query)


def test_columns_are_required_for_what_named_metrics_read() -> None:
    def required(names: str, *, named: bool = True) -> tuple[str, ...]:
        pipeline = build_pipeline(metrics=names, models="lexical", concurrency=1)
        return required_fields(pipeline, named=named)

    assert required("groundedness") == ("response",)
    assert required("reference_overlap") == ("response", "reference")
    assert required("groundedness", named=False) == ("query", "response")
    assert required(f"{__name__}:anything") == ("query", "response")
