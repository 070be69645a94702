"""What the plots of a report show, as data: an overview, then one panel per score, ranks, and repeats."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rageval_hooks.metrics.base import Direction
from rageval_hooks.offline.report.model import FileReport, Report, ScoreRow
from rageval_hooks.offline.report.similarity import MEASURES
from rageval_hooks.offline.report.statistics import Spread
from rageval_hooks.text.formatting import flat, format_share, short_value

__all__ = ["Kind", "Mark", "Panel", "panels"]

Kind = Literal["all", "scores", "consistency"]

_MOST_RANKS = 10


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One row of a panel.

    Attributes:
        label: the file, or in the overview the score.
        file: position of the file, which chooses the colour.
        spread: the numbers; None if there are none.
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
        if self.shares:
            return f"n = {self.count}"
        found = self.spread
        if found is None:
            return "no values"
        show = format_share if self.as_share else short_value
        text = f"{'share' if self.as_share else 'mean'} {show(found.mean)}"
        if found.interval is not None:
            text += f" [{show(found.interval.low)}, {show(found.interval.high)}]"
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

    @property
    def subtitle(self) -> str:
        """What a reader has to know to read the panel."""
        parts = [f"{self.direction} is better"] if self.direction else []
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
        about = f" ({self.subtitle})" if self.subtitle else ""
        return f"{self.title}{about}: {'; '.join(rows)}"

    def _bins_in_words(self, mark: Mark) -> str:
        pairs = zip(self.bins, mark.shares, strict=False)
        words = [f"{name} {format_share(share)}" for name, share in pairs]
        return f", rank {', '.join(words)}" if words else ""


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
    names = list(dict.fromkeys(row.name for file in report.files for row in file.scores))
    rows = {name: [(place, file, file.score(name)) for place, file in enumerate(report.files)] for name in names}
    found: list[Panel | None] = []
    if kind != "consistency":
        found.append(_overview(report))
        found += [_score_panel(name, rows[name], (bounds or {}).get(name)) for name in names]
        found.append(_rank_panel(report))
    if kind != "scores":
        found += [_variation_panel(name, rows[name]) for name in names]
        found += [_similarity_panel(name, report) for name in MEASURES if similarity]
    return [panel for panel in found if panel is not None]


_Rows = Sequence[tuple[int, FileReport, ScoreRow | None]]


def _overview(report: Report) -> Panel | None:
    """Return the means of all scores between 0 and 1 on one axis: the picture to look at first."""
    marks = [mark for name in _bounded_names(report) for mark in _overview_marks(report, name)]
    if len(marks) < 2:
        return None
    return Panel(title="overview", kind="overview", high=1.0, marks=tuple(marks))


def _bounded_names(report: Report) -> list[str]:
    rows = [row for file in report.files for row in file.scores if row.spread is not None]
    unbounded = {row.name for row in rows if row.high != 1 or row.low != 0}
    return [name for name in dict.fromkeys(row.name for row in rows) if name not in unbounded]


def _overview_marks(report: Report, name: str) -> Iterator[Mark]:
    for place, file in enumerate(report.files):
        row = file.score(name)
        if row is not None and row.spread is not None:
            arrow = " ↓" if row.direction == "lower" else ""
            yield Mark(label=f"{flat(name)}{arrow}", file=place, spread=row.spread, as_share=row.binary)


def _score_panel(name: str, rows: _Rows, bound: float | None) -> Panel | None:
    there = [row for _, _, row in rows if row is not None and row.spread is not None]
    if not there:
        return None
    is_share = all(row.binary for row in there)
    highs = [row.high for row in there]
    return Panel(
        title=flat(name),
        kind="share" if is_share else "box",
        direction=there[0].direction,
        low=there[0].low if there[0].low < 0 else 0.0,
        high=None if None in highs else max(high for high in highs if high is not None),
        unit=there[0].unit,
        marks=tuple(
            Mark(label=file.name, file=place, spread=row.spread if row else None, as_share=is_share)
            for place, file, row in rows
        ),
        threshold=there[0].threshold if bound is None else bound,
    )


def _rank_panel(report: Report) -> Panel | None:
    """Return the share of turns by rank of the target passage."""
    if not any(file.ranks for file in report.files):
        return None
    last = max(max(file.ranks.counts, default=1) for file in report.files if file.ranks)
    ranks = range(1, min(last, _MOST_RANKS) + 1)
    has_rest = last > _MOST_RANKS
    marks = []
    for place, file in enumerate(report.files):
        if file.ranks is None:
            continue
        counts = [file.ranks.counts.get(rank, 0) for rank in ranks]
        if has_rest:
            counts.append(file.ranks.count - file.ranks.missed - sum(counts))
        counts.append(file.ranks.missed)
        shares = tuple(count / file.ranks.count for count in counts)
        marks.append(Mark(label=file.name, file=place, shares=shares, count=file.ranks.count))
    bins = (*map(str, ranks), *([f">{_MOST_RANKS}"] if has_rest else []), "none")
    return Panel(title="rank of the target passage", kind="ranks", high=1.0, marks=tuple(marks), bins=bins)


def _variation_panel(name: str, rows: _Rows) -> Panel | None:
    marks = tuple(
        Mark(label=file.name, file=place, spread=row.repeats.coefficients if row and row.repeats else None)
        for place, file, row in rows
    )
    if not any(mark.spread for mark in marks):
        return None
    title = f"{flat(name)}: variation over repeats"
    return Panel(title=title, kind="box", direction="lower", unit="CV", marks=marks)


def _similarity_panel(name: str, report: Report) -> Panel | None:
    marks = []
    for place, file in enumerate(report.files):
        found = next((item.spread for item in file.similarity if item.name == name), None)
        marks.append(Mark(label=file.name, file=place, spread=found))
    if not any(mark.spread for mark in marks):
        return None
    # A rescaled BERTScore may be below 0, and a formula cannot bound it.
    high = None if name == "bertscore" else 1.0
    title = f"{MEASURES[name]} between repeated answers"
    return Panel(title=title, kind="box", direction="higher", high=high, marks=tuple(marks))
