"""The columns of our own tables."""

from __future__ import annotations

__all__ = ["FIXED", "LABEL", "OPTIONAL", "REASON"]

FIXED = ("id", "run", "query", "response")
"""The first columns of a table of ours."""

OPTIONAL = ("reference", "target", "rank", "document", "error")
"""The next ones, where a record of the file has such a thing."""

LABEL = ".label"
REASON = ".reason"
