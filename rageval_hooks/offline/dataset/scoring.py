"""Scoring a dataset in memory, on a separate thread, so that it works in a notebook, which has a running event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import islice
from typing import TYPE_CHECKING, Literal

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.offline.dataset.frame import scored_frame
from rageval_hooks.offline.dataset.rows import read_dataset
from rageval_hooks.offline.jobs.budget import Budget
from rageval_hooks.offline.jobs.journal import Journal
from rageval_hooks.offline.jobs.running import Advance
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.run import ScoringRun, records_in
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.privacy import NO_PRIVACY
from rageval_hooks.text.wording import counted

if TYPE_CHECKING:
    import pandas


BadRows = Literal["raise", "keep"]

_SHOWN_PROBLEMS = 3


def score_rows(
    data: object,
    pipeline: Pipeline,
    *,
    required: Sequence[str],
    mapping: Mapping[str, str] | None,
    bad_rows: BadRows,
    concurrency: int,
    workers: int | None,
    max_calls: int | None,
    max_cost: float | None,
    progress: bool,
) -> pandas.DataFrame:
    """Return the scores of a dataset as a data frame; see :func:`rageval_hooks.score_dataset`.

    Raises:
        TurnError: a column is missing, or rows cannot be used.
        ConfigurationError: an option is wrong.
        JudgeUnavailableError: the judge does not work.
    """
    if bad_rows not in ("raise", "keep"):
        raise ConfigurationError(f"bad_rows is {bad_rows!r}: it must be 'raise' or 'keep'")
    dataset = read_dataset(data, required, mapping)
    if not dataset.records:
        raise TurnError("there are no rows")
    problems = dataset.problems
    # If no row can be used, the columns have other names than the user thinks.
    if problems and (bad_rows == "raise" or len(problems) == len(dataset.records)):
        shown = [f"row {position}: {reason}" for position, reason in islice(problems.items(), _SHOWN_PROBLEMS)]
        more = " …" if len(problems) > len(shown) else ""
        raise TurnError(
            f"{len(problems)} of {counted(len(dataset.records), 'row')} cannot be used: {'; '.join(shown)}{more}. "
            "bad_rows='keep' leaves their scores empty"
        )
    usable = [record for record in dataset.records if record is not None]
    # The results stay in memory, with the texts of the user.
    journal = Journal(None, {})
    run = ScoringRun(
        pipeline,
        journal,
        Budget(max_calls, max_cost),
        concurrency=concurrency,
        workers=workers,
        details="all",
        privacy=NO_PRIVACY,
    )
    with _bar(len(usable), progress) as advance:
        _run_apart(run, usable, advance)
    scored = records_in(journal)
    # Rows that cannot be used keep their places, so that the frame has one row per row of the user.
    dataset.records = [None if record is None else next(scored) for record in dataset.records]
    return scored_frame(dataset)


@contextmanager
def _bar(total: int, wanted: bool) -> Iterator[Advance]:
    """Show a progress bar, in a notebook or a terminal, if tqdm is installed."""
    try:
        from tqdm.auto import tqdm
    except ImportError:
        wanted = False
    if not wanted:
        yield lambda _: None
        return
    with tqdm(total=total, desc="scoring", unit="row") as bar:
        yield lambda steps: bar.update(steps)


def _run_apart(run: ScoringRun, records: Sequence[Record], advance: Advance) -> None:
    """Run in an event loop on another thread: a notebook runs one on this thread already.

    After an interruption of this thread the work is cancelled, and the thread has ended when this returns.
    """
    done: Future[None] = Future()
    started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[None]]] = Future()

    async def work() -> None:
        # The other thread needs the loop and the task to cancel the work.
        task = asyncio.current_task()
        if task is not None:
            started.set_result((asyncio.get_running_loop(), task))
        await run.run(enumerate(records), advance)

    def main() -> None:
        try:
            asyncio.run(work())
        except BaseException as error:
            # Raised again on the caller's thread.
            done.set_exception(error)
        else:
            done.set_result(None)

    thread = threading.Thread(target=main, name="rageval-score-dataset", daemon=True)
    thread.start()
    try:
        done.result()
    except BaseException:
        if not done.done():
            loop, task = started.result()
            loop.call_soon_threadsafe(task.cancel)
        raise
    finally:
        thread.join()
