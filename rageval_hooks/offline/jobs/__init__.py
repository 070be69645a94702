"""Long-running commands: journal, budget, progress, finished outputs."""

from rageval_hooks.offline.jobs.allowance import ErrorAllowance
from rageval_hooks.offline.jobs.bad_rows import BadRows, check_apart, errors_path
from rageval_hooks.offline.jobs.finished import EarlierResult, done_path, earlier_result, mark_finished
from rageval_hooks.offline.jobs.journal import file_hash, interruption, journal_path
from rageval_hooks.offline.jobs.keyed_journal import KeyedJournal
from rageval_hooks.offline.jobs.progress import Advance, progress_bar
from rageval_hooks.offline.jobs.workers import work_together

__all__ = [
    "Advance",
    "BadRows",
    "EarlierResult",
    "ErrorAllowance",
    "KeyedJournal",
    "check_apart",
    "done_path",
    "earlier_result",
    "errors_path",
    "file_hash",
    "interruption",
    "journal_path",
    "mark_finished",
    "progress_bar",
    "work_together",
]
