"""Running an application over a test set: loading it, asking it, and keeping its answers as records."""

from rageval_hooks.offline.apps.loading import App, adapt, load
from rageval_hooks.offline.apps.running import (
    RunSummary,
    ask_once,
    count_waiting,
    keep_answers,
    records_of,
    run_questions,
    summarize,
)

__all__ = [
    "App",
    "RunSummary",
    "adapt",
    "ask_once",
    "count_waiting",
    "keep_answers",
    "load",
    "records_of",
    "run_questions",
    "summarize",
]
