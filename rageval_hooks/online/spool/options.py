"""Where a spool is, and its limits."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rageval_hooks.settings import Settings

__all__ = ["SpoolOptions"]


class SpoolOptions(NamedTuple):
    """Where a spool is, and its limits.

    Attributes:
        path: the file.
        max_bytes: its size.
        lease: seconds after which the jobs of a dead process are taken over.
        memory_jobs: jobs that may wait in memory until they are in the file.
        memory_bytes: their size.
    """

    path: Path
    max_bytes: int
    lease: float
    memory_jobs: int
    memory_bytes: int

    @classmethod
    def of(cls, settings: Settings) -> SpoolOptions:
        """Return the options in the settings."""
        return cls(
            path=Path(settings.spool_path).expanduser(),
            max_bytes=int(settings.spool_max_mb * 2**20),
            lease=settings.spool_lease,
            memory_jobs=settings.queue_size,
            memory_bytes=int(settings.queue_max_mb * 2**20),
        )
