"""Scoring the turns of a file: resumable, within a budget, without paying twice."""
