"""Tables in terminals of several widths, in files and in Markdown."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from rageval_hooks.offline.report import Report, build_report
from rageval_hooks.offline.report.tables import print_tables, to_markdown, to_plain_text
from tests.offline.scored import record, write

QUESTION = " ".join(f"word{number}" for number in range(30))
"""229 characters."""


def report_with(path: Path, question: str) -> Report:
    files = []
    for name, value in (("before", 0.9), ("after", 0.2)):
        records = [record(f"q{number}", query=question, scores={"groundedness": value}) for number in range(3)]
        files.append(write(path / f"{name}.jsonl", records))
    return build_report(files)


def printed(report: Report, width: int) -> str:
    console = Console(file=io.StringIO(), width=width, no_color=True)
    print_tables(report, console)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_cells_wrap_in_a_terminal(tmp_path: Path) -> None:
    """So that no line is longer than the terminal, and a text of 120 characters is whole."""
    text = printed(report_with(tmp_path, f"{QUESTION[:110]} the end"), 100)

    assert text.count("end") == 3 + 3 + 3  # the worst turns of both files, and the turns that changed most
    assert max(map(len, text.splitlines())) <= 100


@pytest.mark.parametrize(("width", "lines"), [(200, 3), (120, 5), (80, 8)])
def test_long_texts_take_few_lines(tmp_path: Path, width: int, lines: int) -> None:
    """A row of a long answer does not push the others off the screen; what is cut ends with an ellipsis."""
    text = printed(report_with(tmp_path, QUESTION * 20), width)

    table = text.split("before: worst turns")[1].split("\n\n")[0].splitlines()[2:]
    assert len(table) <= 3 * lines
    assert sum("…" in line for line in table) == 3
    assert max(map(len, text.splitlines())) <= width


def test_a_line_of_a_file_stays_short(tmp_path: Path) -> None:
    """No line of a file wraps, so that a text has 120 characters there."""
    report = report_with(tmp_path, QUESTION)

    for text in (to_plain_text(report), to_markdown(report)):
        assert f"{QUESTION[:119]}…" in text
        assert "word29" not in text


def test_a_name_of_wide_characters_is_not_broken(tmp_path: Path) -> None:
    """Each takes two columns of the terminal."""
    name = "回答忠实度和完整性"
    scores = {name: 0.5, "groundedness": 0.9}
    file = write(tmp_path / "a.jsonl", [record(f"q{number}", query=QUESTION, scores=scores) for number in range(3)])

    assert f"{name} " in printed(build_report([file]), 60)
