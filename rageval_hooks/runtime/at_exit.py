"""The end of the process: everything that is pending gets one deadline, and the exit never takes longer."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Literal, get_args

from rageval_hooks.runtime.lazy import is_loading, stop_loads
from rageval_hooks.runtime.pool import stop_passes
from rageval_hooks.runtime.threads import wait_until
from rageval_hooks.runtime.time_limit import remaining, within

_logger = logging.getLogger(__name__)

Stage = Literal["capture", "evaluate", "give_up", "export"]
Step = Callable[[float], object]
"""Finishes something within some seconds."""
Check = Callable[[], object]
"""Returns something true while work is pending."""

_DEFAULT_TIMEOUT = 10.0
_EARLY_SHARE = 0.8
"""Share of the time that the stages before the last may take together: a judge that hangs must not keep finished
turns from being exported."""

_GRACE = 0.5
"""Seconds that a step may take longer than it was told before it is left behind: on a busy machine a thread may run
late, and the step's own message says more than ours."""

_MAX_WAIT_FOR_MODELS = 5.0
"""Seconds that the exit waits for a model that is loading or computing: a thread that does so must not meet the
interpreter's last steps, where the process would be aborted."""

_MAX_WAIT_FOR_PYTORCH = 30.0
"""The same for loads with PyTorch, whose import alone takes longer. One in twenty processes that ended meanwhile was
aborted, or waited forever for a lock of the import."""


class ExitDrain:
    """Runs steps when the process ends: what captures turns, what evaluates them, what gives up the rest, exporters.

    The interpreter calls exit handlers last-in, first-out. Ours must come before the handler of a tracer provider,
    which shuts that provider down, so it is registered after the provider was created; see :meth:`run_before`.

    Children of ``multiprocessing`` end without exit handlers; there a finalizer of that package calls :meth:`run`.
    Worker processes of Celery end without those too; there its signal ``worker_process_shutdown`` does.
    """

    def __init__(self) -> None:
        self._steps: dict[Step | weakref.WeakMethod[Step], tuple[Stage, Check | None]] = {}
        # Seconds of the exit that the wait for loads has taken.
        self._waited = 0.0
        self._timeouts: weakref.WeakKeyDictionary[object, float] = weakref.WeakKeyDictionary()
        self._last_timeout = _DEFAULT_TIMEOUT
        self._registered_in = 0
        # By identity: Logfire's provider cannot be hashed.
        self._providers: weakref.WeakValueDictionary[int, object] = weakref.WeakValueDictionary()

    @property
    def timeout(self) -> float:
        """The longest that an owner allows the exit to take, in seconds."""
        return max(self._timeouts.values(), default=self._last_timeout)

    def allow(self, owner: object, seconds: float) -> None:
        """Note how long an owner allows the exit to take."""
        self._timeouts[owner] = self._last_timeout = seconds

    def release(self, owner: object) -> None:
        """Forget an owner: nothing of it is pending."""
        self._timeouts.pop(owner, None)

    def add(self, step: Step, stage: Stage, is_pending: Check | None = None, *, weak: bool = False) -> None:
        """Run a step at exit. Adding it again changes nothing.

        Args:
            step: the step.
            stage: when it runs.
            is_pending: says whether the step has work that may wait for a model.
            weak: True for a method of an object that may be dropped before the exit; the step is then forgotten.
        """
        key = weakref.WeakMethod(step, lambda gone: self._steps.pop(gone, None) and None) if weak else step
        self._steps.setdefault(key, (stage, is_pending))

    def remove(self, step: Step, *, weak: bool = False) -> None:
        """Do not run a step at exit. The arguments are those of :meth:`add`."""
        self._steps.pop(weakref.WeakMethod(step) if weak else step, None)

    def register(self) -> None:
        """Register the exit handler of this process, once."""
        if self._registered_in == os.getpid():
            return
        self._register()
        # Thread pools of the standard library take no more work once the main thread has ended, and models read their
        # weights with them: a script of one question would have no model scores. This private function calls us just
        # before; the last one that is registered is called first, so the pools come before.
        with suppress(ImportError, AttributeError, RuntimeError):
            import concurrent.futures.thread  # noqa: F401

            threading._register_atexit(self._wait_for_loads)  # type: ignore[attr-defined]

    def run_before(self, provider: object) -> None:
        """Run before the exit handler of an OpenTelemetry provider that exists by now."""
        if self._providers.get(id(provider)) is provider:
            return
        # Once per provider: each registration takes a slot in the interpreter's list that is never freed.
        self._providers[id(provider)] = provider
        self.register()
        self._register()

    def _register(self) -> None:
        self._registered_in = os.getpid()
        atexit.unregister(self._at_exit)
        atexit.register(self._at_exit)
        if is_multiprocessing_child():
            from multiprocessing.util import Finalize

            Finalize(self, self.run, exitpriority=100)
        # Celery's worker processes end without any of these.
        celery = sys.modules.get("celery.signals")
        if celery is not None:
            celery.worker_process_shutdown.connect(lambda **_: self.run(), weak=False, dispatch_uid="rageval-hooks")

    def _wait_for_loads(self) -> None:
        """Wait for models that are loading, if turns need them."""
        start = time.monotonic()
        checks = [check for _, check in list(self._steps.values()) if check is not None]
        wait_until(lambda: not (is_loading() and any(check() for check in checks)), self.timeout)
        self._waited = time.monotonic() - start

    def _at_exit(self) -> None:
        self.run()
        # After the steps, which may need models.
        stop_loads()
        stop_passes(0)  # no more begin when a load ends
        end = time.monotonic() + _MAX_WAIT_FOR_MODELS
        is_over = wait_until(lambda: not is_loading(), _MAX_WAIT_FOR_MODELS)
        if not is_over and "torch" in sys.modules:
            is_over = wait_until(lambda: not is_loading(), _MAX_WAIT_FOR_PYTORCH)
        if not (stop_passes(remaining(end)) and is_over):
            _logger.warning("rageval-hooks: the interpreter exits while a model is at work [RAGEVAL-609]")

    def run(self) -> None:
        """Run all steps within the timeout; log what could not finish."""
        # The exporters have time for what is ready, also if the wait for a model took all of it.
        timeout = max(self.timeout - self._waited, self.timeout * (1 - _EARLY_SHARE))
        start = time.monotonic()
        for stage in get_args(Stage):
            deadline = start + timeout * (1 if stage == "export" else _EARLY_SHARE)
            added = [step for step, (its_stage, _) in list(self._steps.items()) if its_stage == stage]
            found = [step() if isinstance(step, weakref.WeakMethod) else step for step in added]
            steps = [step for step in found if step is not None]
            for index, step in enumerate(steps):
                # A fair share for each: one step that hangs must not take the time of those after it.
                share = remaining(deadline) / (len(steps) - index)
                try:
                    within(partial(step, share), share + _GRACE)
                except TimeoutError:
                    name = getattr(step, "__qualname__", repr(step))  # such as OtelExporter.shutdown
                    _logger.warning("rageval-hooks: the exit does not wait for %s any longer [RAGEVAL-607]", name)
                except Exception:
                    _logger.warning("rageval-hooks: a step of the shutdown at exit failed [RAGEVAL-608]", exc_info=True)


def is_exiting() -> bool:
    """Return True on the main thread after its program has ended: in an exit handler."""
    main = threading.main_thread()
    return not main.is_alive() and threading.current_thread() is main


def is_multiprocessing_child() -> bool:
    """Return True in a child process of ``multiprocessing``, of a pool or of a process pool executor."""
    # A load on another thread may be importing the module: it is there, and its functions are not.
    parent_process = getattr(sys.modules.get("multiprocessing.process"), "parent_process", None)
    return parent_process is not None and parent_process() is not None


EXIT_DRAIN = ExitDrain()
