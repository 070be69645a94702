"""``instrument()``, and the handle that it returns."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, TypedDict

from rageval_hooks.errors import ConfigurationError, MissingDependencyError
from rageval_hooks.runtime.copying import CopiedAsItself
from rageval_hooks.runtime.files import StatsFile
from rageval_hooks.runtime.threads import patched_by

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from rageval_hooks.exporters.base import Exporter
    from rageval_hooks.judges.resolve import AnyJudge
    from rageval_hooks.metrics.base import Metric
    from rageval_hooks.online.delivery import OnEvaluation
    from rageval_hooks.online.pipeline import Pipeline
    from rageval_hooks.privacy import Redact
    from rageval_hooks.settings import ModelSettings, SpanSelection
    from rageval_hooks.turn import Turn


_logger = logging.getLogger(__name__)

_INTEGRATIONS = "rageval_hooks.integrations"
"""The package of the integrations. Each subpackage with ``attach`` and ``detach`` is one."""

_WITHOUT_FRAMEWORK = frozenset({"manual", "opentelemetry"})
"""The integrations for ``start_turn`` and for spans, which need no framework."""


class Instrumentation(CopiedAsItself):
    """The handle that ``instrument()`` returns. As a context manager it shuts down at the end.

    Args:
        pipeline: receives the turns.
        frameworks: the integrations of frameworks that are attached.
        arguments: those of ``instrument()``.
    """

    def __init__(self, pipeline: Pipeline, frameworks: Iterable[str], arguments: Mapping[str, Any]) -> None:
        self.pipeline = pipeline
        self.frameworks = tuple(frameworks)
        self.arguments = arguments
        self.active = True
        self._closed = False
        self._stats_file: StatsFile | None = None
        settings = pipeline.settings
        if pipeline.enabled and settings.stats_file is not None:
            self._stats_file = StatsFile(settings.stats_file, self.stats)

    def _origin(self) -> tuple[Callable[..., Any], tuple[Any, ...], Any]:
        return instrument, (), dict(self.arguments)

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until every turn so far is evaluated and delivered.

        Args:
            timeout: seconds.

        Returns:
            False if something was not delivered in time.
        """
        from rageval_hooks.integrations.capture.deferred import flush

        return flush(self.pipeline, timeout)

    def feedback(
        self,
        turn: Turn | str | int,
        value: float | str,
        *,
        name: str = "feedback",
        comment: str | None = None,
        annotator: str | None = None,
    ) -> bool:
        """Send what a person says of an answer to every exporter: in a backend it is an annotation of a person.

        It returns at once, in any process, at any time after the answer. The turn may have been sampled out: the id of
        its trace is enough. Where only that is known, backends show the feedback on the trace, and not on a span.

        Args:
            turn: the turn, as ``on_evaluation`` gets it; or the id of its trace, as a number, or as 32 hex digits.
            value: True or ``"up"``, False or ``"down"``, a number such as 4 of 5 stars, or a word that says good or
                bad, such as ``"correct"`` or ``"incorrect"``.
            name: what the value is about; use another one for each scale.
            comment: the person's words. They are redacted like other texts, and ``capture_content=False`` omits them.
            annotator: who says it, for example the id of a user; hashed if it is set to hash ids (``id_salt``). A later
                value of the same annotator replaces the earlier one in backends that can replace.

        Returns:
            False if it was not taken: the queue is full, which is counted, or the instrumentation is off or shut down.

        Raises:
            ConfigurationError: an argument is not valid.
        """
        from rageval_hooks.online.feedback import feedback_on

        return self.pipeline.feedback(feedback_on(turn, value, name=name, comment=comment, annotator=annotator))

    def shutdown(self, timeout: float | None = None) -> bool:
        """Detach from the frameworks, deliver what is pending, and release resources.

        If another ``instrument()`` has replaced this one, the other one stays attached.

        Args:
            timeout: seconds; the setting ``drain_timeout`` by default.

        Returns:
            False if something was not evaluated or not delivered in time.
        """
        if self._closed:
            return True
        from rageval_hooks.integrations.capture.deferred import held_turns, settle

        self._closed, self.active = True, False
        self.end_stats_file()
        global _current
        with _lock:
            if _current is self:
                _current = None
                for integration in _integrations()[0].values():
                    integration.detach()
        timeout = self.pipeline.settings.drain_timeout if timeout is None else timeout
        deadline = time.monotonic() + timeout
        settled = settle(timeout)
        held_turns().submit_all(self.pipeline)
        return self.pipeline.shutdown(max(0.0, deadline - time.monotonic())) and settled

    def stats(self) -> dict[str, Any]:
        """Return the counters: turns, results, errors, queues, models, exporters, judge, open runs and traces."""
        from rageval_hooks.integrations import opentelemetry
        from rageval_hooks.integrations.capture.recorder import shared_recorder

        recorder = shared_recorder()
        runs = {"open_runs": len(recorder), "given_up": recorder.given_up}
        return {**self.pipeline.stats(), **runs, "traced": opentelemetry.stats()}

    def end_stats_file(self) -> None:
        """Write and keep no more file of counters."""
        if self._stats_file is not None:
            self._stats_file.stop()

    def __enter__(self) -> Instrumentation:
        """Return the handle itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Shut down."""
        self.shutdown()


_lock = threading.Lock()
_current: Instrumentation | None = None


class Options(TypedDict):
    """The arguments of :func:`instrument` by name; None for one that is not given. ``settings`` are not among them."""

    metrics: Iterable[str | Metric | type[Metric]] | str | None
    models: str | ModelSettings | dict[str, Any] | None
    exporters: Iterable[str | Exporter | type[Exporter]] | str | None
    judge: AnyJudge | None
    tracer_provider: TracerProvider | None
    sample_rate: float | None
    judge_sample_rate: float | dict[str, float] | None
    thresholds: Mapping[str, float | None] | str | None
    inline_budget_ms: float | None
    capture_content: bool | None
    redact: Redact | bool | None
    spans: SpanSelection | None
    on_evaluation: OnEvaluation | None


def instrument(
    *,
    metrics: Iterable[str | Metric | type[Metric]] | str | None = None,
    models: str | ModelSettings | dict[str, Any] | None = None,
    exporters: Iterable[str | Exporter | type[Exporter]] | str | None = None,
    judge: AnyJudge | None = None,
    tracer_provider: TracerProvider | None = None,
    sample_rate: float | None = None,
    judge_sample_rate: float | dict[str, float] | None = None,
    thresholds: Mapping[str, float | None] | str | None = None,
    inline_budget_ms: float | None = None,
    capture_content: bool | None = None,
    redact: Redact | bool | None = None,
    spans: SpanSelection | None = None,
    on_evaluation: OnEvaluation | None = None,
    **settings: Any,
) -> Instrumentation:
    """Evaluate the answers of every RAG chain in this process.

    Attaches to every installed framework that is supported. In other code, :func:`rageval_hooks.start_turn` marks the
    turns. Calling it again with the same arguments returns the same handle; with others, it replaces what is attached.
    Arguments that are plain data can also be set in the environment, as ``RAGEVAL_<NAME>``; an argument comes before a
    variable.

    Args:
        metrics: names, classes or instances; by default every local one, and ``trace`` if there is a judge. ``[]`` for
            none.
        models: ``"default"``, ``"lexical"`` (stand-ins without weights), or a mapping with any of the fields of
            :class:`rageval_hooks.settings.ModelSettings`.
        exporters: names, classes or instances; OpenTelemetry by default.
        judge: the judge, off the request path: ``"openai:gpt-5-mini"``, a
            :class:`rageval_hooks.judges.openai.OpenAIJudge`, a chat model of LangChain, or an LLM of LlamaIndex.
        tracer_provider: for the OpenTelemetry exporter; the application's global one by default.
        sample_rate: share of turns that are evaluated, 0..1.
        judge_sample_rate: share of turns that are judged, 0..1; or a share by the name of a metric.
        thresholds: score name → bound for the label ``pass``, or None for no label. A score that is not named has the
            bound that was measured for it, if there is one. ``"none"``: no labels at all. Or the name of a TOML file,
            as ``rageval-hooks calibrate`` writes it.
        inline_budget_ms: the time for the local scores on the turn's span, 100 by default.
        capture_content: False keeps texts off spans; see :class:`rageval_hooks.settings.Settings`.
        redact: applied to all text before it reaches a span, a judge, a file, a log line or a spool: a function of a
            text, or True for :class:`rageval_hooks.privacy.PatternRedactor`. Local scores are computed on the original.
        spans: ``"auto"``, ``"rag"``, ``"all"`` or ``"scores"``; see :class:`rageval_hooks.settings.Settings`.
        on_evaluation: called with each :class:`rageval_hooks.Evaluation`, on a background thread; for the inline stage
            the application's call waits for it within the budget. Chains that it runs are not captured.
        settings: the other fields of :class:`rageval_hooks.settings.Settings`.

    Raises:
        ConfigurationError: a name is unknown, a value is out of its range, or two settings contradict each other; the
            message says what is valid.
    """
    options = Options(
        metrics=metrics,
        models=models,
        exporters=exporters,
        judge=judge,
        tracer_provider=tracer_provider,
        sample_rate=sample_rate,
        judge_sample_rate=judge_sample_rate,
        thresholds=thresholds,
        inline_budget_ms=inline_budget_ms,
        capture_content=capture_content,
        redact=redact,
        spans=spans,
        on_evaluation=on_evaluation,
    )
    given = {name: _kept(value) for name, value in {**options, **settings}.items() if value is not None}
    from rageval_hooks.online.pipeline import Pipeline  # here, so that importing rageval_hooks stays light

    if patched_by() == "eventlet":
        # Our background thread would be a green thread of the application.
        raise ConfigurationError(
            "eventlet has patched the threads of this process, and its locks do not work across threads: use gevent or "
            "plain threads, or evaluate recorded turns with `rageval-hooks score`"
        )
    global _current
    with _lock:
        if _current is not None and _current.active and given == _current.arguments:
            return _current
        pipeline = Pipeline.build(**given)
        integrations, missing = _integrations()
        frameworks = set(integrations) - _WITHOUT_FRAMEWORK
        if not frameworks:
            _logger.info(
                "rageval-hooks: neither LangChain nor LlamaIndex is installed (%s): turns come from the spans of other "
                "frameworks' tracers, and from start_turn() [RAGEVAL-103]",
                ", ".join(missing),
            )
        for name, integration in integrations.items():
            # A second call with enabled=False switches the first one off.
            if not pipeline.enabled:
                integration.detach()
                continue
            try:
                integration.attach(pipeline)
            except Exception as error:  # the application must start all the same
                _warn_not_instrumented(name, f"{type(error).__name__}: {error}")
                frameworks.discard(name)
        previous, _current = _current, Instrumentation(pipeline, sorted(frameworks), given)
        if previous is not None and previous.active:
            _logger.info(
                "rageval-hooks: instrument() was called again with other settings; they replace the first ones "
                "[RAGEVAL-104]"
            )
            previous.active = False
            previous.end_stats_file()
        return _current


def is_instrumented() -> bool:
    """Return True if the process is instrumented, or if a thread is instrumenting it right now."""
    return _current is not None or _lock.locked()


def shutdown_current() -> None:
    """Shut down what the last ``instrument()`` attached, if anything is attached."""
    if _current is not None:
        _current.shutdown()


def _integrations() -> tuple[dict[str, ModuleType], list[str]]:
    """Return the integrations whose frameworks are installed, by name, and the packages that the others need.

    Adding one is adding a package.
    """
    found: dict[str, ModuleType] = {}
    missing: list[str] = []
    for info in iter_modules(import_module(_INTEGRATIONS).__path__):
        if not info.ispkg:
            continue
        try:
            module = import_module(f"{_INTEGRATIONS}.{info.name}")
        except MissingDependencyError as error:
            # Usually the framework is not installed. If it is, its version is too old for us.
            if _is_installed(error.package):
                _warn_not_instrumented(info.name, str(error))
            missing.append(error.package)
            continue
        except Exception as error:
            # For example a new version of the framework, without a name that we import. The application must start.
            _warn_not_instrumented(info.name, f"{type(error).__name__}: {error}")
            continue
        # `capture` is what integrations share.
        if hasattr(module, "attach"):
            found[info.name] = module
    return found, missing


def _warn_not_instrumented(framework: str, reason: str) -> None:
    _logger.warning("rageval-hooks: %s is not instrumented: %s [RAGEVAL-105]", framework, reason)


def _is_installed(requirement: str) -> bool:
    """Return True if a distribution is installed in any version; ``requirement`` may name one, as in "x>=1"."""
    from importlib.metadata import PackageNotFoundError, version  # slow to import, and rarely needed

    try:
        return bool(version(requirement.partition(">")[0].strip()))
    except PackageNotFoundError:
        return False


def _kept(value: Any) -> Any:
    """Return a copy that can be read twice: an iterator would be empty then, and a list or a dict may change."""
    if isinstance(value, Mapping):
        return dict(value)
    return tuple(value) if isinstance(value, (list, set, Iterator)) else value
