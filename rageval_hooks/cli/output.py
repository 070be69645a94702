"""The outputs of commands: complete files, messages, progress on a terminal, and what an interrupted command prints."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rageval_hooks.errors import ConfigurationError, ExportError

if TYPE_CHECKING:
    from rageval_hooks.offline.records.record import Record
    from rageval_hooks.offline.report import BertScore


# As shells report a process that SIGINT ended: 128 + 2.
_INTERRUPTED = 130


def say(line: str) -> None:
    """Print one line of a message on standard error."""
    from rageval_hooks.text.formatting import flat

    typer.echo(f"rageval-hooks: {flat(line)}", err=True)


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    """Print rows for programs and people: one line each, columns two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = map(str.ljust, row, widths)
        typer.echo("  ".join(cells).rstrip())


def check_output(output: Path | None, files: Sequence[Path]) -> None:
    """Check before any work that an output can be written.

    Raises:
        ConfigurationError: it is one of the input files or a folder, or its folder does not exist.
    """
    if output is None:
        return
    from rageval_hooks.offline.records.writing import check_place

    if any(is_same_file(output, file) for file in files):
        raise ConfigurationError(f"--output {output} is one of the files to read, and would replace it")
    check_place("--output", output)


def is_same_file(one: Path, other: Path) -> bool:
    """Return True if two paths lead to the same file, also through links."""
    return os.path.realpath(one) == os.path.realpath(other)


def write_file(output: Path, content: bytes) -> None:
    """Write a file, and print its name on standard error.

    Raises:
        ExportError: it cannot be written.
    """
    from rageval_hooks.offline.records.writing import atomic_file

    try:
        with atomic_file(output) as file:
            file.write(content)
    except OSError as error:
        raise ExportError(f"{output} cannot be written: {error.strerror or error}") from error
    typer.echo(f"{output} is written", err=True)


def watch_records(records: Iterable[Record], path: Path) -> Iterator[Record]:
    """Yield records, and show on a terminal how many have been read."""
    from rageval_hooks.offline.jobs.running import progress_bar
    from rageval_hooks.offline.records import count_rows

    # Counting the lines first takes a moment.
    total = count_rows(path) if sys.stderr.isatty() else None
    with progress_bar(f"reading {path.name}", total) as advance:
        for record in records:
            advance(1)
            yield record


@contextmanager
def resumable(output: Path, *, has_journal: bool = True) -> Iterator[None]:
    """Print one line if the work was interrupted, or if a file cannot be read or written.

    Args:
        output: the first output; the journal of what is done is next to it.
        has_journal: False if what is done is in the output itself.

    Raises:
        typer.Exit: with status 130 after an interruption, 2 after an error.
    """
    # An application may change the current directory.
    there = output.absolute()
    try:
        yield
    except KeyboardInterrupt:
        from rageval_hooks.offline.jobs.journal import journal_path

        place = journal_path(output) if has_journal else output
        done = f"The results so far are in {place}: run the same command again to resume"
        kept = done if journal_path(there).exists() or not has_journal else "There are no results yet"
        typer.echo(f"rageval-hooks: interrupted. {kept}", err=True)
        raise typer.Exit(_INTERRUPTED) from None
    except OSError as error:
        typer.echo(f"rageval-hooks: {error}", err=True)
        raise typer.Exit(2) from None


def load_encoder(model: str | None, layer: int | None, language: str, rescale: bool) -> BertScore | None:
    """Return the encoder of the options ``--bertscore…``; None without ``--bertscore``."""
    if model is None:
        return None
    from rageval_hooks.offline.report import load_bertscore

    return load_bertscore(model, layers=layer, language=language, rescale=rescale)
