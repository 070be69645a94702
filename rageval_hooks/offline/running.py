"""What long-running commands share: workers, a thread, a progress bar, how many errors are acceptable."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from rageval_hooks.errors import ConfigurationError

T = TypeVar("T")

Advance = Callable[[int], None]
"""Called with the number of steps that were just done."""


async def work_together(worker: Callable[[], Coroutine[Any, Any, None]], number: int) -> None:
    """Run workers until all are done. If one fails, or this is cancelled, the others are cancelled.

    Args:
        worker: makes a worker; all of them take their tasks from the same iterator.
        number: how many workers.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(number):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        # The errors of the others are those of the first.
        raise errors.exceptions[0] from None


def run_on_thread(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on another thread, and return its result: this thread may have a running event loop."""
    runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
    loop = runner.get_loop()
    work = loop.create_task(coroutine)
    # Not join(): after an interruption, Python 3.11 takes a running thread for one that has ended. Not an event: one
    # that is interrupted as it takes its lock keeps it, and nobody can set it.
    ended = SimpleQueue[None]()

    def wait() -> None:
        while True:
            # A signal that comes just before a wait does not end it, so each is short.
            with suppress(Empty):
                return ended.get(timeout=1)

    def main() -> None:
        # An error is raised on the caller's thread, by result().
        with suppress(BaseException), runner:
            loop.run_until_complete(work)
        for _ in range(2):  # one for each of the waits below
            ended.put(None)

    try:
        threading.Thread(target=main, name="rageval-offline", daemon=True).start()
        wait()
    except BaseException:
        # The user interrupts the cell of a notebook: without this a judge would go on being asked.
        with suppress(RuntimeError):  # it has just ended
            loop.call_soon_threadsafe(work.cancel)
        wait()
        raise
    return work.result()


@contextmanager
def progress_bar(title: str, total: int | None) -> Iterator[Advance]:
    """Show a bar on standard error while the block runs, if that is a terminal.

    Args:
        title: what is being done.
        total: approximate number of steps; None if it is unknown.
    """
    # In the log of a CI job a bar would be thousands of lines.
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    # rich is slow to import, and needed for terminals only.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

    columns = ("{task.description}", BarColumn(), MofNCompleteColumn(), "in", TimeElapsedColumn(), "left")
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total)
        yield lambda steps: progress.advance(task, steps)


# "3" is a number, "5%" and "2.5%" are shares.
_FORM = re.compile(r"(\d+)|(\d{1,2}(?:\.\d+)?|100) ?%")


@dataclass(frozen=True)
class MaxErrors:
    """A number of failed questions that is still acceptable: none by default.

    Attributes:
        count: the number; None if a share is given.
        share: share of all questions, from 0 to 1.
    """

    count: int | None = 0
    share: float = 0.0

    @classmethod
    def parse(cls, text: str | None) -> MaxErrors:
        """Return what an option such as ``"3"`` or ``"5%"`` allows.

        Raises:
            ConfigurationError: it is neither a whole number nor a percentage.
        """
        found = _FORM.fullmatch((text or "0").strip())
        if found is None:
            raise ConfigurationError(
                f"--max-errors {text!r} should be a whole number such as 3, or a percentage such as 5%"
            )
        count, percent = found.groups()
        return cls(int(count)) if count else cls(None, float(percent) / 100)

    def allows(self, errors: int, total: int) -> bool:
        """Return True if so many of all questions may fail."""
        return errors <= (self.share * total if self.count is None else self.count)

    def __str__(self) -> str:
        """Return the number as the option has it."""
        return f"{self.share * 100:g}%" if self.count is None else str(self.count)
