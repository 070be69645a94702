"""The checks of ``doctor``, what they get, and what they find. A check is a function that yields what it finds."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from email.utils import parsedate_to_datetime
from functools import partial
from http.client import HTTPException
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
from typing import Final, Literal
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from pydantic import BaseModel, Field

from rageval_hooks.errors import ConfigurationError, JudgeError, ModelUnavailableError
from rageval_hooks.exporters.base import AUTOMATIC
from rageval_hooks.exporters.base import REGISTRY as EXPORTERS
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.credentials import reveal
from rageval_hooks.exporters.otlp_places import otlp_places
from rageval_hooks.exporters.phoenix import phoenix_places
from rageval_hooks.judges.base import Judgement, resolve_judge
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.metrics.base import Metric
from rageval_hooks.models import Models, Role
from rageval_hooks.models.onnx import onnx_is_wanted
from rageval_hooks.models.sources import hub_is_offline, missing_files, on_this_machine
from rageval_hooks.online.build import resolve_metrics, resolve_thresholds, unused_options, within_budget
from rageval_hooks.online.job import Job, MetricSpec
from rageval_hooks.online.turn_context import MetricSampler
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.tracing import RandomIds
from rageval_hooks.score import Evaluation, Score
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
        loads_models: True to load the models that are on this machine.
        seconds: how long each server may take.
    """

    settings: Settings
    given: Mapping[str, str]
    asks_judge: bool
    sends: bool
    loads_models: bool
    seconds: float

    @cached_property
    def models(self) -> Models:
        """The configured models, none of which is loaded."""
        return Models(self.settings.models)

    @cached_property
    def metrics(self) -> list[Metric]:
        """The metrics that run.

        Raises:
            ConfigurationError: a metric is unknown or contradicts another setting.
        """
        # The real judge may be impossible to make, for example without its key; which metrics it would run is known.
        judge = None if self.settings.judge is None else FakeJudge()
        return resolve_metrics(self.settings.metrics, judge, self.settings, allow_unused_judge=True)

    @cached_property
    def missing_models(self) -> dict[Role, str]:
        """Why models that the metrics need cannot be loaded from this machine, by role."""
        missing: dict[Role, str] = {}
        for role in sorted(self.models.needed(role for metric in self.metrics for role in metric.models)):
            name = getattr(self.settings.models, role)
            if self.models.state(role) == "ready":  # a lexical stand-in needs no files
                continue
            libraries = {"nlp": "spacy", "hhem": "transformers", "grounding": "transformers"}
            library = libraries.get(role, "sentence_transformers")
            # ONNX Runtime computes the others, and PyTorch only where it is not installed.
            needs_library = role in ("nlp", "hhem") or not onnx_is_wanted(self.settings.models)
            if needs_library and find_spec(library) is None:
                missing[role] = f"the package {library} is not installed"
            elif not on_this_machine(role, name):
                missing[role] = f"{name} is not on this machine"
            elif files := missing_files(role, name):
                missing[role] = f"{name} lacks {' and '.join(files)}"
        return missing

    def can_run(self, metric: Metric) -> bool:
        """Return True if no model that a metric needs is missing; without one it is skipped in every turn."""
        return self.missing_models.keys().isdisjoint(self.models.needed(metric.models))

    def metrics_with(self, role: Role) -> str:
        """Return the names of the metrics that need a model."""
        return ", ".join(metric.name for metric in self.metrics if role in self.models.needed(metric.models))


def marked_evaluation() -> Evaluation:
    """Return an evaluation that people recognise in a backend: a turn with one passage and one score."""
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
    score = Score(name="rageval_doctor", value=1.0, explanation="a test of the connection")
    return Evaluation(turn=turn, results=(score,))


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
    """Show the settings that differ from the defaults, and find unknown variables and contradictions."""
    given = setup.settings
    changed = {**given.model_dump(exclude_unset=True), **given.options}
    if not changed:
        yield ok("all settings have their defaults")
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
    unused = [name for name in ("judge_options", "judge_budget") if getattr(given, name)]
    folder = os.path.dirname(os.path.abspath(given.spool_path))
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if given.judge is None and unused:
        yield problem(f"{' and '.join(unused)}: set without a judge, so without effect", "set judge, or remove them")
    if given.judge is not None and given.judge_sample_rate == 0:
        yield warning("judge_sample_rate is 0: the judge is never asked", "set a rate above 0, or remove the judge")
    if given.dispatch == "spool" and not os.access(folder, os.W_OK):
        yield problem(f"the folder of spool_path, {folder}, is not writable", "make it writable, or set another path")
    kinds = EXPORTERS.builtin()
    automatic = [kind for kind in kinds.values() if kind.automatic and AUTOMATIC in given.exporters]
    used = [*(kinds[name] for name in given.exporters if name in kinds), *automatic]
    for name, owner in unused_options(given.options, [*used, *setup.metrics]):
        group = "exporters" if owner in kinds else "metrics"
        yield problem(f"{name} is set, but {owner} is not in {group}", f"add {owner} to {group}")
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        yield problem("OTEL_SDK_DISABLED is true: OpenTelemetry writes no spans, so no scores", "remove the variable")
    if sampler.endswith("always_off") and not given.evaluate_unsampled:
        message = f"OTEL_TRACES_SAMPLER is {sampler}: traces are not recorded, so turns are not evaluated"
        yield problem(message, "set another sampler, or evaluate_unsampled=true")
    # What `instrument()` would raise for settings that are valid one by one.
    resolve_thresholds(setup.metrics, given, own="thresholds" in setup.given)
    MetricSampler(setup.metrics, given)


# --------------------------------------------------------------------------- models


def models(setup: Setup) -> Iterator[DoctorFinding]:
    """Say which local metrics can run, and which models or files are missing. Nothing is downloaded."""
    given = setup.settings.models
    if ready := [metric.name for metric in setup.metrics if not metric.asks_judge and setup.can_run(metric)]:
        yield ok(f"can run: {', '.join(ready)}")
    may_download = given.download and not hub_is_offline()
    for role, reason in setup.missing_models.items():
        effect, name = "without it these are skipped", getattr(given, role)
        if "not installed" in reason:
            advice = 'pip install "rageval-hooks[local]"'
        elif role == "nlp":
            advice = f"python -m spacy download {name}"
        else:
            advice = f"hf download {name} where there is a network, and set models.{role} to the folder"
            if may_download:
                effect = "the first turn downloads it in the background, and until then these are skipped"
        advice += "; or set models=lexical"
        message = f"{role}: {reason}; {effect}: {setup.metrics_with(role)}"
        # Metrics that the user has named must run. The defaults are those that can run.
        yield warning(message, advice) if setup.settings.metrics is None else problem(message, advice)
    if not may_download:
        why = "HF_HUB_OFFLINE is set" if hub_is_offline() else "models.download is false"
        yield note(f"{why}: no model is downloaded, files on this machine are used")
    if not setup.loads_models:
        return
    loading = Models(given.model_copy(update={"download": False}))
    wanted = loading.needed(role for metric in setup.metrics for role in metric.models)
    for role in sorted(wanted - setup.missing_models.keys()):
        try:
            getattr(loading, role)(wait=True)
        except ModelUnavailableError as error:
            yield problem(f"{role}: {error.reason}", "the message says what is missing")
        else:
            yield ok(f"{role}: {getattr(given, role)} is loaded")


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
    job = Job(turn=marked_evaluation().turn, metrics=(MetricSpec(name="latency", reference="latency"),))
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
    """Follow a turn through the settings: whether it is evaluated, by which metrics and when, and what leaves."""
    given = setup.settings
    if not given.enabled or given.sample_rate == 0:
        why = "sample_rate is 0" if given.enabled else "enabled is false"
        yield warning(f"nothing happens: {why}", "set enabled=true and a sample_rate above 0 to evaluate")
        return
    share = "every turn is evaluated"
    if given.sample_rate < 1:
        by = "the trace id and the salt" if given.sampling_salt else "the trace id"
        share = f"{given.sample_rate:.4g} of turns are evaluated, chosen by {by}"
    yield note(f"{share}; {'also' if given.evaluate_unsampled else 'not'} in traces that are not recorded")
    rates = MetricSampler(setup.metrics, given).probabilities
    local = "late, because inline_budget_ms is 0"
    if given.inline_budget_ms > 0:
        local = f"inline, within {given.inline_budget_ms:g} ms, the rest later"
    places = {"spool": f"from the file {given.spool_path}", "celery": "by workers"}
    judged = "judged later, " + places.get(given.dispatch, "from this process's memory")
    for when, asks_judge in ((local, False), (judged, True)):
        names = [metric.name for metric in setup.metrics if metric.asks_judge == asks_judge and setup.can_run(metric)]
        shown = [name if rates[name] == 1 else f"{name} ({rates[name]:.4g} of turns)" for name in names]
        if shown:
            yield note(f"{when}: {', '.join(shown)}")
    for role, reason in setup.missing_models.items():
        yield warning(f"skipped, because {reason}: {setup.metrics_with(role)}", "see models above")
    api = "the API of the backend that gets the spans"
    yield note(f"goes to: {', '.join(api if name == AUTOMATIC else name for name in given.exporters) or 'nowhere'}")
    metadata_is_filtered = given.metadata_allow is not None or given.metadata_deny
    yield note(
        f"{'redaction is on' if given.redact else 'redaction is off'};"
        f" {'metadata is filtered' if metadata_is_filtered else 'all metadata leaves'};"
        f" user and session ids are {'hashed' if given.id_salt else 'sent unchanged'}"
    )
    policy = ContentPolicy.build(given.capture_content)
    hidden = [name.replace("_", " ") for name, shown in policy.model_dump().items() if not shown]
    if hidden:
        yield note(f"not on spans or in exports: {', '.join(hidden)}; scores are")
    else:
        yield note("questions, passages and answers are on spans and in exports")


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
    turns = sum(stats["without_passages_by_reason"]["text_only_tool"] for stats in found)
    if turns:
        left_out = sorted({name for stats in found for name in stats.get("tool_results_left_out", ())})
        yield warning(
            f"{counted(turns, 'turn')} had tool results that do not look like search ({'; '.join(left_out)})",
            "name the tools that do search in search_tools",
        )
