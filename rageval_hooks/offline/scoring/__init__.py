"""Scoring the turns of a file: resumable, within a budget, without paying twice."""

from rageval_hooks.offline.scoring.estimate import estimate
from rageval_hooks.offline.scoring.score_file import score_file
from rageval_hooks.offline.scoring.setup import build_pipeline, required_fields
from rageval_hooks.offline.scoring.summary import Scored

__all__ = ["Scored", "build_pipeline", "estimate", "required_fields", "score_file"]
