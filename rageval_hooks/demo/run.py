"""Runs the demo: asks the questions, and prints the spans and scores that an application sends to its backend."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from contextlib import nullcontext
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rageval_hooks.demo.handbook import QUESTIONS
from rageval_hooks.errors import ConfigurationError, ExportError, ModelUnavailableError, requires
from rageval_hooks.exporters.base import REGISTRY, Exporter
from rageval_hooks.exporters.console import make_console, score_table, turn_tree
from rageval_hooks.exporters.otlp_places import OtlpPlace
from rageval_hooks.exporters.score_api import ScoreApiExporter
from rageval_hooks.instrumentation import instrument
from rageval_hooks.models import Models, Role
from rageval_hooks.models.sources import MINILM_WEIGHTS, on_this_machine
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation, verdict_first
from rageval_hooks.settings import LEXICAL, ModelSettings, Settings

PROJECT = "rageval-demo"
"""The name of the service, of Phoenix's project and of MLflow's experiment."""

# USD per 1,000 tokens: the demo's model copies sentences, so no price is known.
_COST_RATE = 0.0005

# Thresholds by tier of models. The default threshold of `context_relevance` is for one passage; in the demo the score
# is a mean over four passages, of which one has the answer. These values separate the questions with an answer from
# the one without, as the threshold of any application should.
_THRESHOLDS = {"default": {"context_relevance": 0.45}, LEXICAL: {"context_relevance": 0.35}}

# A slow local model takes minutes for all judge calls of a turn.
_JUDGE_SECONDS = 300.0
_DELIVERY_SECONDS = 60.0
_NOT_DELIVERED = ("queued", "handed_over", "rejected", "lost", "dropped")
_ROLES: tuple[Role, ...] = ("embedder", "cross_encoder", "nlp")


def run_demo(
    *,
    as_json: bool = False,
    to: str | None = None,
    otlp: str | None = None,
    models: str = "default",
    judge: str | None = None,
) -> None:
    """Ask the questions and print each turn with its spans and scores.

    Args:
        as_json: print one JSON object per turn (``turn``, ``spans``, ``scores``) and nothing else.
        to: a backend that also gets spans and scores: the name of its exporter, such as ``"mlflow"``.
        otlp: URL of an OTLP/HTTP endpoint that also gets the spans, such as ``http://localhost:6006``.
        models: ``"default"`` for the models on this machine, ``"lexical"`` for stand-ins without weights.
        judge: a judge for the answers, such as ``"openai:gpt-5-mini"``.

    Raises:
        ConfigurationError: the judge or the backend is unknown, or its key is missing.
        MissingDependencyError: LangChain or the OTLP exporter is not installed.
        ModelUnavailableError: the embedder cannot be loaded.
        ExportError: nothing answers at the endpoint, or not everything was delivered.
    """
    # The demo prints missing models itself, in fewer words.
    logging.getLogger("rageval_hooks").setLevel(logging.ERROR)
    settings, missing = _models(models)
    loaded = Models(settings)
    # The first time, another process makes the embedder's graph, which takes seconds: LangChain is imported meanwhile.
    loaded.load(_ROLES)
    with requires("langchain-core", "demo", "the demo"):
        from rageval_hooks.demo.chain import build_application
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource.create({"service.name": PROJECT, "openinference.project.name": PROJECT}),
        span_limits=SpanLimits(max_span_attributes=4096),
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    exporters, place = _destination(to, otlp, provider)
    notes, console = make_console(sys.stderr), make_console(sys.stdout)
    with notes.status("loading models …"):
        embedder = loaded.embedder(wait=True)
    model_name = None
    if os.environ.get("OPENAI_API_KEY") or os.environ.get("OPENAI_BASE_URL"):
        model_name = os.environ.get("OPENAI_MODEL", "gpt-5-mini")
    ask = build_application(embedder, model_name)
    evaluations: list[Evaluation] = []
    is_delivered = True
    with instrument(
        models=settings,
        judge=judge,
        tracer_provider=provider,
        exporters=exporters,
        # This address is asked whether it is a Phoenix, in place of what variables name.
        phoenix_endpoint=place.url.removesuffix("/v1/traces") if otlp else None,
        thresholds=_THRESHOLDS[models],
        on_evaluation=evaluations.append,
        # Long enough, also on a slow machine, for every local score to be on the spans of the turn.
        inline_budget_ms=60_000,
        cost_rate=_COST_RATE,
    ) as handle:
        if not as_json:
            stand_in = "extractive-demo, which copies sentences (set OPENAI_API_KEY for a model)"
            console.print(f"answers by {stand_in if model_name is None else f'{model_name}, which was asked'}")
            for role in missing:
                console.print(f"{role}: not on this machine, a lexical stand-in computes its scores")
            console.print()
        for number, question in enumerate(QUESTIONS, 1):
            evaluations.clear()
            ask(question.text)
            with notes.status("judging …") if judge else nullcontext():
                is_delivered &= handle.flush(_JUDGE_SECONDS)
            if as_json:
                line = {
                    "turn": evaluations[0].turn.model_dump(mode="json"),
                    "spans": [json.loads(span.to_json()) for span in memory.get_finished_spans()],
                    "scores": [result.model_dump(mode="json") for found in evaluations for result in found.results],
                }
                print(json.dumps(line, ensure_ascii=False), flush=True)  # noqa: T201
            else:
                console.rule(f"turn {number} of {len(QUESTIONS)}", align="left")
                results = verdict_first(result for evaluation in evaluations for result in evaluation.results)
                if question.note:
                    console.print(f"({question.note})")
                for shown in (turn_tree(evaluations[0].turn, results), score_table(results)):
                    console.print(shown)
                    console.print()
            memory.clear()
        is_delivered &= provider.force_flush() and handle.flush(_DELIVERY_SECONDS)
        counts = handle.stats()["exporters"]
    delivered = sum(stats.get("delivered", 0) for stats in counts.values())
    if not is_delivered:
        missing = [
            f"{name} {stats[key]} {key}" for name, stats in counts.items() for key in _NOT_DELIVERED if stats.get(key)
        ]
        raise ExportError(f"{safe_url(place.url)} does not have everything ({', '.join(missing) or 'it is too slow'})")
    if as_json:
        return
    console.rule(align="left")
    if place.url:
        console.print(f"The same spans went to {safe_url(place.url)}, service {PROJECT}.")
        if delivered:
            console.print(f"The backend also has {delivered} scores as its own.")
        if place.page:
            console.print(f"Open {place.page}")
    else:
        console.print("To see this in a backend: rageval-hooks demo --to mlflow, or --otlp http://localhost:4318")
    console.print("In your own application: import rageval_hooks; rageval_hooks.instrument()")


def _models(choice: str) -> tuple[ModelSettings, list[str]]:
    """Return the models to use, and the roles whose models are not on this machine and have lexical stand-ins."""
    if choice == LEXICAL:
        return ModelSettings(embedder=LEXICAL, cross_encoder=LEXICAL, nlp=LEXICAL), []
    settings = ModelSettings()
    missing: list[str] = [role for role in _ROLES if not on_this_machine(role, getattr(settings, role))]
    if "embedder" in missing:
        raise ModelUnavailableError(
            "embedder",
            f"{settings.embedder} is not on this machine: {MINILM_WEIGHTS}, or run the demo with --models lexical",
        )
    return settings.model_copy(update=dict.fromkeys(missing, LEXICAL)), missing


def _destination(
    to: str | None, otlp: str | None, provider: TracerProvider
) -> tuple[tuple[str | Exporter, ...], OtlpPlace]:
    """Return the exporters for ``instrument()``, and where the spans go, after connecting the provider to it.

    Args:
        to: the name of a backend's exporter.
        otlp: the URL of an OTLP/HTTP endpoint.
        provider: gets a processor that sends spans there.

    Raises:
        ConfigurationError: both are given, the backend is unknown, or a setting of it is missing.
        MissingDependencyError: an exporter is not installed.
        ExportError: nothing answers there.
    """
    exporters: tuple[str | Exporter, ...] = ("otel",)
    if to and otlp:
        raise ConfigurationError("--to and --otlp are both given: --to knows the address of the backend")
    if otlp:
        # The defaults write scores to a backend's API where the endpoint turns out to be that backend.
        exporters = Settings.model_fields["exporters"].default
        place = OtlpPlace(url=f"{otlp.rstrip('/').removesuffix('/v1/traces')}/v1/traces")
    elif to:
        exporter = REGISTRY.create(to)
        exporter.bind(Settings.build(), provider)
        if not isinstance(exporter, ScoreApiExporter):
            kinds = REGISTRY.builtin().values()
            valid = [kind.name for kind in kinds if issubclass(kind, ScoreApiExporter) and not kind.automatic]
            raise ConfigurationError(f"--to is {to!r}, which is not a backend with scores. Valid: {', '.join(valid)}")
        exporters = ("otel", exporter)
        place = exporter.otlp_place(PROJECT)
    else:
        return exporters, OtlpPlace(url="")
    with requires("opentelemetry-exporter-otlp", "otlp", "--otlp or --to"):
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    try:
        address = urlsplit(place.url)
        host, port = address.hostname, address.port or (443 if address.scheme == "https" else 80)
    except ValueError:
        host = None
    if not host or address.scheme not in ("http", "https"):
        raise ConfigurationError(f"--otlp is {otlp or place.url!r}: give an address such as http://localhost:4318")
    try:
        # Fail at once if nothing listens there; the exporter itself would retry for a minute.
        socket.create_connection((host, port), timeout=5).close()
    except OSError as error:
        shown = safe_url(place.url)
        raise ExportError(f"the spans cannot be sent to {shown}: {error}. Is there an OTLP/HTTP endpoint?") from None
    # Without headers of its own, the exporter uses those of the variables. A server that has just started may need half
    # a minute for its first spans.
    sender = OTLPSpanExporter(endpoint=place.url, headers=dict(place.headers) or None, timeout=60)
    provider.add_span_processor(BatchSpanProcessor(sender))
    return exporters, place
