"""A disk that is full, without a disk: files of this process cannot grow beyond a size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["limited_file_size"]


@contextmanager
def limited_file_size(size: int) -> Iterator[None]:
    """Let the system refuse every write beyond a size in bytes, in any file of this process."""
    resource = pytest.importorskip("resource", reason="this platform has no limits of file sizes")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
