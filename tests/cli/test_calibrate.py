"""``rageval-hooks calibrate``: limits of the verdict from a team's own labels."""

from __future__ import annotations

import json
import random
import tomllib
from pathlib import Path
from typing import Any

import pytest

import rageval_hooks
from rageval_hooks import ConfigurationError, UnknownNameError
from rageval_hooks.offline.records import read_records
from tests import tiny_models
from tests.command import invoke

WORDS = "canal lock keeper winter water bridge barge stone gate level repair crew village harvest market".split()


def write(path: Path, rows: int, *, share: float, seed: int = 0) -> Path:
    """Write answers of one sentence, of which a share of the words is in the passage.

    People call an answer bad if fewer than a share of its words is there: their limit may be another one than ours.
    """
    chosen = random.Random(seed)
    with path.open("w") as file:
        for number in range(rows):
            kept = chosen.random()
            words = [chosen.choice(WORDS) for _ in range(12)]
            answer = [word if chosen.random() < kept else f"{word}{chosen.choice('xyz')}ung" for word in words]
            found = sum(word in words for word in answer) / len(answer)
            row = {
                "question": f"What happened in year {number}?",
                "answer": f"The {' '.join(answer)} was there.",
                "contexts": [f"The {' '.join(words)} was there."],
                "label": int(found >= share),
                "group": str(number),
            }
            file.write(json.dumps(row) + "\n")
    return path


def calibrate(rows: Path, output: Path, **options: Any) -> str:
    return str(invoke("calibrate", rows, models="lexical", output=output, resamples=200, **options).stdout)


def bad(rows: Path, folder: Path, name: str, *thresholds: str) -> int:
    """Score rows, and return how many are bad."""
    output = folder / name
    invoke("score", rows, models="lexical", metrics="verdict", output=output, threshold=thresholds)
    return sum(result.label == "bad" for record in read_records(output) for result in record.results)


def test_a_team_that_is_stricter(tmp_path: Path) -> None:
    """The fit is better on held-out answers, and the file works in code, in a variable and in a command."""
    rows, limits = write(tmp_path / "rows.jsonl", 200, share=0.85), tmp_path / "thresholds.toml"
    with rows.open("a") as file:
        file.write(json.dumps({"question": "Who?", "answer": "Ann.", "contexts": [], "label": 1, "group": "x"}))
    said = calibrate(rows, limits)
    found = tomllib.loads(limits.read_text())["verdict"]

    assert "the fit is better" in said.splitlines()[-1]
    assert "difference of kappa: +" in said
    assert "held out in 5 folds" in said
    assert limits.read_text().startswith("# 200 labelled answers, 1 without a verdict are left out")
    assert found["one"]["bad"] > 0.31
    assert found["one"]["bad"] <= found["one"]["doubtful"]
    assert bad(rows, tmp_path, "after.jsonl", str(limits)) > bad(rows, tmp_path, "before.jsonl")


def test_the_shipped_limits_stay_if_the_labels_say_nothing(tmp_path: Path) -> None:
    """Labels by chance fit some limits a little better. The file then has none, and can be used all the same."""
    rows, limits = write(tmp_path / "rows.jsonl", 120, share=0.5), tmp_path / "thresholds.toml"
    chosen, lines = random.Random(3), [json.loads(line) for line in rows.read_text().splitlines()]
    rows.write_text("\n".join(json.dumps({**line, "label": chosen.randint(0, 1)}) for line in lines))
    said = calibrate(rows, limits)

    assert "the shipped limits stay" in said
    assert tomllib.loads(limits.read_text()) == {}
    rageval_hooks.instrument(exporters=[], models="lexical", thresholds=str(limits)).shutdown()


def test_limits_change_the_verdict(tmp_path: Path) -> None:
    """The same answer with other limits; a score of the verdict says which."""
    row = {
        "query": "When?",
        "passages": ["The pier was opened in 2019."],
        "response": "The pier was shut.",
    }
    path = tmp_path / "thresholds.toml"
    path.write_text("groundedness = 0.9\n[verdict]\none = {bad = 0.99, doubtful = 1.0}\n")

    def verdict(thresholds: Any) -> Any:
        metrics = ["verdict", "groundedness"]
        return rageval_hooks.evaluate(row, metrics=metrics, models="lexical", thresholds=thresholds).score("verdict")

    shipped, file, named = verdict(None), verdict(str(path)), verdict({"verdict.one.bad": 0, "verdict.one.doubtful": 0})
    assert shipped.label != file.label == "bad"
    assert named.label in ("good", "doubtful")
    assert (shipped.metadata, file.metadata) == ({}, {"limits": {"verdict.one.bad": 0.99, "verdict.one.doubtful": 1.0}})


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[verdict]\nseveral = {bat = 0.5}", UnknownNameError, "unknown score in thresholds 'verdict.several.bat'"),
        (
            "verdict.answers = 1.5",
            ConfigurationError,
            "the limit verdict.answers is 1.5, but limits lie between",
        ),
        ("verdict.one.bad = 0.5", ConfigurationError, r"verdict.one.bad is 0.5, above verdict.one.doubtful"),
        ("verdict.one.bad = 'low'", ConfigurationError, r"verdict.one.bad.*should be a valid number"),
        ("verdict.one.bad == 1", ConfigurationError, "is not valid TOML"),
        (None, ConfigurationError, "cannot be read: No such file"),
    ],
)
def test_a_wrong_file_is_an_error_at_once(
    text: str | None, error: type[Exception], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "thresholds.toml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(error, match=message):
        rageval_hooks.instrument(exporters=[], metrics=["verdict"], models="lexical", thresholds=str(path))


def test_what_cannot_be_calibrated(tmp_path: Path) -> None:
    """Too few labels, and outputs that would not be read or exist already."""
    rows = write(tmp_path / "rows.jsonl", 30, share=0.5)
    with pytest.raises(ConfigurationError, match="calibration needs 20 good and 20 bad answers"):
        calibrate(rows, tmp_path / "a.toml")
    with pytest.raises(ConfigurationError, match=r"should end in \.toml"):
        calibrate(rows, tmp_path / "a.json")
    with pytest.raises(ConfigurationError, match="held-out figures need answers about 5 documents; there are 2"):
        calibrate(write(tmp_path / "rows.jsonl", 90, share=0.6), tmp_path / "a.toml", group="label")
    (tmp_path / "b.toml").touch()
    with pytest.raises(ConfigurationError, match="exists already"):
        calibrate(rows, tmp_path / "b.toml")


def test_a_grounding_model_has_no_limits(tmp_path: Path) -> None:
    """The error says what to do instead."""
    model = tiny_models.add_graph(tiny_models.build_grounding(tmp_path / "m", "BertForTokenClassification"), "tokens")
    rows = write(tmp_path / "rows.jsonl", 2, share=0.5)
    first, second = map(json.loads, rows.read_text().splitlines())
    rows.write_text(json.dumps({**first, "label": 0}) + "\n" + json.dumps({**second, "label": 1}))
    models = json.dumps({"embedder": "lexical", "grounding": str(model)})
    with pytest.raises(ConfigurationError, match=r"there is no limit to fit. `rageval-hooks agreement` says.*minilm"):
        invoke("calibrate", rows, models=models, output=tmp_path / "a.toml")
