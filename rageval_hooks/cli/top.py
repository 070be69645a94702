"""``rageval-hooks top``: watch the scores and queues of running processes, from the files that they write."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from glob import escape, glob
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

_STALE: Final = 10.0
"""Seconds after which a file's process has probably ended."""

_INTERVAL: Final = 1.0
"""Seconds between two screens: as often as the files are written."""

_OUTCOMES: Final = ("evaluated", "in_progress", "sampled_out", "unsampled_traces", "without_retrieval", "dropped")
_FAULTS: Final = ("failed", "export_errors", "callback_errors", "internal_errors")


def top(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="FILE", help="Files of stats_file. Default: RAGEVAL_STATS_FILE.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one screen and stop.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the files have as JSON, and stop.")] = False,
) -> None:
    """Watch the scores, queues, judge and exporters of running processes.

    A process writes its counters if the setting stats_file is set, for example to "/run/app/rageval-{pid}.json".
    Exit status 2 if there is no such file.
    """
    from rageval_hooks.cli.output import for_stream

    if as_json:
        typer.echo(for_stream(json.dumps(processes(files), indent=2, ensure_ascii=False), "json", sys.stdout))
    elif once:
        from rageval_hooks.exporters.console import make_console

        make_console(sys.stdout).print(_screen(processes(files), {}))
    else:
        _watch(files)


def _watch(files: list[str] | None) -> None:
    from rich.live import Live

    before: dict[int, tuple[float, int]] = {}
    with Live(auto_refresh=False, screen=True) as live:
        try:
            while True:
                running = processes(files)
                live.update(_screen(running, before), refresh=True)
                before = {found["pid"]: (found["written_at"], found["stats"]["turns"]) for found in running}
                time.sleep(_INTERVAL)
        except KeyboardInterrupt:  # the usual way to leave
            return


def _paths(files: list[str] | None) -> list[Path]:
    """Return the files; ``{pid}`` in a name stands for any process."""
    from rageval_hooks.errors import ConfigurationError
    from rageval_hooks.runtime.files import PID
    from rageval_hooks.settings import Settings

    # With files given, the settings of this shell do not matter, not even wrong ones.
    setting = None if files else Settings.build().stats_file
    names = files or ([setting] if setting else [])
    if not names:
        raise ConfigurationError("no FILE is given and RAGEVAL_STATS_FILE is not set: start the application with it")
    found: list[str] = []
    for name in names:
        # A folder's name may have characters that a pattern would interpret, such as "[1]".
        pattern = escape(str(Path(name).expanduser())).replace(escape(PID), "*")
        found += glob(pattern)
    if not found:
        raise ConfigurationError(f"{', '.join(names)}: no process writes this file now")
    return list(map(Path, sorted(found)))


def processes(files: list[str] | None) -> list[dict[str, Any]]:
    """Return what the files of processes have; one that has just been removed is skipped."""
    from rageval_hooks.errors import ConfigurationError

    found = []
    for path in _paths(files):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            found.append({name: content[name] for name in ("pid", "written_at", "stats")})
        except FileNotFoundError:
            # A process removes its file when it ends.
            continue
        except (ValueError, KeyError, TypeError):
            raise ConfigurationError(f"{path} is not a file of the setting stats_file") from None
    return found


def _screen(processes: list[dict[str, Any]], before: Mapping[int, tuple[float, int]]) -> Group:
    from rich.console import Group

    return Group(*(line for found in processes for line in _of_process(found, before.get(found["pid"]))))


def _of_process(found: dict[str, Any], before: tuple[float, int] | None) -> Iterator[RenderableType]:
    from rich.table import Table
    from rich.text import Text

    from rageval_hooks.score import shown_name

    stats, scores = found["stats"], found["stats"]["scores"]
    heading = f"process {found['pid']}: {stats['turns']} turns"
    # The file may not have been written since the last screen.
    if before is not None and (seconds := found["written_at"] - before[0]) > 0:
        heading += f", {(stats['turns'] - before[1]) / seconds:.1f} per second"
    age = time.time() - found["written_at"]
    if age > _STALE:
        heading += f"; not updated for {age:.0f} s"
    yield Text(heading, style="bold")
    # The local verdict and the judge's, each by itself: a judged turn has both.
    for name in sorted(scores):
        verdicts = Counter(scores[name]["labels"] if name.partition(".")[0] == "verdict" else {})
        if not verdicts:
            continue
        # The most frequent label first, for example "88% good, 9% doubtful, 3% bad, of 1204".
        shares = [f"{count / verdicts.total():.0%} {label}" for label, count in verdicts.most_common()]
        yield Text(f"{name} {', '.join(shares)}, of {verdicts.total()}", style="bold")
        if causes := Counter(scores[name].get("causes", {})):
            yield Text(f"  by cause: {', '.join(f'{count} {cause}' for cause, count in causes.most_common())}")
    yield Text("turns   " + ", ".join(f"{stats[name]} {name.replace('_', ' ')}" for name in _OUTCOMES))
    faults = ", ".join(f"{stats[name]} {name.replace('_', ' ')}" for name in _FAULTS)
    yield Text("faults  " + faults, style="red" if any(stats[name] for name in _FAULTS) else "")
    for name, queue in stats["queues"].items():
        yield Text(f"queue   {name}: {queue['pending']} waiting, {queue['dropped']} dropped")
    for name, counts in {"judge": stats["judge"], "spool": stats.get("spool")}.items():
        if counts:
            yield Text(f"{name:<7} {_numbers(counts)}")
    for name, counts in stats["exporters"].items():
        yield Text(f"export  {name}: {_numbers(counts)}")
    if stats["models"]:
        yield Text("models  " + ", ".join(f"{role} {state}" for role, state in stats["models"].items()))
    if scores:
        table = Table("score", box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for column in ("mean", "last", "count", "fail", "skipped", "failed"):
            table.add_column(column, justify="right")
        for name, score in sorted(scores.items()):
            values = ["-" if score[key] is None else f"{score[key]:.3g}" for key in ("mean", "last")]
            counts = (score["count"], score["labels"].get("fail", 0), score["skipped"], score["failed"])
            # A custom metric may have any name.
            table.add_row(Text(shown_name(name)), *values, *map(str, counts))
        yield table
    yield Text("")


def _numbers(counts: Mapping[str, Any]) -> str:
    """Return the numbers of a mapping that are not 0; texts and nested counts are in the JSON."""
    numbers = [f"{value:.6g} {name}" for name, value in counts.items() if isinstance(value, int | float) and value]
    return ", ".join(numbers) or "nothing yet"
