"""Frameworks: for each a pure ``turn_from_*`` function and a thin hook."""
