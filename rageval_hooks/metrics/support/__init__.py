"""Shared by metrics: the analysis of a turn, the judged turn, batching, plans and formulas."""
