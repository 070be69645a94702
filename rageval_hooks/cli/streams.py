"""Standard output and error streams: any encoding, and readers that close early."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO


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
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    # JSON has four hexadecimal digits: a character beyond them is a pair of surrogates.
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


@contextmanager
def survive_closed_pipe() -> Iterator[None]:
    """Write to standard output, whose reader may have gone, for example `| head`: the command goes on without it."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        # Flushing it at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
