"""Files that a process writes for itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rageval_hooks.runtime.files import StatsFile, open_private


@pytest.mark.skipif(os.name == "nt", reason="modes of POSIX")
def test_a_file_whose_mode_cannot_be_changed_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's file: it is closed again, and stays as it was."""
    path = tmp_path / "stats.json"
    path.write_text("theirs")
    path.chmod(0o644)
    closed, close = list[int](), os.close

    def refuse(*_: object) -> None:
        raise PermissionError("Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    monkeypatch.setattr(os, "close", lambda file: (closed.append(file), close(file)))
    with pytest.raises(PermissionError):
        open_private(str(path), os.O_WRONLY)

    assert len(closed) == 1


def test_a_second_stop_removes_nothing(tmp_path: Path) -> None:
    """Another process may use the name by then."""
    path = tmp_path / "stats.json"
    stats = StatsFile(str(path), dict, interval=60)
    stats.stop()
    path.write_text("another process")
    stats.stop()

    assert path.read_text() == "another process"


def test_counters_that_are_read_at_the_end_are_not_written(tmp_path: Path) -> None:
    """The file would stay behind."""
    path = tmp_path / "stats.json"
    stats = StatsFile(str(path), lambda: {"turns": stats.stop()}, interval=60)
    stats._write()

    assert list(tmp_path.iterdir()) == []
