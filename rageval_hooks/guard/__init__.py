"""``GroundingGuard`` checks answers against their passages before the user sees them.

Read ``guard`` (what users call), ``checking`` (from an answer to a decision, in steps for functions and event loops)
and ``streams`` (answers that are held back). ``langchain``, ``middleware`` and ``llama_index`` are the adapters; each
imports its framework.
"""

from rageval_hooks.guard.guard import GroundingGuard
from rageval_hooks.guard.options import AnswerBlockedError, GuardDecision

__all__ = ["AnswerBlockedError", "GroundingGuard", "GuardDecision"]
