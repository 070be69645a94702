"""Scoring the turns of a file."""
