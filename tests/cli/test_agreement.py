"""``rageval-hooks agreement``: scores next to people's labels."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from rageval_hooks.cli import app
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.agreement import labelled_rows
from rageval_hooks.offline.agreement.statistics import Labelled, difference_interval, kappa, kappa_interval

NAMES = "Berg Meyer Olsen Novak Silva Haas Dubois Rossi Weber Costa".split()


def write_rows(path: Path, label: str = "label", values: tuple[Any, Any] = (1, 0)) -> Path:
    """Write answers about piers; every second one names another designer."""
    rows = [
        {
            "question": f"Who designed pier {number}?",
            "contexts": json.dumps([f"Pier {number} was designed by {NAMES[number % 10]}."]),
            "answer": f"Pier {number} was designed by {NAMES[(number + number % 2 * 3) % 10]}.",
            label: values[number % 2],
        }
        for number in range(20)
    ]
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return path


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["agreement", *map(str, arguments), "--resamples", "100"])


@pytest.mark.parametrize(("label", "values"), [("label", (1, 0)), ("ok", ("yes", "no")), ("label", ("pass", "fail"))])
def test_scores_are_computed_and_compared_with_labels(tmp_path: Path, label: str, values: tuple[Any, Any]) -> None:
    """A wrong name lowers faithfulness, so that it sorts these answers without an error."""
    file = write_rows(tmp_path / "rows.csv", label, values)

    result = run(file, "--label", label, "--models", "lexical", "--format", "json")

    assert result.exit_code == 0, result.output
    found = {item["score"]: item for item in json.loads(result.stdout)}
    best = found["faithfulness"]
    assert (best["auroc"], best["rows"], best["left_out"], best["fitted"]) == (1.0, 20, 0, False)
    assert best["in_words"] == "sorts answers nearly as people do"
    assert best["kappa_low"] <= best["kappa"] <= best["kappa_high"]
    assert found["unsupported_facts"]["kappa"] == 1.0
    assert found["unsupported_facts"]["calibration_error"] is None
    assert not {"latency", "tokens", "cost"} & set(found)


def test_scores_of_the_file_are_used(tmp_path: Path) -> None:
    """A scored file is measured as it is: nothing is computed again."""
    file, scored = write_rows(tmp_path / "rows.csv"), tmp_path / "scored.jsonl"
    options = ["--models", "lexical", "--metrics", "groundedness", "--threshold", "groundedness=0.9"]
    CliRunner().invoke(app, ["score", str(file), "-o", str(scored), *options])

    result = run(scored)

    assert result.exit_code == 0, result.output
    assert "groundedness (lexical): sorts answers nearly as people do" in result.stdout
    assert "faithfulness" not in result.stdout
    assert "Cohen's kappa 1.00" in result.stdout


def test_rows_without_a_label_are_named(tmp_path: Path) -> None:
    """An unlabelled file is an error that says what is missing; all labels alike are one, too."""
    with pytest.raises(ConfigurationError, match=r"no row of .* has a label in the column 'verdict'"):
        labelled_rows(write_rows(tmp_path / "rows.csv"), "verdict", None)
    with pytest.raises(ConfigurationError, match=r"all 20 labels in .* are the same"):
        labelled_rows(write_rows(tmp_path / "alike.csv", values=(1, 1)), "label", None)


def test_kappa_by_hand() -> None:
    """Three of four agree; by chance two would: (.75 - .5) / (1 - .5)."""
    data = Labelled.of([(1, 1, "a"), (1, 0, "b"), (0, 0, "c"), (1, 1, "d")])
    passed = data.values > 0.5

    assert kappa(passed, data.labels) == pytest.approx((0.75 - 0.5) / 0.5)
    low, high = kappa_interval(passed, data.labels, data.groups, 0, 200)
    assert low <= 0.5 <= high <= 1


def test_a_difference_is_measured_on_the_same_samples() -> None:
    """Two scores that sort alike differ by nothing, in every sample."""
    rows = [(number / 10, number % 2, str(number)) for number in range(10)]
    one = Labelled.of(rows)
    other = Labelled.of([(value * 2, label, group) for value, label, group in rows])

    assert difference_interval(one, other, 0, 100) == (0.0, 0.0, 0.0)
