"""``rageval-hooks report`` and ``rageval-hooks plot``, as a user runs them."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from rageval_hooks import Failed, Score, Skipped
from rageval_hooks.cli import app, main
from tests import tiny_models
from tests.cli.test_cli import run as run_command
from tests.offline.scored import record, write
from tests.warm import run_warm_script


class Result:
    """The result of a command: its exit status, its output and its errors."""

    def __init__(self, status: int, output: str, errors: str) -> None:
        self.status = status
        self.output = output
        self.errors = errors


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):  # type: ignore[no-untyped-def]
    """Run the command line in this process: a new one takes a second."""

    def run(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["rageval-hooks", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        output, errors = capsys.readouterr()
        return Result(int(ended.value.code or 0), output, errors)

    return run


@pytest.fixture
def before(tmp_path: Path) -> Path:
    """Thirty good answers."""
    records = [
        record(f"q{k}", document="a.md", target="t", rank=1, scores={"groundedness": 0.9, "cost": 0.1 + k % 2 / 100})
        for k in range(30)
    ]
    return write(tmp_path / "before.jsonl", records)


@pytest.fixture
def after(tmp_path: Path) -> Path:
    """The same questions, answered worse."""
    records = [
        record(
            f"q{k}",
            1,
            Skipped(name="latency", reason="the turn was not timed", metric="latency"),
            scores={"groundedness": 0.8 - k / 100, "cost": 0.1 + (k + 1) % 2 / 100},
        )
        for k in range(30)
    ]
    return write(tmp_path / "after.jsonl", records)


class TestReport:
    def test_a_table_when_piped_is_plain(self, before: Path, after: Path) -> None:
        """No colours, no line that is too long, status 0."""
        text = run_command("report", str(before), str(after)).stdout

        assert re.search(r"groundedness +0\.900 +0\.900 … 0\.900", text)
        assert re.search(r"^groundedness +0\.900 +0\.655 +-0\.245", text, re.MULTILINE)
        assert "before: by source document" in text
        assert "MRR 1.000" in text
        assert "before → after: turns that changed most by groundedness" in text
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 120

    @pytest.mark.parametrize(
        ("name", "start"),
        [("r.md", "# RAG"), ("r.json", "{"), ("r.html", "<!DOCTYPE html>"), ("r.txt", "No problems found.")],
    )
    def test_the_name_of_the_output_says_the_format(
        self, run, before: Path, tmp_path: Path, name: str, start: str
    ) -> None:
        """The name of the written file goes to standard error."""
        done = run("report", before, "--output", tmp_path / name)

        assert (done.status, done.output) == (0, "")
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
        assert "is written" in done.errors

    def test_an_output_of_another_kind(self, run, before: Path, tmp_path: Path) -> None:
        """An unknown suffix is an error unless the format is given; an input file is not replaced."""
        done = run("report", before, "--output", tmp_path / "r.csv")
        assert (done.status, (tmp_path / "r.csv").exists()) == (2, False)
        assert ".txt, .json, .md, .markdown, .html" in done.errors
        assert run("report", before, "--output", tmp_path / "r.csv", "--format", "json").status == 0

        kept = before.read_bytes()
        assert run("report", before, "--output", before, "--format", "json").status == 2
        assert before.read_bytes() == kept

    def test_an_output_that_cannot_be_written(self, run, before: Path, tmp_path: Path) -> None:
        """A folder, or a name in a folder that is not there: an error before any work."""
        (tmp_path / "folder.md").mkdir()
        for name, message in (("folder.md", "is a folder"), ("nowhere/r.md", "there is no folder")):
            done = run("report", before, "--output", tmp_path / name)
            assert (done.status, message in done.errors) == (2, True)

    @pytest.mark.parametrize("url", ["javascript:alert(1)//{trace_id}", "http://localhost:6006/traces"])
    def test_a_trace_url_is_an_address_with_a_place_for_the_trace(self, run, before: Path, url: str) -> None:
        """Anything else is an error: the page makes it a link."""
        done = run("report", before, "--format", "html", "--trace-url", url)
        assert (done.status, done.output) == (2, "")
        assert "--trace-url is" in done.errors

    def test_names_of_documents_are_not_broken(self, run, tmp_path: Path) -> None:
        """Whatever the number of other scores."""
        scores = {f"trace.{name}": 0.5 for name in ("context_relevance", "context_utilization", "supported_share")}
        scores |= {"groundedness": 0.5, "unsupported_facts": 0.0}
        path = write(tmp_path / "s.jsonl", [record("q", document="handbook/harbour.md", scores=scores)])
        assert "\nhandbook/harbour.md  " in run("report", path).output

    def test_rows_that_cannot_be_read_are_counted(self, run, before: Path) -> None:
        with before.open("a") as file:
            file.write("{\n")
        said = run("report", before).output
        assert "1 row could not be read." in said
        assert "Rows that could not be read: 1." in said

    def test_json_goes_to_a_pipe(self, run, before: Path, after: Path) -> None:
        """Every number is there."""
        report = json.loads(run("report", before, after, "--format", "json", "--seed", 3, "--level", 0.9).output)

        assert report["resampling"] == {"level": 0.9, "resamples": 2000, "seed": 3}
        assert report["files"][0]["scores"][0]["spread"]["mean"] == pytest.approx(0.9)
        assert report["comparisons"][0]["scores"][0]["test"]["count"] == 30

    def test_the_same_seed_gives_the_same_report(self, run, before: Path, after: Path) -> None:
        """To the last digit."""
        first, second = (run("report", before, after, "--format", "json").output for _ in range(2))
        assert first == second

    def test_a_subset_of_scores(self, run, before: Path) -> None:
        """Those that are named, and no other."""
        text = run("report", before, "--metrics", "cost").output
        assert "cost" in text
        assert "groundedness" not in text

    def test_repeated_answers_by_bertscore(self, run, tmp_path: Path) -> None:
        """With an encoder from disk; equal answers have an F1 of 1. One that is not there is an error at once."""
        pytest.importorskip("transformers")
        encoder = tiny_models.build_encoder(tmp_path / "encoder")
        records = [record(name, run, response="the old pier", scores={"cost": 1}) for name in "ab" for run in (1, 2)]
        path = write(tmp_path / "s.jsonl", records)
        done = run("report", path, "--bertscore", encoder, "--bertscore-layer", 2)

        assert re.search(r"^bertscore +1\.000 .* 2 *$", done.output, re.MULTILINE), done.output + done.errors
        assert run("report", path, "--bertscore", tmp_path / "nowhere", "--bertscore-layer", 2).status == 2


LEFT = """
import os, sys
from rageval_hooks.cli import main
reading, writing = os.pipe()
os.close(reading)
os.dup2(writing, 1)
sys.stdout = open(1, "w", closefd=False)
try:
    main()
except SystemExit as ended:
    print("exit status", ended.code, file=sys.stderr)
"""


class TestOutput:
    @pytest.mark.parametrize(
        ("format", "encoding"),
        [(shown, encoding) for shown in ("table", "markdown", "json") for encoding in ("cp1252", "ascii")]
        + [("html", "ascii")],  # a page escapes the same characters in both
    )
    def test_any_encoding_of_standard_output(self, before: Path, encoding: str, format: str) -> None:
        """Status 0; JSON and HTML lose nothing."""
        path = write(before.parent / "o.jsonl", [record("q→😀", scores={"groundedness": 0.1})])
        arguments = ("report", str(path), str(before), "--format", format)
        text = run_command(*arguments, PYTHONIOENCODING=encoding).stdout

        assert "groundedness" in text
        if format == "json":
            assert json.loads(text)["files"][0]["worst"][0]["id"] == "q→😀"
        if format == "html":
            assert "q&#8594;&#128512;" in text

    def test_a_reader_who_leaves(self, before: Path) -> None:
        """The bounds are checked all the same, and status 1 means nothing else."""
        for bound, status in (("0.5", 0), ("0.95", 1)):
            done = run_warm_script(LEFT, "report", before, "--fail-under", f"groundedness={bound}")
            assert done.stderr.splitlines()[-1] == f"exit status {status}"
            assert "Traceback" not in done.stderr

    @pytest.mark.parametrize("format", ["table", "markdown", "html", "json"])
    def test_no_text_moves_the_cursor(self, run, tmp_path: Path, format: str) -> None:
        """Control characters are shown as pictures, in ids, questions, answers, names of documents and scores."""
        evil = "a\x1b]0;taken\x07b\x9b31mc\x7f\u202e"
        records = [
            record(f"q{evil}", query=evil, response=evil, document=evil, scores={f"my {evil}": 0.1 * run}, run=run)
            for run in (1, 2)
        ]
        path = write(tmp_path / "s.jsonl", records)
        done = run("report", path, path, "--format", format)
        assert (done.status, re.findall("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", done.output)) == (0, [])
        assert ("a\\u001b]0;" if format == "json" else "a␛") in done.output

        wrong = run("report", path, "--worst-by", evil)
        assert (wrong.status, re.findall("[\x1b\x07\x9b\u202e]", wrong.errors)) == (2, [])

    @pytest.mark.parametrize("result", [{"value": 1e308}, {"value": -1e308}, {"value": 0.5, "probability": 1e-310}])
    def test_numbers_that_nothing_can_be_computed_with(self, run, tmp_path: Path, result: dict[str, float]) -> None:
        """They count as failed, with the reason; what else there is has its mean. Every number of the JSON is one."""
        records = [record(f"q{k}", scores={"groundedness": 0.5}) for k in range(3)]
        odd = [record(f"odd{k}", 1, Score(name="groundedness", **result), scores={"mrr": 1.0}) for k in range(2)]
        path = write(tmp_path / "s.jsonl", [*records, *odd])
        done = run("report", path)
        assert done.status == 0
        assert re.search(r"^groundedness +0\.500 .* 3 +2$", done.output, re.MULTILINE)
        assert "out of range" in done.output

        report = json.loads(run("report", path, "--format", "json").output)
        assert report["files"][0]["scores"][0]["spread"]["mean"] == 0.5
        assert run("report", path, "--worst-by", "mrr", "--output", tmp_path / "r.html").status == 0
        assert run("report", path, "--fail-under", "groundedness=0.6").status == 1

    def test_a_name_that_is_not_utf8(self, run, before: Path, tmp_path: Path) -> None:
        """A page and the JSON have a replacement character in its place."""
        path = tmp_path / "caf\udce9.jsonl"
        path.write_bytes(before.read_bytes())
        report = json.loads(run("report", path, before, "--format", "json").output)
        assert report["files"][0]["path"].endswith("caf\ufffd.jsonl")
        assert run("report", path, before, "--output", tmp_path / "r.html").status == 0

    def test_files_that_cannot_be_opened(self, run, tmp_path: Path) -> None:
        """A name that is too long, a link to itself, a pipe: status 2, in one line."""
        (tmp_path / "loop.jsonl").symlink_to(tmp_path / "loop.jsonl")
        os.mkfifo(tmp_path / "pipe.jsonl")
        for name, message in (("a" * 300 + ".jsonl", "too long"), ("loop.jsonl", "no file"), ("pipe.jsonl", "a pipe")):
            for command in (["report"], ["plot", "-o", tmp_path / "p.png"], ["report", "-o", tmp_path / "loop.jsonl"]):
                done = run(command[0], tmp_path / name, *command[1:])
                assert done.status == 2
                assert len(done.errors.splitlines()) == 1
                if len(command) == 1:
                    assert message in done.errors


class TestFailUnder:
    def test_bounds_that_are_kept(self, run, before: Path) -> None:
        """Also where lower is better, and on the bound itself."""
        done = run("report", before, "--fail-under", "groundedness=0.9", "--fail-under", "cost=0.2")
        assert (done.status, done.errors) == (0, "")

    def test_a_mean_below_its_bound(self, run, after: Path) -> None:
        """The message names the score, the shortfall and the number of values."""
        done = run("report", after, "--fail-under", "groundedness=0.7")
        assert done.status == 1
        assert "after: groundedness is 0.655, 0.045 below the bound (at least 0.7; 30 values)" in done.errors, (
            done.errors
        )

    def test_a_cost_above_its_bound(self, run, after: Path) -> None:
        """Lower is better."""
        done = run("report", after, "--fail-under", "cost=0.05,groundedness=0.1")
        assert done.status == 1
        assert "cost is 0.105, 0.055 above the bound (at most 0.05" in done.errors

    def test_a_score_that_nobody_has(self, run, after: Path) -> None:
        """Status 2: nothing was checked; what is there is listed."""
        done = run("report", after, "--fail-under", "groundednes=0.1")
        assert done.status == 2
        assert "Did you mean 'groundedness'?" in done.errors

    def test_a_score_that_was_always_skipped(self, run, after: Path) -> None:
        """Status 2, and why."""
        done = run("report", after, "--fail-under", "latency=3")
        assert done.status == 2
        assert "no value of latency: 0 failed, 30 skipped (the turn was not timed)" in done.errors

    def test_what_failed_is_not_in_the_mean_but_is_said(self, run, tmp_path: Path) -> None:
        """A failed judgement is not 0."""
        failed = Failed(name="trace", error_type="unavailable", metric="trace")
        path = write(tmp_path / "s.jsonl", [record("q1", scores={"trace.adherence": 0.5}), record("q2", 1, failed)])
        assert run("report", path, "--fail-under", "trace.adherence=0.5").status == 0
        assert "1 value, 1 failed" in run("report", path, "--fail-under", "trace.adherence=0.6").errors

    def test_questions_answered_beside_a_choice_of_scores(self, run, tmp_path: Path) -> None:
        """The bound is checked, whatever else is reported."""
        scores = [{"groundedness": 0.5, "mrr": 1.0, "no_answer": float(k > 0)} for k in range(4)]
        path = write(tmp_path / "s.jsonl", [record(f"q{k}", scores=found) for k, found in enumerate(scores)])
        options = (path, "--metrics", "groundedness", "--fail-under")
        done = run("report", *options, "answered=0.7")

        assert (done.status, done.errors) == (0, "")
        assert "answered is 75.0%" in done.output
        assert "mrr" not in done.output
        assert "answered is 0.750, 0.150 below the bound" in run("report", *options, "answered=0.9").errors

    @pytest.mark.parametrize("bound", ["groundedness", "=0.5", "groundedness=high", "groundedness=nan"])
    def test_a_bound_that_is_none(self, run, after: Path, bound: str) -> None:
        """The message shows a valid bound."""
        done = run("report", after, "--fail-under", bound)
        assert done.status == 2
        assert "does not have the form score=number, such as groundedness=0.7" in done.errors


class TestFailOnRegression:
    def test_worse_answers(self, run, before: Path, after: Path) -> None:
        """The message has the score, both means and p; a cost with the same mean is not a regression."""
        done = run("report", after, "--fail-on-regression", before)

        assert done.status == 1
        [line] = [line for line in done.errors.splitlines() if "is worse" in line]
        assert "after: groundedness is worse than in before: 0.900 → 0.655, difference -0.245 [-0.27" in line
        assert "tolerance 0.01, n = 30, p = 2e-05 (one-sided, adjusted for the number of scores)" in line

    def test_a_slower_machine_is_no_regression(self, run, tmp_path: Path) -> None:
        """Latency, tokens and cost decide only if they are named, by --metrics or by --tolerance."""
        usage = {"latency.generation": 1.0, "tokens.output": 50.0, "cost": 0.1, "my_latency_ms": 20.0}
        files = [
            write(
                tmp_path / f"{name}.jsonl",
                [
                    record(f"q{k}", scores={"mrr": 0.5, **{score: v * factor + k / 1e4 for score, v in usage.items()}})
                    for k in range(20)
                ],
            )
            for name, factor in (("old", 1.0), ("new", 1.2))
        ]
        compare = ("report", files[1], "--fail-on-regression", files[0])
        assert (run(*compare).status, run(*compare).errors) == (0, "")
        for score in usage:
            assert f"new: {score} is worse" in run(*compare, "--metrics", f"mrr,{score}").errors
            assert run(*compare, "--tolerance", f"{score}=5%").status == 1
            assert run(*compare, "--tolerance", f"{score}=25%").status == 0

    @pytest.mark.parametrize(
        ("tolerance", "status"),
        [((), 1), (("mrr=0.04",), 1), (("mrr=0.06",), 0), (("mrr=6%",), 1), (("7%",), 0), (("0.06", "mrr=0"), 1)],
    )
    def test_a_tolerance(self, run, tmp_path: Path, tolerance: tuple[str, ...], status: int) -> None:
        """By default 0.01: the mean fell from 0.8 to 0.75. Without a name it is that of all others."""
        old, new = (
            write(tmp_path / f"{name}.jsonl", [record(f"q{k}", scores={"mrr": value}) for k in range(20)])
            for name, value in (("old", 0.8), ("new", 0.75))
        )
        options = [option for text in tolerance for option in ("--tolerance", text)]
        assert run("report", new, "--fail-on-regression", old, *options).status == status

    @pytest.mark.parametrize(
        ("score", "before", "after", "status"),
        # Shares, also those that no metric defines, may fall by 0.01; a number without bounds by 5%.
        [("mrr", 0.8, 0.77, 1), ("my_share", 0.8, 0.77, 1), ("my_count", 8, 7.7, 0), ("my_count", 8, 7.5, 1)],
    )
    def test_the_default_tolerance(
        self, run, tmp_path: Path, score: str, before: float, after: float, status: int
    ) -> None:
        """It depends on the range of the score."""
        old, new = (
            write(tmp_path / f"{name}.jsonl", [record(f"q{k}", scores={score: value}) for k in range(20)])
            for name, value in (("old", before), ("new", after))
        )
        assert run("report", new, "--fail-on-regression", old).status == status

    def test_the_interval_has_to_lie_beyond_the_tolerance(self, run, tmp_path: Path) -> None:
        """A difference beyond it alone is not enough: 0.05 on average, but 0.03 is as likely."""
        old, new = (
            write(
                tmp_path / f"{name}.jsonl",
                [record(f"q{k}", scores={"mrr": 0.8 - fall * (k % 2)}) for k in range(20)],
            )
            for name, fall in (("old", 0.0), ("new", 0.1))
        )
        compare = ("report", new, "--fail-on-regression", old, "--tolerance")
        assert (run(*compare, "0.02").status, run(*compare, "0.04").status) == (1, 0)

    @pytest.mark.parametrize("tolerance", ["mrr=", "mrr=-0.1", "mrr=much", "=0.1", "nan"])
    def test_a_tolerance_that_is_none(self, run, before: Path, after: Path, tolerance: str) -> None:
        """The message shows a valid one. Without a baseline there is nothing to tolerate."""
        done = run("report", after, "--fail-on-regression", before, "--tolerance", tolerance)
        assert (done.status, "such as groundedness=0.02 or cost=5%" in done.errors) == (2, True)
        done = run("report", after, "--tolerance", "0.1")
        assert (done.status, "--tolerance needs --fail-on-regression" in done.errors) == (2, True)

    def test_a_tolerance_of_a_score_that_nobody_has(self, run, before: Path, after: Path) -> None:
        """It would have no effect: the message proposes one that is there. Any score that is there is compared."""
        done = run("report", after, "--fail-on-regression", before, "--tolerance", "groundednes=0.5")
        assert (done.status, "Did you mean 'groundedness'?" in done.errors) == (2, True)
        done = run(
            "report", after, "--fail-on-regression", before, "--metrics", "cost", "--tolerance", "groundedness=0.5"
        )
        assert (done.status, "groundedness" in done.output) == (0, True)

    def test_targets_that_moved_are_not_lost(self, run, tmp_path: Path) -> None:
        """A missed target has no rank. As many others were found, so that mrr is the same."""
        old, new = (
            write(
                tmp_path / f"{name}.jsonl",
                [record(f"q{k}", target="t", rank=1 if k % 3 == hit else None, missed=k % 3 != hit) for k in range(30)],
            )
            for name, hit in (("old", 0), ("new", 1))
        )
        assert run("report", new, "--fail-on-regression", old).status == 0

    def test_better_answers(self, run, before: Path, after: Path) -> None:
        """An improvement is not a regression, and the table says so."""
        done = run("report", before, "--fail-on-regression", after)

        assert done.status == 0
        [line] = [line for line in done.output.splitlines() if "▲ better" in line]
        assert "groundedness" in line

    def test_the_same_file(self, run, before: Path, tmp_path: Path) -> None:
        """Nothing changed."""
        copy = tmp_path / "copy.jsonl"
        copy.write_bytes(before.read_bytes())
        assert run("report", copy, "--fail-on-regression", before).status == 0

    def test_a_cost_that_rose(self, run, before: Path, tmp_path: Path) -> None:
        """Lower is better."""
        dear = write(tmp_path / "dear.jsonl", [record(f"q{k}", scores={"cost": 0.5}) for k in range(30)])
        done = run("report", dear, "--fail-on-regression", before, "--metrics", "cost")
        assert done.status == 1
        assert "dear: cost is worse" in done.errors

    @pytest.mark.parametrize("alpha", ["0", "1"])
    def test_a_level_that_is_no_probability(self, run, before: Path, after: Path, alpha: str) -> None:
        done = run("report", after, "--fail-on-regression", before, "--alpha", alpha)
        assert done.status == 2
        assert f"--alpha is {alpha}: give a probability between 0 and 1, such as 0.05" in done.errors

    def test_a_bound_for_a_cause_without_verdicts(self, run, after: Path) -> None:
        done = run("report", after, "--fail-under", "verdict.bad.unsupported=0.1")
        assert done.status == 2
        assert "has no verdicts: verdict.bad.unsupported cannot be checked" in done.errors

    def test_the_level_can_be_set(self, run, tmp_path: Path) -> None:
        """Four worse of four: p = 1/16."""
        old = write(tmp_path / "old.jsonl", [record(f"q{k}", scores={"mrr": 1.0}) for k in range(4)])
        new = write(tmp_path / "new.jsonl", [record(f"q{k}", scores={"mrr": 0.5}) for k in range(4)])
        strict = run("report", new, "--fail-on-regression", old)

        assert strict.status == 0
        assert "Fewer than 30 questions: only large differences" in strict.output
        assert run("report", new, "--fail-on-regression", old, "--alpha", "0.1").status == 1

    def test_scores_that_did_not_change_do_not_count(self, run, tmp_path: Path) -> None:
        """The p-values are adjusted for the others only."""
        same = {f"same{k}": 0.5 for k in range(5)}
        old = write(tmp_path / "old.jsonl", [record(f"q{k}", scores={**same, "mrr": 1.0}) for k in range(5)])
        new = write(tmp_path / "new.jsonl", [record(f"q{k}", scores={**same, "mrr": 0.5}) for k in range(5)])
        done = run("report", new, "--fail-on-regression", old)

        assert done.status == 1
        assert "p = 0.031 (one-sided" in done.errors

    def test_a_score_that_has_vanished(self, run, before: Path, tmp_path: Path) -> None:
        """Status 2: whether it got worse cannot be told; why, and how often. One that is worse comes first."""
        failed = Failed(name="groundedness", error_type="unavailable", message="no route", metric="groundedness")
        gone = write(tmp_path / "gone.jsonl", [record(f"q{k}", 1, failed, scores={"cost": 0.1}) for k in range(30)])
        done = run("report", gone, "--fail-on-regression", before)
        assert done.status == 2
        assert "gone: a regression cannot be excluded: groundedness has no value" in done.errors
        assert "(30 failed: unavailable: no route)" in done.errors
        assert "groundedness has no value in gone (30 failed" in done.output

        assert run("report", gone, "--fail-on-regression", before, "--metrics", "cost").status == 0
        dear = write(tmp_path / "dear.jsonl", [record(f"q{k}", 1, failed, scores={"cost": 9}) for k in range(30)])
        done = run("report", dear, "--fail-on-regression", before, "--metrics", "groundedness,cost")
        assert (done.status, "cost is worse" in done.errors) == (1, True)

    def test_a_score_that_is_new(self, run, before: Path, tmp_path: Path) -> None:
        """A new score is not a regression; a note says that it was not compared."""
        new = write(tmp_path / "new.jsonl", [record(f"q{k}", scores={"cost": 0.1, "ap@3": 0.1}) for k in range(30)])
        done = run("report", new, "--fail-on-regression", before, "--metrics", "cost,ap@3")
        assert done.status == 0
        assert "new: before has no values of ap@3 to compare with" in done.errors

    def test_the_only_score_has_vanished(self, run, before: Path, tmp_path: Path) -> None:
        """A single lost score has the same result."""
        skipped = Skipped(name="groundedness", reason="no passages", metric="groundedness")
        gone = write(tmp_path / "gone.jsonl", [record(f"q{k}", 1, skipped) for k in range(30)])
        done = run("report", gone, "--fail-on-regression", before)
        assert done.status == 2
        assert done.errors.count("groundedness has no value in gone (30 skipped: no passages)") == 1

    @pytest.mark.parametrize(("missing", "status"), [(16, 2), (15, 0)])
    def test_values_that_were_lost(self, run, before: Path, tmp_path: Path, missing: int, status: int) -> None:
        """If more than half are lost, the status is 2; if fewer, a note says so."""
        skipped = Skipped(name="groundedness", reason="the response is empty", metric="groundedness")
        records = [
            record(f"q{k}", 1, skipped) if k < missing else record(f"q{k}", scores={"groundedness": 0.9})
            for k in range(30)
        ]
        path = write(tmp_path / "new.jsonl", records)
        done = run("report", path, "--fail-on-regression", before, "--metrics", "groundedness")

        assert done.status == status
        said = f"no value in new for {missing} of the 30 questions that have one in before ({missing} skipped: the resp"
        assert said in done.errors
        assert said in done.output.replace("\n", " ")

    def test_questions_that_were_not_asked_again_are_not_lost(self, run, before: Path, tmp_path: Path) -> None:
        """A subset of the questions can be compared."""
        part = write(tmp_path / "part.jsonl", [record(f"q{k}", scores={"groundedness": 0.9}) for k in range(8)])
        done = run("report", part, "--fail-on-regression", before, "--metrics", "groundedness")
        assert (done.status, done.errors) == (0, "")

    def test_a_score_that_no_question_has_twice(self, run, tmp_path: Path) -> None:
        """The status is 2, although another score can be compared."""
        files = [
            write(
                tmp_path / f"{name}.jsonl",
                [record(f"q{k}", scores={"cost": 1.0, **({"mrr": 1.0} if k in having else {})}) for k in asked],
            )
            for name, asked, having in (("old", range(20), range(10)), ("new", range(10, 30), range(20, 30)))
        ]
        done = run("report", files[1], "--fail-on-regression", files[0])
        assert done.status == 2
        assert "no question has a value of mrr in both files" in done.errors

    def test_turns_that_were_not_sampled_are_not_lost(self, run, tmp_path: Path) -> None:
        """Each file has its own sample."""
        files = []
        for name, kept in (("old", range(30)), ("new", range(20, 40))):
            records = [
                record(f"q{k}", 1, *[Score(name="mrr", value=0.9, probability=0.5)] * (k in kept)) for k in range(40)
            ]
            files.append(write(tmp_path / f"{name}.jsonl", records))
        done = run("report", files[1], "--fail-on-regression", files[0])
        assert (done.status, done.errors) == (0, "")

    def test_other_versions_and_models(self, run, tmp_path: Path) -> None:
        """Their means are not comparable: status 2. A table that does not state them makes no difference."""
        files = []
        for version, model, value in (("1", "lexical", 0.9), ("2", "MiniLM", 0.5)):
            score = Score(name="groundedness", value=value, version=version, model=model)
            records = [record(f"q{k}", 1, score) for k in range(30)]
            files.append(write(tmp_path / f"v{version}.jsonl", records))
        done = run("report", files[1], "--fail-on-regression", files[0])
        assert done.status == 2
        assert "in v1 it was made by version 1, lexical, in v2 by version 2, MiniLM" in done.errors
        assert "is worse than" not in done.errors
        assert "the means are not comparable" in done.output.replace("\n", " ")

        table = tmp_path / "t.csv"
        rows = [f"q{k},1,question q{k},an answer,0.5,," for k in range(30)]
        header = "id,run,query,response,groundedness,groundedness.label,groundedness.reason"
        table.write_text("\n".join([header, *rows]), encoding="utf-8")
        done = run("report", table, "--fail-on-regression", files[0])
        assert (done.status, "t: groundedness is worse than in v1" in done.errors) == (1, True)

    @pytest.mark.parametrize("moved", [1, 30])
    def test_another_model_for_some_questions(self, run, tmp_path: Path, moved: int) -> None:
        """However few they are: a regression cannot be excluded."""

        def scored(name: str, moved: int, value: float) -> Path:
            made = [Score(name="mrr", value=value, version="1", model=f"m-{k < moved}") for k in range(30)]
            return write(tmp_path / f"{name}.jsonl", [record(f"q{k}", 1, score) for k, score in enumerate(made)])

        old, new = scored("old", 0, 0.9), scored("new", moved, 0.5)
        done = run("report", new, "--fail-on-regression", old)
        assert (done.status, "the means are not comparable" in done.errors) == (2, True)
        assert "mrr is worse" not in done.errors

    def test_a_score_for_which_nobody_had_to_be_asked(self, run, tmp_path: Path) -> None:
        """It is comparable with the values of a model that both files have in common."""

        def scored(name: str, asked: int) -> Path:
            made = [Score(name="mrr", value=0.9, version="2", model="m" if k < asked else None) for k in range(30)]
            return write(tmp_path / f"{name}.jsonl", [record(f"q{k}", 1, score) for k, score in enumerate(made)])

        old = scored("old", 30)
        done = run("report", scored("new", 10), "--fail-on-regression", old)
        assert (done.status, done.errors) == (0, "")
        assert run("report", scored("none", 0), "--fail-on-regression", old).status == 2

    def test_a_column_of_numbers_that_is_named(self, run, tmp_path: Path) -> None:
        """A column is a score where it holds a number; a column of words is none."""
        table = tmp_path / "t.csv"
        rows = [f"q{k},1,question q{k},an answer,0.5,{k},word {k}" for k in range(3)]
        table.write_text("\n".join(["id,run,query,response,mrr,mine,note", *rows]), encoding="utf-8")

        done = run("report", table, "--fail-under", "mine=3")
        assert (done.status, "mine is 1.000" in done.errors) == (1, True)
        assert run("report", table, "--metrics", "mine").status == 0
        assert run("plot", table, "--metrics", "mine", "-o", tmp_path / "p.svg").status == 0
        done = run("report", table, "--metrics", "note")
        assert (done.status, "note" in done.errors) == (2, True)
        assert "mine" not in run("report", table).output

    def test_many_scores_and_a_small_alpha(self, run, tmp_path: Path) -> None:
        """All questions got worse in every score: found, however strict the test."""
        files = [
            write(
                tmp_path / f"{name}.jsonl",
                [record(f"q{k}", scores={f"s{n}": value + k / 1000 for n in range(11)}) for k in range(40)],
            )
            for name, value in (("old", 0.9), ("new", 0.1))
        ]
        done = run("report", files[1], "--fail-on-regression", files[0], "--alpha", "0.001")
        assert done.status == 1
        assert len(done.errors.splitlines()) == 11

    def test_other_questions_under_the_same_ids(self, run, tmp_path: Path) -> None:
        """They are counted and not compared. Case and white space make no difference, nor does a file without texts."""
        ids = range(20)
        old = write(tmp_path / "old.jsonl", [record(f"q{k}", scores={"mrr": 0.9}) for k in ids])
        some = [record(f"q{k}", query=f" Question  q{k + (k > 14)}", scores={"mrr": 0.9}) for k in ids]
        done = run("report", write(tmp_path / "some.jsonl", some), "--fail-on-regression", old)
        assert done.status == 0
        assert "Not compared: 5 ids that stand for different questions in the two files." in done.output
        assert "Over the 15 questions that both have." in done.output

        untold = [record(f"q{k}", query="", scores={"mrr": 0.9}) for k in ids]
        done = run("report", write(tmp_path / "untold.jsonl", untold), "--fail-on-regression", old)
        assert "Over the 20 questions that both have." in done.output

        none = [record(f"q{k}", query=f"question q{k + 1}", scores={"mrr": 0.9}) for k in ids]
        done = run("report", write(tmp_path / "none.jsonl", none), old)
        assert done.status == 2
        assert "every one stands for a different question" in done.errors

    def test_no_questions_in_common(self, run, before: Path, tmp_path: Path) -> None:
        """Status 2: nothing was checked."""
        other = write(tmp_path / "other.jsonl", [record(f"x{k}", scores={"cost": 1}) for k in range(3)])
        done = run("report", other, "--fail-on-regression", before)
        assert done.status == 2
        assert "no questions in common" in done.errors

    def test_a_baseline_that_is_the_file_itself(self, run, before: Path) -> None:
        """Comparing a file with itself is an error."""
        assert run("report", before, "--fail-on-regression", before).status == 2


class TestPlot:
    def test_a_png_and_an_svg(self, run, before: Path, after: Path, tmp_path: Path) -> None:
        """Without a display."""
        for name, start in (("p.png", b"\x89PNG"), ("p.svg", b"<?xml")):
            done = run("plot", before, after, "--metrics", "groundedness", "--output", tmp_path / name)
            assert done.status == 0, done.errors
            assert (tmp_path / name).read_bytes().startswith(start)
        text = (tmp_path / "p.svg").read_text(encoding="utf-8")
        assert "groundedness" in text
        assert "cost" not in text

    def test_control_characters_in_names(self, run, tmp_path: Path) -> None:
        """The SVG is still valid XML."""
        records = [record(f"q{k}", scores={"gro\x0bund\uffff": k / 10, "a\x01b": 0.2}) for k in range(5)]
        path = write(tmp_path / "s\x01.jsonl", records)
        done = run("plot", path, write(tmp_path / "t.jsonl", records), "--output", tmp_path / "p.svg")
        assert done.status == 0
        texts = {node.text for node in ElementTree.parse(tmp_path / "p.svg").iter() if node.text}
        assert {"gro␋und\ufffd", "a␁b", "s␁"} <= texts

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--output", "p.pdf"], "should end in .png or .svg"),
            (["--output", "nowhere/p.png"], "there is no folder"),
            (["--output", "p.png", "--metrics", "groundednes"], "Did you mean 'groundedness'?"),
            (["--output", "p.png", "--kind", "consistency"], "no repeated answers to any question in"),
        ],
    )
    def test_what_cannot_be_drawn(
        self, run, before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
    ) -> None:
        """The error is one line, the exit status 2, and nothing is written."""
        monkeypatch.chdir(tmp_path)
        done = run("plot", before, *arguments)
        assert done.status == 2
        assert message in done.errors
        assert len(done.errors.splitlines()) == 1
        assert os.listdir(tmp_path) == ["before.jsonl"]


@pytest.mark.parametrize("command", ["report", "plot"])
def test_files_that_are_no_use(run, tmp_path: Path, command: str) -> None:
    """Missing, empty, without scores: one line, status 2."""
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    bare = write(tmp_path / "bare.jsonl", [record()])
    extra = ["--output", tmp_path / "p.png"] if command == "plot" else []
    for path, message in (
        (tmp_path / "missing.jsonl", "there is no file"),
        (empty, "has no records: it is empty"),
        (bare, "has no scores. Add them: rageval-hooks score"),
    ):
        done = run(command, path, *extra)
        assert done.status == 2
        assert message in done.errors
        assert len(done.errors.splitlines()) == 1


def test_the_commands_explain_themselves() -> None:
    """Every option has a help text."""
    for command in ("report", "plot"):
        text = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200"}).output
        assert "--metrics" in text
        assert "--seed" in text


def test_an_output_that_cannot_be_written(run, tmp_path: Path, before: Path) -> None:
    """One line says so, and the status is not 0."""
    result = run("report", before, "--output", before / "report.html")

    assert result.status == 2
    assert f"{before / 'report.html'} cannot be written: " in result.errors


def test_a_disk_that_is_full(run, tmp_path: Path, before: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line names the file, which stays as it was."""
    (tmp_path / "report.html").write_text("yesterday")

    def replace(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rageval_hooks.offline.records.writing.os.replace", replace)
    result = run("report", before, "--output", tmp_path / "report.html")

    assert result.status == 2
    assert f"{tmp_path / 'report.html'} cannot be written: No space left on device" in result.errors
    assert (tmp_path / "report.html").read_text() == "yesterday"
