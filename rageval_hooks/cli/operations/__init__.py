"""Commands for the person on call: ``doctor`` checks a setup, ``top`` watches a running process."""

from __future__ import annotations

from rageval_hooks.cli.operations.doctor import doctor
from rageval_hooks.cli.operations.top import top

__all__ = ["doctor", "top"]
