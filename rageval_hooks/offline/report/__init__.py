"""Reports on scored files: verdicts, means with intervals, comparisons and gates.

:func:`analyze` reads the files and returns the report with all turns; :mod:`.text`, :mod:`.html` and :mod:`.plots` show
it as text, Markdown, a page or a picture.
"""

from rageval_hooks.offline.report.bertscore import BertScore, load_bertscore
from rageval_hooks.offline.report.build import Analysis, analyze, build_report
from rageval_hooks.offline.report.conclusion import conclude
from rageval_hooks.offline.report.consistency import Consistency, consistency
from rageval_hooks.offline.report.definitions import DERIVED, define_score, direction_of, metric_of
from rageval_hooks.offline.report.gate import GateResult, ReportGate, Tolerance, check_gate, gate_of
from rageval_hooks.offline.report.model import (
    Conclusion,
    FileComparison,
    FileReport,
    Report,
    ScoreChange,
    ScoreSummary,
)
from rageval_hooks.offline.report.statistics import Resampling
from rageval_hooks.offline.report.turns import check_trace_url

__all__ = [
    "DERIVED",
    "Analysis",
    "BertScore",
    "Conclusion",
    "Consistency",
    "FileComparison",
    "FileReport",
    "GateResult",
    "Report",
    "ReportGate",
    "Resampling",
    "ScoreChange",
    "ScoreSummary",
    "Tolerance",
    "analyze",
    "build_report",
    "check_gate",
    "check_trace_url",
    "conclude",
    "consistency",
    "define_score",
    "direction_of",
    "gate_of",
    "load_bertscore",
    "metric_of",
]
