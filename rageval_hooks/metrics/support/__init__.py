"""Shared by metrics: the analysis of a turn, the judged turn with its batches, and formulas.

Metrics import any module. Other packages import ``turn_analysis``, ``judged_turn`` and ``running``. A new file goes
here when a second metric needs it, or when the engine does.
"""
