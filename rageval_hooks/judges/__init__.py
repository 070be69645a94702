"""Judges: language models that answer a question about a turn in a given schema."""

from rageval_hooks.errors import JudgeError
from rageval_hooks.judges.base import Judge, Judgement
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.judges.resolve import resolve_judge

__all__ = ["FakeJudge", "Judge", "JudgeError", "Judgement", "resolve_judge"]
