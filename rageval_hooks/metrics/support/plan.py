"""Which calls the judge metrics of a turn take: what is shared, what waits for what, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rageval_hooks.metrics.base import Metric

__all__ = ["Plan", "PlannedCall", "SharedCall", "TurnSize", "plan_calls"]


@dataclass(frozen=True)
class TurnSize:
    """The turn that a plan is made for.

    Attributes:
        passages: how many passages it has, all of them graded 1 or more.
        nuggets: how many nuggets the judge finds in them.
        citations: how many pairs of a part of the response and a passage it cites there are.
    """

    passages: int = 10
    nuggets: int = 10
    citations: int = 10


@dataclass(frozen=True)
class PlannedCall:
    """A question to the judge, or several of the same kind.

    Attributes:
        key: what it finds out; two metrics that need the same ask once.
        purpose: that in words.
        count: how many calls it takes.
        after: keys of what it waits for, as far as a metric that runs finds it out.
        sequential: whether its calls wait for each other.
        estimated: whether the count is a guess: nobody knows how often a custom metric asks.
    """

    key: str
    purpose: str
    count: int = 1
    after: tuple[str, ...] = ()
    sequential: bool = False
    estimated: bool = False


@dataclass(frozen=True)
class SharedCall:
    """A planned call, and the metrics that need it."""

    call: PlannedCall
    metrics: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The calls for one turn.

    Attributes:
        steps: what is asked at the same time, step after step.
        local: the metrics that ask nobody.
    """

    steps: tuple[tuple[SharedCall, ...], ...]
    local: tuple[str, ...]

    @property
    def calls(self) -> int:
        """How many calls there are in all."""
        return sum(shared.call.count for step in self.steps for shared in step)

    @property
    def estimated(self) -> bool:
        """Whether the number of calls is a guess."""
        return any(shared.call.estimated for step in self.steps for shared in step)


def plan_calls(metrics: Iterable[Metric], size: TurnSize | None = None) -> Plan:
    """Return the calls that metrics take together for one turn.

    Args:
        metrics: what runs.
        size: of the turn.
    """
    size = size or TurnSize()
    metrics = list(metrics)
    calls: dict[str, PlannedCall] = {}
    users: dict[str, list[str]] = {}
    for metric in metrics:
        for call in metric.plan(size):
            # What belongs to a metric that runs is asked as that metric was set up.
            if call.key not in calls or call.key.split(".")[0] == metric.name:
                calls[call.key] = call
            users.setdefault(call.key, []).append(metric.name)
    shared = {key: SharedCall(call, tuple(users[key])) for key, call in calls.items() if call.count}
    depths: dict[str, int] = {}
    for key in shared:
        _depth(key, shared, depths)
    steps = tuple(
        tuple(shared[key] for key in shared if depths[key] == depth)
        for depth in range(1 + max(depths.values(), default=-1))
    )
    return Plan(steps, tuple(metric.name for metric in metrics if not metric.asks_judge))


def _depth(key: str, calls: dict[str, SharedCall], depths: dict[str, int]) -> int:
    if key not in depths:
        before = [other for other in calls[key].call.after if other in calls]
        depths[key] = 1 + max((_depth(other, calls, depths) for other in before), default=-1)
    return depths[key]
