"""The checks of ``doctor``, what they get, and what they find. A check is a function that yields what it finds."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import platform
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, requires, version
from logging.handlers import BufferingHandler
from typing import Any, Final, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pydantic import BaseModel, Field

from rageval_hooks.errors import ConfigurationError, JudgeError
from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.credentials import reveal
from rageval_hooks.exporters.delivery_queue import DestinationAbsentError, PostError
from rageval_hooks.exporters.mlflow import mlflow_fault
from rageval_hooks.exporters.otlp_places import otlp_fault, otlp_places
from rageval_hooks.exporters.phoenix import phoenix_places
from rageval_hooks.exporters.score_api import ScoreApiExporter
from rageval_hooks.judges.base import Judgement
from rageval_hooks.judges.failures import clean_message
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.metrics.base import Metric
from rageval_hooks.online.build import unused_options, within_budget
from rageval_hooks.online.job import Job, MetricSpec
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.time_limit import remaining, within
from rageval_hooks.runtime.tracing import RandomIds
from rageval_hooks.runtime.urls import safe_url
from rageval_hooks.score import Evaluation, Score, metric_of
from rageval_hooks.settings import Settings, setting_names, unknown_variables
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Passage, SpanReference, Timing, Turn
from rageval_hooks.version import __version__


@dataclass(frozen=True)
class DoctorFinding:
    """What a check found.

    Attributes:
        status: a problem needs an action, a warning may be meant, a note only informs.
        message: what was found, in one sentence, without secrets.
        advice: what to do; always given for a problem.
    """

    status: Literal["ok", "note", "warning", "problem"]
    message: str
    advice: str = ""


ok = partial(DoctorFinding, "ok")
note = partial(DoctorFinding, "note")
warning = partial(DoctorFinding, "warning")
problem = partial(DoctorFinding, "problem")


@dataclass
class Setup:
    """The options of the command, and settings that are valid one by one.

    Attributes:
        settings: the settings.
        given: the settings that are options, as text.
        asks_judge: True to send the judge a request.
        sends: True to send a marked trace and score.
        seconds: how long each server may take.
    """

    settings: Settings
    given: Mapping[str, str]
    asks_judge: bool
    sends: bool
    seconds: float

    @cached_property
    def pipeline(self) -> Pipeline:
        """The pipeline of an application with these settings, which downloads nothing and leaves a spool alone.

        Raises:
            ConfigurationError: as ``instrument()`` does.
        """
        models = self.settings.models.model_copy(update={"download": False})
        options: dict[str, Any] = {**self.given, "dispatch": "thread", "models": models}
        if "redact" in options:
            options["redact"] = self.settings.redact
        return Pipeline.build(**options)

    def close(self) -> None:
        """End the pipeline without waiting: what was not delivered until now was reported."""
        if "pipeline" in vars(self):
            self.pipeline.shutdown(0.5)

    @cached_property
    def evaluation(self) -> Evaluation:
        """A turn that people recognise in a backend, with what the pipeline's local metrics say of it."""
        ids = RandomIds()
        span = SpanReference(trace_id=f"{ids.generate_trace_id():032x}", span_id=f"{ids.generate_span_id():016x}")
        now = time.time_ns()
        turn = Turn(
            name="rageval-hooks doctor",
            query="Is this trace stored?",
            passages=(Passage(text="This trace was sent by the command rageval-hooks doctor."),),
            response="Yes.",
            timing=Timing(started_at=now - 1_000_000, ended_at=now),
            span=span,
            metadata={"rageval.doctor": True},
        )
        local = [metric.name for metric in self.pipeline.metrics if not metric.asks_judge]
        evaluated = self.pipeline.evaluate(turn, local)
        marker = Score(name="rageval_doctor", value=1.0, explanation="a test of the connection")
        return evaluated.model_copy(update={"results": (*evaluated.results, marker)})

    @cached_property
    def skipped(self) -> dict[str, list[str]]:
        """The metrics that lack a local model, by the reason."""
        found: dict[str, list[str]] = {}
        for result in self.evaluation.skipped:
            if result.missing_model and metric_of(result) not in found.setdefault(result.reason, []):
                found[result.reason].append(metric_of(result))
        return found

    def runs(self, metric: Metric) -> bool:
        """Return True for a metric that has its models, or needs none."""
        return all(metric.name not in names for names in self.skipped.values())

    def is_idle(self, exporter: Exporter) -> bool:
        """Return True for an automatic exporter whose backend gets no spans."""
        return isinstance(exporter, ScoreApiExporter) and exporter.automatic and not exporter.applies()


# --------------------------------------------------------------------------- versions

_PACKAGE: Final = "rageval-hooks"

_FOR_DEVELOPMENT: Final = ("test", "compat", "e2e", "build", "docs", "dev")
"""Beginnings of extras that an application does not install."""


def versions(_: Setup) -> Iterator[DoctorFinding]:
    """Compare what this package works with with the ranges that it declares."""
    yield ok(f"Python {platform.python_version()} on {platform.system()} {platform.machine()}")
    installed = {_PACKAGE: __version__}
    try:
        from packaging.requirements import Requirement

        declared = map(Requirement, requires(_PACKAGE) or [])
    except (ImportError, PackageNotFoundError):  # the second for a checkout that is on the path and not installed
        yield note("the declared ranges are not known, or cannot be compared without the package packaging")
        return
    for requirement in declared:
        name, wanted = requirement.name, requirement.specifier
        extra = str(requirement.marker or "").partition('extra == "')[2]
        if extra.startswith(_FOR_DEVELOPMENT) or name == _PACKAGE:
            continue
        with suppress(PackageNotFoundError):
            found = installed[name] = version(name)
            if not wanted.contains(found, prereleases=True):
                yield problem(f"{name} {found} is installed, which is not {wanted}", f'pip install "{name}{wanted}"')
    yield ok(", ".join(f"{package} {found}" for package, found in installed.items()))


# --------------------------------------------------------------------------- settings


def settings(setup: Setup) -> Iterator[DoctorFinding]:
    """Show the settings that differ from the defaults, and what is wrong with them for the pipeline."""
    given = setup.settings
    changed = given.model_dump(exclude_unset=True)
    if given.judge_options:
        # People paste this output into issues, and URLs and headers may hold keys. Other secrets mask themselves.
        changed["judge_options"] = dict.fromkeys(given.judge_options, "***")
    for name, value in sorted(changed.items()):
        shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        yield ok(f"{name} = {shown} ({'option' if name in setup.given else 'environment'})")
    valid = [name.upper() for name in setting_names()]
    for variable in unknown_variables():
        message = f"the variable {variable} is not a setting and has no effect"
        # Without a similar name, the variable may be meant for another program.
        if close := get_close_matches(variable.upper().removeprefix("RAGEVAL_"), valid, n=1):
            yield problem(message, f"did you mean RAGEVAL_{close[0]}?")
        else:
            yield warning(message, "docs/settings.md lists all")
    folder = os.path.dirname(os.path.abspath(given.spool_path))
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if given.judge is not None and given.judge_sample_rate == 0:
        yield warning("judge_sample_rate is 0: the judge is never asked", "set a rate above 0, or remove the judge")
    if given.dispatch == "spool" and not os.access(folder, os.W_OK):
        yield problem(f"the folder of spool_path, {folder}, is not writable", "make it writable, or set another path")
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield problem("OTEL_SDK_DISABLED is true: OpenTelemetry writes no spans, so no scores", "remove the variable")
    if sampler.endswith("always_off") and not given.evaluate_unsampled:
        message = f"OTEL_TRACES_SAMPLER is {sampler}: traces are not recorded, so turns are not evaluated"
        yield problem(message, "set another sampler, or evaluate_unsampled=true")
    for name, owner in unused_options(given.options, [*setup.pipeline.exporters, *setup.pipeline.metrics]):
        yield problem(f"{name} is set, but {owner} is not in use", f"add {owner}, or remove {name}")


# --------------------------------------------------------------------------- models


def models(setup: Setup) -> Iterator[DoctorFinding]:
    """Say which local metrics ran for the turn, and which models they lack. Nothing is downloaded."""
    if names := [metric.name for metric in setup.pipeline.metrics if not metric.asks_judge and setup.runs(metric)]:
        yield ok(f"can run: {', '.join(names)}")
    for reason, names in setup.skipped.items():
        # Metrics that the user has named must run. The defaults are those that can run.
        found = warning if setup.settings.metrics is None else problem
        advice = "put the model on this machine, see docs/guides/grounding-models.md; or set models=lexical"
        yield found(f"{reason}; without it these are skipped: {', '.join(names)}", advice)


# --------------------------------------------------------------------------- judge

_QUESTION: Final = "Which whole number comes after 6? Give it in the field `number`."

_ADVICE: Final = {
    "budget_spent": "wait until the period ends, or raise judge_budget",
    "key was not accepted": "set the key of the provider, such as OPENAI_API_KEY, to a valid one",
    "no such model": "correct the model's name in judge, and base_url",
    "rate_limited": "wait, or raise the limit at the provider; requests_per_minute in judge_options keeps below it",
    "is not known": "correct the host in base_url, or the DNS of this machine",
    "certificate": "pass ca_bundle in judge_options, or set SSL_CERT_FILE to the file with the certificates",
    "TLS": "the server does not speak TLS, or is old: begin base_url with http:// if that is meant",
    "invalid_answer": "use a model that follows a JSON schema, or set structured=json_object in judge_options",
    "unavailable": "check that the server runs, that base_url is its address, and the proxy in HTTPS_PROXY",
}
"""What to do, by words of an error's kind or message; the first that fits."""


class NextNumber(BaseModel):
    """The answer to the question of the check."""

    number: int = Field(description="the number")


def judge(setup: Setup) -> Iterator[DoctorFinding]:
    """Ask the configured judge one question, without retries and without its cache."""
    given = setup.settings
    if given.judge is None:
        yield note("no judge: metrics that ask one do not run")
        return
    # A retry after a failure would only delay the report of that failure. A judge of the user's may not take these two.
    alone = {"max_retries": 0, "cache": None} if given.judge.startswith("openai:") else {}
    asked = resolve_judge(given.judge, **{**given.judge_options, **alone})
    if not setup.asks_judge:
        yield note(f"{given.judge}: not asked (--no-judge)")
        return
    started, limit = time.monotonic(), setup.seconds

    async def ask() -> Judgement[NextNumber]:
        async with asked:
            question = within_budget(asked, given).complete([("user", _QUESTION)], NextNumber)
            return await asyncio.wait_for(question, limit)

    try:
        found = asyncio.run(ask())
    except TimeoutError:
        advice = "check base_url and the network, or give a longer --timeout"
        yield problem(f"{given.judge}: no answer within {limit:g} seconds", advice)
    except JudgeError as error:
        said = f"{error.kind}: {error.message}"
        advice = next((advice for words, advice in _ADVICE.items() if words in said), "see docs/judge.md")
        yield problem(f"{given.judge}: {said}", advice)
    else:
        cost = "unknown cost" if found.cost is None else f"{found.cost:.6f} USD"
        seconds = time.monotonic() - started
        yield ok(f"{given.judge}: {found.model} answered ({seconds:.1f} s, as {found.mode}, {cost})")


# --------------------------------------------------------------------------- exporters

_PAUSE: Final = 0.25

_FAILED: Final = ("rejected", "lost", "dropped", "queued")
"""Ends of the counters of exporters that are above 0 when something was not delivered."""


def exporters(setup: Setup) -> Iterator[DoctorFinding]:
    """Send the turn through each exporter of the pipeline, and yield what became of it."""
    idle = []
    # Spans go first: servers take a score only for a span that they have.
    for exporter in sorted(setup.pipeline.exporters, key=lambda exporter: not exporter.traces):
        if setup.is_idle(exporter):
            idle.append(exporter.name)
        elif exporter.name == "console":
            yield ok("console: prints to standard error")
        elif not setup.sends:
            yield note(f"{exporter.name}: nothing sent (--no-send)")
        else:
            yield _examine(exporter, setup)
    if idle:
        yield note(f"not in use, because spans do not go there: {', '.join(idle)}")


def _examine(exporter: Exporter, setup: Setup) -> DoctorFinding:
    """Send the turn, look for it, and return what became of it."""
    name, seconds = exporter.name, setup.seconds
    backend = exporter.backend if isinstance(exporter, ScoreApiExporter) else ""
    finished, found = False, None
    with _warnings() as logged:
        try:
            setup.pipeline.deliver(setup.evaluation, exporter)
            finished = within(lambda: exporter.flush(seconds), seconds + 1)
            found = _look(exporter, setup.evaluation, seconds)
        except DestinationAbsentError as absence:
            if absence.ask_again < math.inf:  # an automatic exporter waits for a server to say what it is
                advice = f"nothing, if no {backend} gets the spans; else name its address: see docs/backends.md"
                return warning(f"{name}: the server that gets the spans does not say whether it is {backend}", advice)
            # One that stays off is not a fault.
            return note(f"{name}: not in use, because the server that gets the spans is another one")
        except TimeoutError:
            pass
    provider = getattr(exporter, "provider", None)
    place = next(iter(otlp_places(provider)), None) if exporter.traces else None
    target = backend if place is None else safe_url(place.url)
    where = f" to {target}" if target else ""
    if found:
        return ok(f"{name}: a marked trace was sent{where} and found again")
    counts = exporter.stats()
    said = [*map(_said, logged)]
    if exporter.traces and provider is None:
        return warning(f"{name}: {said[0] if said else 'evaluations are printed'}", _advice(name))
    undelivered = ", ".join(f"{amount} {kind}" for kind, amount in counts.items() if amount and kind.endswith(_FAILED))
    if undelivered or not finished or any(record.exc_info for record in logged):
        # The log has the server's words; the counters have only numbers. Its first line is nearest to the cause.
        reason = next(filter(None, (*said, undelivered, "no answer in time")))
        return problem(f"{name}: the marked trace was not delivered{where}: {reason}", _advice(name))
    if found is False:
        advice = "the backend may take longer: look for 'rageval-hooks doctor' there, or give a longer --timeout"
        return problem(f"{name}: the marked score was sent{where}, but is not shown there", advice)
    return ok(f"{name}: sent{where}; it cannot be asked for what it has")


def _said(record: logging.LogRecord) -> str:
    """Return a warning, or the exception that it is about. HTTP clients quote URLs, and a URL may have a key in it."""
    error = record.exc_info and record.exc_info[1]
    text = f"{type(error).__name__}: {error}" if error else record.getMessage()
    return clean_message(text).removeprefix("rageval-hooks: ")


@contextmanager
def _warnings() -> Iterator[list[logging.LogRecord]]:
    """Collect the warnings that are logged in a ``with`` block: exporters only count their failures."""
    handler = BufferingHandler(capacity=1_000)
    handler.setLevel(logging.WARNING)
    loggers = [logging.getLogger(name) for name in ("rageval_hooks", "opentelemetry")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def _look(exporter: Exporter, evaluation: Evaluation, seconds: float) -> bool | None:
    """Ask the backend again and again, until it has the score or the time is over; None if it cannot be asked."""
    end = time.monotonic() + seconds
    found: bool | None = False
    with suppress(PostError):  # for example a key that may write and not read
        while found is False and time.monotonic() < end:
            found = within(lambda: exporter.stores(evaluation), max(1.0, remaining(end)))
            if found is False:
                time.sleep(_PAUSE)
        return found
    return None


def _advice(name: str) -> str:
    # The server's own words seldom name the mistake.
    fault = otlp_fault() or (mlflow_fault() if name.startswith(("otel", "mlflow")) else None)
    if fault is not None:
        return fault
    if name == "otel":
        return "check OTEL_EXPORTER_OTLP_ENDPOINT, OTEL_EXPORTER_OTLP_PROTOCOL and OTEL_EXPORTER_OTLP_HEADERS"
    return f"check the server, its address and the key that the exporter {name} uses: see docs/backends.md"


# --------------------------------------------------------------------------- clock

_WRONG: Final = 60.0
"""Seconds. Beyond a minute, signed requests are refused and late scores seem to precede their turns."""

_ADDRESSES: Final = ("MLFLOW_TRACKING_URI", "LANGFUSE_BASE_URL", "LANGFUSE_HOST", "LANGSMITH_ENDPOINT")


def clock(setup: Setup) -> Iterator[DoctorFinding]:
    """Compare the clock with the Date header of each server that the settings name. The request carries no key."""
    given = setup.settings
    endpoint = reveal(given.options.get("phoenix_endpoint"))
    judge_url = given.judge_options.get("base_url") or os.environ.get("OPENAI_BASE_URL", "")
    if not judge_url and (given.judge or "").startswith("openai:"):
        judge_url = "https://api.openai.com"
    urls = [str(judge_url), *(os.environ.get(name, "").strip() for name in _ADDRESSES)]
    urls += [*(place.url for place in otlp_places()), *phoenix_places(endpoint)]
    parts = [urlsplit(url) for url in urls if url.startswith(("http://", "https://"))]
    answered = False
    # User name and password come before the "@".
    for server in dict.fromkeys(f"{url.scheme}://{url.netloc.rpartition('@')[2]}" for url in parts):
        ahead = _seconds_ahead(server)
        if ahead is None:
            continue
        answered = True
        if abs(ahead) < _WRONG:
            yield ok(f"the clock agrees with {server}")
        else:
            message = f"the clock is {abs(ahead):.0f} s {'behind' if ahead > 0 else 'ahead of'} {server}"
            yield problem(message, "synchronise the clock of this machine, for example with chrony")
    if not answered:
        yield note("no server that the settings name says what time it is")


def _seconds_ahead(server: str) -> float | None:
    """Return by how many seconds a server is ahead of this machine; None if it does not say."""
    try:
        with urlopen(Request(server, method="HEAD"), timeout=3.0) as response:  # noqa: S310 - http and https only
            header = response.headers["Date"]
    except HTTPError as error:  # a server that has no such page has a clock all the same
        header = error.headers["Date"]
    except (OSError, HTTPException, ValueError):
        return None
    with suppress(ValueError, TypeError):
        return parsedate_to_datetime(header).timestamp() - time.time()
    return None


# --------------------------------------------------------------------------- dispatch


def dispatch(setup: Setup) -> Iterator[DoctorFinding]:
    """Send a job through the broker and a worker, and look at what is waiting there."""
    if setup.settings.dispatch != "celery":
        return
    # Only here: Celery is an extra.
    from rageval_hooks.online.celery import FAILED_QUEUE, QUEUE, celery_app, message_count, probe

    app = celery_app(setup.settings)
    place = app.connection().as_uri()  # without the password
    try:
        waiting, failed = message_count(app, QUEUE), message_count(app, FAILED_QUEUE)
    except Exception as error:
        yield problem(f"the broker {place} cannot be reached: {error}", "check RAGEVAL_BROKER, and that it runs")
        return
    yield ok(f"the broker {place} answers; {waiting} jobs wait for a worker")
    if failed:
        yield warning(f"{failed} jobs failed", "rageval-hooks jobs shows why, and sends them again with --resend")
    if not setup.sends:
        return
    job = Job(turn=setup.evaluation.turn, metrics=(MetricSpec(name="latency", reference="latency"),))
    began = time.monotonic()
    try:
        fault = probe(app, job, setup.seconds)["problem"]
    except TimeoutError as error:
        yield problem(str(error), "start one: celery -A rageval_hooks.workers worker")
        return
    if fault:
        yield problem(f"a worker answered: {fault}", "check the exporters in the worker's environment")
    else:
        yield ok(f"a worker computed and delivered a score after {time.monotonic() - began:.1f} seconds")


# --------------------------------------------------------------------------- a turn


def turn(setup: Setup) -> Iterator[DoctorFinding]:
    """Say what the pipeline does with a turn: whether it is evaluated, by which metrics and when, and what leaves."""
    given, pipeline = setup.settings, setup.pipeline
    if not given.enabled or given.sample_rate == 0:
        why = "sample_rate is 0" if given.enabled else "enabled is false"
        yield warning(f"nothing happens: {why}", "set enabled=true and a sample_rate above 0 to evaluate")
        return
    share = "every turn is evaluated"
    if given.sample_rate < 1:
        by = "the trace id and the salt" if given.sampling_salt else "the trace id"
        share = f"{given.sample_rate:.4g} of turns are evaluated, chosen by {by}"
    yield note(f"{share}; {'also' if given.evaluate_unsampled else 'not'} in traces that are not recorded")
    local = "late, because inline_budget_ms is 0"
    if given.inline_budget_ms > 0:
        local = f"inline, within {given.inline_budget_ms:g} ms, the rest later"
    places = {"spool": f"from the file {given.spool_path}", "celery": "by workers"}
    judged = "judged later, " + places.get(given.dispatch, "from this process's memory")
    rates = {spec.name: spec.probability for spec in pipeline.engine.job(Turn()).metrics}
    for when, asks_judge in ((local, False), (judged, True)):
        names = [metric.name for metric in pipeline.metrics if metric.asks_judge == asks_judge and setup.runs(metric)]
        shown = [name if rates[name] == 1 else f"{name} ({rates[name]:.4g} of turns)" for name in names]
        if shown:
            yield note(f"{when}: {', '.join(shown)}")
    used = [exporter.name for exporter in pipeline.exporters if not setup.is_idle(exporter)]
    yield note(f"goes to: {', '.join(used) or 'nowhere'}")
    metadata_is_filtered = given.metadata_allow is not None or given.metadata_deny
    yield note(
        f"{'redaction is on' if pipeline.privacy.redacts else 'redaction is off'};"
        f" {'metadata is filtered' if metadata_is_filtered else 'all metadata leaves'};"
        f" user and session ids are {'hashed' if given.id_salt else 'sent unchanged'}"
    )
    hidden = [name.replace("_", " ") for name, shown in pipeline.content.model_dump().items() if not shown]
    if hidden:
        yield note(f"not on spans or in exports: {', '.join(hidden)}; scores are")
    else:
        yield note("questions, passages and answers are on spans and in exports")


# --------------------------------------------------------------------------- traced frameworks


def traced(_: Setup) -> Iterator[DoctorFinding]:
    """Say for each installed instrumentor whether its spans have what a turn needs, and what to set."""
    from rageval_hooks.integrations.opentelemetry.instrumentors import installed_instrumentors

    for found in installed_instrumentors():
        if found.advice:
            # It may not be in use.
            yield note(f"{found.name}: its spans have no texts, so its turns cannot be evaluated: {found.advice}")
        else:
            yield ok(f"{found.name}: its spans have {found.has}")


# --------------------------------------------------------------------------- running processes


def running(setup: Setup) -> Iterator[DoctorFinding]:
    """Say what the counters of running processes say about answers without passages, if stats_file is set."""
    from rageval_hooks.cli.top import processes

    if setup.settings.stats_file is None:
        return
    try:
        found = [process["stats"] for process in processes([setup.settings.stats_file])]
    except ConfigurationError as error:
        yield note(str(error))
        return
    lacks = {
        "without_content": "had spans with no texts",
        "without_end": "had spans with no end",
        "search_only": "had a search whose answer is not in its trace",
    }
    for what, lack in lacks.items():
        counts = Counter[str]()
        for stats in found:
            counts.update(stats.get("traced", {}).get(what, {}))
        for instrumentor, turns in counts.items():
            yield warning(f"{counted(turns, 'turn')} of {instrumentor} {lack}", "see traced-applications.md")
    turns = sum(stats["without_passages_by_reason"]["text_only_tool"] for stats in found)
    if turns:
        left_out = sorted({name for stats in found for name in stats.get("tool_results_left_out", ())})
        yield warning(
            f"{counted(turns, 'turn')} had tool results that do not look like search ({'; '.join(left_out)})",
            "name the tools that do search in search_tools",
        )
