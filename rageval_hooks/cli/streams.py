"""Standard output and error streams: any encoding, and readers that close early."""

from __future__ import annotations

import os
import re
import sys
from typing import TextIO

__all__ = ["for_stream", "forgive_encodings", "leave_stdout"]


def forgive_encodings() -> None:
    """Have standard output show a question mark for what its encoding lacks, as standard error shows a code."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and stream.errors in ("strict", "surrogateescape"):
            reconfigure(errors="replace")


def for_stream(text: str, format: str, stream: TextIO) -> str:
    """Return a document of which a stream's encoding loses nothing, where the format has a way to say it.

    Args:
        text: the document.
        format: ``json`` and ``html`` have one.
        stream: where it goes.
    """
    if format == "json":
        text = re.sub("[\x7f-\x9f]", _json_code, text)  # a terminal would obey them
    try:
        text.encode(stream.encoding or "utf-8")
    except UnicodeEncodeError:
        if format == "json":
            return re.sub("[^\x00-\x7f]", _json_code, text)
        if format == "html":
            return text.encode("ascii", "xmlcharrefreplace").decode("ascii")
    return text


def _json_code(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    return f"\\u{0xD7C0 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"


def leave_stdout() -> None:
    """Let standard output go nowhere: its reader is gone, and flushing it at the end would be an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
