"""The alarms of ``rageval-hooks watch``: when they come, and what a webhook gets."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rageval_hooks.cli import app
from rageval_hooks.offline.alarm import Alarm, SeenTurn, Webhook, alarms, slack_text
from tests.exporters.recording import RecordingServer, Reply, recording_server
from tests.offline.watch.backends import MlflowStore, PhoenixStore, rag_trace, serve
from tests.offline.watch.test_watch import WRONG, Clock, watching

HOUR, DAY = 3600.0, 86_400.0
SECRET = "/services/T0/B0/sesame-open"
NOW = time.time()
"""The command has no other clock."""

# --------------------------------------------------------------------------- when


def traffic(
    chosen: random.Random, until: float, *, since: float | None = None, risen_at: float = 1e9, share: float = 0.15
) -> list[SeenTurn]:
    """Return turns before a time, of eight days if not said: 1,000 a day, 5% of them bad, more after ``risen_at``."""
    turns = list[SeenTurn]()
    now = until - 8 * DAY if since is None else since
    while (now := now + chosen.expovariate(1000 / DAY)) < until:
        is_bad = chosen.random() < (share if now >= risen_at else 0.05)
        label, cause = ("bad", chosen.choice(["unsupported", "off_topic"])) if is_bad else ("good", "")
        if not is_bad and chosen.random() < 0.1:
            label, cause = chosen.choice([("doubtful", "off_topic"), ("declined", "nothing_found")])
        if is_bad and now >= risen_at and chosen.random() < 0.6:
            cause = "unsupported"
        turns.append(SeenTurn(now, f"{len(turns):032x}", label, cause, judged=False))
    return turns


def names(turns: list[SeenTurn], now: float) -> set[str]:
    return {alarm.name for alarm in alarms(turns, now, 0.05)}


def test_at_most_one_alarm_in_thirty_quiet_days_and_a_rise_is_found() -> None:
    """At 1,000 turns a day, asked every ten minutes, as Prometheus is by the same rules."""
    chosen, false, found = random.Random(3), 0, 0
    for _ in range(30):
        quiet = traffic(chosen, 8 * DAY)
        false += any(names(quiet[: _until(quiet, now)], now) for now in _every(7 * DAY, 8 * DAY, 1200))
    for _ in range(200):
        risen = traffic(chosen, 8 * DAY, since=7.6 * DAY, risen_at=8 * DAY - 4 * HOUR)
        asked = _every(8 * DAY - 2 * HOUR, 8 * DAY, 600)
        found += any("bad" in names(risen[: _until(risen, now)], now) for now in asked)

    assert false <= 1
    assert found >= 170


def _every(begin: float, end: float, step: float) -> Iterator[float]:
    while (begin := begin + step) <= end:
        yield begin


def _until(turns: list[SeenTurn], now: float) -> int:
    return sum(turn.at <= now for turn in turns)


def test_the_cause_that_rose_is_named_with_five_traces() -> None:
    chosen, now = random.Random(1), 8 * DAY
    turns = traffic(chosen, now, risen_at=now - 4 * HOUR, share=0.3)
    [alarm] = alarms(turns, now, 0.05)

    assert alarm.name == "bad"
    assert "answers in four hours are bad; 5.0% are usual. unsupported rose to" in alarm.text
    assert "of the answers, from 2." in alarm.text
    of_cause = {turn.trace_id for turn in turns if turn.cause == "unsupported" and now - turn.at < 4 * HOUR}
    assert len(alarm.traces) == 5
    assert set(alarm.traces) < of_cause


def test_a_cause_of_answers_that_are_not_bad_can_rise_too() -> None:
    """An index is gone: the answers decline."""
    now = 8 * DAY
    turns = traffic(random.Random(2), now - HOUR)
    turns += [SeenTurn(now - 40 * n, f"{n}", "declined", "nothing_found", judged=False) for n in range(1, 60)]
    [alarm] = alarms(turns, now, 0.05)

    assert alarm.name == "declined: nothing_found"
    assert alarm.traces == ("1", "2", "3", "4", "5")


@pytest.mark.parametrize("history", [1, 2, 8])
def test_silence_is_an_alarm(history: int) -> None:
    """Against the week before, or the day before where that is not known; never on the first day."""
    now = 8 * DAY
    turns = [turn for turn in traffic(random.Random(4), now) if 2.5 * HOUR < now - turn.at < history * DAY]
    turns = [turn._replace(judged=now - turn.at > 1.5 * DAY) for turn in turns]
    found = {alarm.name: alarm.text for alarm in alarms(turns, now, 0.05)}

    assert set(found) == ({"evaluated", "judged"} if history > 1 else set())
    if history > 1:
        when = "a week ago" if history == 8 else "yesterday"
        assert f"no answer was evaluated for 2 hours; {when} there were" in found["evaluated"]


def test_an_office_is_empty_on_the_same_day_each_week() -> None:
    now = 9 * DAY
    turns = traffic(random.Random(5), now - DAY)
    turns = [turn for turn in turns if turn.at >= 2.5 * DAY or turn.at < 1.5 * DAY]

    assert names(turns, now + HOUR) == set()


# --------------------------------------------------------------------------- where


@pytest.fixture(params=[PhoenixStore, MlflowStore], ids=lambda kind: str(kind.name))
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A backend with 60 good answers and 20 bad ones within an hour."""
    monkeypatch.chdir(tmp_path)
    made = request.param()
    made.add(*(rag_trace(number, NOW - 100 - 40 * number) for number in range(1, 61)))
    made.add(*(rag_trace(number, NOW - 100 - 10 * number, answer=WRONG) for number in range(61, 81)))
    return made


@pytest.fixture
def server(store: Any) -> Iterator[RecordingServer]:
    with serve(store) as found:
        yield found


def test_an_alarm_is_posted_once(store: Any, server: RecordingServer) -> None:
    """With the pages of five traces, as Slack wants it; a restart does not repeat it."""
    clock = Clock()
    clock.now = NOW
    with recording_server() as slack:
        for _ in range(2):
            with watching(store, server, clock) as watch:
                watch.look(NOW - DAY)
                assert watch.alarm(Webhook(slack.url + SECRET), 0.05) is None

    [body] = slack.posted(SECRET)
    first, *traces = body["text"].splitlines()
    assert "25.0% of 80 answers in four hours are bad; 5.0% are usual. unsupported rose to 25.0%" in first
    assert len(traces) == 5
    assert all(line.startswith(f"• <{server.url}/") for line in traces)
    assert f"{61:032x}" in traces[0]


def test_an_alarm_that_could_not_be_posted_comes_again(store: Any, server: RecordingServer) -> None:
    replies = [Reply(status=500), Reply(status=302, headers={"Location": "http://127.0.0.1:9/"}), Reply(), Reply()]
    clock = Clock()
    clock.now = NOW
    with recording_server(lambda _: replies.pop(0)) as slack, watching(store, server, clock) as watch:
        watch.look(NOW - DAY)
        said = []
        for _ in range(4):
            said.append(watch.alarm(Webhook(slack.url + SECRET), 0.05))
            assert watch.alarm(Webhook(slack.url + SECRET), 0.05) is None  # not again within the same minute
            clock.now += 60

    assert said == ["the alarm's webhook answered 500", "the alarm's webhook answered 302", None, None]
    assert len(slack.requests) == 3


def test_an_alarm_that_is_over_may_come_again(store: Any, server: RecordingServer) -> None:
    clock = Clock()
    clock.now = NOW
    with recording_server() as slack, watching(store, server, clock) as watch:
        watch.look(NOW - DAY)
        for budget in (0.05, 0.5, 0.05):
            watch.alarm(Webhook(slack.url + SECRET), budget)
            clock.now += 60

    assert len(slack.requests) == 2


@pytest.mark.parametrize("given", ["option", "variable"])
def test_the_address_is_a_secret(
    store: Any, server: RecordingServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """In no output, whatever goes wrong."""
    caplog.set_level(logging.DEBUG)
    with recording_server(lambda _: Reply(status=403)) as slack:
        for host in (slack.url, "http://127.0.0.1:9"):
            address = host + SECRET
            extra = ["--alarm-webhook", address] if given == "option" else []
            if given == "variable":
                monkeypatch.setenv("WATCH_ALARM_WEBHOOK", address)
            arguments = [store.name, "--url", server.url, "--models", "lexical", "--once", "--since", "1d", *extra]
            done = CliRunner().invoke(app, ["watch", *arguments])

            assert "the alarm's webhook" in done.output
            assert "sesame" not in done.output + caplog.text + str(done.exception)
    help_text: Any = CliRunner().invoke(app, ["watch", "--help"]).output
    assert "sesame" not in help_text


def test_a_text_cannot_write_links_into_slack() -> None:
    text = slack_text(Alarm("bad", "rose & <http://a|b>", ("1",)), "my <project>", "http://phoenix/{}".format)

    assert text == "my &lt;project&gt;: rose &amp; &lt;http://a|b&gt;\n• <http://phoenix/1|1>"
