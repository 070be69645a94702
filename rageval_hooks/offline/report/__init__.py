"""Reports on scored files: verdicts, means with intervals, comparisons and gates.

:func:`analyze` reads the files and returns the report with all turns; :mod:`.tables`, :mod:`.html` and :mod:`.plots`
show it as text, a page or a picture.
"""

from rageval_hooks.offline.report.build import Analysis, analyze, build_report
from rageval_hooks.offline.report.conclusion import conclude
from rageval_hooks.offline.report.gate import ReportGate, check_gate, gate_of
from rageval_hooks.offline.report.model import Conclusion, Report
from rageval_hooks.offline.report.similarity import BertScore, load_bertscore
from rageval_hooks.offline.report.statistics import Resampling
from rageval_hooks.offline.report.turns import check_trace_url

__all__ = [
    "Analysis",
    "BertScore",
    "Conclusion",
    "Report",
    "ReportGate",
    "Resampling",
    "analyze",
    "build_report",
    "check_gate",
    "check_trace_url",
    "conclude",
    "gate_of",
    "load_bertscore",
]
