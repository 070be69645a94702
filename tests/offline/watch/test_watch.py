"""``rageval-hooks watch`` with servers in this process that speak the APIs of Phoenix, MLflow and Langfuse."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from rageval_hooks import metric
from rageval_hooks.cli import app
from rageval_hooks.errors import ConfigurationError, ExportError, JudgeUnavailableError
from rageval_hooks.integrations.opentelemetry.turn_building import builders_of
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.metrics import JudgeMetric, ScoreDefinition
from rageval_hooks.metrics.base import Metric
from rageval_hooks.offline.backends import BACKENDS
from rageval_hooks.offline.collecting import records_of
from rageval_hooks.offline.records import read_records
from rageval_hooks.offline.watch import Checkpoint, Watch
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.turn import Turn
from tests.command import invoke
from tests.exporters.recording import RecordingServer, Reply
from tests.offline.watch.backends import NOW, STORES, LangfuseStore, MlflowStore, Store, rag_trace, serve

WRONG = "It was last rebuilt in 1978."


@pytest.fixture(params=STORES, ids=lambda kind: str(kind.__name__))
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The backend."""
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "pk-1")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", "sk-1")
    made: Store = request.param()
    return made


@pytest.fixture
def server(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RecordingServer]:
    """Serves it."""
    monkeypatch.chdir(tmp_path)
    with serve(store) as found:
        yield found


class Grade(BaseModel):
    value: float


class Graded(JudgeMetric):
    """Asks the judge for a number."""

    name = "graded"
    version = "1"
    scores = (ScoreDefinition(name="graded", description="what the judge says"),)
    requires = ("response",)

    async def evaluate(self, case: Any) -> Any:
        judgement = await case.judge.complete([("user", "grade it")], Grade)
        return self.judged(judgement.value.value, judgement)


class Clock:
    """Tells the time that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@contextmanager
def watching(
    store: Any, server: RecordingServer, clock: Clock, checkpoint: Path | None = None, **more: Any
) -> Iterator[Watch]:
    """Yield a watch of the backend, and end it."""
    backend = BACKENDS[store.name](server.url, None)
    options = {"late": 86_400.0, "settle": 30.0, "clock": clock, **more}
    own = options.pop("metrics", None)
    judge = options.pop("judge", None)
    pipeline = Pipeline.build(metrics=own, models="lexical", judge=judge, exporters=[backend.exporter])
    with closing(backend), Checkpoint(checkpoint or Path("checkpoint.db"), "task") as known:
        try:
            yield Watch(backend, pipeline, known, **options)
        finally:
            pipeline.shutdown()


def names(store: Store) -> list[str]:
    """Return the turns' spans that have a verdict."""
    return [span for span, _ in store.verdicts()]


def roots(*numbers: int) -> list[str]:
    return [f"{number * 16 + 1:016x}" for number in numbers]


def test_each_turn_gets_its_verdict_once(store: Store, server: RecordingServer) -> None:
    """Over several pages; a second look, and one of another process, post nothing."""
    store.add(*(rag_trace(number) for number in range(1, 8)), rag_trace(8, answer=WRONG))
    clock = Clock()
    for _ in range(2):
        with watching(store, server, clock) as watch:
            watch.look(NOW - 3600)
            watch.look(None)

    assert names(store) == roots(1, 2, 3, 4, 5, 6, 7, 8)
    assert {label for _, label in store.verdicts()} == {"good", "bad"} or {label for _, label in store.verdicts()} == {
        "pass",
        "fail",
    }
    assert len(store.posted) == len(set(store.posted))


def test_the_main_scores_are_on_spans_that_exist(store: Store, server: RecordingServer) -> None:
    """Nobody writes spans of evaluations here."""
    store.add(rag_trace(1))
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)

    spans = {span["context"]["span_id"] for span in store.spans}
    targets = {str(body.get("span_id")) for body in store.scores.values() if "span_id" in body}
    assert targets <= spans
    assert {"verdict", "unsupported_facts"} <= {
        body.get("name") or body["assessment_name"] for body in store.scores.values()
    }


def test_a_trace_waits_until_its_root_and_its_last_span_are_there(store: Store, server: RecordingServer) -> None:
    """Else the question would be missing."""
    clock = Clock()
    store.add(rag_trace(1, NOW - 35, root=False), rag_trace(2, NOW - 5))
    with watching(store, server, clock) as watch:
        watch.look(NOW - 3600)
        assert (names(store), watch.traces["open"]) == ([], 2)

        store.add(rag_trace(1, NOW - 35)[2:])
        watch.look(None)
        assert names(store) == roots(1)

        clock.now += 60
        watch.look(None)
        assert names(store) == roots(1, 2)


def test_a_trace_without_a_root_is_taken_as_it_is_in_the_end(store: Store, server: RecordingServer) -> None:
    """Its root may go to another backend. If it comes after all, the turn is not scored twice."""
    clock = Clock()
    store.add(rag_trace(1, root=False))
    with watching(store, server, clock) as watch:
        watch.look(NOW - 3600)
        clock.now += 700
        watch.look(None)
        scored = names(store)
        store.add(rag_trace(1)[2:])
        watch.look(None)

    assert len(scored) == 1
    assert names(store) == scored


def test_traces_that_arrive_late_are_scored(store: Store, server: RecordingServer) -> None:
    """Ten minutes by the next look, a day by one each hour, and after a pause of the watch as well."""
    clock = Clock()
    with watching(store, server, clock) as watch:
        watch.look(NOW - 3600)
        clock.now += 60
        store.add(rag_trace(1, NOW - 500), rag_trace(2, NOW - 40_000))
        watch.look(None)
        assert names(store) == roots(1)
        clock.now += 3600
        watch.look(None)
        assert names(store) == roots(1, 2)
    store.add(rag_trace(3, clock.now + 50_000))
    clock.now += 200_000
    with watching(store, server, clock) as watch:
        watch.look(None)

    assert names(store) == roots(1, 2, 3)


def test_a_new_turn_of_a_trace_that_was_scored(store: Store, server: RecordingServer) -> None:
    """A conversation in one trace: only the new turn is scored."""
    clock = Clock()
    store.add(rag_trace(1))
    with watching(store, server, clock) as watch:
        watch.look(NOW - 3600)
        again = [{**span, "context": {**span["context"], "trace_id": f"{1:032x}"}} for span in rag_trace(9, NOW - 50)]
        store.add(again)
        watch.look(None)

    assert names(store) == roots(1, 9)
    assert len(store.posted) == len(set(store.posted))


def test_scores_of_the_application_are_left_alone(store: Store, server: RecordingServer) -> None:
    """By the backend's own list, where there is no checkpoint."""
    store.add(rag_trace(1), rag_trace(2))
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)
    posted = len(store.posted)
    store.add(rag_trace(3))
    with watching(store, server, Clock(), Path("lost.db")) as watch:
        watch.look(NOW - 3600)
        assert watch.traces["known"] == 2

    assert names(store) == roots(1, 2, 3)
    assert len(store.posted) == posted * 3 // 2


def test_a_process_that_ends_before_the_scores_are_noted(store: Store, server: RecordingServer) -> None:
    """The next one posts the rest, and nothing twice where the backend would keep both."""
    store.add(rag_trace(1), rag_trace(2))

    class Killed(BaseException):
        pass

    with watching(store, server, Clock()) as watch:
        exporter = watch._backend.exporter
        flush = exporter.flush

        def killed(timeout: float) -> bool:
            flush(timeout)
            raise Killed

        exporter.flush = killed  # type: ignore[method-assign]  # the process ends here
        with pytest.raises(Killed):
            watch.look(NOW - 3600)
        exporter.flush = flush  # type: ignore[method-assign]
    if isinstance(store, MlflowStore):
        store.scores.popitem()  # the last one had not arrived
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)

    assert names(store) == roots(1, 2)
    if isinstance(store, MlflowStore):
        kept = [(body["trace_id"], body["assessment_name"]) for body in store.scores.values()]
        assert len(kept) == len(set(kept))


def test_what_the_backend_refuses_is_tried_again_and_given_up(store: Store, server: RecordingServer) -> None:
    """It does not keep others from being noted as done."""
    bad = rag_trace(1)[2]["context"]["span_id"]
    store.refuses = lambda span_id: span_id == bad
    store.add(rag_trace(1), rag_trace(2))
    with watching(store, server, Clock()) as watch:
        for _ in range(4):
            watch.look(NOW - 3600)
        assert watch.traces["given_up"] == 1
        requests = len(server.posted())
        watch.look(NOW - 3600)
        assert len([body for body in server.posted()[requests:] if "filter" not in body]) == 0

    assert names(store) == roots(2)


def versioned(version: str) -> Metric:
    @metric(name="length", version=version)
    def length(turn: Turn) -> float:
        """How long the answer is."""
        return min(1.0, len(turn.response) / 100 / int(version))

    return length


def test_a_metric_is_scored_again_under_its_new_version(store: Store, server: RecordingServer) -> None:
    """And not where it has that version. Langfuse keeps the score of the old one, too."""
    store.add(rag_trace(1), rag_trace(2))
    for version, expected in (("1", 2), ("2", 2), ("2", 0)):
        made = versioned(version)
        before = len(store.posted)
        with watching(store, server, Clock(), Path(f"{version}-{expected}.db"), rescore=made, metrics=[made]) as watch:
            watch.look(NOW - 3600)
        on_spans = [key for key in store.posted[before:] if key[0] == "span" or len(key) == 3]
        assert len(on_spans) == expected

    valid = [body for body in store.scores.values() if body.get("valid", "span_id" in body or "traceId" in body)]
    versions = [
        body["metadata"].get("version") or body["metadata"]["mlflow.assessment.scorerVersion"] for body in valid
    ]
    assert versions == (["1", "1", "2", "2"] if isinstance(store, LangfuseStore) else ["2", "2"])


def test_no_text_no_verdict(store: Store, server: RecordingServer) -> None:
    """The reason names the switch."""
    [_, model, _] = rag_trace(1)
    model = {**model, "parent_id": None, "attributes": {"openinference.span.kind": "LLM", "llm.model_name": "m"}}
    store.add([model])
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)

    assert store.posted == []
    assert watch.traces["no_content"] == 1
    assert any("OPENINFERENCE_HIDE_INPUTS" in reason for reason in watch.reasons)


def test_turns_wait_for_a_judge_that_does_not_work(store: Store, server: RecordingServer) -> None:
    """They are scored as a whole when it is back."""
    store.add(rag_trace(1))

    async def answer(_: Any) -> dict[str, Any]:
        if is_down:
            raise JudgeUnavailableError("is down")
        return {"value": 0.5}

    is_down = True
    judge = FakeJudge(answer)
    with watching(store, server, Clock(), metrics=[Graded(), "unsupported_facts"], judge=judge) as watch:
        with pytest.raises(JudgeUnavailableError):
            watch.look(NOW - 3600)
        assert store.posted == []
        is_down = False
        watch.look(NOW - 3600)

    assert {body.get("name") or body["assessment_name"] for body in store.scores.values()} == {
        "graded",
        "unsupported_facts",
    }


def test_the_verdict_of_a_conversation(store: Store, server: RecordingServer) -> None:
    """It is about all turns of the session, whoever scored them and when. A later one replaces it."""
    store.add(rag_trace(1, session="ann"), rag_trace(2, NOW - 95, answer=WRONG, session="ann"))
    store.add(rag_trace(3, session="bob"), rag_trace(4))
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)
    first = store.conversations()
    store.add(rag_trace(5, NOW - 90, question="How long is the lock?", session="ann"))
    with watching(store, server, Clock(), Path("lost.db")) as watch:
        watch.look(NOW - 3600)
        posted = len(store.posted)
        watch.look(None)

    assert first == {
        "ann": (0.5, "1 of 2 answers good; the first bad one in turn 2; the same question again in turn 2."),
        "bob": (1.0, "1 of 1 answers good."),
    }
    assert store.conversations()["ann"][1].startswith("2 of 3 answers good; the first bad one in turn 2;")
    assert len(store.posted) == posted


def test_the_scores_of_a_session_are_not_those_of_its_first_turn(store: Any, server: RecordingServer) -> None:
    """MLflow has them on its trace."""
    store.add(rag_trace(1, answer=WRONG, session="ann"))
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)
    invoke("collect", store.name, url=server.url, models="lexical", since="9000d", output="cases.jsonl")
    [case] = read_records("cases.jsonl")

    assert "good_answers" not in {result.name for result in case.results}
    assert store.conversations()["ann"][0] == 0.0


def test_a_session_that_is_too_long(store: Store, server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be one id for all users. The command says so."""
    monkeypatch.setattr("rageval_hooks.offline.watch._MAX_CONVERSATION", 2)
    store.add(*(rag_trace(number, session="default") for number in range(1, 4)))
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)

    assert names(store) == roots(1, 2, 3)
    assert store.conversations() == {}
    assert list(watch.reasons) == ["a session of more than 2 traces gets no summary"]


def test_what_became_of_turns_that_are_not_scored(
    store: Store, server: RecordingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted by the reason; the others are scored. A broken trace is not read at each look."""
    own, chat, broken = rag_trace(2), rag_trace(3)[1:], rag_trace(4)
    own[2]["attributes"]["rageval.turn.id"] = "t1"
    store.add(rag_trace(1), own, chat, broken)

    def builders(spans: Any, tools: Any) -> Any:
        if spans[0].trace_id == f"{4:032x}":
            raise ValueError("an unknown form")
        return builders_of(spans, tools)

    monkeypatch.setattr("rageval_hooks.offline.watch.builders_of", builders)
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)
        watch.look(None)

    assert names(store) == roots(1)
    assert +watch.traces == {"seen": 4, "known": 1, "without_retrieval": 1, "unreadable": 1}


def test_a_session_that_cannot_be_read(store: Store, server: RecordingServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted, the next one has its summary, and its next turn tries again."""
    store.add(rag_trace(1, session="ann"), rag_trace(2, session="bob"))
    failures = iter((ValueError("an unknown form"),))

    def records(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return records_of(*arguments)

    monkeypatch.setattr("rageval_hooks.offline.watch.records_of", records)
    with watching(store, server, Clock()) as watch:
        watch.look(NOW - 3600)
        first = set(store.conversations())
        watch.look(None)
        assert (len(first), set(store.conversations()), watch.traces["unreadable"]) == (1, first, 1)
        store.add(rag_trace(3, session="ann"), rag_trace(4, session="bob"))
        watch.look(None)

    assert set(store.conversations()) == {"ann", "bob"}


def test_a_session_without_a_verdict_has_no_summary(store: Store, server: RecordingServer) -> None:
    store.add(rag_trace(1, session="ann"))
    with watching(store, server, Clock(), metrics=["unsupported_facts"]) as watch:
        watch.look(NOW - 3600)

    assert len(store.posted) == 1
    assert store.conversations() == {}


@pytest.mark.parametrize("status", [200, 404])
def test_an_answer_that_is_not_of_the_api(store: Store, server: RecordingServer, status: int) -> None:
    """A page of a proxy, or a path that another version does not have."""
    store.add(rag_trace(1))
    with watching(store, server, Clock()) as watch:
        server.respond = lambda _: Reply(status=status, body="<html>")
        with pytest.raises(ExportError, match=r"gives an answer that cannot be read|has no "):
            watch.look(NOW - 3600)


def test_two_watches_do_not_share_a_checkpoint(tmp_path: Path) -> None:
    """They would score the same traces twice."""
    with Checkpoint(tmp_path / "a.db", "task"), pytest.raises(ConfigurationError, match="another process is using it"):
        Checkpoint(tmp_path / "a.db", "task")


class TestCommand:
    def run(self, *arguments: str) -> Any:
        done = CliRunner().invoke(app, ["watch", *arguments])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    def test_once(self, store: Any, server: RecordingServer) -> None:
        """The summary, and the file of what was done."""
        store.add(rag_trace(1), rag_trace(2, answer=WRONG))
        arguments = (store.name, "--url", server.url, "--models", "lexical", "--once", "--since", "9000d")
        done = self.run(*arguments)

        assert done.exit_code == 0, done.output
        assert done.stdout.splitlines() == [
            "verdict: 1 good (50%), 1 bad (50%); causes: 1 unsupported",
            "scored 2 turns",
        ]
        [file] = Path.cwd().glob(f"rageval-watch-{store.name}-*.db")  # and the project
        assert file.stat().st_mode & 0o777 == 0o600
        assert self.run(*arguments).stdout.splitlines() == ["scored 0 turns"]

    def test_a_dry_run_says_what_it_would_take(
        self, store: Any, server: RecordingServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Turns, requests, tokens and money; nothing is posted, and no file is written."""
        store.add(*(rag_trace(number) for number in range(1, 6)))
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        arguments = (store.name, "--url", server.url, "--models", "lexical", "--since", "9000d", "--dry-run")
        done = self.run(*arguments, "--judge", "openai:gpt-5-mini")

        assert done.exit_code == 0, done.output
        assert re.match(
            r"5 turns: about \d+ requests to openai:gpt-5-mini, about [\d,]+ input tokens, about [\d.]+ USD",
            done.stdout,
        )
        assert store.posted == []
        assert list(Path.cwd().iterdir()) == []

    def test_a_dry_run_says_what_cannot_be_scored(self, store: Any, server: RecordingServer) -> None:
        store.add(rag_trace(1), rag_trace(2, answer=""))
        done = self.run(store.name, "--url", server.url, "--models", "lexical", "--since", "9000d", "--dry-run")

        assert "of other turns, 1 have no answer" in done.stdout

    def test_a_backend_that_is_down_is_tried_again(
        self, store: Any, server: RecordingServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """From the start on, until a user interrupts. A fault is said once, and again where it comes back."""
        works, broken = server.respond, lambda _: Reply(status=403)
        states = iter((broken, broken, works, broken))
        server.respond = broken
        pauses: list[float] = []

        def pause(seconds: float) -> None:
            pauses.append(seconds)
            try:
                server.respond = next(states)
            except StopIteration:
                raise KeyboardInterrupt from None

        clock = SimpleNamespace(sleep=pause, time=time.time)
        monkeypatch.setattr(sys.modules["rageval_hooks.cli.watch"], "time", clock)
        arguments = (store.name, "--url", server.url, "--models", "lexical")
        done = self.run(*arguments, "--every", "5m")

        assert done.exit_code == 130
        assert pauses == [300.0] * 5
        assert done.stdout == "scored 0 turns\n"
        first, second = done.stderr.splitlines()
        assert "answers 403" in first
        assert first == second
        assert first.endswith(". It is tried again every 300 seconds")
        with pytest.raises(ExportError, match="403"):
            self.run(*arguments, "--once")

    def test_a_project_that_is_not_there(self, store: Any, server: RecordingServer) -> None:
        """The name may be wrong."""
        with pytest.raises(ExportError, match=r"has no (project|experiment) 'missing'"):
            self.run(store.name, "--url", server.url, "--project", "missing", "--once", "--models", "lexical")

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("grafana",), "unknown backend 'grafana'"),
            (("phoenix", "--since", "week"), "'week' should be a number with a unit"),
            (("phoenix", "--rescore", "verdict", "--metrics", "usage"), "omit --metrics"),
            (("phoenix", "--alarm-webhook", "file:///etc/hosts"), "must be an address that begins with https://"),
        ],
    )
    def test_wrong_options(self, arguments: tuple[str, ...], message: str) -> None:
        """Before anything is asked."""
        with pytest.raises(ConfigurationError, match=message):
            self.run(*arguments)
