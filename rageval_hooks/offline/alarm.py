"""The alarms of ``watch``: too many answers are bad, a cause has risen, or nothing comes any more.

They decide as the rules of examples/dashboards/alerts.yaml do, on the turns that ``watch`` has scored, and go to a
webhook in Slack's format.
"""

from __future__ import annotations

import json
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from http.client import HTTPException
from typing import NamedTuple
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

from pydantic import SecretStr

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.metrics.base import VERDICT_VALUES
from rageval_hooks.text.formatting import format_share

_HOUR, _DAY = 3600.0, 86_400.0
_LONG = 4 * _HOUR
KEPT_SECONDS = 8 * _DAY
"""How long a turn is remembered: a week, and what is compared with it."""

_MIN_BEFORE = 100
"""Answers of the week before from which a cause can be said to have risen."""
_MIN_USUAL = 20
"""Answers of the same hours before from which none is an alarm."""
_LOWEST_SHARE = 0.01
_TRACES = 5
_POST_SECONDS = 10.0


class SeenTurn(NamedTuple):
    """What an alarm needs of a turn.

    Attributes:
        at: when it began, in seconds since the epoch.
        trace_id: its trace.
        label: of its verdict.
        cause: of its verdict; empty without one.
        judged: True if the verdict is the judge's.
    """

    at: float
    trace_id: str
    label: str
    cause: str
    judged: bool


class Alarm(NamedTuple):
    """Something that somebody has to look at.

    Attributes:
        name: the same as long as it lasts.
        text: what is wrong, in a line.
        traces: ids of some traces that show it, the newest first.
    """

    name: str
    text: str
    traces: tuple[str, ...] = ()


def alarms(turns: Iterable[SeenTurn], now: float, budget: float) -> Iterator[Alarm]:
    """Yield what is wrong at a time.

    Args:
        turns: those of the last eight days.
        now: the time, in seconds since the epoch.
        budget: the share of bad answers that is usual.
    """
    seen = sorted(turns)
    answers = [turn.at for turn in seen if turn.label in VERDICT_VALUES]
    recent = [turn for turn in seen if turn.cause and turn.label != "not_evaluable" and now - turn.at < _LONG]
    before = [turn for turn in seen if _LONG <= now - turn.at < 7 * _DAY]
    answers_before = sum(turn.label in VERDICT_VALUES for turn in before)
    usual = {
        key: count / answers_before
        for key, count in Counter((turn.label, turn.cause) for turn in before).items()
        if answers_before >= _MIN_BEFORE
    }
    by_cause: dict[tuple[str, str], list[SeenTurn]] = {}
    for turn in recent:
        by_cause.setdefault((turn.label, turn.cause), []).append(turn)
    bad, count = [turn.at for turn in seen if turn.label == "bad"], _count(answers, now, _LONG)
    is_high = _is_high(bad, answers, now, budget) or (
        _is_high(bad, answers, now, budget, burns=(5, 5), windows=(_HOUR, _HOUR / 4), chance=18)
    )
    if is_high:
        share = format_share(_count(bad, now, _LONG) / count)
        text = f"{share} of {count:,} answers in four hours are bad; {format_share(budget)} are usual"
        those = []
        if of_bad := {key: those for key, those in by_cause.items() if key[0] == "bad"}:
            most = max(of_bad, key=lambda key: len(of_bad[key]) / count - usual.get(key, 0.0))
            those = of_bad[most]
            text = f"{text}. {_rise(most[1], those, count, usual.get(most))}"
        yield Alarm("bad", text, _traces(those))
    for (label, cause), those in sorted(by_cause.items()):
        # Causes of bad answers are part of the alarm above.
        if usual and not (is_high and label == "bad"):
            share_before = usual.get((label, cause), 0.0)
            if _is_high([turn.at for turn in those], answers, now, max(share_before, _LOWEST_SHARE), chance=20):
                text = _rise(f"{label}: {cause}", those, count, share_before)
                yield Alarm(f"{label}: {cause}", text, _traces(those))
    for name, hours, times in (
        ("evaluated", 2, [turn.at for turn in seen]),
        ("judged", 24, [turn.at for turn in seen if turn.judged]),
    ):
        # Else yesterday, if nothing is known of the week before.
        back = 7 * _DAY if seen and seen[0].at <= now - 7 * _DAY - hours * _HOUR else _DAY
        usually = _count(times, now - back, hours * _HOUR)
        if usually >= _MIN_USUAL and not _count(times, now, hours * _HOUR):
            when = "a week ago" if back > _DAY else "yesterday"
            yield Alarm(name, f"no answer was {name} for {hours} hours; {when} there were {usually} at this time")


def _is_high(
    times: Sequence[float],
    answers: Sequence[float],
    now: float,
    budget: float,
    *,
    burns: tuple[float, float] = (2, 1.5),
    windows: tuple[float, float] = (_LONG, _HOUR),
    chance: float = 12,
) -> bool:
    """Return True if a budget is used up too fast in both of two windows, and chance would hardly make as many.

    Args:
        times: of the turns that use the budget.
        answers: times of all answers.
        now: the end of the windows.
        budget: share of the answers.
        burns: how many times as fast as the budget allows, in each window.
        windows: seconds.
        chance: the least deviance of a Poisson variable in the longer window.
    """
    found, expected = _count(times, now, windows[0]), budget * _count(answers, now, windows[0])
    is_over = all(
        _count(times, now, window) > burn * budget * _count(answers, now, window)
        for window, burn in zip(windows, burns, strict=True)
    )
    return is_over and (not expected or 2 * (found * math.log(found / expected) - found + expected) > chance)


def _count(times: Sequence[float], now: float, window: float) -> int:
    """Return how many of some times, the oldest first, are in the window that ends now."""
    return bisect_right(times, now) - bisect_right(times, now - window)


def _rise(what: str, turns: Sequence[SeenTurn], answers: int, usual: float | None) -> str:
    week = "" if usual is None else f", from {format_share(usual)} in the week before"
    return f"{what} rose to {format_share(len(turns) / answers)} of the answers{week}"


def _traces(turns: Sequence[SeenTurn]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(turn.trace_id for turn in reversed(turns)))[:_TRACES]


# --------------------------------------------------------------------------- the webhook


class _NoRedirect(HTTPRedirectHandler):
    """Makes a redirect an error: the page that it leads to answers, and the alarm would count as posted."""

    def redirect_request(self, *_: object) -> None:
        """Follow no redirect."""


class Webhook:
    """Posts texts in Slack's format. Its address is a secret: it is in no message and in no log line.

    Args:
        url: where to post.

    Raises:
        ConfigurationError: it is not an HTTP address.
    """

    def __init__(self, url: str) -> None:
        if not url.startswith(("https://", "http://")):
            raise ConfigurationError("--alarm-webhook must be an address that begins with https:// or http://")
        self._url = SecretStr(url)
        # Not httpx, which logs the address of each request.
        self._opener = build_opener(_NoRedirect)

    def post(self, text: str) -> str | None:
        """Post a text. Returns what went wrong; None if nothing did."""
        body = json.dumps({"text": text}).encode()
        try:
            address = self._url.get_secret_value()
            request = Request(address, body, {"Content-Type": "application/json"})  # noqa: S310 (checked above)
            with self._opener.open(request, timeout=_POST_SECONDS):
                return None
        except HTTPError as error:
            return f"the alarm's webhook answered {error.code}"
        except (OSError, HTTPException, ValueError) as error:  # their messages may have the address
            return f"the alarm's webhook cannot be reached ({type(error).__name__})"


def slack_text(alarm: Alarm, title: str, page: Callable[[str], str]) -> str:
    """Return an alarm as Slack wants it.

    Args:
        alarm: the alarm.
        title: where it comes from.
        page: returns the address of the page of a trace.
    """
    escaped = f"{title}: {alarm.text}".replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "\n".join([escaped, *(f"• <{page(trace_id)}|{trace_id}>" for trace_id in alarm.traces)])
