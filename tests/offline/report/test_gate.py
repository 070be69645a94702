"""Checks for continuous integration: failed questions, bounds, regressions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rageval_hooks import ConfigurationError, Score
from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.report import ReportGate, Resampling, build_report, check_gate, conclude
from rageval_hooks.offline.running import MaxErrors
from rageval_hooks.score import Failed, Skipped
from tests.offline.scored import record, write


def answers(path: Path, failed: int, total: int = 54) -> Path:
    """Write a file of which some questions failed; all others were answered."""
    records = [
        record(f"q{k}", error="TimeoutError", response="", passages=())
        if k < failed
        else record(f"q{k}", scores={"no_answer": 1.0, "groundedness": 0.9})
        for k in range(total)
    ]
    return write(path, records)


class TestFailedQuestions:
    def test_a_failed_question_is_unanswered(self, tmp_path: Path) -> None:
        """19 of 54 failed, so 35 of 54 are answered, and not 35 of 35."""
        report = build_report([answers(tmp_path / "a.jsonl", 19)])
        row = report.files[0].score("answered")

        assert row is not None
        assert row.spread is not None
        assert (row.spread.mean, row.spread.count) == (pytest.approx(35 / 54), 54)
        assert (
            len(check_gate(report, ReportGate(bounds={"answered": 0.6}, max_errors=MaxErrors.parse("19"))).failures)
            == 0
        )
        assert (
            len(check_gate(report, ReportGate(bounds={"answered": 0.9}, max_errors=MaxErrors.parse("19"))).failures)
            == 1
        )

    def test_any_failed_question_fails_the_gate(self, tmp_path: Path) -> None:
        """Whatever else is checked; the line says how many failed, and why."""
        report = build_report([answers(tmp_path / "a.jsonl", 1)])
        result = check_gate(report, ReportGate(bounds={"groundedness": 0.5}))

        assert result.status == 1
        assert result.failures == ["a: 1 of 54 questions failed (1 TimeoutError); allowed: --max-errors 0"]

    @pytest.mark.parametrize(("limit", "status"), [("1", 1), ("2", 0), ("3%", 1), ("4%", 0), ("100%", 0), ("0", 1)])
    def test_some_may_be_allowed(self, tmp_path: Path, limit: str, status: int) -> None:
        """As a number or as a share of the questions."""
        report = build_report([answers(tmp_path / "a.jsonl", 2)])
        assert check_gate(report, ReportGate(bounds={}, max_errors=MaxErrors.parse(limit))).status == status

    @pytest.mark.parametrize("limit", ["-1", "some", "101%", "1.5", "%"])
    def test_a_limit_that_is_neither_is_an_error(self, limit: str) -> None:
        """The message says what is valid."""
        with pytest.raises(ConfigurationError, match="a whole number such as 3, or a percentage"):
            MaxErrors.parse(limit)

    def test_a_baseline_does_not_hide_failures(self, tmp_path: Path) -> None:
        """Values that failures took are neither compared nor excused."""
        paths = [answers(tmp_path / "before.jsonl", 0), answers(tmp_path / "after.jsonl", 19)]
        report = build_report(paths)
        result = check_gate(report, ReportGate(bounds={}, has_baseline=True))

        assert any("19 of 54 questions failed" in line for line in result.failures)
        assert any("answered is worse" in line for line in result.failures)
        assert any("groundedness has no value in after for 19" in line for line in result.undecided)


class TestRanks:
    def test_a_rank_is_computed_from_the_passages(self, tmp_path: Path) -> None:
        """A file without a column for it: the target is the second passage."""
        path = write(tmp_path / "a.jsonl", [record("q1", passages=("a", "b", "c"), target="p1")])
        report = build_report([path])
        ranks = report.files[0].ranks

        assert ranks is not None
        assert (ranks.counts, ranks.missed, ranks.mrr) == ({2: 1}, 0, 0.5)

    def test_without_passages_the_rank_is_unknown(self, tmp_path: Path) -> None:
        """It is not a miss."""
        path = write(tmp_path / "a.jsonl", [record("q1", passages=(), target="p1", scores={"cost": 1})])
        report = build_report([path])
        assert (report.files[0].ranks, report.files[0].unranked) == (None, 1)

    def test_passages_without_ids_do_not_show_a_miss(self, tmp_path: Path) -> None:
        """Their rank is unknown."""
        found = record("q1", target="doc-7", scores={"cost": 1})
        passages = tuple(passage.model_copy(update={"id": None}) for passage in found.turn.passages)
        found = found.model_copy(update={"turn": found.turn.model_copy(update={"passages": passages})})
        assert build_report([write(tmp_path / "a.jsonl", [found])]).files[0].ranks is None

    def test_a_target_that_is_not_among_the_passages_is_missed(self, tmp_path: Path) -> None:
        """MRR 0, no rank."""
        found, missed = record("q1", passages=("a",), target="p0"), record("q2", passages=("a",), target="p7")
        report = build_report([write(tmp_path / "a.jsonl", [found, missed])])
        ranks = report.files[0].ranks

        assert ranks is not None
        assert (ranks.counts, ranks.missed, ranks.mrr) == ({1: 1}, 1, 0.5)

    def test_ids_of_another_store_do_not_show_misses(self, tmp_path: Path) -> None:
        """No target of the file is found by its id: the ranks are unknown."""
        path = write(tmp_path / "a.jsonl", [record(f"q{k}", target="doc-7", scores={"cost": 1}) for k in range(9)])
        assert build_report([path]).files[0].ranks is None

    def test_ranks_are_scores_like_others(self, tmp_path: Path) -> None:
        """They have intervals, can be bounded, and are compared."""
        before = write(tmp_path / "before.jsonl", [record(f"q{k}", target="t", rank=1) for k in range(12)])
        after = write(tmp_path / "after.jsonl", [record(f"q{k}", target="t", rank=4) for k in range(12)])
        report = build_report([before, after])
        gate = ReportGate(bounds={"hit@3": 0.5, "mrr": 0.2, "rank": 5}, has_baseline=True, named=["rank"])
        result = check_gate(report, gate)

        assert "after: hit@3 is 0.000, 0.500 below the bound (at least 0.5; 12 values)" in result.failures
        assert any("mrr is worse than in before: 1.000 → 0.250" in line for line in result.failures)
        assert any("rank is worse than in before: 1.000 → 4" in line for line in result.failures)

    def test_a_file_without_targets_is_one_cause(self, tmp_path: Path) -> None:
        """The five scores that follow from the rank of the target share a line of the gate, and say why."""
        before = write(
            tmp_path / "before.jsonl", [record(f"q{k}", target="t", rank=1, scores={"cost": 1}) for k in range(12)]
        )
        after = write(tmp_path / "after.jsonl", [record(f"q{k}", scores={"cost": 1}) for k in range(12)])
        result = check_gate(build_report([before, after]), ReportGate(bounds={}, has_baseline=True))

        [line] = result.undecided
        assert line.startswith("after: a regression cannot be excluded: mrr, hit@1, hit@3, hit@5, hit@10 have no")
        assert line.endswith("value in after (not computed: its records have no target passages)")

    def test_unanswerable_questions_do_not_explain_a_loss(self, tmp_path: Path) -> None:
        """They have no value in either file."""
        quality = "quality"
        no_answer = [record(f"u{k}", 1, Skipped(name=quality, metric=quality, reason=UNANSWERABLE)) for k in range(9)]
        lost = [record(f"q{k}", 1, Skipped(name=quality, metric=quality, reason="the judge was off")) for k in range(4)]
        had = [record(f"q{k}", scores={quality: 0.9}) for k in range(4)]
        paths = [
            write(tmp_path / f"{name}.jsonl", [*rows, *no_answer]) for name, rows in (("before", had), ("after", lost))
        ]
        [line] = check_gate(build_report(paths), ReportGate(has_baseline=True)).undecided

        assert "the judge was off" in line


def test_an_unchanged_application_passes(tmp_path: Path) -> None:
    """100 pairs of runs over 71 questions: at most 5 regress in any of six scores of quality, and none in latency."""
    random = np.random.default_rng(0)
    levels = random.beta(6, 2, 71)

    def run_of(name: str) -> Path:
        records = []
        for k, level in enumerate(levels):
            noisy = np.clip(level + random.normal(0, 0.1, 3), 0, 1)
            scores = {f"quality{n}": float(value) for n, value in enumerate(noisy)}
            scores |= {f"share{n}": float(random.random() < level) for n in range(2)}
            # A burst of other work makes some runs slower.
            scores |= {
                "unsupported_facts": float(random.poisson(0.3)),
                "latency": random.gamma(9) * (1 + len(name) / 9),
            }
            records.append(record(f"q{k}", scores=scores, response="", passages=()))
        return write(tmp_path / f"{name}.jsonl", records)

    failed = []
    for base in range(5):
        paths = [run_of("b" * (base + 1)), *(run_of(f"run-{base}-{number}") for number in range(20))]
        report = build_report(paths, worst=0, resampling=Resampling(resamples=100))
        for other in report.files[1:]:
            pair = report.model_copy(
                update={
                    "files": (report.files[0], other),
                    "comparisons": tuple(c for c in report.comparisons if c.after == other.name),
                }
            )
            failed += check_gate(pair, ReportGate(has_baseline=True)).failures
    assert len(failed) <= 5
    assert not any("latency" in line for line in failed)


class TestVerdict:
    def test_the_worst_change_comes_first(self, tmp_path: Path) -> None:
        """Quality before latency, the larger effect first; beyond eight the others are named; nothing is "good"."""
        scores = {f"quality{n}": 0.9 - n / 50 for n in range(9)} | {"latency": 1.0}
        worse = {name: value * 0.5 for name, value in scores.items()} | {"latency": 9.0}
        passed = Score(name="groundedness", value=0.95, label="pass")
        refusal, answer = "I do not know that.", "It is on the pier, next to the harbour office."
        paths = []
        for name, found, response in (("old", scores, refusal), ("new", worse, answer)):
            answered = [record(f"q{k}", 1, passed, scores=found) for k in range(30)]
            hidden = [record(f"u{k}", 1, response=response) for k in range(8)]
            hidden = [one.model_copy(update={"answerable": False}) for one in hidden]
            paths.append(write(tmp_path / f"{name}.jsonl", [*answered, *hidden]))
        verdict = conclude(build_report(paths))
        lines = [finding.text for finding in verdict.changes]

        assert lines[0].startswith("old → new: declined 100.0% → 0.0% (-100.0 points, 8 questions changed")
        assert lines[1].startswith("old → new: quality0 ")
        assert lines[8] == "old → new: 3 more scores worse: quality7, quality8, latency."
        assert [finding.text for finding in verdict.quality if finding.kind == "good"] == [
            "old: groundedness is 0.950 [0.950 … 0.950]; 100.0% of 30 answers pass."
        ]

    def test_milliseconds_are_no_problem(self, tmp_path: Path) -> None:
        """However certain they are; twice the time is one."""
        old, little, much = (
            write(
                tmp_path / f"{name}.jsonl",
                [record(f"q{k}", scores={"latency": seconds + k / 1000, "mrr": 1}) for k in range(30)],
            )
            for name, seconds in (("old", 1.0), ("little", 1.02), ("much", 2.0))
        )
        little_verdict, much_verdict = (conclude(build_report([old, other])) for other in (little, much))
        told = [finding for finding in little_verdict.changes if "latency" in finding.text]

        assert ([finding.kind for finding in told], little_verdict.state) == (["note"], "ok")
        assert [finding.kind for finding in much_verdict.changes] == ["bad"]

    def test_answers_without_the_reference_and_missed_targets(self, tmp_path: Path) -> None:
        """Although every score passes: 18 of 63 answers lack the reference, and most targets were not retrieved."""
        passed = Score(name="groundedness", value=0.95, label="pass")
        records = [
            record(
                f"q{k}",
                1,
                passed,
                response="It was opened in 2019." if k >= 18 else "Many visitors like the harbour.",
                reference="The pier was opened in 2019.",
                target="t",
                rank=1 if k % 9 < 4 else None,
                missed=k % 9 >= 4,
            )
            for k in range(63)
        ]
        verdict = conclude(build_report([write(tmp_path / "a.jsonl", records)]))
        bad = [finding.text for finding in verdict.quality if finding.kind == "bad"]

        assert verdict.state == "warn"
        assert bad == [
            "18 of 63 answers lack the reference answer: less than half of its words.",
            "the target passage was missed in 35 of 63 answers (56%).",
        ]

    def test_failures_come_first(self, tmp_path: Path) -> None:
        """In words, with their share."""
        report = build_report([answers(tmp_path / "a.jsonl", 19)])
        verdict = conclude(report)

        assert (verdict.state, verdict.quality[0].kind) == ("warn", "bad")
        assert verdict.quality[0].text == "19 of 54 questions failed (35.2%): 19 TimeoutError."

    def test_checks_that_fail_are_in_it(self, tmp_path: Path) -> None:
        """With the bound that is missed, once."""
        report = build_report([answers(tmp_path / "a.jsonl", 0)])
        gate = ReportGate(bounds={"groundedness": 0.95})
        verdict = conclude(report, gate.bounds, check_gate(report, gate))

        assert (verdict.state, verdict.headline) == ("fail", "The checks fail: 1 problem.")
        [told] = [finding.text for finding in verdict.quality if "groundedness" in finding.text]
        assert "at least 0.95" in told

    def test_what_changed_is_in_it(self, tmp_path: Path) -> None:
        """Better and worse, or that nothing did."""
        paths = [
            write(tmp_path / f"{name}.jsonl", [record(f"q{k}", scores={"groundedness": value}) for k in range(20)])
            for name, value in (("one", 0.5), ("two", 0.8))
        ]
        better = conclude(build_report(paths)).changes
        same = conclude(build_report([paths[0], paths[0]])).changes

        assert [finding.kind for finding in better] == ["good"]
        assert "groundedness 0.500 → 0.800" in better[0].text
        assert "no score changed significantly" in same[0].text

    def test_how_sure_it_is_depends_on_the_answers_to_a_question(self, tmp_path: Path) -> None:
        """Said of each file: one may have repeats, and the other not."""
        failed = Failed(name="umbrela", error_type="JudgeUnavailableError")
        scored: dict[str, Any] = {"scores": {"groundedness": 0.5}}
        one = [record(f"q{k}", **scored) for k in range(40)]
        three = [record(f"q{k}", run=run, **scored) for k in range(40) for run in (1, 2, 3)]
        files = {
            "one": one,
            "three": three,
            "single": one[:1],
            "failed": [record("q1", 1, failed, response=""), record("q2", 1, failed, response="")],
        }
        paths = {name: write(tmp_path / f"{name}.jsonl", records) for name, records in files.items()}

        intervals = "Square brackets are 95% intervals over questions."
        assert conclude(build_report([paths["one"], paths["three"]])).certainty == (
            f"one: 40 questions. {intervals}",
            f"three: 40 questions, 120 answers, up to 3 to a question. {intervals}",
        )
        assert conclude(build_report([paths["one"]])).certainty == (
            "40 questions. Square brackets are 95% intervals over questions.",
        )
        assert conclude(build_report([paths["single"]])).certainty[0] == "1 question: too few for intervals."
        assert conclude(build_report([paths["failed"]])).certainty[0] == "2 questions."
