"""Scores of a file: by local metrics and a judge, resumed, within a budget."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import ConfigurationError, Score, Skipped, metric
from rageval_hooks.errors import (
    JudgeAnswerError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeRejectedError,
    JudgeTruncatedError,
    JudgeUnavailableError,
    TurnError,
)
from rageval_hooks.judges.fake import FakeCall
from rageval_hooks.offline.journal import journal_path
from rageval_hooks.offline.records import read_records
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.reading import ReadOptions
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.score_file import Scored, score_file
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.score import Failed
from rageval_hooks.testing import FakeJudge
from rageval_hooks.turn import Usage
from tests.offline.records.test_readers import write_lines
from tests.online.test_judge_stage import LABELS

USAGE = Usage(input_tokens=100, output_tokens=10)


@metric(requires=["response"], high=None, unit="words")
def words(turn: Any) -> int:
    """Words of the response."""
    return len(turn.response.split())


@metric(requires=["response"], high=None)
def threads_of_a_worker(turn: Any) -> int:
    """The threads that a worker process gives to the libraries of models; 0 in the process of the test."""
    if turn.metadata["process"] == str(os.getpid()):
        return 0
    print("A metric may write, and read: neither disturbs what workers send and receive.")  # noqa: T201 - as it says
    assert os.read(0, 1) == b""
    return int(os.environ["OMP_NUM_THREADS"])


def rows(number: int) -> list[dict[str, Any]]:
    return [
        {
            "id": f"q{index}",
            "query": f"When was pier {index} opened?",
            "response": "It was opened in 2019.",
            "passages": ["The pier was opened in 2019."],
        }
        for index in range(number)
    ]


def pipeline(judge: Any = None, metrics: Any = (words,), **settings: Any) -> Pipeline:
    chosen = [*metrics, *(["trace"] if judge is not None else [])]
    return Pipeline.build(metrics=chosen, judge=judge, models="lexical", exporters=[], **settings)


def score(path: Path, judge: Any = None, output: str = "out.jsonl", **options: Any) -> tuple[Scored, list[Record]]:
    metrics = options.pop("metrics", (words,))
    settings = {name: options.pop(name) for name in ("thresholds",) if name in options}
    target = path.parent / output
    scored = score_file(path, [target], pipeline(judge, metrics, **settings), **options)
    return scored, list(read_records(target)) if target.suffix == ".jsonl" else []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in.jsonl", rows(6))


def adherence(record: Record) -> Any:
    return next((r for r in record.results if r.name in ("trace", "trace.adherence")), None)


class TestScores:
    def test_every_row_is_scored_in_the_order_of_the_file(self, path: Path) -> None:
        """The output has the order of the input, although the last row is judged first."""
        judged = [asyncio.Event() for _ in range(7)]
        judged[6].set()

        async def last_first(call: FakeCall) -> Any:
            number = int(call.prompt.split("When was pier ")[1][0])
            await judged[number + 1].wait()
            judged[number].set()
            return LABELS

        judge = FakeJudge(last_first)
        scored, records = score(path, judge, concurrency=6)

        assert [record.id for record in records] == [f"q{index}" for index in range(6)]
        for record in records:
            values = {score.name: score.value for score in record.scores()}
            assert (values["words"], values["trace.adherence"]) == (5.0, 1.0)
        assert (scored.counts.turns, scored.bad, scored.budget.spent.calls) == (6, 0, 6)
        assert not journal_path(path.parent / "out.jsonl").exists()

    def test_the_concurrency_is_reached_and_not_exceeded(self, path: Path) -> None:
        """As many turns run at a time as the option says."""
        running = most = 0
        three = asyncio.Barrier(3)

        async def count(call: FakeCall) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.wait_for(three.wait(), 30)
            running -= 1
            return LABELS

        score(path, FakeJudge(count), concurrency=3)
        assert most == 3

    def test_scores_of_the_input_are_kept_or_replaced(self, tmp_path: Path) -> None:
        """A file is scored again with another metric, or with the same one."""
        path = write_lines(tmp_path / "in.jsonl", rows(1))
        _, [record] = score(path)
        again = record.model_copy(update={"results": (*record.results, Score(name="other", value=0.5, metric="other"))})
        write_lines(path, [again.model_dump(mode="json")])
        _, [twice] = score(path, output="again.jsonl")

        assert [(result.name, result.value) for result in twice.scores()] == [("other", 0.5), ("words", 5.0)]

    def test_thresholds_give_labels(self, path: Path) -> None:
        """Offline thresholds work as online."""
        _, records = score(path, thresholds={"words": 6.0})
        assert {score.label for record in records for score in record.scores()} == {"fail"}

    def test_bad_rows_go_to_a_file_of_their_own(self, tmp_path: Path) -> None:
        """With line, reason and row; an older such file goes when there is nothing to say."""
        good = rows(2)
        path = write_lines(tmp_path / "in.jsonl", [good[0], "{", {**good[1], "query": None}, good[1]])
        scored, records = score(path)
        errors = tmp_path / "out.jsonl.errors.jsonl"
        entries = [json.loads(line) for line in errors.read_text().splitlines()]

        assert [record.id for record in records] == ["q0", "q1"]
        assert scored.errors == errors
        assert (scored.bad, scored.first_bad and scored.first_bad.line) == (2, 2)
        assert [(entry["line"], entry["row"]) for entry in entries] == [(2, "{"), (3, {**good[1], "query": None})]
        assert "not JSON" in entries[0]["reason"]

        score(write_lines(path, good))
        assert not errors.exists()

    def test_a_file_for_bad_rows_that_was_asked_for(self, path: Path) -> None:
        """It is written even if it is empty."""
        errors = path.parent / "bad.jsonl"
        errors.write_text("of an earlier run")
        score(path, errors=errors)
        assert errors.read_text() == ""

    def test_no_row_at_all(self, tmp_path: Path) -> None:
        """The error explains the first bad row; nothing is written or overwritten."""
        path = write_lines(tmp_path / "in.jsonl", ["{", "["])
        (tmp_path / "out.jsonl").write_text("precious")
        with pytest.raises(TurnError, match=r"no row of .* can be used: line 1: not JSON"):
            score(path, restart=True)
        with pytest.raises(TurnError, match="has no rows"):
            score(write_lines(path, []), restart=True)

        assert (tmp_path / "out.jsonl").read_text() == "precious"
        assert not journal_path(tmp_path / "out.jsonl").exists()

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"output": "out.xlsx"}, "should end in .jsonl or .ndjson or .csv"),
            ({"output": "nowhere/out.jsonl"}, "there is no folder"),
            ({"columns": "open-rag-eval"}, "an output should end in .csv"),
            ({"errors": "in.jsonl"}, "would overwrite an input"),
            ({"concurrency": 0}, "concurrency is 0"),
            ({"max_calls": -1}, "max-calls is -1"),
        ],
    )
    def test_wrong_options_are_said_before_anything_is_done(
        self, options: dict[str, Any], reason: str, path: Path
    ) -> None:
        """They leave no files behind."""
        if "errors" in options:
            options = {"errors": path.parent / options["errors"]}
        with pytest.raises(ConfigurationError, match=reason):
            score(path, **options)
        assert [item.name for item in path.parent.iterdir()] == ["in.jsonl"]


class Interruption(BaseException):
    """As if the user had pressed Ctrl-C."""


def stopping(after: int) -> FakeJudge:
    """A judge in the middle of whose work the process is interrupted."""
    asked = 0

    async def answer(call: FakeCall) -> Any:
        nonlocal asked
        asked += 1
        if asked > after:
            raise Interruption
        return LABELS

    return FakeJudge(answer, usage=USAGE, cost=0.01)


class TestResuming:
    def interrupted(self, path: Path, after: int = 3, **options: Any) -> None:
        with pytest.raises(Interruption):
            score(path, stopping(after), concurrency=1, **options)

    def test_it_goes_on_where_it_stopped(self, path: Path) -> None:
        """What was judged is not judged again; the output is that of one run."""
        self.interrupted(path)
        assert not (path.parent / "out.jsonl").exists()
        rest = FakeJudge(lambda _: LABELS, usage=USAGE, cost=0.01)
        scored, records = score(path, rest)

        assert len(rest.calls) == 3
        assert (scored.counts.turns, scored.resumed) == (6, 3)
        assert (scored.budget.spent.calls, round(scored.budget.spent.cost, 6)) == (6, 0.06)
        assert [record.id for record in records] == [f"q{index}" for index in range(6)]
        assert all(isinstance(adherence(record), Score) for record in records)

    def test_a_torn_line_is_cut_off(self, path: Path) -> None:
        """A killed process may leave half of one."""
        self.interrupted(path)
        journal = journal_path(path.parent / "out.jsonl")
        journal.write_bytes(journal.read_bytes()[:-20])
        rest = FakeJudge(lambda _: LABELS)
        scored, records = score(path, rest)

        assert (scored.resumed, len(records)) == (2, 6)
        assert len(rest.calls) == 3  # The judgement of the third question is in an earlier line.

    def test_a_damaged_line_is_the_end(self, path: Path) -> None:
        """Nothing after it is trusted: those turns are judged again."""
        self.interrupted(path)
        journal = journal_path(path.parent / "out.jsonl")
        lines = journal.read_bytes().splitlines(keepends=True)
        journal.write_bytes(b"".join([*lines[:3], b"{damaged\n", *lines[4:]]))
        rest = FakeJudge(lambda _: LABELS)
        scored, records = score(path, rest)

        assert (scored.resumed, [record.id for record in records]) == (1, [f"q{index}" for index in range(6)])
        assert len(rest.calls) == 5

    def test_what_one_metric_has_found_is_kept(self, path: Path) -> None:
        """Of a turn that two metrics ask about, one of them judged, only the other is asked."""

        @metric(requires=["response"])
        async def quick(turn: Any, judge: Any) -> float:
            """A metric with a judge that makes no requests."""
            asked.append(turn.id)
            return 1.0

        asked: list[str] = []
        self.interrupted(path, after=0, metrics=(quick,))
        scored, records = score(path, FakeJudge(lambda _: LABELS), metrics=(quick,))

        assert asked == [f"q{index}" for index in range(6)]
        assert scored.resumed == 0
        assert {r.name for r in records[0].scores()} >= {"quick", "trace.adherence"}

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"metrics": ()}, "metrics"),
            ({"thresholds": {"words": 1.0}}, "thresholds"),
            ({"model": "another"}, "judge"),
            ({"rows": 5}, "input"),
        ],
    )
    def test_something_else_does_not_go_on(self, change: dict[str, Any], named: str, path: Path) -> None:
        """The message says what is different, and how to start over."""
        self.interrupted(path)
        judge = FakeJudge(lambda _: LABELS, model=change.pop("model", "fake"))
        if "rows" in change:
            write_lines(path, rows(change.pop("rows")))
        with pytest.raises(ConfigurationError, match=f"another {named}.* or give --restart to discard it"):
            score(path, judge, **change)
        assert not judge.calls

        scored, _ = score(path, judge, restart=True, **change)
        assert scored.resumed == 0

    def test_a_strange_file_is_not_taken_for_a_journal(self, path: Path) -> None:
        """It is not overwritten either."""
        journal = journal_path(path.parent / "out.jsonl")
        journal.write_text('{"something": "else"}\n')
        with pytest.raises(ConfigurationError, match="is not a journal"):
            score(path)
        assert journal.read_text() == '{"something": "else"}\n'

    def test_the_input_is_not_written_over(self, tmp_path: Path) -> None:
        """Neither by the output, which has not all of its columns, nor by the rows that cannot be used."""
        others = (("out.jsonl.errors.jsonl", "out.jsonl"), ("out.jsonl.partial.jsonl", "out.jsonl"))
        for name, output in (("in.csv", "in.csv"), *others):
            given = tmp_path / name
            given.write_text(
                "query,response,mine\nWhen?,In 2019.,kept\n" if name == "in.csv" else json.dumps(rows(1)[0])
            )
            before = given.read_bytes()
            with pytest.raises(ConfigurationError, match="would overwrite an input"):
                score(given, output=output, restart=True)
            assert given.read_bytes() == before

    def test_bad_rows_of_another_output_stay(self, path: Path) -> None:
        """Each output has its own file for bad rows."""
        score(write_lines(path.parent / "half.jsonl", [*rows(1), "{"]))
        [errors] = path.parent.glob("*.errors.jsonl")
        score(path, output="out.csv")
        assert errors.exists()

    def test_a_place_for_bad_rows_that_is_not_there(self, path: Path) -> None:
        """The error comes before any work, not at the first bad row."""
        with pytest.raises(ConfigurationError, match=r"--errors .* there is no folder"):
            score(path, errors=path.parent / "none" / "bad.jsonl")
        assert [item.name for item in path.parent.iterdir()] == ["in.jsonl"]

    @pytest.mark.parametrize(("name", "message"), [("", "is a folder"), ("none.jsonl", "there is no file")])
    def test_an_input_that_is_no_file(self, tmp_path: Path, name: str, message: str) -> None:
        """The message says what is wrong."""
        with pytest.raises(ConfigurationError, match=message):
            score_file(tmp_path / name, [tmp_path / "out.jsonl"], pipeline())

    def test_two_processes_do_not_write_the_same(self, path: Path) -> None:
        """The second process fails with a message."""
        import fcntl

        journal = journal_path(path.parent / "out.jsonl")
        with open(journal, "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            with pytest.raises(ConfigurationError, match="another process is writing"):
                score(path)


class TestJudge:
    @pytest.mark.parametrize("concurrency", [1, 4])
    def test_a_budget_of_calls(self, concurrency: int, path: Path) -> None:
        """The rest of the judging is skipped, which says why; local metrics go on."""
        judge = FakeJudge(lambda _: LABELS)
        scored, records = score(path, judge, concurrency=concurrency, max_calls=2)
        found = [adherence(record) for record in records]

        assert len(judge.calls) == 2
        assert sum(isinstance(result, Score) for result in found) == 2
        skipped = {result.reason for result in found if isinstance(result, Skipped)}
        assert skipped == {"the budget of 2 calls is used up"}
        assert all("words" in {found.name for found in record.scores()} for record in records)
        assert (scored.budget.reason, scored.budget.refused) == ("the budget of 2 calls is used up", 4)

    def test_a_budget_of_money(self, path: Path) -> None:
        """By what the answers so far have cost."""
        judge = FakeJudge(lambda _: LABELS, usage=USAGE, cost=0.3)
        scored, _ = score(path, judge, max_cost=1.0)

        assert len(judge.calls) == 3
        assert round(scored.budget.spent.cost, 6) == 0.9
        assert scored.budget.reason == "the budget of 1 USD is used up"

    def test_money_for_a_model_without_a_price(self, path: Path) -> None:
        """One answer tells; no further one is asked for."""
        judge = FakeJudge(lambda _: LABELS, usage=USAGE)
        scored, _ = score(path, judge, max_cost=1.0)

        assert len(judge.calls) == 1
        assert "the price of fake:fake is not known" in (scored.budget.reason or "")

    def test_the_budget_holds_over_an_interruption(self, path: Path) -> None:
        """What was spent before counts."""
        with pytest.raises(Interruption):
            score(path, stopping(2), concurrency=1, max_calls=4)
        rest = FakeJudge(lambda _: LABELS)
        scored, _ = score(path, rest, max_calls=4)

        assert len(rest.calls) == 2
        assert scored.budget.spent.calls == 4

    def test_a_failed_judgement_is_no_reason_to_stop(self, path: Path) -> None:
        """It becomes a failed result of its turn."""
        answers = iter([LABELS, JudgeUnavailableError("down", attempts=1), LABELS, LABELS, LABELS, LABELS])
        scored, records = score(path, FakeJudge(lambda _: next(answers)), concurrency=1)

        [failed] = [record.id for record in records if isinstance(adherence(record), Failed)]
        assert (failed, scored.counts.turns) == ("q1", 6)

    @pytest.mark.parametrize("kind", [JudgeUnavailableError, JudgeRejectedError, JudgeRateLimitedError])
    def test_a_judge_that_does_not_work_stops_it(self, kind: type[Exception], path: Path) -> None:
        """What it has judged before is kept; the rest is judged by the next call."""
        asked = 0

        def broken(call: FakeCall) -> Any:
            nonlocal asked
            asked += 1
            if asked > 1:
                raise kind("wrong key")
            return LABELS

        with pytest.raises(JudgeUnavailableError, match=r"does not work: wrong key.*give the same command again"):
            score(path, FakeJudge(broken), concurrency=1)
        working = FakeJudge(lambda _: LABELS)
        scored, records = score(path, working)

        assert (len(working.calls), scored.resumed) == (5, 1)
        assert all(isinstance(adherence(record), Score) for record in records)

    @pytest.mark.parametrize("number", [1, 4])
    def test_a_judge_that_refuses_a_short_file(self, number: int, tmp_path: Path) -> None:
        """Does not work either: the turns are left to the next call, if nothing else came out."""
        path = write_lines(tmp_path / "in.jsonl", rows(number))

        def refuse(call: FakeCall) -> Any:
            raise JudgeRejectedError("wrong key", status=401)

        with pytest.raises(JudgeUnavailableError, match="does not work: wrong key"):
            score(path, FakeJudge(refuse), metrics=())
        assert not (tmp_path / "out.jsonl").exists()
        _, records = score(path, FakeJudge(lambda _: LABELS), metrics=())
        assert all(isinstance(adherence(record), Score) for record in records)

    def test_local_scores_are_not_lost_with_the_judge(self, tmp_path: Path) -> None:
        """They are written, and the result says that the judge does not work."""
        path = write_lines(tmp_path / "in.jsonl", rows(2))

        def refuse(call: FakeCall) -> Any:
            raise JudgeRejectedError("wrong key", status=401)

        scored, records = score(path, FakeJudge(refuse))
        assert "does not work: wrong key" in (scored.broken or "")
        assert [[found.name for found in record.scores()] for record in records] == [["words"]] * 2
        assert all(isinstance(adherence(record), Failed) for record in records)

    def test_the_last_turn_always_fails(self, path: Path) -> None:
        """After an interruption, too: what the judge has answered before says that it works."""

        async def interrupted(call: FakeCall) -> Any:
            if "pier 5" in call.prompt:  # the judge has a thread of its own, and Ctrl-C reaches the main one
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
                await asyncio.Event().wait()
            return LABELS

        def failing(call: FakeCall) -> Any:
            raise JudgeUnavailableError("HTTP 500")

        with pytest.raises(KeyboardInterrupt):
            score(path, FakeJudge(interrupted), metrics=(), concurrency=1)
        scored, records = score(path, FakeJudge(failing), metrics=(), concurrency=1)

        assert (scored.counts.turns, scored.resumed, scored.broken) == (6, 5, None)
        assert [type(adherence(record)) for record in records] == [Score] * 5 + [Failed]

    @pytest.mark.parametrize("kind", [JudgeAnswerError, JudgeRefusedError, JudgeTruncatedError])
    def test_an_answer_that_cannot_be_used(self, kind: type[Exception], path: Path) -> None:
        """An unusable answer is an answer: the judge works, and an outage fails only its turn."""

        def useless(call: FakeCall) -> Any:
            raise (JudgeUnavailableError if "pier 5" in call.prompt else kind)("no")

        scored, records = score(path, FakeJudge(useless), metrics=())
        assert (scored.counts.turns, scored.broken) == (6, None)
        assert all(isinstance(adherence(record), Failed) for record in records)

    def test_several_that_fail_at_once_are_one_error(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """The others are not left to be complained about when they are thrown away."""
        path = write_lines(tmp_path / "in.jsonl", rows(8))

        async def refuse(call: FakeCall) -> Any:
            await asyncio.sleep(0)
            raise JudgeRejectedError("wrong key", status=401)

        with pytest.raises(JudgeUnavailableError):
            score(path, FakeJudge(refuse), concurrency=8)
        gc.collect()
        assert "never retrieved" not in caplog.text


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Neither turns nor results are kept: only their positions in the journal, and a hash of each id."""

    def peak(number: int) -> int:
        passages = ["x" * 3000]
        path = write_lines(tmp_path / f"in{number}.jsonl", ({**row, "passages": passages} for row in rows(number)))
        tracemalloc.start()
        try:
            scored, _ = score(path, output=f"out{number}.csv")
            assert scored.counts.turns == number
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(50)  # what is imported and compiled on first use
    small, large = peak(100), peak(500)
    assert large - small < 400 * 1000  # a row has more than 3,000 bytes, a record more than 6,000


class TestFinishedFiles:
    def test_the_same_command_does_nothing(self, path: Path) -> None:
        """A finished file is neither written nor paid for again."""
        judge = FakeJudge(lambda _: LABELS)
        score(path, judge)
        before, calls = (path.parent / "out.jsonl").stat().st_mtime_ns, len(judge.calls)
        again, records = score(path, judge)

        assert (again.finished, again.counts.turns, len(records)) == (True, 6, 6)
        assert len(judge.calls) == calls
        assert (path.parent / "out.jsonl").stat().st_mtime_ns == before

    def test_other_options_do_not_overwrite_it(self, path: Path) -> None:
        """The error says what differs, and how to replace the file."""
        score(path)
        before = (path.parent / "out.jsonl").read_bytes()
        with pytest.raises(ConfigurationError, match=r"was made with another metrics: .* --restart"):
            score(path, metrics=("latency",))
        assert (path.parent / "out.jsonl").read_bytes() == before
        _, records = score(path, metrics=("latency",), restart=True)
        assert {result.name for record in records for result in record.results} == {"latency"}

    def test_rows_that_are_read_in_another_way_are_not_mixed_in(self, path: Path) -> None:
        """Another --map or --encoding makes other rows."""
        score(path)
        with pytest.raises(ConfigurationError, match=r"was made with another map: .* --restart"):
            score(path, reading=ReadOptions(columns=ColumnMap({"query": "response"})))
        with pytest.raises(ConfigurationError, match=r"was made with another encoding: .* --restart"):
            score(path, reading=ReadOptions(encoding="latin-1"))

    def test_a_file_of_something_else_is_not_overwritten(self, path: Path) -> None:
        """It is not known how it was made."""
        (path.parent / "out.jsonl").write_text("precious")
        with pytest.raises(ConfigurationError, match="this command did not write it"):
            score(path)

    def test_a_longer_input_pays_for_its_new_rows_only(self, path: Path) -> None:
        """Results of the finished file are reused, in the order of the input."""
        judge = FakeJudge(lambda _: LABELS)
        score(path, judge)
        calls = len(judge.calls)
        write_lines(path, [*reversed(rows(6)), *rows(8)[6:]])
        scored, records = score(path, judge)

        assert [record.id for record in records] == ["q5", "q4", "q3", "q2", "q1", "q0", "q6", "q7"]
        assert (scored.reused, len(judge.calls)) == (6, calls + 2)

    def test_a_table_is_scored_again_as_a_whole(self, path: Path) -> None:
        """It does not have whole turns, so the results of a longer input are all new."""
        score(path, output="out.csv")
        write_lines(path, rows(8))
        scored, _ = score(path, output="out.csv")

        assert (scored.reused, scored.counts.turns) == (0, 8)

    def test_a_larger_budget_judges_what_an_earlier_one_left_out(self, path: Path) -> None:
        """And nothing else."""
        judge = FakeJudge(lambda _: LABELS)
        score(path, judge, max_calls=4)
        scored, records = score(path, judge, max_calls=9)

        assert (scored.finished, scored.reused, len(judge.calls)) == (False, 4, 6)
        assert all(isinstance(adherence(record), Score) for record in records)
        assert score(path, judge)[0].finished

    def test_a_budget_that_processes_share_is_no_end_either(self, path: Path) -> None:
        """The next day, the same command asks for what is missing; so it does after an interruption."""
        judge = FakeJudge(lambda _: LABELS)

        def score_within(calls: int, judge: FakeJudge = judge) -> Scored:
            store = str(path.parent / "budget.db")
            limited = pipeline(judge, judge_budget=f"calls_per_day={calls}", judge_budget_store=store)
            return score_file(path, [path.parent / "out.jsonl"], limited, concurrency=1)

        first = score_within(2)
        assert (first.counts.results["skipped"], len(judge.calls)) == (4, 2)
        second = score_within(2)
        assert (second.finished, second.reused, len(judge.calls)) == (False, 2, 2)
        third = score_within(20)
        assert (third.finished, third.reused, len(judge.calls)) == (False, 2, 6)
        assert all(isinstance(adherence(record), Score) for record in read_records(path.parent / "out.jsonl"))
        assert score_within(20).finished

    def test_what_a_budget_left_out_before_an_interruption_is_missing(self, path: Path) -> None:
        """The same command scores the rest of the file first, and asks for it the next time."""
        judge = FakeJudge(lambda _: LABELS)
        done: list[int] = []

        def stop(count: int) -> None:
            done.append(count)
            if len(done) == 4:
                raise Interruption

        with pytest.raises(Interruption):
            score(path, judge, concurrency=1, max_calls=2, advance=stop)
        resumed, _ = score(path, judge, max_calls=9)
        assert (resumed.resumed, len(judge.calls)) == (4, 4)
        again, records = score(path, judge, max_calls=9)
        assert (again.finished, again.reused, len(judge.calls)) == (False, 4, 6)
        assert all(isinstance(adherence(record), Score) for record in records)

    def test_another_input_does_not_replace_it(self, path: Path) -> None:
        """Scores of rows that it lacks would be lost."""
        score(path)
        write_lines(path, rows(3))
        with pytest.raises(ConfigurationError, match="has the scores of 3 rows"):
            score(path)


class TestWorkers:
    @pytest.mark.parametrize(
        ("workers", "number", "threads"),
        [(1, 500, 0), (2, 1, 3), (None, 499, 0), (None, 500, 2)],
    )
    def test_are_started_where_they_are_wanted_or_worth_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None, number: int, threads: int
    ) -> None:
        """By default, for so many rows that the start of three on as many cores pays. They share the machine's six."""
        monkeypatch.setattr(os, "cpu_count", lambda: 6)
        monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
        given = [{**row, "metadata": {"process": str(os.getpid())}} for row in rows(number)]
        path = write_lines(tmp_path / "in.jsonl", given)

        scored, records = score(path, metrics=(threads_of_a_worker,), workers=workers)

        assert {found.value for record in records for found in record.scores()} == {threads}
        assert scored.counts.turns == number
