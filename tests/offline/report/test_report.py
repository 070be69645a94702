"""Reports on files of scored records."""

from __future__ import annotations

import json
from pathlib import Path

import ir_measures
import pytest

from rageval_hooks import ConfigurationError, Failed, Score, Skipped, UnknownNameError
from rageval_hooks.offline.answerability import UNANSWERABLE
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.report import Report, ReportGate, analyze, build_report, check_gate, conclude
from rageval_hooks.offline.report.gate import gate_of
from rageval_hooks.offline.report.tables import to_markdown, to_plain_text, to_tables
from tests.offline.scored import judged, record, write


def report_of(path: Path, *records, **options) -> Report:  # type: ignore[no-untyped-def]
    return build_report([write(path / "scores.jsonl", records)], **options)


class TestScores:
    def test_what_is_no_number_is_in_no_mean(self, tmp_path: Path) -> None:
        """It is counted, with its reason."""
        [file] = report_of(
            tmp_path,
            record("q1", scores={"groundedness": 0.8}),
            record("q2", scores={"groundedness": 0.6}),
            record("q3", 1, Skipped(name="groundedness", reason="no passages", metric="groundedness")),
            record("q4", 1, Failed(name="groundedness", error_type="ValueError", message="odd", metric="groundedness")),
        ).files
        row = file.score("groundedness")

        assert row is not None
        assert row.spread is not None
        assert (row.spread.mean, row.spread.count) == (pytest.approx(0.7), 2)
        assert (row.skipped.count, row.skipped.reasons) == (1, {"no passages": 1})
        assert (row.failed.count, row.failed.reasons) == (1, {"ValueError: odd": 1})

    def test_a_metric_that_failed_counts_for_each_of_its_scores(self, tmp_path: Path) -> None:
        """If the judge was unavailable, both adherence and completeness are missing."""
        [file] = report_of(
            tmp_path,
            record("q1", scores={"trace.adherence": 1.0, "trace.completeness": 0.5}),
            record("q2", 1, Failed(name="trace", error_type="unavailable", metric="trace")),
        ).files

        assert [(row.name, row.failed.count) for row in file.scores] == [
            ("trace.adherence", 1),
            ("trace.completeness", 1),
            ("answered", 0),
        ]

    def test_a_file_that_does_not_name_the_metrics(self, tmp_path: Path) -> None:
        """A CSV file does not name them; the built-in metrics are known by their scores."""
        [file] = report_of(
            tmp_path,
            record("q1", 1, Score(name="trace.adherence", value=1.0)),
            record("q2", 1, Failed(name="trace", error_type="unavailable")),
        ).files
        assert [(row.name, row.failed.count) for row in file.scores] == [("trace.adherence", 1), ("answered", 0)]

    def test_a_score_that_was_never_made_is_shown_without_numbers(self, tmp_path: Path) -> None:
        """The row shows the reason instead."""
        report = report_of(tmp_path, record("q1", 1, Skipped(name="latency", reason="not timed", metric="latency")))
        row = report.files[0].score("latency")

        assert row is not None
        assert (row.spread, row.skipped.count) == (None, 1)
        assert "latency, 1 skipped: not timed" in to_markdown(report)

    def test_sampled_scores_are_weighted(self, tmp_path: Path) -> None:
        """A turn that was selected with 1 in 4 stands for four."""
        [file] = report_of(
            tmp_path,
            record("q1", 1, Score(name="trace.adherence", value=1.0, probability=0.25)),
            record("q2", 1, Score(name="trace.adherence", value=0.0)),
        ).files
        row = file.score("trace.adherence")

        assert row is not None
        assert row.sampled
        assert row.spread is not None
        assert row.spread.mean == pytest.approx(0.8)

    def test_scores_of_passages_are_not_those_of_turns(self, tmp_path: Path) -> None:
        """Only scores of the whole turn count."""
        passage = Score.model_validate(
            {"name": "context_relevance", "value": 0.1, "target": {"kind": "passage", "index": 0}}
        )
        [file] = report_of(tmp_path, record("q1", 1, passage, scores={"context_relevance": 0.9})).files
        assert file.scores[0].spread is not None
        assert file.scores[0].spread.mean == 0.9

    def test_scores_that_need_an_answer_skip_unanswerable_questions(self, tmp_path: Path) -> None:
        """Although the file was scored without the mark. Other scores count."""
        scores = {"context_relevance": 0.1, "cost": 3.0}
        hidden = record("q1", scores=scores).model_copy(update={"answerable": False})
        [file] = report_of(tmp_path, record("q2", scores={"context_relevance": 0.9, "cost": 1.0}), hidden).files
        relevance, cost = file.score("context_relevance"), file.score("cost")

        assert relevance is not None
        assert relevance.spread is not None
        assert (relevance.spread.mean, relevance.skipped.reasons) == (0.9, {UNANSWERABLE: 1})
        assert cost is not None
        assert cost.count == 2

    def test_the_share_that_passes(self, tmp_path: Path) -> None:
        """Of those with a label, each with the weight of its turn; scores without labels have none."""
        labels = [("pass", 0.25), ("fail", 1.0), ("answered", 1.0), (None, 1.0)]
        file = write(
            tmp_path / "a.jsonl",
            [
                record(f"q{n}", 1, Score(name="groundedness", value=0.5, label=label, probability=probability))
                for n, (label, probability) in enumerate(labels)
            ]
            + [record("q9", scores={"answer_relevance": 0.5})],
        )
        report = build_report([file])
        grounded, relevance, _ = report.files[0].scores

        assert (grounded.labelled, grounded.passed) == (2, 0.8)
        assert (relevance.labelled, relevance.passed) == (0, None)
        [table, *_] = to_tables(report)
        shown = {row[0]: dict(zip(table.header, row, strict=True)) for row in table.rows}
        assert shown["groundedness"]["passed"] == "80.0%"

    def test_without_labels_there_is_no_such_column(self, tmp_path: Path) -> None:
        """It would be empty."""
        file = write(tmp_path / "a.jsonl", [record("q1", scores={"groundedness": 0.5})])

        assert "passed" not in to_markdown(build_report([file]))

    def test_the_share_of_questions_answered(self, tmp_path: Path) -> None:
        """From the score no_answer: 1 attempts an answer."""
        records = [record(f"q{k}", scores={"no_answer": float(k != 0)}) for k in range(4)]
        report = report_of(tmp_path, *records)

        row = report.files[0].score("answered")
        assert row is not None
        assert row.spread is not None
        assert row.spread.mean == 0.75
        assert "| answered | 75.0% |" in to_markdown(report)

    def test_which_questions_were_answered_without_a_judge(self, tmp_path: Path) -> None:
        """Rules tell a refusal from an answer, in any language; a failed question is unanswered."""
        polish = "Molo zostało otwarte w 1978 roku przez królową Szwecji."
        responses = ["The pier was opened in 1978.", "I don't know.", "", "18 minutes", polish]
        records = [record(f"q{k}", response=text, scores={"cost": 1}) for k, text in enumerate(responses)]
        failed = record("q9", response="", error="TimeoutError")
        report = report_of(tmp_path, *records, failed)

        row = report.files[0].score("answered")
        assert row is not None
        assert row.spread is not None
        assert (row.spread.mean, row.spread.count) == (0.5, 6)
        worst = report.files[0].worst
        # It sums a turn up better than its cost.
        assert report.files[0].worst_by == "answered"
        assert "answered" in {score.name for score in worst[0].scores}

    @pytest.mark.parametrize(
        "records",
        [
            # A file of retrieval; one of them failed.
            [record("q1", response="", scores={"cost": 1}), record("q2", response="", error="TimeoutError")],
            # Hidden.
            [record("q1", response="__REDACTED__", scores={"cost": 1})],
            # The judge was asked, and did not say.
            [record("q1", 1, Failed(name="no_answer", error_type="unavailable"), scores={"cost": 1})],
        ],
    )
    def test_it_is_not_known_which_questions_were_answered(self, tmp_path: Path, records: list[Record]) -> None:
        """Then there is no number; failures alone would say 0%."""
        row = report_of(tmp_path, *records).files[0].score("answered")
        assert row is None or row.spread is None

    def test_rules_do_not_fill_the_gaps_of_a_judge(self, tmp_path: Path) -> None:
        """Of a sampled file the judge is asked about some turns only."""
        judged = Score(name="no_answer", value=0.0, probability=0.25)
        report = report_of(tmp_path, record("q0", scores={"cost": 1}), record("q1", 1, judged, scores={"cost": 1}))

        row = report.files[0].score("answered")
        assert row is not None
        assert row.spread is not None
        assert (row.spread.mean, row.spread.count) == (0.0, 1)

    def test_answers_told_by_rules_and_by_a_judge_are_not_compared(self, tmp_path: Path) -> None:
        """They are different measurements."""
        judged = Score(name="no_answer", value=1.0, model="judge-model", version="1")
        before = write(tmp_path / "a.jsonl", [record(f"q{k}", 1, judged, scores={"cost": 1}) for k in range(9)])
        after = write(tmp_path / "b.jsonl", [record(f"q{k}", scores={"cost": 1}) for k in range(9)])
        [comparison] = build_report([before, after]).comparisons

        assert [row.name for row in comparison.scores if row.makers is not None] == ["answered"]

    @pytest.mark.parametrize(
        ("name", "direction"),
        [
            ("groundedness", "higher"),
            ("hallucination", "lower"),
            ("unsupported_facts", "lower"),
            ("latency.generation", "lower"),
            ("cost", "lower"),
            ("trace.rmse", "lower"),
            ("precision@3", "higher"),
            ("my_latency_ms", "lower"),
            ("my_score", "higher"),
            ("my_count", "lower"),
        ],
    )
    def test_which_way_is_better(self, tmp_path: Path, name: str, direction: str) -> None:
        """By the metric's definition, by the name, or as the user says."""
        report = report_of(tmp_path, record(scores={name: 1.0}), lower=["my_count"])
        assert report.files[0].scores[0].direction == direction
        arrow = " ↓" if direction == "lower" else ""
        assert f"\n{name}{arrow}  " in to_plain_text(report)

    def test_errors_of_the_system_are_counted(self, tmp_path: Path) -> None:
        """By type."""
        report = report_of(tmp_path, record("q1", scores={"cost": 1}), record("q2", error="TimeoutError", response=""))
        assert report.files[0].errors == {"TimeoutError": 1}
        assert "Answers that failed: 1 TimeoutError." in to_markdown(report)

    def test_a_bad_row_is_named_and_the_rest_goes_on(self, tmp_path: Path) -> None:
        """With its line."""
        path = write(tmp_path / "scores.jsonl", [record("q1", scores={"cost": 1})])
        path.write_text(path.read_text() + "{broken\n" + record("q2", scores={"cost": 3}).model_dump_json() + "\n")
        lines: list[str] = []
        [file] = build_report([path], on_problem=lines.append).files

        assert (file.records, file.bad) == (2, 1)
        assert f"{path}, line 2: " in lines[0]


class TestVerdict:
    def test_answers_are_counted_by_verdict(self, tmp_path: Path) -> None:
        """In the first line of every form of the report; a record without a verdict is counted, too."""
        verdicts = [*["good"] * 5, "doubtful", "doubtful", "bad", "declined", "not_evaluable"]
        records = [judged(f"q{k}", verdict) for k, verdict in enumerate(verdicts)]
        report = report_of(tmp_path, *records, record("q99", scores={"groundedness": 0.1}))
        first = (
            "11 answers: 5 good, 2 doubtful, 1 bad, 1 declined, 1 not evaluable, 1 without a verdict. 1 problem found."
        )

        report = report.model_copy(update={"conclusion": conclude(report)})
        assert to_plain_text(report).splitlines()[0] == first
        assert to_markdown(report).splitlines()[2] == f"**{first}**"
        assert report.files[0].verdicts == {"good": 5, "doubtful": 2, "bad": 1, "declined": 1, "not_evaluable": 1}

    def test_causes_are_counted_with_an_example_of_each(self, tmp_path: Path) -> None:
        """In a table, in the sentence about bad answers, and where a gate fails; a file of scores keeps them."""
        causes = ["unsupported", "not_retrieved", "unsupported"]
        records = [judged(f"q{k}", "bad", cause=cause) for k, cause in enumerate(causes)]
        report = report_of(tmp_path, *records, judged("q9", "good"))
        file = report.files[0]

        assert [(found.cause, found.answers, found.bad, found.example.id) for found in file.causes] == [
            ("unsupported", 2, 2, "q0"),
            ("not_retrieved", 1, 1, "q1"),
        ]
        assert "By cause: 2 unsupported, 1 not_retrieved." in " ".join(line.text for line in conclude(report).quality)
        [failure] = check_gate(report, ReportGate(bounds={"verdict.bad": 0.1})).failures
        assert "2 unsupported, 1 not_retrieved" in failure
        assert "no retrieved passage is about the question" in to_markdown(report)

    def test_the_share_of_bad_answers_is_a_score(self, tmp_path: Path) -> None:
        """A declined answer is not bad; of what is not evaluable, nothing is known. It is the first score."""
        verdicts = ["good", "bad", "declined", "not_evaluable", "doubtful"]
        records = [judged(f"q{k}", verdict, scores={"cost": 1}) for k, verdict in enumerate(verdicts)]
        report = report_of(tmp_path, *records)
        row = report.files[0].scores[0]

        assert (row.name, row.direction, row.binary) == ("verdict.bad", "lower", True)
        assert row.spread is not None
        assert (row.spread.mean, row.spread.count) == (0.25, 4)
        assert conclude(report).quality[0].kind == "bad"
        told = conclude(report).quality[0].text
        assert told.startswith("1 of 4 answers is bad: 25.0% [")
        assert told.endswith("]. For example q1: “It is q1.” has no support in passage 1")

    @pytest.mark.parametrize(("bad", "kind"), [(0, "good"), (1, "note"), (4, "bad")])
    def test_a_tenth_of_bad_answers_is_bad_news(self, tmp_path: Path, bad: int, kind: str) -> None:
        """As many supported answers may be called bad by mistake."""
        records = [judged(f"q{k}", "bad" if k < bad else "good") for k in range(40)]
        assert conclude(report_of(tmp_path, *records)).quality[0].kind == kind

    @pytest.mark.parametrize(("questions", "lines"), [(29, 2), (30, 1)])
    def test_few_questions_tell_little(self, tmp_path: Path, questions: int, lines: int) -> None:
        """The conclusion says so."""
        report = report_of(tmp_path, *(judged(f"q{k}", "good") for k in range(questions)))
        said = conclude(report).certainty
        few = "Fewer than 30 questions: only large differences can be told from chance."
        assert (len(said), few in said) == (lines, lines == 2)

    def test_the_bad_turns_come_first_with_the_reason(self, tmp_path: Path) -> None:
        """Whatever the other scores say."""
        verdicts = ["good", "doubtful", "bad", "declined", "bad"]
        records = [judged(f"q{k}", verdict, scores={"groundedness": k / 9}) for k, verdict in enumerate(verdicts)]
        report = report_of(tmp_path, *records)
        [table] = [table for table in to_tables(report) if "worst turns" in table.title]

        assert report.files[0].worst_by == "verdict"
        assert [row[:2] for row in table.rows] == [("q2", "bad"), ("q4", "bad"), ("q1", "doubtful"), ("q0", "good")]
        assert table.rows[0][2] == "“It is q2.” has no support in passage 1"

    def test_the_change_of_bad_answers_comes_first(self, tmp_path: Path) -> None:
        """Even if another score changed more, and if it may be chance; equal shares are not mentioned."""
        paths = {}
        for name, bad, cost in (("old", 0, 1.0), ("new", 12, 9.0), ("few", 1, 9.0)):
            records = [
                judged(f"q{k}", "bad" if k < bad else "good", scores={"my_score": cost / 9, "cost": cost})
                for k in range(40)
            ]
            paths[name] = write(tmp_path / f"{name}.jsonl", records)
        worse, chance, same = (
            conclude(build_report([paths["old"], paths[name]])).changes for name in ("new", "few", "old")
        )

        assert worse[0].kind == "bad"
        assert worse[0].text == ("old → new: bad answers 0.0% → 30.0% (+30.0 points, 12 questions changed): worse.")
        assert (chance[0].kind, "bad answers 0.0% → 2.5%" in chance[0].text) == ("note", True)
        assert "may be chance" in chance[0].text
        assert not any("bad answers" in finding.text for finding in same)

    def test_the_gate_names_bad_answers(self, tmp_path: Path) -> None:
        """As a bound on their share, and as a regression."""
        old, new = (
            write(tmp_path / f"{name}.jsonl", [judged(f"q{k}", "bad" if k < bad else "good") for k in range(40)])
            for name, bad in (("old", 0), ("new", 12))
        )
        bounded = check_gate(build_report([new]), ReportGate(bounds={"verdict.bad": 0.1}))
        compared = check_gate(build_report([old, new]), ReportGate(has_baseline=True))

        assert bounded.failures == ["new: verdict.bad is 0.300, 0.200 above the bound (at most 0.1; 40 values)"]
        assert any("new: verdict.bad is worse than in old: 0.000 → 0.300" in line for line in compared.failures)

    def test_the_gate_names_a_cause(self, tmp_path: Path) -> None:
        """Bad answers with that cause alone count."""
        causes = ["unsupported", "not_retrieved", "not_retrieved"]
        records = [judged(f"q{k}", "bad", cause=cause) for k, cause in enumerate(causes)]
        report = report_of(tmp_path, *records, judged("q9", "good"))

        for cause, failures in {
            "unsupported": [],
            "off_topic": [],
            "not_retrieved": ["scores: 2 of 4 answers are bad with the cause not_retrieved (0.500; at most 0.3)"],
        }.items():
            gate = gate_of([f"verdict.bad.{cause}=0.3"], False, None, 0.05, None, ())
            assert gate is not None
            assert check_gate(report, gate).failures == failures
        with pytest.raises(UnknownNameError, match=r"verdict\.bad\.unsuported"):
            check_gate(report, ReportGate(bounds={"verdict.bad.unsuported": 0.1}))

    def test_the_judge_has_the_last_word(self, tmp_path: Path) -> None:
        """Its verdict comes after that of the local scores, and counts alone."""
        judge = Score(name="verdict", value=1.0, label="good", annotator="LLM", model="m", metric="trace")
        local = judged("q1", "bad")
        both = local.model_copy(update={"results": (*local.results, judge)})
        [file] = report_of(tmp_path, both).files

        assert file.verdicts["good"] == 1
        assert [file.score(name).count for name in ("verdict", "verdict.bad")] == [1, 1]  # type: ignore[union-attr]
        assert file.worst[0].verdict == "good"


class TestRanks:
    RANKS = (1, 1, 2, None, 4, 1, None, 3)

    def test_the_rank_table(self, tmp_path: Path) -> None:
        """Value counts, shares, and the measures that ir_measures gives for the same ranks."""
        [file] = report_of(
            tmp_path,
            *(record(f"q{k}", target="t", rank=rank, missed=rank is None) for k, rank in enumerate(self.RANKS)),
        ).files
        qrels = [ir_measures.Qrel(f"q{k}", "t", 1) for k in range(len(self.RANKS))]
        run = [
            ir_measures.ScoredDoc(f"q{k}", "t" if place == rank else f"d{place}", 10 - place)
            for k, rank in enumerate(self.RANKS)
            for place in range(1, 5)
        ]
        truth = ir_measures.calc_aggregate(
            [ir_measures.parse_measure(m) for m in ("RR", "Success@1", "Success@3")], qrels, run
        )
        values = {str(measure): value for measure, value in truth.items()}

        assert file.ranks is not None
        assert (file.ranks.counts, file.ranks.missed) == ({1: 3, 2: 1, 3: 1, 4: 1}, 2)
        assert (file.ranks.match, file.ranks.misses) == (0.75, 0.25)
        assert file.ranks.mrr == pytest.approx(values["RR"])
        assert file.ranks.hits[1] == pytest.approx(values["Success@1"])
        assert file.ranks.hits[3] == pytest.approx(values["Success@3"])
        assert file.ranks.hits[10] == 0.75

    def test_a_turn_that_failed_before_retrieval_is_no_miss(self, tmp_path: Path) -> None:
        """Its rank is unknown; it is counted separately."""
        [file] = report_of(
            tmp_path,
            record("q1", target="t", rank=2),
            record("q2", target="t", error="TimeoutError", passages=(), response=""),
        ).files
        assert file.ranks is not None
        assert (file.ranks.count, file.ranks.missed, file.ranks.unknown, file.ranks.mrr) == (1, 0, 1, 0.5)

    def test_without_targets_there_is_no_table(self, tmp_path: Path) -> None:
        """Not one of misses only."""
        assert report_of(tmp_path, record(scores={"cost": 1})).files[0].ranks is None


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    """By as much of their paths as it takes; a file that is given twice keeps its whole path."""
    paths = []
    for folder in ("monday", "tuesday"):
        (tmp_path / folder).mkdir()
        paths.append(write(tmp_path / folder / "scores.jsonl", [record(scores={"cost": 1})]))

    assert [file.name for file in build_report(paths).files] == ["monday/scores", "tuesday/scores"]
    assert [file.name for file in build_report([paths[0], paths[0]]).files] == [str(paths[0])] * 2


def test_late_ranks_share_a_row(tmp_path: Path) -> None:
    """A retriever may return hundreds of passages; a miss has a row of its own."""
    ranks = [*range(1, 13), 250]
    records = [record(f"q{rank}", target="t", rank=rank) for rank in ranks] + [record("q", target="t", missed=True)]
    text = to_markdown(report_of(tmp_path, *records))

    assert "| 10 | 1 | 7.1% |" in text
    assert "| beyond 10 | 3 | 21.4% |" in text
    assert "| missed | 1 | 7.1% |" in text


def test_ranks_that_are_not_known_are_counted(tmp_path: Path) -> None:
    """They are in no share."""
    text = to_markdown(report_of(tmp_path, record("q1", target="t", rank=1), record("q2", target="t")))

    assert "| 1 | 1 | 100.0% |" in text
    assert "The rank of 1 turn is unknown: they failed, or have no passages with ids." in text


def test_each_document_has_its_means(tmp_path: Path) -> None:
    """The worst first, in the table. A score without a value has no column."""
    report = report_of(
        tmp_path,
        record("q1", 1, Skipped(name="hhem", reason="none"), document="good.md", scores={"groundedness": 0.9}),
        record("q2", document="bad.md", scores={"groundedness": 0.2}),
        record("q3", document="bad.md", scores={"groundedness": 0.4}),
        record("q4", scores={"groundedness": 0.0}),
    )
    means = {row.document: (row.records, row.means["groundedness"]) for row in report.files[0].documents}
    [table] = [table for table in to_tables(report) if "by source document" in table.title]

    assert means == {"good.md": (1, 0.9), "bad.md": (2, pytest.approx(0.3))}
    assert "hhem" not in table.header
    assert [row[:3] for row in table.rows] == [("bad.md", "2", "0.300"), ("good.md", "1", "0.900")]


def test_repeats_show_how_consistent_the_system_is(tmp_path: Path) -> None:
    """Repeats do not count as further questions."""
    records = [
        record(f"q{k}", run, scores={"groundedness": value}) for k in range(3) for run, value in ((1, 0.4), (2, 0.6))
    ]
    [file] = report_of(tmp_path, *records).files
    row = file.score("groundedness")

    assert (file.questions, file.records, file.runs) == (3, 6, 2)
    assert row is not None
    assert row.repeats is not None
    assert row.spread is not None
    assert row.repeats.variance == pytest.approx(0.02)
    assert row.repeats.coefficient == pytest.approx(0.2828, abs=1e-4)
    assert row.spread.interval is not None
    assert row.spread.interval.low == pytest.approx(row.spread.interval.high)


def test_the_number_of_a_run_is_no_count(tmp_path: Path) -> None:
    """A file with the seventh run alone has one answer to each question."""
    report = report_of(tmp_path, *(record(f"q{k}", 7, scores={"cost": 1}) for k in range(3)))
    assert report.files[0].runs == 1
    assert "answers to each question" not in to_markdown(report)


def test_one_file_may_be_given_alone(tmp_path: Path) -> None:
    """The path may be a string."""
    path = write(tmp_path / "a.jsonl", [record(scores={"cost": 1})])
    assert build_report(str(path)) == build_report(path) == build_report([path])


def test_values_of_several_models_in_one_file(tmp_path: Path) -> None:
    """Their mean says little, so the models are named."""
    scores = [Score(name="hhem", value=0.5, model=model) for model in ("one", "two")]
    report = report_of(tmp_path, *(record(f"q{k}", 1, score) for k, score in enumerate(scores)))
    assert "hhem was made by version 1, one and version 1, two" in to_markdown(report)


def test_how_alike_repeated_answers_are(tmp_path: Path) -> None:
    """ROUGE's F1 over the questions with several answers, in whatever order the records come; errors are no answers."""
    answers = {"q1": ("the pier is old", "the pier is old"), "q2": ("the pier is old", "a b c d"), "q3": ("x", "")}
    records = [
        record(name, run, response=texts[run - 1], scores={"cost": 1})
        for run in (1, 2)
        for name, texts in answers.items()
    ]
    # Half an answer would look like an inconsistent one.
    failed = record("q1", 3, response="the pi", error="TimeoutError")
    report = report_of(tmp_path, *records, failed, record("q4", scores={"cost": 1}))
    found = {item.name: item for item in report.files[0].similarity}

    assert list(found) == ["rouge1", "rouge2", "rougeL"]
    assert found["rougeL"].spread is not None
    assert (found["rougeL"].spread.mean, found["rougeL"].spread.count, found["rougeL"].left_out) == (0.5, 2, 1)
    assert "| rougeL | 0.500 |" in to_markdown(report)
    assert report_of(tmp_path, record("q4", scores={"cost": 1})).files[0].similarity == ()


class TestWorst:
    def test_the_worst_turns_come_first(self, tmp_path: Path) -> None:
        """At most the requested number, ordered by the score with the highest headline."""
        records = [record(f"q{k}", scores={"cost": k, "groundedness": k / 10}) for k in range(10)]
        report = report_of(tmp_path, *records, worst=3)
        [file], [table] = report.files, [table for table in to_tables(report) if "worst turns" in table.title]
        column = table.header.index("score")
        assert [row[column] for row in table.rows] == [f"{turn.value:.3f}" for turn in file.worst]
        assert (file.worst_by, [turn.id for turn in file.worst]) == ("groundedness", ["q0", "q1", "q2"])

    def test_of_a_score_where_lower_is_better_the_highest_are_the_worst(self, tmp_path: Path) -> None:
        """The highest values are the worst."""
        records = [record(f"q{k}", scores={"hallucination": k / 10}) for k in range(10)]
        [file] = report_of(tmp_path, *records, worst=2, worst_by="hallucination").files
        assert [turn.id for turn in file.worst] == ["q9", "q8"]

    def test_the_evidence_names_passages_and_what_is_missing(self, tmp_path: Path) -> None:
        """Sentence by sentence, from groundedness and from the judge."""
        part = {"start": 7, "end": 11, "text": "1978", "probability": 0.9}
        sentence = {"text": "It was 1978.", "score": 0.2, "passage": 1, "missing": ["1978"], "unsupported": [part]}
        judged = [
            {
                "key": "a",
                "text": "It was 1978.",
                "fully_supported": False,
                "explanation": "the year is wrong",
                "support": [{"key": "0a", "passage": 0, "text": "It was 1987."}],
            }
        ]
        [file] = report_of(
            tmp_path,
            record(
                "q1",
                1,
                Score(name="groundedness", value=0.2, metadata={"sentences": [sentence]}),
                Score(name="trace.adherence", value=0.0, metadata={"sentences": judged}),
                Score(name="unsupported_facts", value=1, metadata={"missing": [{"text": "1978", "kind": "number"}]}),
                passages=("It was 1987.", "The bridge."),
            ),
        ).files
        [turn] = file.worst
        local, judge = turn.evidence

        assert turn.facts == ("1978",)
        assert local.sentences[0].support == "unsupported"
        assert local.sentences[0].note == "unsupported: “1978”; no passage has: 1978"
        assert [(quote.passage, quote.text) for quote in local.sentences[0].quotes] == [("p1", "The bridge.")]
        assert (judge.sentences[0].support, judge.sentences[0].note) == ("weak", "the year is wrong")
        assert [(quote.passage, quote.text) for quote in judge.sentences[0].quotes] == [("p0", "It was 1987.")]

    def test_strange_metadata_does_no_harm(self, tmp_path: Path) -> None:
        """Unknown metadata of other tools is ignored."""
        strange = [{"text": None, "score": 0.9, "passage": 99, "missing": None}, 3, {"passage": "x"}]
        score = Score(name="groundedness", value=0.2, metadata={"sentences": strange})
        [file] = report_of(tmp_path, record("q1", 1, score)).files
        assert len(file.worst[0].evidence[0].sentences) == 2


class TestComparison:
    def files(self, path: Path) -> list[Path]:
        before = [record(f"q{k}", scores={"groundedness": 0.8, "cost": 1.0 + k % 3}) for k in range(20)]
        after = [
            record(f"q{k}", response=f"answer {k}", scores={"groundedness": 0.8 - 0.02 * (k + 1), "cost": 1.0 + k % 3})
            for k in range(2, 22)
        ]
        return [write(path / "before.jsonl", before), write(path / "after.jsonl", after)]

    def test_the_same_questions_are_compared(self, tmp_path: Path) -> None:
        """Difference, interval, p and n; what one of them lacks is counted."""
        [comparison] = build_report(self.files(tmp_path)).comparisons
        grounded, cost, _ = comparison.scores

        assert (comparison.common, comparison.only_before, comparison.only_after) == (18, 2, 2)
        assert grounded.test is not None
        assert grounded.test.count == 18
        assert grounded.test.difference == pytest.approx(-0.23)
        assert grounded.test.interval is not None
        assert grounded.test.interval.high < 0
        assert grounded.test.p < 0.001
        assert cost.test is not None
        assert (cost.test.difference, cost.test.p) == (0.0, 1.0)

    def test_the_turns_that_changed_most(self, tmp_path: Path) -> None:
        """With both answers."""
        [comparison] = build_report(self.files(tmp_path), worst=2).comparisons
        first, second = comparison.changed

        assert (comparison.changed_by, first.id, second.id) == ("groundedness", "q19", "q18")
        assert (first.before, first.after) == (0.8, pytest.approx(0.4))
        assert (first.query, first.response_before, first.response_after) == ("question q19", "an answer", "answer 19")

    def test_files_of_other_questions(self, tmp_path: Path) -> None:
        """Nothing is compared, and nothing is better or worse."""
        paths = [write(tmp_path / f"{name}.jsonl", [judged(name, name)]) for name in ("good", "bad")]
        report = build_report(paths)
        [comparison] = report.comparisons

        assert (comparison.common, {change.count for change in comparison.scores}) == (0, {0})
        assert "cannot be compared: they have no questions in common" in conclude(report).headline

    def test_two_scores_of_one_name(self, tmp_path: Path) -> None:
        """Of two metrics. The report says that they are not comparable."""
        paths = []
        for metric in ("retrieval_rank", "retrieval_relevance"):
            score = Score(name="mrr", value=0.5, metric=metric)
            paths.append(write(tmp_path / f"{metric}.jsonl", [record("q1", 1, score)]))
        [comparison] = build_report(paths).comparisons
        [makers] = [change.makers for change in comparison.scores if change.name == "mrr"]

        assert makers is not None
        assert (makers.before, makers.after) == (("retrieval_rank",), ("retrieval_relevance",))

    def test_repeats_are_averaged_first(self, tmp_path: Path) -> None:
        """One pair per question."""
        before = [record(f"q{k}", run, scores={"cost": run}) for k in range(4) for run in (1, 2, 3)]
        after = [record(f"q{k}", scores={"cost": 5}) for k in range(4)]
        files = [write(tmp_path / "a.jsonl", before), write(tmp_path / "b.jsonl", after)]
        [comparison] = build_report(files).comparisons
        test = comparison.scores[0].test
        assert test is not None
        assert (test.count, test.before, test.after) == (4, 2.0, 5.0)

    def test_a_pair_stands_for_what_both_sides_stand_for(self, tmp_path: Path) -> None:
        """Sampled with 1 in 4 after the change, a question counts four times."""
        paths = []
        for name, values, probability in (("a", (0.5, 0.5), 1.0), ("b", (1.0, 0.5), 0.25)):
            scores = [Score(name="mrr", value=values[0], probability=probability), Score(name="mrr", value=values[1])]
            paths.append(write(tmp_path / f"{name}.jsonl", [record(f"q{k}", 1, one) for k, one in enumerate(scores)]))
        test = build_report(paths).comparisons[0].scores[0].test
        assert test is not None
        assert test.difference == pytest.approx(0.4)

    def test_scores_that_only_one_file_has(self, tmp_path: Path) -> None:
        """They are named; what follows from the answers is compared."""
        files = [
            write(tmp_path / "a.jsonl", [record(scores={"cost": 1})]),
            write(tmp_path / "b.jsonl", [record(scores={"mrr": 1})]),
        ]
        report = build_report(files)
        assert [change.name for change in report.comparisons[0].scores] == ["answered"]
        assert "Scores that only one of them has: cost, mrr." in to_plain_text(report)

    def test_files_with_no_question_in_common_stand_side_by_side(self, tmp_path: Path) -> None:
        """Without a test."""
        files = [
            write(tmp_path / "a.jsonl", [record("q1", scores={"cost": 1})]),
            write(tmp_path / "b.jsonl", [record("q2", scores={"cost": 1})]),
        ]
        [comparison] = build_report(files).comparisons
        assert (comparison.common, comparison.scores[0].test, comparison.changed) == (0, None, ())


class TestBadInput:
    def test_an_unknown_score(self, tmp_path: Path) -> None:
        """The message lists the valid scores."""
        with pytest.raises(
            UnknownNameError, match=r"unknown score 'cots'. Did you mean 'cost'\? Valid: answered, cost, mrr"
        ):
            report_of(tmp_path, record(scores={"cost": 1, "mrr": 1}), metrics=["cots"])

    def test_no_scores(self, tmp_path: Path) -> None:
        """The message names the command that adds scores."""
        with pytest.raises(ConfigurationError, match="has no scores"):
            report_of(tmp_path, record())

    def test_no_file(self, tmp_path: Path) -> None:
        """The message has the path."""
        with pytest.raises(ConfigurationError, match=r"there is no file .*nothing\.jsonl"):
            build_report([tmp_path / "nothing.jsonl"])


def test_a_report_survives_json(tmp_path: Path) -> None:
    """To JSON and back."""
    report = report_of(tmp_path, record("q1", target="t", rank=1, document="d", scores={"groundedness": 0.5}))
    assert Report.model_validate(json.loads(report.model_dump_json())) == report


def test_markdown_shows_texts_as_they_are(tmp_path: Path) -> None:
    """No text of a turn breaks a table or becomes markup."""
    text = to_markdown(report_of(tmp_path, record("a|b", query="<script>\n*x*", scores={"groundedness": 0.5})))
    [line] = [line for line in text.splitlines() if "script" in line]
    assert line == r"| a\|b | 0.500 | \<script\> \*x\* | an answer |"


class TestSystemsInOneFile:
    """Answers of several systems to the same questions are not repeats of one."""

    @staticmethod
    def file(path: Path, column: str = "model", *, with_ids: bool = True) -> Path:
        answers = [("old", "good"), ("new", "bad")]
        rows = [
            judged(f"q{k}" if with_ids else f"{2 * k + n}", verdict, query=f"question {k}", metadata={column: name})
            for k in range(20)
            for n, (name, verdict) in enumerate(answers)
        ]
        return write(path, [row.model_copy(update={"run": 1 + n % 2 * with_ids}) for n, row in enumerate(rows)])

    @pytest.mark.parametrize("with_ids", [True, False])
    def test_they_are_compared(self, tmp_path: Path, with_ids: bool) -> None:
        """``--group-by``: as if each were a file, also where rows have only their numbers."""
        report, _ = analyze(self.file(tmp_path / "a.jsonl", with_ids=with_ids), group_by="model")
        assert [(file.name, file.records, file.questions) for file in report.files] == [
            ("old", 20, 20),
            ("new", 20, 20),
        ]
        [comparison] = report.comparisons
        assert comparison.common == 20
        assert conclude(report).headline.startswith("new is worse: bad 0.0% → 100.0%. ")

    def test_what_looks_like_them_is_said(self, tmp_path: Path) -> None:
        """Without the option they are averaged as repeats; a column that numbers repeats is none."""
        report = build_report([self.file(tmp_path / "a.jsonl")])
        [line] = [line for line in conclude(report).certainty if "--group-by" in line]
        assert "answers to the same question differ in 'model' (old, new) and count as repeats" in line

        report = build_report([self.file(tmp_path / "b.jsonl", "attempt")])
        assert not any("--group-by" in line for line in conclude(report).certainty)

    def test_a_column_that_is_not_there(self, tmp_path: Path) -> None:
        """Is an error."""
        with pytest.raises(ConfigurationError, match=r"there is no 'system' \(--group-by\)"):
            analyze(self.file(tmp_path / "a.jsonl"), group_by="system")


def test_a_refusal_that_is_not_bad_is_said(tmp_path: Path) -> None:
    """A file in which every answer declines passes a bound for bad answers; the gate shows that none is an answer."""
    refusals = [judged(f"q{k}", "declined", "refused") for k in range(20)]
    refusals = [
        record.model_copy(update={"turn": record.turn.model_copy(update={"response": "I do not know."})})
        for record in refusals
    ]
    report = build_report([write(tmp_path / "a.jsonl", refusals)])
    result = check_gate(report, ReportGate(bounds={"verdict.bad": 0.05}))
    assert (result.status, result.notes) == (
        0,
        ["a: answered is 0.0%. A refusal is not bad: add --fail-under answered=0.9"],
    )
