"""Reports on scored files: means with intervals, comparisons, verdicts and gates.

:func:`analyze` reads the files and returns the report with all turns; :mod:`rageval_hooks.offline.report.render` shows
it as text, Markdown, a picture or a page.
"""

from rageval_hooks.offline.report.bertscore import BertScore, load_bertscore
from rageval_hooks.offline.report.build import Analysis, analyze, build_report
from rageval_hooks.offline.report.comparison import Comparison, ScoreChange
from rageval_hooks.offline.report.consistency import Consistency, consistency
from rageval_hooks.offline.report.definitions import define_score, direction_of, metric_of
from rageval_hooks.offline.report.derived import DERIVED, rank_scores
from rageval_hooks.offline.report.details import check_trace_url
from rageval_hooks.offline.report.gates import Gate, GateResult, check_gate, parse_bounds
from rageval_hooks.offline.report.model import FileReport, Report, ScoreRow, Verdict
from rageval_hooks.offline.report.statistics import Resampling
from rageval_hooks.offline.report.verdict import make_verdict

__all__ = [
    "DERIVED",
    "Analysis",
    "BertScore",
    "Comparison",
    "Consistency",
    "FileReport",
    "Gate",
    "GateResult",
    "Report",
    "Resampling",
    "ScoreChange",
    "ScoreRow",
    "Verdict",
    "analyze",
    "build_report",
    "check_gate",
    "check_trace_url",
    "consistency",
    "define_score",
    "direction_of",
    "load_bertscore",
    "make_verdict",
    "metric_of",
    "parse_bounds",
    "rank_scores",
]
