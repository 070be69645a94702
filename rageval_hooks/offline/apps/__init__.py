"""Running an application over a test set: loading it, asking it, and keeping its answers as records."""

from rageval_hooks.offline.apps.loading import App, adapt, load
from rageval_hooks.offline.apps.running import (
    RunSummary,
    ask_once,
    keep_answers,
    keep_record,
    records_of,
    run_questions,
    summarize,
    waiting_in,
)

__all__ = [
    "App",
    "RunSummary",
    "adapt",
    "ask_once",
    "keep_answers",
    "keep_record",
    "load",
    "records_of",
    "run_questions",
    "summarize",
    "waiting_in",
]
