"""The share of bad answers where a judge saw a sample: what a report says aloud, and for each week."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from rageval_hooks import ConfigurationError, Score, Turn
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.report import analyze, conclude
from rageval_hooks.offline.report.corrected import CorrectedShare, JudgedSample
from rageval_hooks.offline.report.statistics import Resampling
from rageval_hooks.turn import Timing
from tests.command import invoke

WEEK = 7 * 86_400
MONDAY = 1_763_942_400  # 24 November 2025, 00:00 UTC


def verdict(label: str, metric: str, probability: float) -> Score:
    value = {"good": 1.0, "bad": 0.0}[label]
    return Score(name="verdict", value=value, label=label, metric=metric, probability=probability)


def write(path: Path, answers: int, *, judged: dict[str, float], seed: int = 0) -> Path:
    """Write answers of two weeks, 8% of them bad, with local verdicts, and a judge's for some of each."""
    chosen = random.Random(seed)
    with path.open("w") as file:
        for number in range(answers):
            bad = chosen.random() < 0.08
            local = "bad" if chosen.random() < (0.6 if bad else 0.05) else "good"
            results = [verdict(local, "verdict", 1.0)]
            if chosen.random() < judged[local]:
                results.append(verdict("bad" if bad else "good", "trace", judged[local]))
            begun = int((MONDAY + 2 * WEEK * number / answers) * 1e9)
            turn = Turn(
                id=str(number), query=f"{number}?", response="Yes.", timing=Timing(started_at=begun, ended_at=begun)
            )
            file.write(Record(id=str(number), turn=turn, results=tuple(results)).model_dump_json() + "\n")
    return path


def share(*answers: tuple[str, bool | None, float], times: int = 1) -> CorrectedShare:
    sample = JudgedSample()
    for local, judged, probability in answers * times:
        sample.add(local, judged, judge=probability)
    found = sample.share(Resampling())
    assert found is not None
    return found


def test_the_judged_answers_of_each_verdict_stand_for_the_others() -> None:
    """Half of those that look bad are, and a tenth of those that look good: whatever their shares among the judged."""
    looks_bad = [("bad", True, 0.5), ("bad", False, 0.5), ("bad", None, 0.5), ("bad", None, 0.5)]
    looks_good = [("good", number == 0, 0.5) for number in range(10)] + [("good", None, 0.5)] * 10
    found = share(*looks_bad, *looks_good, times=30)

    assert found.share == pytest.approx((4 * 0.5 + 20 * 0.1) / 24)
    assert (found.answers, found.judged) == (720, 360)
    assert found.interval is not None
    assert found.interval.low < found.share < found.interval.high


def test_with_fewer_than_fifty_judged_answers_there_is_no_interval() -> None:
    found = share(("bad", True, 0.5), ("good", False, 0.5), ("good", None, 0.5), times=20)

    assert found.interval is None
    assert found.sentence() == (
        "About 33.3% of 60 answers were bad; 40 of them were judged, and below 50 there is no interval."
    )


def test_no_judged_answer_with_a_verdict_is_no_figure() -> None:
    """It is not known how many of those that look good are bad."""
    found = share(("bad", True, 0.5), ("good", None, 0.5), times=60)

    assert found.share is None
    assert "is not known: 60 of them were judged, but none with one of the local verdicts" in found.sentence()


def test_answers_that_decline_are_not_bad_and_those_that_nobody_evaluated_do_not_count() -> None:
    found = share(("bad", True, 0.9), ("declined", None, 0.9), ("not_evaluable", None, 0.9), ("", None, 0.9), times=60)

    assert (found.answers, found.judged) == (120, 60)
    assert found.share == pytest.approx(0.5)


def test_one_sentence_may_be_said_aloud(tmp_path: Path) -> None:
    """In the report's conclusion, with the local verdict of every answer as the only one in the tables."""
    path = write(tmp_path / "week.jsonl", 4000, judged={"bad": 0.5, "good": 0.1})
    report, _ = analyze(path)
    [file] = report.files
    [finding] = [found.text for found in conclude(report).quality if "were bad" in found.text]

    assert file.judged_share is not None
    assert file.judged_share.interval is not None
    assert file.judged_share.interval.low < 0.08 < file.judged_share.interval.high
    assert finding.startswith(file.judged_share.sentence())
    assert "of 4,000 answers were bad, between" in finding
    assert "without the local verdicts the same certainty would have taken" in finding
    bad = file.score("verdict.bad")
    assert bad is not None
    assert bad.count == 4000
    assert bad.spread is not None
    assert file.verdicts["bad"] == round(4000 * bad.spread.mean)
    assert not bad.sampled


def test_a_judge_that_saw_all_answers_is_no_sample(tmp_path: Path) -> None:
    """Its verdicts are the verdicts."""
    report, _ = analyze(write(tmp_path / "all.jsonl", 200, judged={"bad": 1.0, "good": 1.0}))
    bad = report.files[0].score("verdict.bad")

    assert report.files[0].judged_share is None
    assert bad is not None
    assert bad.makers == ()


def labelled(path: Path, label: str = "label", probability: float | str | None = None) -> Path:
    """Write 2,000 answers, 8% of them bad; people labelled 300, more often those that the local verdict calls bad."""
    chosen = random.Random(1)
    with path.open("w") as file:
        for number in range(2000):
            bad = chosen.random() < 0.08
            local = "bad" if chosen.random() < (0.6 if bad else 0.05) else "good"
            metadata: dict[str, object] = {}
            if chosen.random() < (0.5 if local == "bad" else 0.12):
                metadata[label] = {"ada": "down" if bad else "up", "bob": 0 if bad else 1}
                if probability is not None:
                    metadata[f"{label}.probability"] = str(probability if local == "bad" else 0.12)
            turn = Turn(id=str(number), query=f"{number}?", response="Yes.", metadata=metadata)
            results = (verdict(local, "verdict", 1.0),)
            file.write(Record(id=str(number), turn=turn, results=results).model_dump_json() + "\n")
    return path


@pytest.mark.parametrize("probability", [None, 0.5])
def test_people_may_be_the_sample(tmp_path: Path, probability: float | None) -> None:
    """Their labels stand for the other answers with the same verdict, as those of a judge do."""
    report, _ = analyze(labelled(tmp_path / "week.jsonl", probability=probability), people="label")
    found = report.files[0].judged_share

    assert found is not None
    assert found.interval is not None
    assert found.interval.low < 0.08 < found.interval.high
    assert "of them were labelled by people" in found.sentence()


def test_labels_of_people_are_named(tmp_path: Path) -> None:
    """Only then they count: who clicks a thumb is no sample. A name that nobody has is an error."""
    path = labelled(tmp_path / "week.jsonl", "correct")

    assert analyze(path)[0].files[0].judged_share is None
    with pytest.raises(ConfigurationError, match=r"no answer has a label of people in 'corect' \(--people\)"):
        analyze(path, people="corect")
    assert "were labelled by people" in invoke("report", path, people="correct").stdout
    with pytest.raises(ConfigurationError, match=r"correct.probability is '7.0', not a number above 0"):
        analyze(labelled(path, "correct", 7.0), people="correct")
    with pytest.raises(ConfigurationError, match=r"correct.probability is 'often', not a number above 0"):
        analyze(labelled(path, "correct", "often"), people="correct")


def test_each_week_has_its_own_share(tmp_path: Path) -> None:
    """Nothing is compared: the weeks have questions of their own."""
    path = write(tmp_path / "weeks.jsonl", 4000, judged={"bad": 0.5, "good": 0.1})
    report, _ = analyze(path, group_by="week")

    assert [file.name for file in report.files] == ["2025-W48", "2025-W49"]
    assert [file.records for file in report.files] == [2000, 2000]
    assert all(file.judged_share and file.judged_share.interval for file in report.files)
    assert report.comparisons == ()
