"""``GroundingGuard`` checks answers against their passages before the user sees them.

Read ``guard`` (what users call), ``checking`` (from an answer to a decision) and ``streams`` (answers that are held
back). ``langchain``, ``middleware`` and ``llama_index`` are the adapters; each imports its framework. ``steps`` is why
no function is written twice for event loops.
"""

from rageval_hooks.guard.guard import GroundingGuard
from rageval_hooks.guard.options import AnswerBlockedError, GuardDecision

__all__ = ["AnswerBlockedError", "GroundingGuard", "GuardDecision"]
