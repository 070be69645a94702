"""The messages and exit statuses of a resumable command that is interrupted or fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

__all__ = ["resumable"]

# As shells report a process that SIGINT ended: 128 + 2.
_INTERRUPTED = 130


@contextmanager
def resumable(output: Path) -> Iterator[None]:
    """Print one line if the work was interrupted, or if a file cannot be read or written.

    Args:
        output: the first output; the journal of what is done is next to it.

    Raises:
        typer.Exit: with status 130 after an interruption, 2 after an error.
    """
    # An application may change the current directory.
    there = output.absolute()
    try:
        yield
    except KeyboardInterrupt:
        from rageval_hooks.offline.jobs.journal import interruption

        typer.echo(interruption(output, there), err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except OSError as error:
        typer.echo(f"rageval-hooks: {error}", err=True)
        raise typer.Exit(2) from None
