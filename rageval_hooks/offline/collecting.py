"""Cases for a test set: turns of a backend, or of files, that have a certain verdict."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from typing import Any

from rageval_hooks.integrations.opentelemetry.turn_building import turns_from_spans
from rageval_hooks.models import AnyEmbedder, AnyEmbedding
from rageval_hooks.offline.backends import BACKENDS, Backend, StoredScore, StoredTrace, spans_of
from rageval_hooks.offline.records.record import ANNOTATIONS, Record
from rageval_hooks.score import VERDICT, Result, verdict_first
from rageval_hooks.settings import Settings
from rageval_hooks.turn import Turn

_BATCH = 20
_SAME = 0.93
"""Cosine of two questions of which one is enough."""


def records_of(backend: Backend, traces: Iterable[StoredTrace], search_tools: Collection[str] = ()) -> Iterator[Record]:
    """Yield the turns of a backend with the scores that it has of them, and what people say of them.

    Args:
        backend: the backend.
        traces: which of its traces.
        search_tools: the setting of this name.
    """
    waiting = iter(traces)
    while batch := list(islice(waiting, _BATCH)):
        spans = backend.spans_by_trace(batch)
        found = {
            trace.id: [one for one in turns_from_spans(spans[trace.id], search_tools) if isinstance(one, Turn)]
            for trace in batch
        }
        turns = [turn for trace in batch for turn in found[trace.id]]
        by_span = defaultdict[str, list[StoredScore]](list)
        for score in chain(backend.scores(batch, turns), backend.said_of(batch)):
            by_span[score.span_id].append(score)
        for trace in batch:
            # What is said of a trace is said of its turn, if there is one.
            of_trace = by_span[trace.id] if len(found[trace.id]) == 1 else []
            for turn in found[trace.id]:
                on_spans = [score for span in dict.fromkeys(spans_of(turn)) for score in by_span[span]]
                yield _record(turn, [*on_spans, *of_trace], backend.page(trace.id))


def _record(turn: Turn, scores: Iterable[StoredScore], page: str) -> Record:
    """Return a turn with its results and what people say. What a person calls the right answer is the reference."""
    results, reference = list[Result](), turn.reference
    annotations = defaultdict[str, dict[str, Any]](dict)
    for score in scores:
        said = score.value if score.label is None else score.label
        if score.is_reference:
            reference = str(score.value)
        elif score.annotator == "HUMAN":
            if said is not None:  # a note has words only
                annotations[score.name][score.who] = said
        elif score.is_ours and (result := score.result) is not None:
            results.append(result)
    trace_id = "" if turn.span is None else turn.span.trace_id
    about = {"trace": trace_id, "trace_url": page, **({ANNOTATIONS: dict(annotations)} if annotations else {})}
    more = {"metadata": {**turn.metadata, **about}, "reference": reference}
    record = Record(id=f"{trace_id}/{turn.id}", turn=turn.model_copy(update=more), results=verdict_first(results))
    return record.labelled


def stored_records(
    name: str, url: str | None, project: str | None, back: float, settings: Settings
) -> Iterator[Record]:
    """Yield the turns of the last seconds that a backend has; see :func:`records_of`."""
    with closing(BACKENDS[name](url, project)) as backend:
        backend.exporter.bind(settings, None)
        yield from records_of(backend, backend.traces(time.time() - back), settings.search_tools)


class Cases:
    """Chooses cases, one after the other.

    Args:
        verdicts: the verdicts that a case may have.
        causes: the causes that it may have; empty for all.
        most: cases for each cause; None for no limit.
        embedder: tells questions that say the same.

    Attributes:
        seen: the turns that were looked at.
        chosen: the cases by cause.
        left_out: how many were not chosen, by the reason.
    """

    def __init__(
        self, verdicts: Collection[str], causes: Collection[str], most: int | None, embedder: AnyEmbedder
    ) -> None:
        self.seen = 0
        self.chosen: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self._verdicts, self._causes, self._most, self._embedder = verdicts, causes, most, embedder
        self._questions = defaultdict[str, list[AnyEmbedding]](list)

    def choose(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the cases among records. A question that the passages do not answer is marked as unanswerable."""
        for record in records:
            self.seen += 1
            verdict = next((result for result in record.results if result.name == VERDICT), None)
            if verdict is None or verdict.label not in self._verdicts:
                continue
            cause = verdict.cause or str(verdict.label)
            if self._causes and cause not in self._causes:
                continue
            asked = self._embedder.embed(record.turn.query)
            if any(asked.cosine(other) >= _SAME for other in self._questions[cause]):  # type: ignore[arg-type]
                self.left_out["near duplicates"] += 1
            elif self._most is not None and self.chosen[cause] >= self._most:
                self.left_out["beyond the number for their cause"] += 1
            else:
                self._questions[cause].append(asked)
                self.chosen[cause] += 1
                is_answerable = record.answerable and cause != "nothing_found"
                yield record.model_copy(update={"answerable": is_answerable})
