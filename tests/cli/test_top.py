"""``rageval-hooks top``: the counters of running processes, and the file that they write."""

from __future__ import annotations

import gc
import json
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

import rageval_hooks
from rageval_hooks.cli import app
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.runtime.files import StatsFile
from rageval_hooks.testing import InMemoryExporter
from tests.command import invoke
from tests.warm import run_warm_script


class Reads:
    """Reads counters, and lets a test wait until a version of the file is complete."""

    def __init__(self, read: Any) -> None:
        self._read = read
        self._count = threading.Semaphore(0)

    def __call__(self) -> Any:
        self._count.release()
        return self._read()

    def wait(self) -> None:
        """Wait until a read after the next one: what the next one returns is written by then."""
        while self._count.acquire(blocking=False):
            pass
        for _ in range(2):
            assert self._count.acquire(timeout=30)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The file of a process that has evaluated a turn."""
    path = tmp_path / "stats.json"
    metrics = ["verdict", "groundedness", "latency", "answer_relevance"]
    with rageval_hooks.instrument(metrics=metrics, models="lexical", exporters=[InMemoryExporter()]) as handle:
        with rageval_hooks.start_turn("When was the pier opened?") as turn:
            turn.add_passages(["The pier was opened in 2019."])
            turn.respond("It was opened in 2019.")
        assert handle.flush(30)
        reads = Reads(handle.stats)
        file = StatsFile(str(path), reads, interval=0.01)
        reads.wait()
        yield path
        file.stop()


def top(*arguments: str, status: int = 0) -> str:
    done = CliRunner().invoke(app, ["top", *arguments])
    assert done.exit_code == status, done.output
    return done.stdout


def test_one_screen_has_turns_queues_and_scores(path: Path) -> None:
    lines = top("--once", str(path)).splitlines()

    assert lines[0].startswith(f"process {os.getpid()}: 1 turns")
    assert lines[1] == "verdict 100% good, of 1"
    assert any(line.startswith("turns   1 evaluated") for line in lines)
    assert any(line.startswith("queue   export: 0 waiting") for line in lines)
    [row] = [line.split() for line in lines if line.startswith("groundedness")]
    assert row[3] == "1"


def test_a_process_that_is_gone_is_told(path: Path) -> None:
    """Its file is not updated any more."""
    stats = json.loads(path.read_text())
    left = path.with_name("left.json")
    left.write_text(json.dumps({**stats, "written_at": stats["written_at"] - 3600}))

    assert "; not updated for 36" in top(str(left), "--once").splitlines()[0]


def test_counts_of_judge_and_exporters_are_shown_unless_they_are_0(path: Path) -> None:
    """The verdicts come first, the most frequent one at the head."""
    content = json.loads(path.read_text())
    content["stats"]["judge"] = {"calls": 3, "cost": 0.25, "failures": 0, "by_kind": {"refused": 1}}
    content["stats"]["exporters"] = {"phoenix": {"queued": 0}}
    content["stats"]["scores"]["verdict"]["labels"] = {"bad": 1, "good": 3}
    content["stats"]["scores"]["verdict"]["causes"] = {"unsupported": 1}
    content["stats"]["scores"]["verdict.trace"] = {
        **content["stats"]["scores"]["verdict"],
        "labels": {"bad": 2},
        "causes": {},
    }
    other = path.with_name("other.json")
    other.write_text(json.dumps(content))

    lines = top(str(other), "--once").splitlines()
    assert lines[1:4] == [
        "verdict 75% good, 25% bad, of 4",
        "  by cause: 1 unsupported",
        "verdict.trace 100% bad, of 2",
    ]
    assert "judge   3 calls, 0.25 cost" in lines
    assert "export  phoenix: nothing yet" in lines


def test_turns_per_second_are_those_since_the_last_screen(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has written nothing since then has no rate."""
    content = json.loads(path.read_text())
    other = path.with_name("other.json")
    other.write_text(json.dumps(content))
    screens = 0

    def wait(_: float) -> None:
        nonlocal screens
        screens += 1
        if screens == 2:  # the second screen had the same file as the first
            later = {**content, "written_at": content["written_at"] + 2}
            other.write_text(json.dumps({**later, "stats": {**content["stats"], "turns": 7}}))
        elif screens == 3:
            raise KeyboardInterrupt

    clock = SimpleNamespace(sleep=wait, time=time.time)
    monkeypatch.setattr(sys.modules["rageval_hooks.cli.top"], "time", clock)  # the package has a function of that name
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich then takes the output for a terminal
    shown = top(str(other))

    assert "7 turns, 3.0 per second" in shown


def test_as_json_it_is_what_stats_returns(path: Path) -> None:
    [found] = json.loads(top("--json", str(path)))

    assert found["pid"] == os.getpid()
    assert found["stats"]["turns"] == found["stats"]["evaluated"] == 1
    scores = found["stats"]["scores"]
    assert scores["latency"]["count"] == 1
    assert scores["latency"]["mean"] == scores["latency"]["last"] > 0


def test_the_setting_names_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``{pid}`` stands for every process."""
    monkeypatch.setenv("RAGEVAL_STATS_FILE", str(path.with_name("st{pid}.json")))

    assert f"process {os.getpid()}" in top("--once")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"no\.json: no process writes this file now"),
        ("no JSON", r"no\.json is not a file of the setting stats_file"),
        ('{"pid": 7}', r"no\.json is not a file of the setting stats_file"),
        ("[]", r"no\.json is not a file of the setting stats_file"),
    ],
)
def test_a_file_that_no_process_writes(content: str | None, message: str, tmp_path: Path) -> None:
    file = tmp_path / "no.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        invoke("top", file, once=True)


def test_without_a_file_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAGEVAL_STATS_FILE", raising=False)
    with pytest.raises(ConfigurationError, match="no FILE is given and RAGEVAL_STATS_FILE is not set"):
        invoke("top", once=True)


def test_a_file_that_is_gone_before_it_is_read(path: Path) -> None:
    """Its process has just ended; the others are shown. A link that leads nowhere is listed like such a file."""
    path.with_name("stats2.json").symlink_to("gone.json")

    assert top("--once", str(path.with_name("stats{pid}.json"))).startswith(f"process {os.getpid()}")


def test_a_process_writes_its_file_until_it_shuts_down(tmp_path: Path) -> None:
    """Only its owner can read the file. A forked child has one, too, and an end without shutdown removes it."""
    program = """
import os, sys, time
import rageval_hooks
from rageval_hooks.testing import InMemoryExporter

def files():
    return sorted(os.listdir(sys.argv[1]))

def wait_for(name):
    end = time.monotonic() + 60
    while name not in files() and time.monotonic() < end:
        time.sleep(0.02)
    assert name in files(), files()

path = sys.argv[1] + "/{pid}.json"
handle = rageval_hooks.instrument(metrics=["latency"], exporters=[InMemoryExporter()], stats_file=path)
wait_for(f"{os.getpid()}.json")
print(oct(os.stat(f"{sys.argv[1]}/{os.getpid()}.json").st_mode & 0o777))
child = os.fork()
if not child:
    wait_for(f"{os.getpid()}.json")
    handle.shutdown()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    done = run_warm_script(program, tmp_path)

    assert done.stdout == "0o600\n"
    assert list(tmp_path.iterdir()) == []


def test_after_the_shutdown_nothing_is_written_or_kept(tmp_path: Path) -> None:
    """The file is gone and stays away, the thread ends, and the counters with all they hold are freed."""
    others, path, reads = set(threading.enumerate()), tmp_path / "stats.json", Reads(dict)
    file = StatsFile(str(path), reads, interval=0.01)
    [thread] = [thread for thread in threading.enumerate() if thread not in others]
    reads.wait()
    assert path.exists()
    file.stop()
    thread.join(10)
    reference = weakref.ref(reads)
    del file, reads, thread
    gc.collect()

    assert not path.exists()
    assert reference() is None


def test_a_file_that_cannot_be_written_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reads = Reads(dict)
    file = StatsFile(str(tmp_path / "missing" / "stats.json"), reads, interval=0.01)
    reads.wait()
    reads.wait()
    file.stop()

    [line] = [message for message in caplog.messages if "stats_file" in message]
    assert line.endswith("[RAGEVAL-217]")
