"""What holds for every exporter to a score API: nothing lost or doubled, no secret shown, no text that is hidden."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import rageval_hooks
from rageval_hooks import ConfigurationError, Evaluation, Score, Skipped, Target
from rageval_hooks.errors import MissingDependencyError
from rageval_hooks.exporters.base import REGISTRY
from rageval_hooks.exporters.score_api import ScoreApiExporter
from tests.exporters.delivered import delivery_to
from tests.exporters.recording import RecordingServer, Reply, recording_server, shaky
from tests.exporters.score_backends import NAMES, SECRET, Backend, Store, backend_of
from tests.exporters.scored_turns import RESULTS, evaluation

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=NAMES)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Backend:
    found = backend_of(request.param)
    for name, value in found.variables.items():
        monkeypatch.setenv(name, value)
    return found


@pytest.mark.parametrize("kind", [kind for kind in REGISTRY.builtin().values() if issubclass(kind, ScoreApiExporter)])
def test_users_find_its_extra_and_its_pages(kind: type[ScoreApiExporter]) -> None:
    """What an addition touches besides its code and its tests."""
    name, backend = kind.name.removesuffix("-auto"), kind.backend
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    page = (ROOT / "docs/backends.md").read_text()
    places = {
        f"pyproject.toml: {name} = [httpx]": any(needed.startswith("httpx") for needed in extras.get(name, ())),
        **{
            f"pyproject.toml: {name} in {group}": re.search(rf"rageval-hooks\[[^]]*\b{name}\b", " ".join(extras[group]))
            for group in ("all", "test-core")
        },
        f"docs/backends.md: a section {backend}": f"\n## {backend}\n" in page,
        f"docs/backends.md: a row {backend}": f"\n| [{backend}](#" in page,
    }
    missing = [place for place, is_there in places.items() if not is_there]
    assert not missing, "\n".join(missing)


@pytest.fixture
def server(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingServer]:
    with recording_server(lambda _: Reply(status=202)) as server:
        monkeypatch.setenv(backend.address, server.url)
        yield server


def posted(server: RecordingServer, backend: Backend) -> list[dict[str, Any]]:
    return [score for body in server.posted() for score in backend.scores(body)]


def export(exporter: ScoreApiExporter, *evaluations: Evaluation) -> None:
    for found in evaluations:
        exporter.export(found)
    assert exporter.flush(20)
    exporter.shutdown(5)


def test_nothing_is_lost_or_doubled_on_a_bad_day(backend: Backend, server: RecordingServer) -> None:
    """A fifth of the requests fail with a 5xx, a 429 or a reset, some of them after they took effect."""
    store = Store(backend)
    server.respond = shaky(store.respond, share=0.2)
    exporter = backend.exporter()
    for number in range(30):
        exporter.export(evaluation(*RESULTS[:2], span_id=f"{number + 1:016x}"))
        # Several requests, also to an API that takes many scores at once.
        if number % 10 == 9:
            assert exporter.flush(30)
    exporter.shutdown(5)

    assert (len(store.taken), store.doubled) == (60, 0)
    assert exporter.stats()["delivered"] == 60


def test_keys_are_sent_and_shown_nowhere(
    backend: Backend, server: RecordingServer, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither in a log line, also when the server refuses the key, nor in the exporter and its fields."""
    caplog.set_level(logging.DEBUG)
    replies = iter([Reply(status=401, body=f"bad key {SECRET}")])
    server.respond = lambda _: next(replies, Reply(status=202))
    exporter = backend.exporter()
    export(exporter, evaluation())

    headers = json.dumps(dict(server.requests[-1].headers))
    assert SECRET in headers or "authorization" in headers
    assert "answers 401: set " in caplog.text
    assert SECRET not in caplog.text + repr(exporter) + repr(vars(exporter))


def test_hidden_texts_are_not_sent(backend: Backend, server: RecordingServer) -> None:
    """Explanations, messages and details may quote them."""
    quoting = Score(name="groundedness", value=0.5, explanation="no passage has: pier", metadata={"sentence": "pier"})
    exporter = backend.exporter(capture_content=False)
    delivery_to(exporter).export(evaluation(quoting))
    assert exporter.flush(10)
    exporter.shutdown(5)

    assert len(posted(server, backend)) == 1
    assert "pier" not in json.dumps(posted(server, backend))


def test_turns_that_were_not_sampled_send_nothing(backend: Backend, server: RecordingServer) -> None:
    """Their spans never arrive."""
    exporter = backend.exporter()
    export(exporter, evaluation(flags=0))

    assert server.requests == []
    assert exporter.stats()["unplaced"] == 1


def test_a_missing_package_is_logged_and_nothing_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where scores go with the spans without being asked for, the application runs without them."""

    def connect() -> Any:
        raise MissingDependencyError("httpx", "langfuse", "the exporter 'langfuse'")

    exporter = backend_of("langfuse").automatic()
    monkeypatch.setattr(exporter, "applies", lambda: True)
    monkeypatch.setattr(exporter, "connect", connect)
    export(exporter, evaluation(*RESULTS))

    assert caplog.text.count("[RAGEVAL-507]") == 1
    assert exporter.stats()["queued"] == exporter.stats()["delivered"] == 0


def test_a_missing_key_is_an_error_at_once(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the variable."""
    for name in backend.variables:
        monkeypatch.delenv(name)

    with pytest.raises(ConfigurationError, match=next(iter(backend.variables))):
        backend.exporter()


def test_by_itself_where_the_spans_go_there(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nowhere else."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")
    exporter = backend.automatic()
    assert not exporter.applies()

    address, headers = backend.place
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", headers)
    assert exporter.applies()
    exporter.shutdown(1)


def test_auto_has_every_exporter_once(backend: Backend) -> None:
    """The default has all automatic exporters. Next to a named one, the automatic one for that backend is omitted."""
    named = backend.exporter.name
    with rageval_hooks.instrument(models="lexical", metrics=["latency"]) as handle:
        default = {exporter.name for exporter in handle.pipeline.exporters}
    with rageval_hooks.instrument(models="lexical", metrics=["latency"], exporters=["otel", "auto", named]) as handle:
        names = {exporter.name for exporter in handle.pipeline.exporters}

    assert default == {"otel", *(name for name in REGISTRY.builtin() if name.endswith("-auto"))}
    assert names == default - {backend.automatic.name} | {named}


def test_a_score_of_another_version_is_another_score(backend: Backend, server: RecordingServer) -> None:
    """A repeat has the same id, in any process; a new formula must not replace the value of the old one."""
    scores = [Score(name="groundedness", value=0.9, version=version) for version in ("1", "2", "2")]
    exporter = backend.exporter()
    for score in scores:
        exporter.export(evaluation(score))
    assert exporter.flush(20)
    exporter.shutdown(5)

    ids = [score["id"] for score in posted(server, backend) if "id" in score]
    assert len(set(ids)) == (2 if ids else 0)  # Datadog's evaluations have no id


def test_a_score_says_how_it_was_made(backend: Backend, server: RecordingServer) -> None:
    """By whom, in which version, and with which probability its turn was selected: readers weight by that."""
    score = Score(name="trace.adherence", value=1.0, annotator="LLM", model="judge-1", version="3", probability=0.5)
    export(backend.exporter(), evaluation(score))

    text = json.dumps(posted(server, backend))
    for part in ('"probability": 0.5', '"annotator": "LLM"', '"model": "judge-1"', '"version": "3"'):
        assert part in text


@pytest.mark.parametrize(
    "verdict",
    [
        Score(name="verdict", value=0.0, label="bad", explanation="because"),
        Skipped(name="verdict", label="declined", reason="because"),
    ],
    ids=["a number", "no number"],
)
def test_the_verdict_comes_first_with_its_label_and_reason(
    backend: Backend, server: RecordingServer, verdict: Any
) -> None:
    """Also without a number."""
    export(backend.exporter(), evaluation(Score(name="groundedness", value=0.9), verdict))

    first, *_ = sorted(posted(server, backend), key=lambda score: "verdict" not in json.dumps(score))
    text = json.dumps(first)
    assert f'"{verdict.label}"' in text
    assert '"because"' in text
    if isinstance(verdict, Skipped):
        assert "score" not in first
        assert "score_value" not in first
    if backend.exporter.name in ("langfuse", "datadog"):
        kinds = {name: first.get(name) for name in ("dataType", "metric_type", "value", "categorical_value")}
        assert {str(kind).lower() for kind in kinds.values() if kind} == {"categorical", verdict.label}
        assert "verdict" in json.dumps(posted(server, backend)[0])


def test_the_judges_verdict_has_the_id_of_the_local_one(backend: Backend, server: RecordingServer) -> None:
    """So that it takes its place."""
    exporter = backend.exporter()
    for annotator, version in (("CODE", "1"), ("LLM", "2")):
        exporter.export(
            evaluation(Score(name="verdict", value=1.0, label="good", annotator=annotator, version=version))
        )
    assert exporter.flush(20)
    exporter.shutdown(5)

    assert len({score["id"] for score in posted(server, backend) if "id" in score}) <= 1


def test_usage_only_if_all_scores_are_asked_for(backend: Backend, server: RecordingServer) -> None:
    """By default the scores of quality about the turn: not latency, tokens and cost, nor single passages."""
    export(backend.exporter(), evaluation(*RESULTS))
    few = len(posted(server, backend))
    export(backend.exporter(scores="all"), evaluation(*RESULTS))

    assert len(posted(server, backend)) == few + few + 2


def test_a_score_of_a_passage_without_a_span_is_counted(backend: Backend, server: RecordingServer) -> None:
    """It is not posted as a score of the turn."""
    exporter = backend.exporter(scores="all")
    of_passage = Score(name="context_relevance", value=0.5, target=Target(kind="passage", index=5))
    export(exporter, evaluation(of_passage))

    assert posted(server, backend) == []
    assert exporter.stats()["unplaced"] == 1


def test_spans_that_the_demo_sends_there_are_recognized(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exporter knows where its backend takes spans, and with which headers."""
    exporter = backend.exporter()
    place = exporter.otlp_place("harbour")
    exporter.shutdown(1)
    assert SECRET not in repr(place)

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", place.url)
    monkeypatch.setenv(
        "OTEL_EXPORTER_OTLP_HEADERS", ",".join(f"{name}={value}" for name, value in place.headers.items())
    )
    assert backend.automatic().applies()
