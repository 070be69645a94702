"""A value that is loaded once, in the background, with a deadline."""

from __future__ import annotations

import gc
import inspect
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from itertools import count

import pytest

from rageval_hooks.errors import ModelNotReadyError, ModelUnavailableError
from rageval_hooks.runtime import lazy
from rageval_hooks.runtime.lazy import BackgroundValue, is_loading

_names = count()


class Load:
    """A load that ends when it is told to, with a value or an exception."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.error: BaseException | None = None

    def __call__(self) -> str:
        self.calls += 1
        self.begun.set()
        assert self.may_end.wait(30)
        if self.error is not None:
            raise self.error
        return "the value"


@pytest.fixture
def load() -> Iterator[Load]:
    made = Load()
    yield made
    made.may_end.set()


def background(load: Callable[[], str], timeout: float = 30.0) -> BackgroundValue[str]:
    return BackgroundValue(f"model {next(_names)}", load, timeout)


def join(value: BackgroundValue[str]) -> None:
    """Wait for the end of the thread that loads."""
    for thread in threading.enumerate():
        if thread.name == f"rageval-load-{value.role}":
            thread.join(30)


def lines(caplog: pytest.LogCaptureFixture, value: BackgroundValue[str]) -> list[str]:
    return [record.getMessage() for record in caplog.records if f"{value.role}:" in record.getMessage()]


def test_nothing_is_loaded_before_it_is_asked_for(load: Load) -> None:
    """Making one costs nothing."""
    value = background(load)

    assert value.state == "idle"
    assert load.calls == 0


def test_get_does_not_wait_by_default(load: Load) -> None:
    """While the value loads, a call raises ModelNotReadyError at once."""
    value = background(load)

    with pytest.raises(ModelNotReadyError, match="still loading"):
        value.get()
    assert value.state == "loading"


def test_a_patient_caller_waits(load: Load) -> None:
    """With ``wait`` the value is returned when it is there."""
    value = background(load)
    load.may_end.set()

    assert value.get(wait=True) == "the value"
    assert value.state == "ready"
    assert value.get() == "the value"


@pytest.mark.parametrize("timeout", [30.0, 1e300, float("inf")])
def test_any_deadline_can_be_waited_for(load: Load, timeout: float) -> None:
    """Also one beyond what the platform's locks can count."""
    load.may_end.set()

    assert background(load, timeout).get(wait=True) == "the value"


def test_sixteen_threads_load_once(load: Load) -> None:
    """All of them get the same value of one load."""
    value = background(load)
    gate = threading.Barrier(16)
    results: list[str] = []

    def ask() -> None:
        gate.wait()
        results.append(value.get(wait=True))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    assert load.begun.wait(30)
    load.may_end.set()
    for thread in threads:
        thread.join(30)

    assert results == ["the value"] * 16
    assert load.calls == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModelUnavailableError("model", "no such file. Get it there"), "no such file. Get it there"),
        (RuntimeError("broken"), "loading failed: RuntimeError: broken"),
        (SystemExit(1), "loading failed: SystemExit: 1"),
    ],
)
def test_a_failed_load_is_not_repeated(
    load: Load, caplog: pytest.LogCaptureFixture, error: BaseException, reason: str
) -> None:
    """Every caller gets the reason, and it is logged once."""
    load.error = error
    load.may_end.set()
    value = background(load)

    for _ in range(3):
        with pytest.raises(ModelUnavailableError) as raised:
            value.get(wait=True)
        assert raised.value.reason == reason
    join(value)

    assert value.state == "failed"
    assert load.calls == 1
    assert lines(caplog, value) == [
        f"rageval-hooks: {value.role}: {reason}. Metrics that need it are skipped. [RAGEVAL-203]"
    ]


def test_a_load_past_its_deadline_counts_as_failed(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """Callers stop waiting, patient ones too; the log says so once."""
    value = background(load, timeout=0.01)

    for wait in (True, True, False):
        with pytest.raises(ModelUnavailableError) as raised:
            value.get(wait=wait)
        assert raised.value.reason == "loading took longer than 0.01 seconds"
    assert value.state == "failed"
    assert len(lines(caplog, value)) == 1


def test_a_load_that_ends_after_its_deadline_is_used(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """From then on; nothing more is logged."""
    value = background(load, timeout=0.01)
    with pytest.raises(ModelUnavailableError):
        value.get(wait=True)

    load.may_end.set()
    join(value)

    assert value.state == "ready"
    assert value.get() == "the value"
    assert len(lines(caplog, value)) == 1


def test_a_load_that_fails_after_its_deadline_is_logged_once(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """One line for one model."""
    load.error = RuntimeError("broken")
    value = background(load, timeout=0.01)
    with pytest.raises(ModelUnavailableError):
        value.get(wait=True)

    load.may_end.set()
    join(value)

    with pytest.raises(ModelUnavailableError, match="broken"):
        value.get()
    assert len(lines(caplog, value)) == 1


def test_the_log_says_what_happens_instead(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """The message names the consequence if it is not a skipped score."""
    caplog.set_level(logging.INFO)
    load.error = RuntimeError("broken")
    load.may_end.set()
    value = BackgroundValue("tokenizer", load, 30.0, "Tokens are estimated.")

    with pytest.raises(ModelUnavailableError):
        value.get(wait=True)
    join(value)

    [line] = lines(caplog, value)
    assert line.endswith("broken. Tokens are estimated. [RAGEVAL-203]")


def test_a_thread_that_cannot_be_started_is_a_failed_load(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the interpreter's end, or where there are no more threads: a reason, no exception of threading's."""

    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    value = background(load)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        value.start()

    assert value.state == "failed"
    with pytest.raises(ModelUnavailableError, match="can't start new thread"):
        value.get(wait=True)


def test_what_asks_for_a_missing_model_is_not_kept_alive(load: Load) -> None:
    """Raised again and again, the failure must not hold on to the frames of those who met it, and to their turns."""
    load.error = RuntimeError("broken")
    load.may_end.set()
    value = background(load)

    class Turn:
        pass

    def ask() -> weakref.ref[Turn]:
        turn = Turn()
        with pytest.raises(ModelUnavailableError):
            value.get(wait=True)
        return weakref.ref(turn)

    seen = [ask() for _ in range(3)]
    gc.collect()

    assert [turn() for turn in seen] == [None, None, None]


def test_loading_logs_under_the_librarys_name(load: Load, caplog: pytest.LogCaptureFixture) -> None:
    """So that an application can set its level."""
    load.error = RuntimeError("broken")
    load.may_end.set()
    value = background(load)
    with pytest.raises(ModelUnavailableError):
        value.get(wait=True)
    join(value)

    assert {(record.name, record.levelno) for record in caplog.records} == {
        ("rageval_hooks.runtime.lazy", logging.WARNING)
    }


class Tensor:
    """Like one of PyTorch, which gives up the interpreter's lock when it is freed."""

    def __init__(self, freed: list[bool]) -> None:
        self.freed = freed

    def __del__(self) -> None:
        self.freed.append(is_loading())


def test_a_failed_load_is_over_when_its_exception_is_gone() -> None:
    """The exit waits for loads: a thread that frees tensors in the interpreter's last steps aborts the process."""
    freed: list[bool] = []

    def load_weights() -> str:
        weights = Tensor(freed)
        raise RuntimeError(f"no memory for {type(weights).__name__}")

    with pytest.raises(ModelUnavailableError, match="no memory for Tensor"):
        BackgroundValue("weights", load_weights, 30).get(wait=True)
    assert freed == [True]


def test_nothing_is_loaded_any_more_when_the_process_ends(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A load that begins in the interpreter's last steps would abort the process."""
    monkeypatch.setattr(lazy, "_loads_end", threading.Event())
    lazy.stop_loads()
    with pytest.raises(ModelUnavailableError, match="the process ended before it was loaded"):
        BackgroundValue("late", load, 30).get(wait=True)
    assert load.calls == 0
    assert not is_loading()


def test_an_attribute_that_is_computed_once_is_described_on_its_class() -> None:
    """Tools for documentation look at classes."""

    class Turn:
        @lazy.cached_property
        def words(self) -> int:
            """The number of words."""
            return 3

    assert dict(inspect.getmembers(Turn))["words"].__doc__ == "The number of words."
    assert Turn().words == 3
