"""Reports on scored files: means with intervals, comparisons, verdicts and gates.

:func:`analyze` reads the files and returns the report with all turns; :mod:`rageval_hooks.offline.report.render` shows
it as text, Markdown, a picture or a page.
"""

from rageval_hooks.offline.report.bertscore import BertScore, load_bertscore
from rageval_hooks.offline.report.build import Analysis, analyze, build_report
from rageval_hooks.offline.report.consistency import Consistency, consistency
from rageval_hooks.offline.report.definitions import DERIVED, define_score, direction_of, metric_of
from rageval_hooks.offline.report.gate import (
    GateResult,
    ReportGate,
    Tolerance,
    check_gate,
    gate_of,
    parse_bounds,
    parse_tolerances,
)
from rageval_hooks.offline.report.model import (
    FileComparison,
    FileReport,
    Report,
    ReportVerdict,
    ScoreChange,
    ScoreSummary,
)
from rageval_hooks.offline.report.statistics import Resampling
from rageval_hooks.offline.report.turns import check_trace_url
from rageval_hooks.offline.report.verdict import make_verdict

__all__ = [
    "DERIVED",
    "Analysis",
    "BertScore",
    "Consistency",
    "FileComparison",
    "FileReport",
    "GateResult",
    "Report",
    "ReportGate",
    "ReportVerdict",
    "Resampling",
    "ScoreChange",
    "ScoreSummary",
    "Tolerance",
    "analyze",
    "build_report",
    "check_gate",
    "check_trace_url",
    "consistency",
    "define_score",
    "direction_of",
    "gate_of",
    "load_bertscore",
    "make_verdict",
    "metric_of",
    "parse_bounds",
    "parse_tolerances",
]
