"""What long commands of a terminal show while they run."""

from __future__ import annotations

import io
import re

import pytest

from rageval_hooks.offline.running import progress_bar


class Terminal(io.StringIO):
    """A standard error that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_a_bar_counts_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """From none to all."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    with progress_bar("scoring", 40) as advance:
        advance(15)
        advance(25)

    assert "scoring" in terminal.getvalue()
    assert re.findall(r"(\d+)/40", terminal.getvalue())[-1] == "40"


def test_there_is_no_bar_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """In the log of a CI job it would be thousands of lines."""
    with progress_bar("scoring", 40) as advance:
        advance(40)

    assert capsys.readouterr().err == ""
