"""Worker processes for local metrics: started once, each with its own models, and fed in small batches.

A worker is a separate program that reads lines of JSON, an array of records each. It replies with their counts, and a
line for each record, scored. ``multiprocessing`` would import the user's script again, which runs it a second time
unless it is guarded, or copy a process with threads.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO

from pydantic import Field, TypeAdapter

from rageval_hooks.errors import RagevalError
from rageval_hooks.offline.jobs.running import rare_collection
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.scorer import RecordScorer, ScorerSetup
from rageval_hooks.runtime.jsonable import Data
from rageval_hooks.score import VERDICT, Failed, Score, is_about_turn

# One that is computed, and the next one.
_TASKS_PER_WORKER = 2
# Bytes of a line: a record has a few passages, and a passage may be a book.
_LONGEST_LINE = 1 << 30
_END_SECONDS = 5.0
# The modules of a worker are those of this process, wherever they were found.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from rageval_hooks.offline.scoring.workers import main; main()"
)
_VERDICTS = ("good", "doubtful", "bad", "declined", "not_evaluable")
_RECORDS: TypeAdapter[tuple[Record, ...]] = TypeAdapter(tuple[Record, ...])
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerError(RagevalError):
    """A worker process ended before its work was done."""


class Counts(Data):
    """The results of some records, counted.

    Attributes:
        turns: number of records.
        results: number of results of each status.
        names: names of the scores of whole turns.
        verdicts: number of turns with each verdict: ``good``, ``doubtful``, ``bad``, ``declined``, ``not_evaluable``.
        why_not: name and reason of the first result that is not a score.
    """

    turns: int = 0
    results: Counter[str] = Field(default_factory=Counter)
    names: frozenset[str] = frozenset()
    verdicts: Counter[str] = Field(default_factory=Counter)
    why_not: str | None = None

    @classmethod
    def of(cls, records: Iterable[Record]) -> Counts:
        """Count the results of records."""
        turns, results, names, verdicts, why_not = 0, Counter[str](), set[str](), Counter[str](), None
        for record in records:
            turns += 1
            for result in record.results:
                results[result.status] += 1
                if result.name == VERDICT and not isinstance(result, Failed) and result.label is not None:
                    verdicts[result.label] += 1
                if isinstance(result, Score):
                    if is_about_turn(result):
                        names.add(result.name)
                else:
                    why_not = why_not or f"{result.name}: {result.reason.removeprefix(f'{result.name}: ')}"
        return cls(turns=turns, results=results, names=frozenset(names), verdicts=verdicts, why_not=why_not)

    def verdict_line(self) -> str:
        """Return how many turns have which verdict: ``verdict: 31 good (78%), 9 bad (22%)``."""
        total = self.verdicts.total()
        shares = [f"{self.verdicts[name]} {name} ({self.verdicts[name] / total:.0%})" for name in _VERDICTS]
        shown = [share for name, share in zip(_VERDICTS, shares, strict=True) if self.verdicts[name]]
        return f"verdict: {', '.join(shown)}".replace("not_evaluable", "not evaluable")

    def plus(self, other: Counts) -> Counts:
        """Return both together."""
        return Counts(
            turns=self.turns + other.turns,
            results=self.results + other.results,
            names=self.names | other.names,
            verdicts=self.verdicts + other.verdicts,
            why_not=self.why_not or other.why_not,
        )


class WorkerPool:
    """Worker processes. Needs the event loop in which it was started."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = workers

    @classmethod
    async def start(cls, setup: ScorerSetup, number: int) -> WorkerPool:
        """Start workers.

        Args:
            setup: what they compute.
            number: how many.
        """
        threads = str(max(1, (os.cpu_count() or 1) // number))
        # Models of several processes would otherwise use every core each, and slow each other down.
        environment = {**dict.fromkeys(_THREADS, threads), **os.environ}
        return cls([await _Worker.start(setup, environment) for _ in range(number)])

    @property
    def capacity(self) -> int:
        """The number of tasks that keep every worker busy."""
        return _TASKS_PER_WORKER * len(self._workers)

    async def score(self, records: Sequence[Record]) -> tuple[Counts, list[bytes]]:
        """Have records scored by the worker that has least to do, and return them as lines of JSON.

        Raises:
            WorkerError: the worker ended.
        """
        worker = min(self._workers, key=lambda worker: worker.load)
        return await worker.score(records)

    async def close(self) -> None:
        """End the workers; those that do not end in time are killed."""
        await asyncio.gather(*(worker.close() for worker in self._workers))


@dataclass
class _Worker:
    """One worker process, which answers its tasks in their order, and the number of tasks without an answer."""

    process: Process
    load: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    async def start(cls, setup: ScorerSetup, environment: dict[str, str]) -> _Worker:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            _PROGRAM,
            json.dumps(sys.path),
            stdin=PIPE,
            stdout=PIPE,
            limit=_LONGEST_LINE,
            env=environment,
            # Ctrl-C in a terminal reaches every process of its group: the parent ends its workers itself.
            start_new_session=True,
        )
        worker = cls(process)
        worker.send(setup.model_dump_json())
        return worker

    def send(self, line: str) -> None:
        if self.process.stdin is not None and not self.process.stdin.is_closing():
            self.process.stdin.write(line.encode() + b"\n")

    async def score(self, records: Sequence[Record]) -> tuple[Counts, list[bytes]]:
        self.load += 1
        try:
            # Whoever sends first is the first to get the lock, and reads the first reply.
            self.send(f"[{','.join(record.to_json() for record in records)}]")
            async with self.turn:
                counts = Counts.model_validate_json(await self._line())
                return counts, [await self._line() for _ in records]
        finally:
            self.load -= 1

    async def _line(self) -> bytes:
        line = b"" if self.process.stdout is None else await self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerError(
                f"a worker process {_end_of(await self.process.wait())}. The scores so far are kept: run the same "
                "command again to resume. --workers 1 uses no worker processes; fewer of them need less memory"
            )
        return line[:-1]

    async def close(self) -> None:
        # A worker that computes would go on to the end of its task; after an error, its result is not needed.
        if self.load and self.process.returncode is None:
            self.process.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            await asyncio.wait_for(self.process.wait(), _END_SECONDS)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()


def _end_of(status: int) -> str:
    """Return how a process ended, in words; a negative status is the signal that ended it."""
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    # Nothing else sends this signal unasked.
    why = ", probably because memory ran out" if name == "SIGKILL" else ""
    return f"was killed ({name}){why}"


def main() -> None:
    """Be a worker: answer tasks until the parent closes the input, which it also does when it is killed."""
    tasks, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # The pipes are the protocol's: a metric may read standard input, or print, which goes to standard error.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    scorer = ScorerSetup.model_validate_json(tasks.readline()).scorer()
    try:
        with rare_collection():
            _answer(tasks, replies, scorer)
    except BrokenPipeError:
        # The parent was killed. Python would try to write the rest once more at exit, and complain.
        os._exit(1)


def _answer(tasks: IO[bytes], replies: IO[bytes], scorer: RecordScorer) -> None:
    for line in tasks:
        scored = scorer.score(_RECORDS.validate_json(line))
        for text in (Counts.of(scored).model_dump_json(), *(record.to_json() for record in scored)):
            replies.write(text.encode() + b"\n")
        replies.flush()
