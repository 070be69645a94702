"""Finished outputs: protected from being overwritten, and reused where they can be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.jobs.journal import FORMAT, file_hash, journal_path, work_in
from rageval_hooks.runtime.narrowing import mapping_or_empty

__all__ = ["EarlierResult", "done_path", "earlier_result", "mark_finished"]


@dataclass(frozen=True)
class EarlierResult:
    """The outputs of an earlier run of the same command.

    Attributes:
        work: what decided on its results.
        changed: names of those parts of the work that are different now.
    """

    work: Mapping[str, Any]
    changed: tuple[str, ...]


def done_path(output: Path) -> Path:
    """Return the file that says how a finished output was made."""
    return output.with_name(f"{output.name}.done.jsonl")


def mark_finished(outputs: Sequence[Path], work: Mapping[str, Any], *, journal: Path | None = None) -> None:
    """Note how finished outputs were made, next to the first of them.

    Args:
        outputs: the files, which are written.
        work: what decides on the results.
        journal: a journal to keep, so that a larger run reuses its results; by default only the work is noted.
    """
    done = done_path(outputs[0])
    # A changed output is recognized by its hash, so that corrections by hand are not overwritten.
    digests = {output.name: file_hash(output) for output in outputs}
    line = json.dumps({"finished": digests}).encode() + b"\n"
    # `generate` keeps its journal: a larger test set reuses the answers. `score` reuses the output itself.
    if journal is None:
        header = json.dumps({"rageval_journal": FORMAT, "work": json.loads(json.dumps(work))}).encode() + b"\n"
        done.write_bytes(header + line)
        return
    with open(journal, "ab") as file:
        file.write(line)
    journal.replace(done)


def earlier_result(outputs: Sequence[Path], work: Mapping[str, Any]) -> EarlierResult | None:
    """Return what an earlier run left in the outputs; None if it is free to write them.

    They are free if none of them exists, or if an interrupted run is to be resumed.

    Args:
        outputs: what is to be written.
        work: what decides on the results now.

    Raises:
        ConfigurationError: an output exists, but another command wrote it, or it was changed since.
    """
    # An interrupted run leaves a journal, and is resumed with whatever outputs exist.
    existing = [output for output in outputs if output.exists()]
    if not existing or journal_path(outputs[0]).exists():
        return None
    header, digests = _read(done_path(outputs[0]))
    before = work_in(header)
    is_same_command = before.get("command") == work.get("command")
    for output in existing:
        if output.name not in digests or not is_same_command:
            raise _in_the_way(output, "it exists already, and this command did not write it")
        # The user may have added labels by hand.
        if file_hash(output) != digests[output.name]:
            raise _in_the_way(output, "it was changed after it was written")
    # JSON turns tuples into lists. Only what went through JSON can be compared with what was read.
    now = json.loads(json.dumps(work))
    changed = [name for name in now if before.get(name) != now[name]]
    return EarlierResult(before, tuple(changed))


def _in_the_way(output: Path, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"{output} would be overwritten: {why}. Name another output, or give --restart to replace it"
    )


def _read(path: Path) -> tuple[bytes, Mapping[str, str]]:
    """Return the first line of a file, and what its last line says about outputs."""
    try:
        lines = path.read_bytes().splitlines()
        finished = json.loads(lines[-1])["finished"]
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return b"", {}
    return lines[0], mapping_or_empty(finished)
