"""Plots of scored files."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from rageval_hooks import Score, Skipped
from rageval_hooks.offline.report import Report, build_report
from rageval_hooks.offline.report.plots import draw, panels, to_png, to_svg
from tests.offline.scored import judged, record, write


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
    """The overview, every score, and the variation between repeated answers."""
    names = [panel.title for panel in panels(report)]

    assert names[:4] == ["overview", "groundedness", "cost", "answered"]
    assert "groundedness: variation over repeats" in names
    assert [panel.title for panel in panels(report, "scores")] == names[:4]
    assert "ROUGE-L between repeated answers" in names
    assert all("repeat" in panel.title for panel in panels(report, "consistency"))


def test_the_picture_has_the_numbers(report: Report) -> None:
    """Mean, interval, median and count per file; a yes-or-no score is a share; which way is better."""
    words = texts(to_svg(draw(panels(report), "95% interval", ["one", "two"])))

    assert "mean 0.470" in words
    assert "median 0.470, n = 10" in words
    assert "share 80.0%" in words
    assert "one" in words
    assert "two" in words
    assert "lower is better · USD" in words
    assert "95% interval" in words


def test_a_box_has_its_line_at_the_median(tmp_path: Path) -> None:
    """And its edges at the quartiles, whatever the mean is."""
    records = [record(f"q{k}", scores={"my_score": value}) for k, value in enumerate([1.0, 2.0, 3.0, 4.0, 90.0])]
    report = build_report([write(tmp_path / "a.jsonl", records)])
    [axes] = draw([panel for panel in panels(report) if panel.title == "my_score"]).axes
    boxes = [(box.get_x(), box.get_x() + box.get_width()) for box in axes.patches]

    assert (2.0, 4.0) in boxes
    assert [3.0, 3.0] in [list(line.get_xdata()) for line in axes.lines]


def test_a_yes_or_no_score_is_a_share_and_not_a_box(report: Report) -> None:
    """On an axis from 0% to 100%."""
    [panel] = [panel for panel in panels(report) if panel.title == "answered"]
    assert (panel.kind, panel.low, panel.high) == ("share", 0, 1)


def test_a_score_that_no_metric_defines_is_known_by_its_values(tmp_path: Path) -> None:
    """Zeros and ones are a share; values from 0 to 1 are in the overview; others have an axis of their own."""
    records = [record(f"q{k}", scores={"my_yes": k % 2, "my_share": k / 9, "my_count": k}) for k in range(9)]
    found = {panel.title: panel for panel in panels(build_report([write(tmp_path / "a.jsonl", records)]))}

    assert {name: panel.kind for name, panel in found.items() if name.startswith("my")} == {
        "my_yes": "share",
        "my_share": "box",
        "my_count": "box",
    }
    assert {mark.label for mark in found["overview"].marks} == {"my_yes", "my_share", "answered"}


def test_a_threshold_is_dashed(tmp_path: Path) -> None:
    """The default of the model that made the score, or the bound that the user requires."""
    records = [record(f"q{k}", 1, Score(name="groundedness", value=k / 9, model="lexical")) for k in range(9)]
    report = build_report([write(tmp_path / "a.jsonl", records)])

    assert "dashed: at least 0.5 " in texts(to_svg(draw(panels(report))))
    assert "dashed: at least 0.6" in texts(to_svg(draw(panels(report, bounds={"groundedness": 0.6}))))


def test_an_axis_starts_at_0_and_ends_at_the_bound(tmp_path: Path) -> None:
    """Also where all values lie close together; a score without a bound ends at its largest value."""
    records = [record(f"q{k}", scores={"groundedness": 0.8 + k / 1000, "latency": 3.0 + k}) for k in range(5)]
    found = panels(build_report([write(tmp_path / "a.jsonl", records)]))
    limits = []
    for panel in found:
        if panel.kind == "overview":
            continue
        [axes] = draw([panel]).axes
        low, high = axes.get_xlim()
        limits.append(
            (panel.title, round(low + (high - low) * 0.02 / 1.04, 2), round(high - (high - low) * 0.02 / 1.04, 2))
        )
    assert limits == [("groundedness", 0, 1), ("latency", 0, 7), ("answered", 0, 1)]


def test_a_score_without_values_has_no_plot(tmp_path: Path) -> None:
    records = [record("q1", 1, Skipped(name="hhem", reason="none"), scores={"groundedness": 0.9})]
    names = [panel.title for panel in panels(build_report([write(tmp_path / "a.jsonl", records)]))]

    assert "groundedness" in names
    assert "hhem" not in names


def test_the_rank_plot_has_a_bar_per_rank_and_one_for_misses(tmp_path: Path) -> None:
    """As shares of the turns whose rank is known; files side by side."""
    paths = []
    for name, ranks in (("a", [1, 1, 2, 12]), ("b", [1])):
        records = [record(f"q{k}", target="t", rank=rank) for k, rank in enumerate(ranks)]
        paths.append(write(tmp_path / f"{name}.jsonl", [*records, record("q9", target="t", missed=True)]))
    [panel] = [panel for panel in panels(build_report(paths)) if panel.title == "rank of the target passage"]
    shares = [{mark.label: mark.mean for mark in panel.marks if mark.file == file} for file in (0, 1)]

    assert list(shares[0]) == [*map(str, range(1, 11)), "beyond 10", "missed"]
    assert list(shares[0].values()) == [0.4, 0.2, *[0] * 8, 0.2, 0.2]
    assert {label: share for label, share in shares[1].items() if share} == {"1": 0.5, "missed": 0.5}
    assert "40.0%" in texts(to_svg(draw([panel])))
    assert "1: 40.0%; 1: 50.0%; 2: 20.0%" in panel.description


def test_the_same_numbers_give_the_same_svg(report: Report) -> None:
    """No date and no random ids. The layout may differ in its last digit, which makes no difference."""
    pictures = []
    for nudge in (0.0, 1e-12):
        figure = draw(panels(report))
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for axes in figure.axes:
            left, bottom, width, height = axes.get_position().bounds
            axes.set_position((left + nudge, bottom, width, height))
        pictures.append(to_svg(figure))
    assert pictures[0] == pictures[1]


def test_a_png_is_a_picture(report: Report) -> None:
    """Large enough to read, and not blank."""
    image = pytest.importorskip("PIL.Image")
    import io

    picture = image.open(io.BytesIO(to_png(draw(panels(report)))))

    assert picture.format == "PNG"
    assert picture.width > 1200
    assert len(picture.convert("RGB").getcolors(1 << 24)) > 10


def test_strange_names_are_shown_literally(tmp_path: Path) -> None:
    """No formula, no markup, no warning for a script that the font lacks."""
    name = "$x_1$ <b> 分数 \\frac"
    report = build_report([write(tmp_path / "a$b$c.jsonl", [record(f"q{k}", scores={name: k}) for k in range(3)])])
    figure = draw(panels(report))
    assert name in texts(to_svg(figure))
    assert to_png(figure)


@pytest.mark.parametrize(
    ("values", "expected"),
    # The overview has room for one value; more than one have a panel of their own.
    [([0.5], "0.500"), ([0.5, 0.5, 0.5], "n = 3"), ([0.0, 1e9], "n = 2"), ([-1.0, 1.0], "n = 2")],
)
def test_any_values_can_be_drawn(tmp_path: Path, values: list[float], expected: str) -> None:
    """One value, equal values, values far apart, negative ones."""
    records = [record(f"q{k}", scores={"my_score": value}) for k, value in enumerate(values)]
    shown = panels(build_report([write(tmp_path / "a.jsonl", records)]))
    assert expected in texts(to_svg(draw(shown)))


@pytest.mark.filterwarnings("ignore:Glyph .* missing from")
@pytest.mark.parametrize("files", [1, 3])
def test_labels_neither_collide_nor_are_cut(tmp_path: Path, files: int) -> None:
    """Long names of files and scores wrap; every text lies within the picture."""
    names = ["这是一个很长的文件名比较测试", *(f"baseline-2026-01-01-a-very-long-name-{end}-run" for end in "ab")][
        -files:
    ]
    scores = ("a" * 80, "groundedness", "my_metric_with_a_long_name", *(f"score_{k}" for k in range(2)))
    paths = [
        write(
            tmp_path / f"{name}.jsonl",
            [record(f"q{k}", scores=dict.fromkeys(scores, k / 9) | {"tokens": 1234567.8 * k}) for k in range(9)],
        )
        for name in names
    ]
    shown = panels(build_report(paths))
    figure = draw(shown, "a heading", names)
    canvas = pytest.importorskip("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    canvas.draw()
    # Ticks on the x axis keep their distance by themselves; those beyond its ends are not drawn.
    labels = [*figure.legends[0].get_texts(), figure.legends[0].get_title()]
    for axes in figure.axes:
        titles = [child for child in axes.get_children() if type(child).__name__ == "Text"]
        labels += [*titles, *axes.get_yticklabels()]
    labels = [text for text in labels if text.get_text().strip()]
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in labels]

    assert [one for one in boxes if one.x0 < 0 or one.x1 > figure.bbox.x1 or one.y0 < 0] == []
    assert [(one, other) for k, one in enumerate(boxes) for other in boxes[:k] if _overlap(one, other)] == []
    assert "…" not in "".join(text.get_text() for text in labels)


def _overlap(one: Any, other: Any) -> bool:
    return bool(one.x0 < other.x1 - 1 and other.x0 < one.x1 - 1 and one.y0 < other.y1 - 1 and other.y0 < one.y1 - 1)


def test_verdicts_are_a_stacked_bar(tmp_path: Path) -> None:
    """Their numbers are labels, so that a box of 0, 0.5 and 1 would say little."""
    path = write(tmp_path / "a.jsonl", [judged(f"q{k}", "bad" if k else "good") for k in range(4)])
    found = {panel.title: panel for panel in panels(build_report([path]))}
    [mark] = found["verdict"].marks
    assert (found["verdict"].kind, mark.parts) == ("stack", (("good", 0.25), ("bad", 0.75)))
    words = texts(to_svg(draw([found["verdict"]])))
    assert "1 good (25%), 3 bad (75%)" in words
    assert {"good", "bad"} <= set(words.split(" | "))


def test_a_narrow_part_of_a_bar_has_no_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", [judged(f"q{k}", "bad" if k else "good") for k in range(20)])
    words = texts(to_svg(draw([panel for panel in panels(build_report([path])) if panel.title == "verdict"])))
    assert {"good", "bad"} & set(words.split(" | ")) == {"bad"}
