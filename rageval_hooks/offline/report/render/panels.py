"""The contents of a report's plots, as data: an overview, then one panel per score, ranks, and repeats."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.model import Ranks, Report, ScoreRow
from rageval_hooks.offline.report.similarity import MEASURES
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.text.formatting import flat, format_share, short_value

__all__ = ["Kind", "Mark", "Panel", "panels"]

Kind = Literal["all", "scores", "consistency"]

# Retrievers rarely return more; later ranks share a bar.
_MOST_RANKS = 10


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One row of a panel.

    Attributes:
        label: the file, or in the overview the score.
        file: position of the file, which chooses the colour.
        spread: the numbers; None without values.
        as_share: True for a yes-or-no score, which is written and drawn as a share.
        shares: per bin of a rank panel, the share of turns.
        count: number of turns of a rank panel.
    """

    label: str
    file: int
    spread: Spread | None = None
    as_share: bool = False
    shares: tuple[float, ...] = ()
    count: int = 0

    @property
    def numbers(self) -> str:
        """The numbers of the row in words."""
        # A histogram shows its numbers at the bars.
        if self.shares:
            return f"n = {self.count}"
        if self.spread is None:
            return "no values"
        return self._of_values(self.spread)

    def _of_values(self, found: Spread) -> str:
        name, show = ("share", format_share) if self.as_share else ("mean", short_value)
        text = f"{name} {show(found.mean)}"
        if found.interval is not None:
            text += f" [{show(found.interval.low)}, {show(found.interval.high)}]"
        # The median of zeros and ones is 0 or 1, and says less than the share.
        if not self.as_share:
            text += f", median {show(found.median)}"
        return f"{text}, n = {found.count}"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One plot.

    Attributes:
        title: what it shows.
        kind: ``overview`` for means side by side, ``box`` for distributions, ``share`` for yes or no, ``ranks`` for
            a histogram.
        direction: whether higher or lower is better; None where that does not apply.
        low: where the axis starts.
        high: where it ends; None for the data's own end.
        unit: of the values.
        marks: the rows.
        bins: names of the bins of a rank panel.
        threshold: a value to mark; None for none.
        files: number and name of each file, where the rows have other labels.
    """

    title: str
    kind: Literal["overview", "box", "share", "ranks"]
    direction: Direction | None = None
    low: float = 0.0
    high: float | None = None
    unit: str = ""
    marks: tuple[Mark, ...] = ()
    bins: tuple[str, ...] = ()
    threshold: float | None = None
    files: tuple[tuple[int, str], ...] = ()

    @property
    def subtitle(self) -> str:
        """The direction, the unit and the threshold, for the reader."""
        parts = []
        if self.direction:
            parts.append(f"{self.direction} is better")
        if self.unit:
            parts.append(self.unit)
        if self.threshold is not None:
            limit = "at most" if self.direction == "lower" else "at least"
            parts.append(f"dashed: {limit} {self.threshold:g}")
        return " · ".join(parts)

    @property
    def description(self) -> str:
        """The panel in words, for people who do not see it."""
        rows = [f"{mark.label}: {mark.numbers}{self._bins_in_words(mark)}" for mark in self.marks]
        title = self.title
        if self.subtitle:
            title += f" ({self.subtitle})"
        return f"{title}: {'; '.join(rows)}"

    def _bins_in_words(self, mark: Mark) -> str:
        if not self.bins or not mark.shares:
            return ""
        pairs = zip(self.bins, mark.shares, strict=False)
        words = [f"{name} {format_share(share)}" for name, share in pairs]
        return f", rank {', '.join(words)}"


def panels(
    report: Report, kind: Kind = "all", *, similarity: bool = True, bounds: Mapping[str, float] | None = None
) -> list[Panel]:
    """Return the plots of a report, the overview first.

    Args:
        report: of one or several files.
        kind: ``scores`` for scores and ranks, ``consistency`` for the variation of each score between the answers to
            one question, ``all`` for both.
        similarity: also plot how similar the texts of repeated answers are.
        bounds: values to mark, by score; by default the thresholds that the scores themselves define.
    """
    found: list[Panel | None] = []
    if kind != "consistency":
        found += _score_panels(report, bounds or {})
    if kind != "scores":
        found += _consistency_panels(report, similarity=similarity)
    # A score without values, or without repeats, has no plot.
    return list(filter(None, found))


def _score_panels(report: Report, bounds: Mapping[str, float]) -> Iterator[Panel | None]:
    overview = _overview(report)
    yield overview
    for name in _score_names(report):
        rows = _rows(report, name)
        # A single value has no distribution: the overview shows all of it.
        if overview is None or not _is_in_overview(rows) or any(row.count > 1 for row in _with_values(rows)):
            yield _score_panel(name, rows, bounds.get(name))
    yield _rank_panel(report)


def _consistency_panels(report: Report, *, similarity: bool) -> Iterator[Panel | None]:
    for name in _score_names(report):
        yield _variation_panel(name, _rows(report, name))
    if similarity:
        for name in MEASURES:
            yield _similarity_panel(name, report)


@dataclass(frozen=True, kw_only=True)
class _FileRow:
    """One score of one file: the file's position and name, and its row, if it has the score."""

    place: int
    file: str
    row: ScoreRow | None

    @property
    def spread(self) -> Spread | None:
        """The numbers; None if the file has no value of the score."""
        return self.row.spread if self.row else None

    @property
    def repeats(self) -> Spread | None:
        """How much the score varies between answers to one question; None without repeats."""
        repeats = self.row.repeats if self.row else None
        return repeats.coefficients if repeats else None


def _score_names(report: Report) -> list[str]:
    """Return the scores of all files, each once, in the order of the files."""
    rows = chain.from_iterable(file.scores for file in report.files)
    return list(dict.fromkeys(row.name for row in rows))


def _rows(report: Report, name: str) -> list[_FileRow]:
    """Return a score in every file: a file without it has an empty row, so that files stay in the same order."""
    return [_FileRow(place=place, file=file.name, row=file.score(name)) for place, file in enumerate(report.files)]


def _with_values(rows: Sequence[_FileRow]) -> list[ScoreRow]:
    return [item.row for item in rows if item.row is not None and item.row.count]


def _overview(report: Report) -> Panel | None:
    """Return the means of all scores between 0 and 1 on one axis: the picture to look at first."""
    marks: list[Mark] = []
    for name in _score_names(report):
        rows = _rows(report, name)
        # Other scores, such as costs, have no place on the axis from 0 to 1.
        if _is_in_overview(rows):
            marks += _overview_marks(rows)
    # One mark alone would repeat the plot of its score.
    if len(marks) < 2:
        return None
    files = tuple((place, flat(file.name)) for place, file in enumerate(report.files))
    return Panel(title="overview", kind="overview", high=1.0, marks=tuple(marks), files=files)


def _is_in_overview(rows: Sequence[_FileRow]) -> bool:
    return all(_is_share_of_one(row) for row in _with_values(rows))


def _is_share_of_one(row: ScoreRow) -> bool:
    return row.low == 0 and row.high == 1


def _overview_marks(rows: Sequence[_FileRow]) -> Iterator[Mark]:
    for item in rows:
        row = item.row
        if row is None or row.spread is None:
            continue
        label = flat(row.name)
        if row.direction == "lower":
            label += " ↓"
        yield Mark(label=label, file=item.place, spread=row.spread, as_share=row.binary)


def _score_panel(name: str, rows: Sequence[_FileRow], bound: float | None) -> Panel | None:
    found = _with_values(rows)
    if not found:
        return None
    first = found[0]
    is_share = all(row.binary for row in found)
    marks = [Mark(label=item.file, file=item.place, spread=item.spread, as_share=is_share) for item in rows]
    return Panel(
        title=flat(name),
        kind="share" if is_share else "box",
        direction=first.direction,
        # Axes start at 0, so that a small difference does not look like a large one.
        low=min(first.low, 0.0),
        high=_common_high(found),
        unit=first.unit,
        marks=tuple(marks),
        threshold=first.threshold if bound is None else bound,
    )


def _common_high(rows: Sequence[ScoreRow]) -> float | None:
    """Return the end of an axis for all files, or None if a file's values have no bound."""
    # A missing bound is larger than any other.
    high = max(math.inf if row.high is None else row.high for row in rows)
    return high if math.isfinite(high) else None


def _rank_panel(report: Report) -> Panel | None:
    """Return the share of turns by rank of the target passage."""
    tables = {place: file.ranks for place, file in enumerate(report.files) if file.ranks is not None}
    if not tables:
        return None
    last = max(max(ranks.counts, default=1) for ranks in tables.values())
    shown = min(last, _MOST_RANKS)
    bins = [str(rank) for rank in range(1, shown + 1)]
    if last > shown:
        bins.append(f">{shown}")
    marks = []
    for place, ranks in tables.items():
        shares = _rank_shares(ranks, shown, has_rest=last > shown)
        marks.append(Mark(label=report.files[place].name, file=place, shares=shares, count=ranks.count))
    return Panel(title="rank of the target passage", kind="ranks", high=1.0, marks=tuple(marks), bins=(*bins, "none"))


def _rank_shares(ranks: Ranks, shown: int, *, has_rest: bool) -> tuple[float, ...]:
    """Return the share of each bar: the first ranks, all later ones together if there are any, and misses."""
    counts = [ranks.counts.get(rank, 0) for rank in range(1, shown + 1)]
    if has_rest:
        counts.append(ranks.count - ranks.missed - sum(counts))
    counts.append(ranks.missed)
    return tuple(count / ranks.count for count in counts)


def _variation_panel(name: str, rows: Sequence[_FileRow]) -> Panel | None:
    marks = [Mark(label=item.file, file=item.place, spread=item.repeats) for item in rows]
    title = f"{flat(name)}: variation over repeats"
    return _box_panel(title, marks, direction="lower", unit="CV")


def _similarity_panel(name: str, report: Report) -> Panel | None:
    marks = []
    for place, file in enumerate(report.files):
        spread = next((item.spread for item in file.similarity if item.name == name), None)
        marks.append(Mark(label=file.name, file=place, spread=spread))
    # A rescaled BERTScore may be below 0, and a formula cannot bound it.
    high = None if name == "bertscore" else 1.0
    title = f"{MEASURES[name]} between repeated answers"
    return _box_panel(title, marks, direction="higher", high=high)


def _box_panel(
    title: str, marks: Sequence[Mark], *, direction: Direction, high: float | None = None, unit: str = ""
) -> Panel | None:
    if not any(mark.spread for mark in marks):
        return None
    return Panel(title=title, kind="box", direction=direction, high=high, unit=unit, marks=tuple(marks))
