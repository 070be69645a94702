"""Shared by metrics: the analysis of a turn, the judged turn, batching, plans and formulas.

Metrics import any module. Other packages import ``turn_analysis``, ``judged_turn``, ``plan``, ``running`` and
``definition``. A new file goes here when a second metric needs it, or when the engine does.
"""
