"""URLs that may be shown: in log lines, reprs and reports."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def safe_url(url: str) -> str:
    """Return a URL without user name, password, query and fragment.

    Example:
        ``https://user:secret@host:8000/v1?key=k#f`` becomes ``https://host:8000/v1``.
    """
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
