"""Which judge calls the metrics of a turn make: what they share, what waits for what, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rageval_hooks.metrics.base import Metric


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


def plan_calls(metrics: Iterable[Metric], size: TurnSize | None = None) -> Plan:
    """Return the calls that some metrics make together for one turn.

    Args:
        metrics: the metrics that run.
        size: the size of the turn.
    """
    metrics = list(metrics)
    calls: dict[str, PlannedCall] = {}
    users: dict[str, list[str]] = {}
    for metric in metrics:
        for call in metric.plan(size or TurnSize()):
            # "umbrela.grades" is asked as the metric umbrela was set up, if that runs; ranking only shares it.
            if call.key.split(".")[0] == metric.name or call.key not in calls:
                calls[call.key] = call
            users.setdefault(call.key, []).append(metric.name)
    # A call that is made zero times is dropped, and a call that no running metric makes is not waited for.
    rest = {key: call for key, call in calls.items() if call.count}
    steps: list[tuple[SharedCall, ...]] = []
    while rest:
        # Each step has the calls that wait for none of the others.
        ready = [call for call in rest.values() if rest.keys().isdisjoint(call.after)] or [*rest.values()]
        steps.append(tuple(SharedCall(call, tuple(users[call.key])) for call in ready))
        rest = {key: call for key, call in rest.items() if call not in ready}
    return Plan(tuple(steps), tuple(metric.name for metric in metrics if not metric.asks_judge))
