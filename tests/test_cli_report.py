"""``rageval-hooks report`` and ``rageval-hooks plot``, as a user runs them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rageval_hooks import Failed, Skipped
from rageval_hooks.cli import app, main
from tests import tiny_models
from tests.offline.scored import record, write
from tests.test_cli import run as run_command


class Result:
    """What a command left: its exit status, what it printed, what it complained of."""

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
        ("name", "start"), [("r.md", "# RAG"), ("r.json", "{"), ("r.html", "<!DOCTYPE html>"), ("r.txt", "before: 30")]
    )
    def test_the_name_of_the_output_says_the_format(
        self, run, before: Path, tmp_path: Path, name: str, start: str
    ) -> None:
        """And that it was written is said, off standard output."""
        done = run("report", before, "--output", tmp_path / name)

        assert (done.status, done.output) == (0, "")
        assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)
        assert "is written" in done.errors

    def test_an_output_of_another_kind(self, run, before: Path, tmp_path: Path) -> None:
        """Is an error that says which are known, unless the format is given; a file that is read is not replaced."""
        done = run("report", before, "--output", tmp_path / "r.csv")
        assert (done.status, (tmp_path / "r.csv").exists()) == (2, False)
        assert ".txt, .md, .markdown, .json, .html" in done.errors
        assert run("report", before, "--output", tmp_path / "r.csv", "--format", "json").status == 0

        kept = before.read_bytes()
        assert run("report", before, "--output", before, "--format", "json").status == 2
        assert before.read_bytes() == kept

    def test_names_of_documents_are_not_broken(self, run, tmp_path: Path) -> None:
        """However many scores stand beside them."""
        scores = {f"trace.{name}": 0.5 for name in ("context_relevance", "context_utilization", "supported_share")}
        scores |= {"groundedness": 0.5, "unsupported_facts": 0.0}
        path = write(tmp_path / "s.jsonl", [record("q", document="handbook/harbour.md", scores=scores)])
        assert "\nhandbook/harbour.md  " in run("report", path).output

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


class TestFailUnder:
    def test_bounds_that_are_kept(self, run, before: Path) -> None:
        """Also where lower is better, and on the bound itself."""
        done = run("report", before, "--fail-under", "groundedness=0.9", "--fail-under", "cost=0.2")
        assert (done.status, done.errors) == (0, "")

    def test_a_mean_below_its_bound(self, run, after: Path) -> None:
        """Which, by how much, of how many."""
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
        """A judge's failure is no 0."""
        failed = Failed(name="trace", error_type="unavailable", metric="trace")
        path = write(tmp_path / "s.jsonl", [record("q1", scores={"trace.adherence": 0.5}), record("q2", 1, failed)])
        assert run("report", path, "--fail-under", "trace.adherence=0.5").status == 0
        assert "1 values, 1 failed" in run("report", path, "--fail-under", "trace.adherence=0.6").errors

    @pytest.mark.parametrize("bound", ["groundedness", "=0.5", "groundedness=high", "groundedness=nan"])
    def test_a_bound_that_is_none(self, run, after: Path, bound: str) -> None:
        """What one looks like is said."""
        done = run("report", after, "--fail-under", bound)
        assert done.status == 2
        assert "is not of the form score=number, such as groundedness=0.7" in done.errors


class TestFailOnRegression:
    def test_worse_answers(self, run, before: Path, after: Path) -> None:
        """Which score, from what to what, how sure; a cost that is the same on average is no regression."""
        done = run("report", after, "--fail-on-regression", before)

        assert done.status == 1
        [line] = done.errors.splitlines()
        assert "after: groundedness is worse than in before: 0.900 → 0.655, difference -0.245 [-0.27" in line
        assert "n = 30, p = 0.0002 (one-sided, adjusted for 2 scores)" in line

    def test_better_answers(self, run, before: Path, after: Path) -> None:
        """A change for the better is none for the worse."""
        assert run("report", before, "--fail-on-regression", after).status == 0

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

    def test_the_level_can_be_set(self, run, tmp_path: Path) -> None:
        """Four worse of four: p = 1/16."""
        old = write(tmp_path / "old.jsonl", [record(f"q{k}", scores={"mrr": 1.0}) for k in range(4)])
        new = write(tmp_path / "new.jsonl", [record(f"q{k}", scores={"mrr": 0.5}) for k in range(4)])
        strict = run("report", new, "--fail-on-regression", old)

        assert strict.status == 0
        assert "only 4 questions in common with old" in strict.errors
        assert run("report", new, "--fail-on-regression", old, "--alpha", "0.1").status == 1

    def test_scores_that_did_not_change_do_not_count(self, run, tmp_path: Path) -> None:
        """What is found significant is not said to be impossible to find."""
        same = {f"same{k}": 0.5 for k in range(5)}
        old = write(tmp_path / "old.jsonl", [record(f"q{k}", scores={**same, "mrr": 1.0}) for k in range(5)])
        new = write(tmp_path / "new.jsonl", [record(f"q{k}", scores={**same, "mrr": 0.5}) for k in range(5)])
        done = run("report", new, "--fail-on-regression", old)

        assert done.status == 1
        assert "p = 0.031 (one-sided, adjusted for 1 score)" in done.errors
        assert "takes at least" not in done.errors

    def test_no_questions_in_common(self, run, before: Path, tmp_path: Path) -> None:
        """Status 2: nothing was checked."""
        other = write(tmp_path / "other.jsonl", [record(f"x{k}", scores={"cost": 1}) for k in range(3)])
        done = run("report", other, "--fail-on-regression", before)
        assert done.status == 2
        assert "no questions in common" in done.errors

    def test_a_baseline_that_is_the_file_itself(self, run, before: Path) -> None:
        """Is a mistake."""
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

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--output", "p.pdf"], "--output ends with .png or .svg"),
            (["--output", "nowhere/p.png"], "there is no folder"),
            (["--output", "p.png", "--metrics", "groundednes"], "Did you mean 'groundedness'?"),
            (["--output", "p.png", "--kind", "consistency"], "no repeated answers to any question in"),
        ],
    )
    def test_what_cannot_be_drawn(
        self, run, before: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
    ) -> None:
        """Is said in one line, with status 2, and nothing is written."""
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
        (bare, "has no scores: they are added by rageval-hooks score"),
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
