"""A progress bar with an estimate of the time left."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["Advance", "progress_bar"]

Advance = Callable[[int], None]
"""Called with the number of steps that were just done."""


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
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("in"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total)
        yield lambda steps: progress.advance(task, steps)
