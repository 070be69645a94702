"""How a command that can be resumed ends before its time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

__all__ = ["resumable"]

_INTERRUPTED = 130


@contextmanager
def resumable(output: Path) -> Iterator[None]:
    """Say in a line that the work on an output was interrupted, or what file cannot be read or written.

    Args:
        output: the first one: beside it stands what was done so far.

    Raises:
        typer.Exit: with status 130 after an interruption, 2 after an error.
    """
    there = output.absolute()  # an application may change the current directory
    try:
        yield
    except KeyboardInterrupt:
        from rageval_hooks.offline.jobs.journal import interruption

        typer.echo(interruption(output, there), err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except OSError as error:
        typer.echo(f"rageval-hooks: {error}", err=True)
        raise typer.Exit(2) from None
