"""Deadlines of the application that come while the hook runs on its thread."""

from __future__ import annotations

import gc
import inspect
import itertools
import signal
import sys
from collections.abc import Callable, Iterator
from contextvars import copy_context
from functools import partial
from types import FrameType
from typing import Any

import pytest

import rageval_hooks
from rageval_hooks.instrumentation import Instrumentation
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.fakes import lcel
from tests.integrations.llama_index.test_endings import engine

QUESTION = "When was the pier opened?"


class Deadline(Exception):
    """What Celery's ``soft_time_limit`` raises is such an exception."""


def by_hand() -> None:
    """A turn without a framework."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        turn.add_passages(["It was opened in 2019."])
        turn.respond("In 2019.")


ASK: dict[str, Callable[[], Any]] = {
    "LangChain": lambda: lcel("It was opened in 2019.").invoke(QUESTION),
    "LlamaIndex": lambda: engine().query(QUESTION),
    "start_turn": by_hand,
}


@pytest.fixture
def handle() -> Iterator[Instrumentation]:
    """The hook, without models."""
    with rageval_hooks.instrument(models="lexical", exporters=[InMemoryExporter()]) as handle:
        yield handle


@pytest.fixture
def deadlines() -> Iterator[None]:
    """A handler of SIGALRM that raises."""

    def end(*_: object) -> None:
        raise Deadline

    before = signal.signal(signal.SIGALRM, end)
    # Nobody sees what is raised while Python collects the garbage of earlier tests.
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    signal.signal(signal.SIGALRM, before)


def at_call(number: int) -> Callable[[FrameType, str, Any], None]:
    """Return a profiler that sends the signal when a function of ours is called for the ``number``-th time."""
    calls = itertools.count()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        is_ours = event == "call" and str(frame.f_globals.get("__name__")).startswith("rageval_hooks.")
        # Nobody sees what is raised in a __del__ or while Python closes a generator, and what is raised at the very
        # call of a handler ends in LlamaIndex's dispatcher.
        is_lost = frame.f_code.co_flags & inspect.CO_GENERATOR or frame.f_code.co_name in ("call", "__del__")
        if is_ours and not is_lost and next(calls) == number:
            sys.setprofile(None)
            signal.raise_signal(signal.SIGALRM)

    return profile


@pytest.mark.parametrize("framework", ASK)
@pytest.mark.usefixtures("deadlines")
def test_a_deadline_reaches_the_application_wherever_it_comes(framework: str, handle: Instrumentation) -> None:
    """At each function of ours that is called during a turn; afterwards nothing is in progress."""
    # LlamaIndex leaves the span that a deadline interrupted in the context, which is that of later tests otherwise.
    ask = partial(copy_context().run, ASK[framework])
    ask()
    assert handle.flush(10)
    swallowed, raised = [], 0
    for number in range(0, 2000, 7):
        sys.setprofile(at_call(number))
        try:
            ask()
        except Deadline:
            raised += 1
        else:
            if sys.getprofile() is not None:  # fewer calls than that
                break
            swallowed.append(number)
        finally:
            sys.setprofile(None)

    assert raised > 5
    assert swallowed == []
    assert handle.flush(10)
    stats = handle.stats()
    assert stats["in_progress"] == 0
    assert stats["turns"] == sum(stats[name] for name in ("evaluated", "without_retrieval", "dropped"))
    assert stats["internal_errors"] == 0
    ask()
    assert handle.flush(10)
    assert handle.stats()["evaluated"] == stats["evaluated"] + 1
