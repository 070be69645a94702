"""Scoring the turns of a file: resumable, within a budget, without paying twice."""

from rageval_hooks.offline.scoring.score_file import Scored, read_input, score_file
from rageval_hooks.offline.scoring.setup import build_pipeline, estimate, required_fields

__all__ = ["Scored", "build_pipeline", "estimate", "read_input", "required_fields", "score_file"]
