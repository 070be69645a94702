"""Worker processes for local metrics: started once, each with its own models, and fed in small batches."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from rageval_hooks.errors import RagevalError
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.detail import Details
from rageval_hooks.offline.scoring.worker_protocol import Reply, WorkerSetup
from rageval_hooks.online.job import describe_metric
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.settings import LEXICAL

__all__ = ["ScoredLines", "WorkerError", "WorkerPool", "loads_models", "usual_workers", "worker_setup"]

# One that is computed, and the next one.
_TASKS_PER_WORKER = 2
# Each worker loads the models, which takes about 0.7 GB.
_MOST_WITH_MODELS = 4
# Bytes of a line: a record has a few passages, and a passage may be a book.
_LONGEST_LINE = 1 << 30
_END_SECONDS = 5.0
# The modules of a worker are those of this process, wherever they were found.
_PROGRAM = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop()); "
    "from rageval_hooks.offline.scoring.worker import main; main()"
)
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class WorkerError(RagevalError):
    """A worker process ended before its work was done."""


@dataclass(frozen=True)
class ScoredLines:
    """Scored records as lines of JSON, and the counts of their results."""

    lines: Sequence[str]
    results: dict[str, int]
    names: Collection[str]


def worker_setup(pipeline: Pipeline, replaced: Iterable[str], details: Details) -> WorkerSetup:
    """Return what workers need for the metrics of a pipeline that another process can compute.

    Judge metrics stay in this process, so that budget and limits hold for all of them together. So do metrics that
    exist in this process only, such as functions of a notebook.
    """
    specs = [describe_metric(metric) for metric in pipeline.metrics if not metric.asks_judge]
    return WorkerSetup(
        metrics=tuple(spec for spec in specs if spec.reference is not None),
        models=pipeline.settings.models,
        thresholds=dict(pipeline.settings.thresholds),
        replaced=frozenset(replaced),
        details=details,
    )


def usual_workers(pipeline: Pipeline) -> int:
    """Return the number of workers if the user names none: one per core, and fewer if each loads models."""
    return min(_cores(), _MOST_WITH_MODELS) if loads_models(pipeline) else _cores()


def loads_models(pipeline: Pipeline) -> bool:
    """Return True if a metric needs a model, and not only rules."""
    roles = pipeline.models.needed(chain.from_iterable(metric.models for metric in pipeline.metrics))
    return any(getattr(pipeline.settings.models, role) != LEXICAL for role in roles)


def _cores() -> int:
    """Return the number of cores of this process: a container may have fewer than the machine."""
    # macOS and Windows have no such function.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class WorkerPool:
    """Worker processes. Needs the event loop in which it was started."""

    def __init__(self, workers: Sequence[_Worker]) -> None:
        self._workers = workers

    @classmethod
    async def start(cls, setup: WorkerSetup, number: int) -> WorkerPool:
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

    async def score(self, records: Sequence[Record]) -> ScoredLines:
        """Have records scored by the worker that has least to do.

        Raises:
            WorkerError: the worker ended.
        """
        worker = min(self._workers, key=lambda worker: worker.load)
        return await worker.score(records)

    async def close(self) -> None:
        """End the workers; those that do not end in time are killed."""
        await asyncio.gather(*(worker.close() for worker in self._workers))


class _Worker:
    """One worker process. It answers its tasks in their order."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._waiting: deque[asyncio.Future[ScoredLines]] = deque()
        self._reader: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, setup: WorkerSetup, environment: dict[str, str]) -> _Worker:
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
        await worker._send(setup.model_dump_json())
        return worker

    @property
    def load(self) -> int:
        """The number of tasks without an answer."""
        return len(self._waiting)

    async def score(self, records: Sequence[Record]) -> ScoredLines:
        answer: asyncio.Future[ScoredLines] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        if self._reader is None or self._reader.done():
            self._reader = asyncio.create_task(self._read())
        await self._send(f'{{"records":[{",".join(record.to_json() for record in records)}]}}')
        return await answer

    async def _send(self, line: str) -> None:
        stream = self._process.stdin
        if stream is None:
            raise self._ended()
        try:
            stream.write(line.encode() + b"\n")
            await stream.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise self._ended() from None

    async def _read(self) -> None:
        """Give the answers to those who wait for them, in the order of the tasks."""
        while self._waiting:
            try:
                answer = await self._answer()
            except (WorkerError, ValueError) as error:
                for waiting in self._waiting:
                    if not waiting.done():
                        waiting.set_exception(error)
                self._waiting.clear()
                return
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_result(answer)

    async def _answer(self) -> ScoredLines:
        reply = Reply.model_validate_json(await self._line())
        lines = [await self._line() for _ in range(reply.records)]
        return ScoredLines(lines, reply.results, reply.names)

    async def _line(self) -> str:
        line = b"" if self._process.stdout is None else await self._process.stdout.readline()
        if not line.endswith(b"\n"):
            await self._process.wait()
            raise self._ended()
        return line[:-1].decode()

    def _ended(self) -> WorkerError:
        return WorkerError(
            f"a worker process {_end_of(self._process.returncode)}. The scores so far are kept: run the same command "
            "again to resume. --workers 1 uses no worker processes; fewer of them need less memory"
        )

    async def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        # A worker that computes would go on to the end of its task; after an error, its result is not needed.
        if self._waiting and self._process.returncode is None:
            self._process.kill()
        try:
            await asyncio.wait_for(self._process.wait(), _END_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _end_of(status: int | None) -> str:
    """Return how a process ended, in words; a negative status is the signal that ended it."""
    if status is None or status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    # Nothing else sends this signal unasked.
    why = ", probably because memory ran out" if name == "SIGKILL" else ""
    return f"was killed ({name}){why}"
