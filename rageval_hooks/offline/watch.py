"""Score the traces of a backend as they come, and write the scores back.

A restart misses nothing and repeats nothing. A trace is looked at when its spans have settled, and again when spans
arrive later. What was scored is known by the checkpoint, and by the scores that the backend has: from an application
that scores its own turns, or from before the checkpoint was lost.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Self

from rageval_hooks.errors import ConfigurationError, JudgeUnavailableError, RagevalError
from rageval_hooks.integrations.opentelemetry import NoTurn, TracedSpan
from rageval_hooks.integrations.opentelemetry.conventions import SESSIONS
from rageval_hooks.integrations.opentelemetry.turn_building import TURN_ID, builders_of
from rageval_hooks.metrics.base import Metric
from rageval_hooks.offline.alarm import KEPT_SECONDS, SeenTurn, Webhook, alarms, slack_text
from rageval_hooks.offline.backends import Backend, StoredTrace, spans_of
from rageval_hooks.offline.collecting import records_of
from rageval_hooks.offline.command_judge import Budget
from rageval_hooks.offline.conversations import ConversationSummary
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.scoring.run import ScoringRun
from rageval_hooks.offline.scoring.workers import Counts
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.score import VERDICT, Evaluation, label_of
from rageval_hooks.turn import Turn

_logger = logging.getLogger(__name__)

_BATCH = 20
"""Traces that are read, scored and delivered together."""

_NEAR = 600.0
"""Seconds: how far most looks go back."""
_FAR_EVERY = 3600.0
"""Seconds between the looks that go back as far as traces may be late."""
_ROOT_PATIENCE = 600.0
"""Seconds after which a trace without its outermost span is taken as it is: its root may be in another backend."""
_ALARM_EVERY = 60.0
"""Seconds between two decisions whether there is an alarm."""
_DELIVERY_SECONDS = 120.0
_MAX_CONVERSATION = 200
"""Traces of a session up to which it has a summary: all of them are read after each of its turns."""
_MAX_TRIES = 3
"""Deliveries of the scores of a trace before it is given up."""
_KEPT_SECONDS = 90 * 86_400.0
"""How long the checkpoint remembers a trace."""


@dataclass
class Known:
    """What the checkpoint knows of a trace.

    Attributes:
        mark: of the trace when it was looked at.
        done: False if its turns are being scored, or were when the process ended.
        spans: the spans of the turns that were scored.
        tries: failed deliveries.
    """

    mark: str = ""
    done: bool = True
    spans: set[str] = field(default_factory=set)
    tries: int = 0


class Checkpoint:
    """Which traces were looked at, in a SQLite file that one process at a time may have.

    Args:
        path: the file; None for memory.
        task: what is scored: one file may serve several tasks.

    Raises:
        ConfigurationError: another process has the file, or it cannot be used.
    """

    def __init__(self, path: Path | None, task: str) -> None:
        self._task = task
        with ExitStack() as opened:
            try:
                if path is not None:
                    os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
                self._db = sqlite3.connect(path or ":memory:", timeout=0.5, isolation_level=None)
                opened.callback(self._db.close)
                # The lock of the first transaction is kept: two processes would score the same traces.
                self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
                self._db.executescript(
                    "BEGIN EXCLUSIVE;"
                    "CREATE TABLE IF NOT EXISTS traces "
                    "(task, id, mark, done, spans, tries, at, PRIMARY KEY (task, id));"
                    "CREATE TABLE IF NOT EXISTS positions (task PRIMARY KEY, at);"
                    "CREATE TABLE IF NOT EXISTS turns "
                    "(task, id, at, trace_id, label, cause, judged, PRIMARY KEY (task, id));"
                    "CREATE TABLE IF NOT EXISTS sessions (task, id, PRIMARY KEY (task, id));"
                    "CREATE TABLE IF NOT EXISTS alarms (task, name, PRIMARY KEY (task, name));"
                    "COMMIT;"
                )
            except (sqlite3.Error, OSError) as error:
                why = "another process is using it" if "locked" in str(error) else str(error)
                raise ConfigurationError(f"the checkpoint {path} cannot be used: {why}") from None
            opened.pop_all()

    def __enter__(self) -> Self:
        """Return the checkpoint itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the file."""
        self._db.close()

    def __getitem__(self, trace_id: str) -> Known:
        """Return what is known of a trace."""
        query = "SELECT mark, done, spans, tries FROM traces WHERE task = ? AND id = ?"
        row = self._db.execute(query, (self._task, trace_id)).fetchone()
        return Known() if row is None else Known(row[0], bool(row[1]), set(json.loads(row[2])), row[3])

    def note(self, known: Iterable[tuple[str, Known]], now: float, sessions: Iterable[str] = ()) -> None:
        """Write what is known of traces and which sessions have new turns, all or none."""
        rows = [
            (self._task, trace_id, one.mark, one.done, json.dumps(sorted(one.spans)), one.tries, now)
            for trace_id, one in known
        ]
        with closing(self._db.cursor()) as cursor:
            cursor.execute("BEGIN")
            cursor.executemany("INSERT OR REPLACE INTO traces VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
            cursor.executemany("INSERT OR IGNORE INTO sessions VALUES (?, ?)", [(self._task, one) for one in sessions])
            cursor.execute("COMMIT")

    @property
    def position(self) -> float | None:
        """Up to when all traces were looked at, in seconds since the epoch; None before the first look."""
        row = self._db.execute("SELECT at FROM positions WHERE task = ?", (self._task,)).fetchone()
        return None if row is None else float(row[0])

    def move(self, position: float) -> None:
        """Set the position, and forget old traces."""
        self._db.execute("INSERT OR REPLACE INTO positions VALUES (?, ?)", (self._task, position))
        self._db.execute("DELETE FROM traces WHERE task = ? AND at < ?", (self._task, position - _KEPT_SECONDS))
        self._db.execute("DELETE FROM turns WHERE task = ? AND at < ?", (self._task, position - KEPT_SECONDS))

    @property
    def sessions(self) -> list[str]:
        """The sessions with new turns."""
        return [name for (name,) in self._db.execute("SELECT id FROM sessions WHERE task = ?", (self._task,))]

    def forget(self, session_id: str) -> None:
        """Note that a session has no new turns any more."""
        self._db.execute("DELETE FROM sessions WHERE task = ? AND id = ?", (self._task, session_id))

    def remember(self, turns: Iterable[tuple[str, SeenTurn]]) -> None:
        """Write turns with their ids, for alarms."""
        rows = [(self._task, turn_id, *turn) for turn_id, turn in turns]
        self._db.executemany("INSERT OR REPLACE INTO turns VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    @property
    def turns(self) -> list[SeenTurn]:
        """The turns of the last days."""
        query = "SELECT at, trace_id, label, cause, judged FROM turns WHERE task = ?"
        return [SeenTurn(*row) for row in self._db.execute(query, (self._task,))]

    @property
    def raised(self) -> set[str]:
        """The names of the alarms that were posted and last."""
        return {name for (name,) in self._db.execute("SELECT name FROM alarms WHERE task = ?", (self._task,))}

    def raise_only(self, names: Iterable[str]) -> None:
        """Set the names of the alarms that were posted and last."""
        self._db.execute("DELETE FROM alarms WHERE task = ?", (self._task,))
        self._db.executemany("INSERT INTO alarms VALUES (?, ?)", [(self._task, name) for name in names])


class Watch:
    """Looks at the traces of a backend, again and again.

    Args:
        backend: has the traces, and gets the scores.
        pipeline: metrics, models and judge; the backend's exporter is its only one.
        checkpoint: what was done.
        late: seconds: how late traces may arrive.
        settle: seconds without a new span after which a trace is looked at.
        rescore: score only what has no score of this metric in its current version.
        budget: how much the judge may take.
        concurrency: turns at a time.
        clock: seconds since the epoch.

    Attributes:
        counts: results so far.
        traces: traces so far by what became of them or their turns.
        reasons: why spans have no texts, and how often.
        undelivered: traces whose scores the last look could not deliver.
    """

    def __init__(
        self,
        backend: Backend,
        pipeline: Pipeline,
        checkpoint: Checkpoint,
        *,
        late: float,
        settle: float,
        rescore: Metric | None = None,
        budget: Budget | None = None,
        concurrency: int = 8,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.counts = Counts()
        self.traces: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.undelivered = 0
        self._backend = backend
        self._pipeline = pipeline
        self._checkpoint = checkpoint
        self._late = late
        self._settle = settle
        self._rescore = rescore
        self._budget = budget or Budget()
        self._concurrency = concurrency
        self._clock = clock
        self._far_at = self._oldest_open = self._alarm_at = 0.0

    def look(self, since: float | None) -> None:
        """Score what has come since the last look.

        Args:
            since: a time before which nothing is looked at, in seconds since the epoch; None to go on.

        Raises:
            ExportError: the backend cannot be asked.
            JudgeUnavailableError: the judge does not work. What is not scored comes with the next look.
        """
        now, self.undelivered = self._clock(), 0
        for batch in self._batches(now, since):
            self._score(batch)
        self._write_conversations()
        self._checkpoint.move(min(self._oldest_open, now))

    def waiting(self, since: float | None) -> Iterator[Record]:
        """Yield the turns that a look would score, and change nothing."""
        for batch in self._batches(self._clock(), since):
            for _, _, records in self._work(batch, self._backend.spans_by_trace(batch)):
                yield from records

    # ----------------------------------------------------------------------- which traces

    def _batches(self, now: float, since: float | None) -> Iterator[list[StoredTrace]]:
        """Yield the traces that have settled and were not done. Those that were not delivered come one by one."""
        position = self._checkpoint.position
        back = self._late if now - self._far_at >= _FAR_EVERY else _NEAR
        begin = min(now if position is None else position - back, now if since is None else since)
        self._oldest_open, batch = now, list[StoredTrace]()
        self.traces["open"] = 0
        for trace in self._backend.traces(begin):
            known = self._checkpoint[trace.id]
            if known.done and known.mark == trace.mark:
                continue
            quiet = now - trace.ended_at
            if quiet < self._settle or not (trace.has_root or quiet >= _ROOT_PATIENCE):
                self.traces["open"] += 1
                self._oldest_open = min(self._oldest_open, trace.started_at)
            elif known.tries:
                yield [trace]
            else:
                batch.append(trace)
                if len(batch) == _BATCH:
                    yield batch
                    batch = []
        if batch:
            yield batch
        self._far_at = now if back == self._late else self._far_at

    # ----------------------------------------------------------------------- scoring

    def _score(self, traces: Sequence[StoredTrace]) -> None:
        spans_of_trace = self._backend.spans_by_trace(traces)
        work = self._work(traces, spans_of_trace)
        # If this process ends before they are delivered, the next one scores all of them again: backends replace what
        # comes twice.
        started = [(trace.id, Known(trace.mark, False, known.spans, known.tries)) for trace, known, _ in work]
        self._checkpoint.note(started, self._clock())
        records = [record for *_, found in work for record in found]
        run = ScoringRun(
            self._pipeline, concurrency=self._concurrency, budget=self._budget, privacy=self._pipeline.privacy
        )
        scored = list(run.score(records)) if records else []
        if run.broken:
            raise JudgeUnavailableError(run.broken)
        for record in scored:
            evaluation = Evaluation(turn=record.turn, results=record.results, stage="background")
            self._pipeline.deliver(evaluation, to=self._backend.exporter)
        is_delivered = self._backend.exporter.flush(_DELIVERY_SECONDS)
        done = list[tuple[str, Known]]()
        for trace, known, found in work:
            spans = {spans_of(record.turn)[0] for record in found}
            if is_delivered or not found:
                done.append((trace.id, Known(trace.mark, True, known.spans | spans)))
            elif known.tries + 1 < _MAX_TRIES:
                self.undelivered += 1
                self._oldest_open = min(self._oldest_open, trace.started_at)
                done.append((trace.id, Known(trace.mark, False, known.spans, known.tries + 1)))
            else:
                self.traces["given_up"] += 1
                done.append((trace.id, Known(trace.mark, True, known.spans)))
        everything = chain.from_iterable(spans_of_trace.values())
        sessions = {text for span in everything for name in SESSIONS if (text := span.text(name))}
        self._checkpoint.note(done, self._clock(), sessions)
        if is_delivered:
            self.counts = self.counts.plus(Counts.of(scored))
            began = {trace.id: trace.started_at for trace in traces}
            self._checkpoint.remember(_seen(scored, began))

    def _write_conversations(self) -> None:
        """Write the summaries of conversations with new turns, by the scores of all their turns in the backend."""
        exporter, settings = self._backend.exporter, self._pipeline.settings
        for session_id in self._checkpoint.sessions:
            try:
                traces = list(islice(self._backend.session(session_id), _MAX_CONVERSATION + 1))
                if len(traces) > _MAX_CONVERSATION:
                    self.reasons[f"a session of more than {_MAX_CONVERSATION} traces gets no summary"] += 1
                    continue
                turns = [(one.turn, one.results) for one in records_of(self._backend, traces, settings.search_tools)]
                if (score := ConversationSummary.of(turns).score) is not None:
                    exporter.queue.put(exporter.session_items(session_id, score, turns[0][0]))
                    exporter.flush(_DELIVERY_SECONDS)
            except RagevalError:
                raise
            except Exception as error:
                _logger.debug("rageval-hooks: a session cannot be read", exc_info=error)
                self.traces["unreadable"] += 1
            finally:
                # Also if it cannot be read: the others would wait for it. Its next turn tries again.
                self._checkpoint.forget(session_id)

    def alarm(self, webhook: Webhook, budget: float) -> str | None:
        """Post the alarms that are new. Returns why one could not be posted; it is tried again next time.

        Args:
            webhook: where to post.
            budget: the share of bad answers that is usual.
        """
        if self._clock() < self._alarm_at:
            return None
        self._alarm_at = self._clock() + _ALARM_EVERY
        raised = self._checkpoint.raised
        found = list(alarms(self._checkpoint.turns, self._clock(), budget))
        lasting, problem = {alarm.name for alarm in found} & raised, None
        for alarm in found:
            if alarm.name not in raised:
                text = slack_text(alarm, self._backend.project, self._backend.page)
                if (problem := webhook.post(text)) is not None:
                    break
                lasting.add(alarm.name)
        self._checkpoint.raise_only(lasting)
        return problem

    def _work(
        self, traces: Sequence[StoredTrace], spans: Mapping[str, list[TracedSpan]]
    ) -> list[tuple[StoredTrace, Known, list[Record]]]:
        """Return the turns of traces that have no scores yet, as records."""
        work = [(trace, self._checkpoint[trace.id]) for trace in traces]
        turns = {trace.id: self._readable(spans[trace.id], known) for trace, known in work}
        # What a process was about to deliver when it ended is delivered again as a whole.
        asked = [trace for trace, known in work if known.done and turns[trace.id]]
        named = {score.name for score in self._rescore.scores} if self._rescore else set()
        has = {
            score.span_id
            for score in self._backend.scores(asked, chain.from_iterable(turns[trace.id] for trace in asked))
            if score.is_ours
            and (self._rescore is None or (score.name in named and score.version == self._rescore.version))
        }
        found = list[tuple[StoredTrace, Known, list[Record]]]()
        for trace, known in work:
            missing = [turn for turn in turns[trace.id] if not known.done or has.isdisjoint(spans_of(turn))]
            self.traces["known"] += len(turns[trace.id]) - len(missing)
            found.append((trace, known, [Record(id=f"{trace.id}/{turn.id}", turn=turn) for turn in missing]))
        return found

    def _readable(self, spans: Sequence[TracedSpan], known: Known) -> list[Turn]:
        try:
            return list(self._turns(spans, known))
        except Exception as error:
            _logger.debug("rageval-hooks: a trace cannot be read", exc_info=error)
            self.traces["unreadable"] += 1
            return []

    def _turns(self, spans: Sequence[TracedSpan], known: Known) -> Iterator[Turn]:
        """Yield the turns of a trace, without those that a look before has scored."""
        self.traces["seen"] += 1
        # An application that has this package scores its turns itself.
        if self._rescore is None and any(TURN_ID in span.attributes for span in spans):
            self.traces["known"] += 1
            return
        settings = self._pipeline.settings
        for builder in builders_of(spans, settings.search_tools):
            if known.spans and any(span_id in builder.spans for span_id in known.spans):
                continue
            found = builder.turn()
            if isinstance(found, NoTurn):
                self.traces[found.cause] += 1
                if found.cause == "no_content":
                    self.reasons[found.reason] += 1
            elif found.is_rag or settings.evaluate_without_retrieval:
                yield found
            else:
                self.traces["without_retrieval"] += 1


def _seen(records: Iterable[Record], began: Mapping[str, float]) -> Iterator[tuple[str, SeenTurn]]:
    """Yield the turns that have a verdict, with their ids."""
    for record in records:
        trace_id = record.id.partition("/")[0]
        for result in record.results:
            if result.name == VERDICT and (label := label_of(result)):
                judged = result.annotator == "LLM"
                yield record.id, SeenTurn(began[trace_id], trace_id, label, result.cause or "", judged)
