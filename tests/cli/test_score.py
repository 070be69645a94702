"""``rageval-hooks score``, as a user runs it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import Score
from rageval_hooks.offline.records import read_records
from rageval_hooks.score import Failed
from tests.cli.test_cli import COMMAND, run
from tests.judges.server import Gate, JudgeServer, answer, held
from tests.offline.records.test_readers import write_csv, write_lines
from tests.offline.records.test_writers import table
from tests.online.test_judge_stage import LABELS
from tests.warm import WarmProcess, start_command

LEXICAL = ("--models", "lexical")


def rows(number: int) -> list[dict[str, Any]]:
    return [
        {
            "query": f"When was pier {index} opened?",
            "response": "It was opened in 2019.",
            "passages": ["The pier was opened in 2019."],
        }
        for index in range(1, number + 1)
    ]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "in.jsonl", rows(6))


def values(path: Path) -> list[dict[str, float]]:
    return [{score.name: score.value for score in record.scores()} for record in read_records(path)]


class TestFiles:
    def test_local_scores_of_json_lines(self, file: Path) -> None:
        """All defaults, with labels, and a summary in plain text."""
        output = file.parent / "out.jsonl"
        result = run("score", str(file), *LEXICAL, "-o", str(output), "--threshold", "groundedness=0.7")
        records = list(read_records(output))

        assert result.stdout.splitlines()[:2] == ["verdict: 6 good (100%)", f"scored 6 turns of {file}: {output}"]
        assert result.stderr == ""
        assert [record.id for record in records] == ["1", "2", "3", "4", "5", "6"]
        assert {"groundedness", "answer_relevance", "context_relevance"} <= set(values(output)[0])
        assert {s.label for record in records for s in record.scores() if s.name == "groundedness"} == {"pass"}
        assert sorted(item.name for item in file.parent.iterdir()) == ["in.jsonl", "out.jsonl", "out.jsonl.done.jsonl"]

    def test_the_verdicts_are_first(self, tmp_path: Path) -> None:
        """In the summary, also of a finished file, in both kinds of files, and in a table that is read again."""
        said = ["It was opened in 2019.", "It was opened in 1978 by Carl for 500 euros.", "I don't know."]
        path = write_lines(
            tmp_path / "in.jsonl", [{**row, "response": text} for row, text in zip(rows(3), said, strict=True)]
        )
        outputs = [tmp_path / "out.jsonl", tmp_path / "out.csv"]
        arguments = ("score", str(path), *LEXICAL, "-o", str(outputs[0]), "-o", str(outputs[1]))

        line = "verdict: 1 good (33%), 1 bad (33%), 1 declined (33%); causes: 1 unsupported, 1 refused"
        assert [run(*arguments).stdout.splitlines()[0] for _ in range(2)] == [line, line]
        assert [row["verdict.label"] for row in table(outputs[1])] == ["good", "bad", "declined"]
        for output in outputs:
            first = [record.results[0] for record in read_records(output)]
            assert [(result.name, result.label) for result in first if not isinstance(result, Failed)] == [
                ("verdict", "good"),
                ("verdict", "bad"),
                ("verdict", "declined"),
            ]

    def test_labels_are_there_by_default(self, file: Path) -> None:
        """In both kinds of files; the report counts them; ``none`` removes them."""
        outputs = [file.parent / "out.csv", file.parent / "out.jsonl"]
        arguments = ("score", str(file), *LEXICAL, "-o", str(outputs[0]), "-o", str(outputs[1]))
        run(*arguments)
        report = run("report", str(outputs[0])).stdout.splitlines()

        assert {row["groundedness.label"] for row in table(outputs[0])} == {"pass"}
        assert "answer_relevance.label" not in table(outputs[0])[0]
        assert [
            score.label for score in next(read_records(outputs[1])).results if score.name == "context_relevance"
        ] == [
            None,
            "pass",
        ]
        [header] = [line for line in report if line.startswith("score ")]
        assert "passed" in header.split()
        assert [line.split()[-1] for line in report if line.startswith("groundedness")] == ["100.0%"]

        run(*arguments, "--restart", "--threshold", "none", "--threshold", "unsupported_facts=0")
        assert {name for name in table(outputs[0])[0] if name.endswith(".label")} == {
            "unsupported_facts.label",
            "verdict.label",
        }

    def test_the_environment_may_name_scores_of_others(self, file: Path) -> None:
        """Metrics in the environment are those of an application; the option applies to the command."""
        output = file.parent / "out.jsonl"
        arguments = ("score", str(file), *LEXICAL, "--metrics", "groundedness", "-o", str(output))
        run(*arguments, RAGEVAL_THRESHOLDS="trace.adherence=1,groundedness=1")
        assert {score.label for record in read_records(output) for score in record.scores()} <= {"pass", "fail"}

        done = run(*arguments, "--threshold", "trace.adherence=1", status=2)
        assert "unknown score in thresholds 'trace.adherence'. Valid: groundedness." in done.stderr

    def test_a_table_to_two_tables(self, tmp_path: Path) -> None:
        """From the columns of Ragas to a table and JSON Lines."""
        given = [{"question": "When?", "answer": "In 2019.", "contexts": '["It was in 2019."]', "ground_truth": "2019"}]
        file = write_csv(tmp_path / "in.csv", given)
        outputs = [tmp_path / "out.csv", tmp_path / "out.jsonl"]
        run("score", str(file), *LEXICAL, "--metrics", "groundedness", "-o", str(outputs[0]), "-o", str(outputs[1]))

        [row] = table(outputs[0])
        assert float(row["groundedness"]) == values(outputs[1])[0]["groundedness"]

    def test_a_conversation_and_its_context(self, tmp_path: Path) -> None:
        """Chat messages, and the passages in a second file (RAG Evaluation Pipeline (Lite))."""
        chat, context = tmp_path / "chat.txt", tmp_path / "context.json"  # a conversation may have any name
        turns = [
            {"turn": 1, "role": "User", "message": "When was the pier opened?"},
            {"turn": 2, "role": "AI/Chatbot", "message": "The pier was opened in 2019."},
        ]
        vectors = [{"id": 7, "text": "The pier was opened in 2019.", "source_url": "a.md"}]
        chat.write_text(json.dumps({"chat_id": 1, "conversation_turns": turns}))
        context.write_text(json.dumps({"status": "success", "data": {"vector_data": vectors}}))
        output = tmp_path / "out.jsonl"
        arguments = ("score", str(chat), "--context", str(context), *LEXICAL, "--metrics", "groundedness", "-o")
        assert "dry run: nothing was asked" in run(*arguments, str(output), "--dry-run").stdout
        run(*arguments, str(output))

        [record] = read_records(output)
        assert (record.turn.query, record.turn.passages[0].id) == ("When was the pier opened?", "7")
        assert values(output) == [{"groundedness": 1.0}]

    def test_a_conversation_without_messages(self, tmp_path: Path) -> None:
        chat = tmp_path / "chat.json"
        chat.write_text('{"data": {"title": "A chat"}}')
        output = str(tmp_path / "out.jsonl")
        said = run("score", str(chat), "--context", str(chat), *LEXICAL, "-o", output, status=2).stderr
        assert said.startswith(f"rageval-hooks: {chat} has no array under one of ")

    def test_unknown_columns_are_an_error(self, tmp_path: Path) -> None:
        """Not the native ones without a word."""
        said = run("score", "a.csv", "--columns", "ragas", "-o", str(tmp_path / "s.csv"), status=2).stderr
        assert "'native', 'open-rag-eval'" in said

    def test_columns_of_open_rag_eval(self, tmp_path: Path) -> None:
        """Repeated runs are in columns side by side."""
        file = write_lines(tmp_path / "in.jsonl", [{**rows(1)[0], "id": "q", "run": number} for number in (1, 2)])
        output = tmp_path / "out.csv"
        said = run("score", str(file), *LEXICAL, "--columns", "open-rag-eval", "-o", str(output)).stdout

        [row] = table(output)
        assert row["query_id"] == "q"
        assert "not in the columns of open-rag-eval, only in .jsonl or native columns: answer_relevance" in said
        assert {"run_1_generation_score_hallucination_score", "run_2_retrieval_score_umbrela_scores"} <= set(row)


class TestWhatIsWrong:
    def test_a_price_of_ones_own(self, file: Path) -> None:
        """``--cost-rate`` holds for every model."""
        output = file.parent / "out.jsonl"
        run("score", str(file), *LEXICAL, "-o", str(output), "--metrics", "cost,tokens", "--cost-rate", "1000")

        for scores in values(output):
            assert scores["cost"] == scores["tokens.input"] + scores["tokens.output"]

    def test_some_rows_are_bad(self, tmp_path: Path) -> None:
        """The exit status is 1, and the output names the file with the bad rows."""
        file = write_lines(tmp_path / "in.jsonl", [*rows(1), "{", *rows(1)])
        output, errors = tmp_path / "out.jsonl", tmp_path / "bad.jsonl"
        arguments = (
            "score",
            str(file),
            *LEXICAL,
            "--metrics",
            "groundedness",
            "-o",
            str(output),
            "--errors",
            str(errors),
        )
        result = run(*arguments, status=1)

        assert f"1 row could not be used: {errors} (line 2: not JSON" in result.stdout
        assert json.loads(errors.read_text())["row"] == "{"
        assert len(values(output)) == 2

    @pytest.mark.parametrize(
        ("arguments", "reason"),
        [
            (("--output", "out.jsonl", "--metrics", "groundednes"), "Did you mean 'groundedness'?"),
            (
                ("--output", "out.jsonl", "--metrics", "trace"),
                "trace needs a judge: pass judge=, --judge or RAGEVAL_JUDGE",
            ),
            (("--output", "out.jsonl", "--k-values", "0"), "k_values"),
            (("--output", "out.jsonl", "--metrics", ","), "no metrics: name some, or omit the option"),
            ((), "--output"),
        ],
    )
    def test_a_wrong_option(self, arguments: tuple[str, ...], reason: str, file: Path) -> None:
        """One line and status 2, before any work."""
        given = [str(file.parent / part) if part.startswith("out.") else part for part in arguments]
        result = run("score", str(file), *LEXICAL, *given, status=2)

        assert reason in result.stderr
        assert "Traceback" not in result.stderr
        assert [item.name for item in file.parent.iterdir()] == ["in.jsonl"]

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        file = tmp_path / "none.jsonl"
        result = run("score", str(file), *LEXICAL, "-o", str(tmp_path / "out.jsonl"), status=2)
        assert result.stderr == f"rageval-hooks: there is no file {file}\n"

    def test_a_missing_column(self, tmp_path: Path) -> None:
        """The message has the field, the accepted names and the columns of the file."""
        file = write_lines(tmp_path / "in.jsonl", [{"query": "When?", "passages": ["In 2019."]}])
        errors = run("score", str(file), *LEXICAL, "-o", str(tmp_path / "out.jsonl"), status=2).stderr

        assert "response" in errors
        assert "query" in errors

    def test_a_column_that_no_metric_needs(self, tmp_path: Path) -> None:
        """It may be missing."""
        turn = {"query": "When was the pier opened?", "response": "The pier was opened in 2019."}
        file = write_lines(tmp_path / "in.jsonl", [turn])
        output = tmp_path / "out.jsonl"
        run("score", str(file), *LEXICAL, "--metrics", "answer_relevance", "-o", str(output))
        assert list(values(output)[0]) == ["answer_relevance"]

    def test_answers_without_questions(self, tmp_path: Path) -> None:
        """The message names metrics that need no question. A question that is null is missing as well."""
        answer = {"response": "The pier was opened in 2019.", "passages": ["The pier was opened in 2019."]}
        file = write_lines(tmp_path / "in.jsonl", [{**answer, "query": None}])
        command = ("score", str(file), *LEXICAL, "-o", str(tmp_path / "out.jsonl"))
        assert "the query is missing: name metrics that need none" in run(*command, status=2).stderr

        write_lines(file, [answer])
        errors = run(*command, status=2).stderr
        named = re.search(r"name metrics that need none: (--metrics) (\S+)", " ".join(errors.split()))
        assert named is not None
        write_lines(file, [answer, {**answer, "query": None}])
        run(*command, *named.groups())
        assert set(values(tmp_path / "out.jsonl")[1]) == {"faithfulness", "groundedness", "unsupported_facts"}

    def test_retrieval_without_answers(self, tmp_path: Path) -> None:
        """Metrics of the passages alone need no answer."""
        row = {"query": "When was the pier opened?", "passages": ["The pier was opened in 2019."]}
        file = write_lines(tmp_path / "in.jsonl", [row])
        output = tmp_path / "out.jsonl"
        run("score", str(file), *LEXICAL, "--metrics", "context_relevance", "-o", str(output))
        assert values(output) == [{"context_relevance": pytest.approx(1)}]

    def test_no_score_at_all(self, file: Path) -> None:
        """The message has a reason, and the exit status is 2."""
        output = str(file.parent / "out.jsonl")
        result = run("score", str(file), *LEXICAL, "--metrics", "hhem", "-o", output, status=2)

        assert "0 scores, 6 skipped, 0 failed" in result.stdout
        assert result.stderr.startswith("rageval-hooks: no scores were produced; the first result: hhem: ")

    @pytest.mark.parametrize("metrics", [(), ("--metrics", "verdict")], ids=["default metrics", "the verdict alone"])
    @pytest.mark.parametrize(
        ("row", "columns"),
        [
            ({"query": "When?", "response": "In 2019.", "seite": 7}, ". Columns of {}: query, response, seite"),
            ({"rageval_record": 1, "id": "1", "turn": {"query": "When?", "response": "In 2019."}}, ""),
        ],
        ids=["rows of another tool", "records"],
    )
    def test_no_turn_can_be_evaluated(
        self, row: dict[str, Any], columns: str, metrics: tuple[str, ...], tmp_path: Path
    ) -> None:
        """The message has the cause, and the columns that may have been meant; the exit status is 1."""
        file, output = write_lines(tmp_path / "in.jsonl", [row]), tmp_path / "out.jsonl"
        result = run("score", str(file), *LEXICAL, *metrics, "-o", str(output), status=1)

        expected = f"rageval-hooks: not one turn could be evaluated: 1 no_passages{columns.format(file)}\n"
        assert result.stderr == expected
        assert len(values(output)) == 1

    def test_verdicts_without_a_number(self, tmp_path: Path) -> None:
        """Answers that decline are a result, though none of them has a score."""
        row = {"query": "When?", "response": "I don't know.", "contexts": ["The pier was opened in 2019."]}
        file, output = write_lines(tmp_path / "in.jsonl", [row]), tmp_path / "out.jsonl"
        result = run("score", str(file), *LEXICAL, "--metrics", "verdict", "-o", str(output))

        assert result.stdout.startswith("verdict: 1 declined (100%)")

    def test_a_judge_that_knows_no_answer(self, file: Path) -> None:
        """The command stops, and says how to resume."""
        with JudgeServer() as server:
            result = Scoring(server, file).run(status=2)
        assert "the judge openai:judge-model does not work" in result.stderr
        assert "give the same command again to go on" in result.stderr

    def test_a_judge_that_knows_no_answer_beside_local_scores(self, tmp_path: Path) -> None:
        """Local scores are written; the exit status is 2 because the judge does not work."""
        file = write_lines(tmp_path / "in.jsonl", rows(1))
        with JudgeServer() as server:
            result = Scoring(server, file).run(status=2)
        assert "the judge openai:judge-model does not work" in result.stderr
        assert "The other scores are written" in result.stderr
        assert list(values(tmp_path / "out.jsonl")[0]) == ["groundedness"]


class Scoring:
    """A run with a judge at a local server."""

    def __init__(self, server: JudgeServer, file: Path, *more: str, concurrency: int = 2) -> None:
        self.output = file.parent / "out.jsonl"
        self.journal = file.parent / "out.jsonl.partial.jsonl"
        options = f"base_url={server.url},max_retries=0"
        self.arguments = ["score", str(file), *LEXICAL, "--metrics", "groundedness,trace", "-o", str(self.output)]
        self.arguments += ["--judge", "openai:judge-model", "--judge-options", options]
        self.arguments += ["--concurrency", str(concurrency), *more]

    def run(self, status: int = 0) -> subprocess.CompletedProcess[str]:
        return run(*self.arguments, status=status, OPENAI_API_KEY="sk-test")

    def start(self) -> WarmProcess:
        return start_command(*self.arguments, environment={**os.environ, "OPENAI_API_KEY": "sk-test"})


def journal_keys(path: Path) -> list[str]:
    """The keys of the results in a journal: positions of records in the input, and of metrics for one."""
    entries = [json.loads(line) for line in path.read_text().splitlines()]
    return [entry["key"] for entry in entries if "key" in entry]


def questions(server: JudgeServer) -> list[str]:
    return [request.prompt.split("When was pier ")[1][0] for request in server.requests]


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server


class TestJudged:
    @pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGINT])
    def test_an_interrupted_run_is_resumed(self, kind: signal.Signals, file: Path, server: JudgeServer) -> None:
        """After any interruption, nothing is judged twice and the output is complete."""
        gate = Gate()
        server.then(*[answer(LABELS)] * 3)
        server.otherwise(held(answer(LABELS), gate))
        scoring = Scoring(server, file)
        with scoring.start() as process:
            # The fifth turn is asked for after three others were written.
            server.wait_for_requests(5)
            assert sum(key.isdecimal() for key in journal_keys(scoring.journal)) == 3
            process.send_signal(kind)
            status, errors = process.wait(), process.errors()

        assert status == (130 if kind is signal.SIGINT else -signal.SIGKILL)
        assert not scoring.output.exists()
        said = f"interrupted. The results so far are in {scoring.journal}: run the same command again to resume"
        assert errors == (f"rageval-hooks: {said}\n" if kind is signal.SIGINT else "")
        judged = {str(int(key) + 1) for key in journal_keys(scoring.journal) if key.isdecimal()}
        before = len(server.requests)
        gate.set()
        output = scoring.run().stdout

        assert "scored 6 turns" in output
        assert "(3 of them before an interruption)" in output
        assert sorted(questions(server)[before:]) == sorted({"1", "2", "3", "4", "5", "6"} - judged)
        assert [record.id for record in read_records(scoring.output)] == ["1", "2", "3", "4", "5", "6"]
        assert all("trace.adherence" in scores and "groundedness" in scores for scores in values(scoring.output))
        assert not scoring.journal.exists()

    def test_the_journal_of_another_run_is_not_resumed(self, file: Path, server: JudgeServer) -> None:
        """The message says how to start over."""
        server.then(answer(LABELS))
        server.otherwise(held(answer(LABELS), Gate()))
        scoring = Scoring(server, file, concurrency=1)
        with scoring.start() as process:
            server.wait_for_requests(2)
            process.send_signal(signal.SIGKILL)
            process.wait()
        server.otherwise(answer(LABELS))
        write_lines(file, rows(2))

        assert "with another input" in scoring.run(status=2).stderr
        assert "scored 2 turns" in run(*scoring.arguments, "--restart", OPENAI_API_KEY="sk-test").stdout

    def test_as_many_requests_at_a_time_as_wanted(self, file: Path, server: JudgeServer) -> None:
        """Although a judge usually takes eight at a time."""
        write_lines(file, rows(12))
        gate = Gate()
        server.otherwise(held(answer(LABELS), gate))
        with Scoring(server, file, concurrency=12).start() as process:
            server.wait_for_requests(12)
            gate.set()
            assert process.wait() == 0

    def test_a_dry_run(self, file: Path, server: JudgeServer) -> None:
        """Says how many requests there would be, and makes none: none at all for a question that has no answer."""
        write_lines(file, [{**row, "answerable": number > 0} for number, row in enumerate(rows(6))])
        scoring = Scoring(server, file, "--dry-run")
        output = scoring.run().stdout

        assert output.startswith("6 turns: about 5 requests to openai:")
        assert "dry run: nothing was asked" in output
        assert not server.requests
        assert not scoring.output.exists()

    def test_a_budget(self, file: Path, server: JudgeServer) -> None:
        """The summary says that it is used up; every turn has its local scores."""
        server.otherwise(answer(LABELS))
        scoring = Scoring(server, file, "--max-calls", "4", concurrency=3)
        output = scoring.run().stdout

        assert len(server.requests) == 4
        assert "the judge took 4 requests" in output
        assert (
            "the budget of 4 calls is used up: 2 questions to the judge not asked, their scores are skipped" in output
        )
        assert sum("trace.adherence" in scores for scores in values(scoring.output)) == 4
        assert sum("groundedness" in scores for scores in values(scoring.output)) == 6
        given = [r for record in read_records(scoring.output) for r in record.results if r.name == "trace.adherence"]
        assert {(r.annotator, r.model) for r in given if isinstance(r, Score)} == {("LLM", "judge-model-2026-01-01")}


def test_a_terminal_shows_how_far_it_is(file: Path) -> None:
    """Progress goes to standard error, with the number of turns and an estimate; piped output stays plain."""
    import pty

    ours, theirs = pty.openpty()
    arguments = ["score", str(file), *LEXICAL, "--metrics", "groundedness", "-o", str(file.parent / "out.jsonl")]
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    shown = b""
    # A terminal reports this error when its other end is closed.
    with contextlib.suppress(OSError):
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    output, _ = process.communicate(timeout=240)

    assert process.returncode == 0
    assert b"6/6" in shown
    assert b"left" in shown
    assert b"\x1b" not in output
