"""Judges: language models that answer a question about a turn in a given schema."""

from rageval_hooks.errors import JudgeError
from rageval_hooks.judges.base import Judge, Judgement, resolve_judge
from rageval_hooks.judges.fake import FakeJudge

__all__ = ["FakeJudge", "Judge", "JudgeError", "Judgement", "resolve_judge"]
