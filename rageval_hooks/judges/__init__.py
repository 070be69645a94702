"""Judges: language models that answer questions about a turn."""
