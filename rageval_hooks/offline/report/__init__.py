"""Reports on scored files: verdicts, means with intervals, comparisons and gates.

:func:`analyze` reads the files and returns the report and all turns, :func:`conclude` what a reader has to know first.
:mod:`.tables`, :mod:`.html` and :mod:`.plots` show the report as text, a page or a picture.
"""

from rageval_hooks.errors import requires

with requires("scipy", "offline", "a report"):
    from rageval_hooks.offline.report.build import Report, analyze, build_report
    from rageval_hooks.offline.report.conclusion import conclude
    from rageval_hooks.offline.report.gate import ReportGate, check_gate, gate_of
    from rageval_hooks.offline.report.similarity import BertScore, load_bertscore
    from rageval_hooks.offline.report.statistics import Resampling

__all__ = [
    "BertScore",
    "Report",
    "ReportGate",
    "Resampling",
    "analyze",
    "build_report",
    "check_gate",
    "conclude",
    "gate_of",
    "load_bertscore",
]
