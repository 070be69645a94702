"""Which judge calls the metrics of a turn make: what they share, what waits for what, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class TurnSize:
    """The size of the turn that a plan is made for.

    Attributes:
        passages: number of passages, all of them graded 1 or more.
        nuggets: number of nuggets that the judge finds in them.
        citations: number of pairs of a sentence of the response and a passage that it cites.
    """

    passages: int = 10
    nuggets: int = 10
    citations: int = 10


@dataclass(frozen=True)
class PlannedCall:
    """A question to the judge, or several of the same kind.

    Attributes:
        key: what it finds out; two metrics that need the same share the call.
        purpose: the same in words.
        count: number of calls.
        after: keys of the calls that it waits for, if a running metric makes them.
        sequential: True if its calls wait for each other.
        estimated: True if the count is a guess, as for a custom metric.
    """

    key: str
    purpose: str
    count: int = 1
    after: tuple[str, ...] = ()
    sequential: bool = False
    estimated: bool = False


class Planning(Protocol):
    """The part of a metric that a plan needs."""

    @property
    def name(self) -> str:
        """The metric's name."""

    @property
    def asks_judge(self) -> bool:
        """True if it asks a judge."""

    def plan(self, size: TurnSize) -> tuple[PlannedCall, ...]:
        """Return its calls for a turn of some size."""


@dataclass(frozen=True)
class SharedCall:
    """A planned call, and the metrics that need it."""

    call: PlannedCall
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The calls for one turn.

    Attributes:
        steps: the calls of each step run at the same time; steps run one after the other.
        local: names of the metrics that ask no judge.
    """

    steps: tuple[tuple[SharedCall, ...], ...]
    local: tuple[str, ...]

    @property
    def calls(self) -> int:
        """The number of calls in all."""
        return sum(shared.call.count for step in self.steps for shared in step)

    @property
    def estimated(self) -> bool:
        """True if the number of calls is a guess."""
        return any(shared.call.estimated for step in self.steps for shared in step)


def plan_calls(metrics: Iterable[Planning], size: TurnSize | None = None) -> Plan:
    """Return the calls that some metrics make together for one turn.

    Args:
        metrics: the metrics that run.
        size: the size of the turn.
    """
    metrics = list(metrics)
    shared = _shared_calls(metrics, size or TurnSize())
    depths: dict[str, int] = {}
    for key in shared:
        _set_depth(key, shared, depths)
    # Calls of the same depth wait for nothing in their step, so they are made at the same time.
    steps: list[list[SharedCall]] = [[] for _ in range(1 + max(depths.values(), default=-1))]
    for key, call in shared.items():
        steps[depths[key]].append(call)
    local = tuple(metric.name for metric in metrics if not metric.asks_judge)
    return Plan(tuple(map(tuple, steps)), local)


def _shared_calls(metrics: Iterable[Planning], size: TurnSize) -> dict[str, SharedCall]:
    """Return the calls by key, each with the metrics that need it; a call that is made zero times is dropped."""
    calls: dict[str, PlannedCall] = {}
    users: dict[str, list[str]] = {}
    for metric in metrics:
        for call in metric.plan(size):
            # "umbrela.grades" is asked as the metric umbrela was set up, if that runs; ranking only shares it.
            owned = call.key.split(".")[0] == metric.name
            if owned or call.key not in calls:
                calls[call.key] = call
            users.setdefault(call.key, []).append(metric.name)
    return {key: SharedCall(call, tuple(users[key])) for key, call in calls.items() if call.count}


def _set_depth(key: str, calls: Mapping[str, SharedCall], depths: dict[str, int]) -> int:
    """Store and return the step of a call: one after the last of those that it waits for."""
    if key not in depths:
        # A call that no running metric makes is not waited for.
        before = [other for other in calls[key].call.after if other in calls]
        depths[key] = 1 + max((_set_depth(other, calls, depths) for other in before), default=-1)
    return depths[key]
