"""URLs that may be shown."""

from __future__ import annotations

import pytest

from rageval_hooks.runtime.urls import safe_url


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:secret@host:8000/v1?key=k#f", "https://host:8000/v1"),
        ("https://user:p@ss@host/v1", "https://host/v1"),
        ("http://localhost:6006", "http://localhost:6006"),
        ("", ""),
    ],
)
def test_what_may_be_secret_is_not_shown(url: str, shown: str) -> None:
    """User, password, query and fragment."""
    assert safe_url(url) == shown
