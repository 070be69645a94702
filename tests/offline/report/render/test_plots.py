"""Plots of scored files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rageval_hooks.offline.report.render.plots import draw, panels, to_png, to_svg
from rageval_hooks.offline.report import Report, build_report
from tests.offline.scored import record, write


@pytest.fixture
def report(tmp_path: Path) -> Report:
    """Two files, the second with repeats."""
    paths = []
    for name, runs in (("one", 1), ("two", 2)):
        records = [
            record(
                f"q{k}", run, scores={"groundedness": k / 10 + run / 50, "cost": 0.01 * k, "no_answer": float(k > 1)}
            )
            for k in range(10)
            for run in range(1, runs + 1)
        ]
        paths.append(write(tmp_path / f"{name}.jsonl", records))
    return build_report(paths)


def texts(svg: str) -> str:
    return " | ".join(
        "".join(node.itertext()) for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")
    )


def test_what_is_plotted(report: Report) -> None:
    """Every score, the questions answered, and the variation between repeated answers."""
    names = [panel.title for panel in panels(report)]

    assert names[:3] == ["groundedness", "cost", "questions answered"]
    assert "groundedness: variation over repeats" in names
    assert [panel.title for panel in panels(report, "scores")] == names[:3]
    assert "ROUGE-L between repeated answers" in names
    assert all("repeat" in panel.title for panel in panels(report, "consistency"))


def test_the_picture_says_its_numbers(report: Report) -> None:
    """Mean, interval, median and count per file; which way is better; the words are words."""
    shown = texts(to_svg(draw(panels(report), 0.95)))

    assert "mean 0.470" in shown
    assert "median 0.470, n = 10" in shown
    assert "mean 0.800" in shown
    assert "one" in shown
    assert "two" in shown
    assert "← lower is better" in shown
    assert "cost (USD)" in shown
    assert "95% interval" in shown


def test_the_same_numbers_give_the_same_svg(report: Report) -> None:
    """In another process, too: no date, no random ids."""
    code = (
        "import sys; from rageval_hooks.offline.report import Report;"
        "from rageval_hooks.offline.report.render.plots import *;"
        "r = Report.model_validate_json(sys.stdin.read()); sys.stdout.write(to_svg(draw(panels(r), 0.95)))"
    )
    other = subprocess.run(
        [sys.executable, "-c", code],
        input=report.model_dump_json(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert other.stdout == to_svg(draw(panels(report), 0.95))


def test_a_png_is_a_picture(report: Report) -> None:
    """Large enough to read, and not blank."""
    image = pytest.importorskip("PIL.Image")
    import io

    picture = image.open(io.BytesIO(to_png(draw(panels(report), 0.95))))

    assert picture.format == "PNG"
    assert picture.width > 1200
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 10


def test_strange_names_are_shown_as_they_are(tmp_path: Path) -> None:
    """No formula, no markup, no warning for a script that the font lacks."""
    name = "$x_1$ <b> 分数 \\frac"
    report = build_report([write(tmp_path / "a$b$c.jsonl", [record(f"q{k}", scores={name: k}) for k in range(3)])])
    svg = to_svg(draw(panels(report), 0.95))
    assert name in texts(svg)
    assert to_png(draw(panels(report), 0.95))


@pytest.mark.parametrize("values", [[0.5], [0.5, 0.5, 0.5], [0.0, 1e9], [-1.0, 1.0]])
def test_any_values_can_be_drawn(tmp_path: Path, values: list[float]) -> None:
    """One alone, all the same, far apart, negative."""
    records = [record(f"q{k}", scores={"my_score": value}) for k, value in enumerate(values)]
    shown = panels(build_report([write(tmp_path / "a.jsonl", records)]))
    assert f"n = {len(values)}" in texts(to_svg(draw(shown, 0.95)))


@pytest.mark.filterwarnings("ignore:Glyph .* missing from")
def test_texts_do_not_overlap(tmp_path: Path) -> None:
    """Wide names, long titles and large numbers: each panel has the room that it needs, and an axis of its own."""
    names = ["这是一个很长的文件名比较测试", *(f"baseline-2026-01-01-a-very-long-name-{end}" for end in "ab")]
    scores = ("a" * 80, "名前のスコア" * 9, "groundedness", "W" * 60, "tokens")
    report = build_report(
        [
            write(
                tmp_path / f"{name}.jsonl",
                [record(f"q{k}", scores=dict.fromkeys(scores, 1234567.891 * k + 1)) for k in range(9)],
            )
            for name in names
        ]
    )
    figure = draw(panels(report), 0.95)
    canvas = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    canvas.draw()
    boxes = [
        text.get_window_extent(canvas.get_renderer())
        for axes in figure.axes
        for text in (*axes.texts, axes.title, axes._left_title, *axes.get_yticklabels())  # type: ignore[attr-defined]
        if text.get_text()
    ]

    assert len(boxes) == 5 * (3 + 1 + 3)
    assert [one for one in boxes if one.x0 < 0 or one.x1 > figure.bbox.x1] == []
    assert [(one, other) for k, one in enumerate(boxes) for other in boxes[:k] if _overlap(one, other)] == []
    assert all(axes.get_position().width > 0.15 for axes in figure.axes)
    assert "mean 4.94M" in texts(to_svg(draw(panels(report), 0.95)))


def _overlap(one: Any, other: Any) -> bool:
    return bool(one.x0 < other.x1 and other.x0 < one.x1 and one.y0 < other.y1 and other.y0 < one.y1)
