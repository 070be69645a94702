"""What commands print and write: messages, streams of any encoding, complete files, the end of an interrupted run."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import typer

from rageval_hooks.errors import ConfigurationError, ExportError

if TYPE_CHECKING:
    from rageval_hooks.offline.records.record import Record


# --------------------------------------------------------------------------- streams


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


def forgive_encodings() -> None:
    """Print a question mark for a character that the encoding of a stream lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        # A test or an editor may replace the streams by objects without an encoding.
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and stream.errors in ("strict", "surrogateescape"):
            reconfigure(errors="replace")


def for_stream(text: str, format: str, stream: TextIO) -> str:
    """Return a document in a form that the encoding of a stream can represent without loss, if its format allows it.

    Args:
        text: the document.
        format: ``json`` and ``html`` can escape any character.
        stream: the stream to write to.
    """
    if format == "json":
        # C1 control characters, such as "\x9b", and those that reverse a text, such as "\u202e": JSON allows them, but
        # a terminal would obey them.
        text = re.sub("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]", _json_code, text)
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        if format == "json":
            # Every character beyond ASCII, such as "é".
            return re.sub("[^\x00-\x7f]", _json_code, text)
        if format == "html":
            return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
    return text


def _json_code(found: re.Match[str]) -> str:
    # A character beyond four hexadecimal digits is a pair of surrogates.
    return json.dumps(found[0])[1:-1]


@contextmanager
def survive_closed_pipe() -> Iterator[None]:
    """Write to standard output, whose reader may have gone, for example `| head`: the command goes on without it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Flushing it at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# --------------------------------------------------------------------------- files


def check_output_option(output: Path | None, files: Sequence[Path]) -> None:
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
    from rageval_hooks.offline.records.reading import count_rows
    from rageval_hooks.offline.running import progress_bar

    # Counting the lines first takes a moment.
    total = count_rows(path) if sys.stderr.isatty() else None
    with progress_bar(f"reading {path.name}", total) as advance:
        for record in records:
            advance(1)
            yield record


@contextmanager
def resumable(output: Path, *, has_journal: bool = True) -> Iterator[None]:
    """Print one line if the work was interrupted.

    Args:
        output: the first output; the journal of what is done is next to it.
        has_journal: False if what is done is in the output itself.

    Raises:
        typer.Exit: with status 130.
    """
    # An application may change the current directory.
    there = output.absolute()
    try:
        yield
    except KeyboardInterrupt:
        from rageval_hooks.offline.journal import journal_path

        place = journal_path(output) if has_journal else output
        done = f"The results so far are in {place}: run the same command again to resume"
        kept = done if journal_path(there).exists() or not has_journal else "There are no results yet"
        typer.echo(f"rageval-hooks: interrupted. {kept}", err=True)
        raise typer.Exit(130) from None  # as shells report a process that SIGINT ended: 128 + 2
