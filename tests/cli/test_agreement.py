"""``rageval-hooks agreement``: scores next to people's labels."""

from __future__ import annotations

import csv
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from rageval_hooks.cli import app
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.agreement import (
    Labelled,
    alpha,
    auroc,
    calibration_error,
    interval,
    kappa,
    labelled_rows,
    labels_needed,
    strength,
)
from tests.command import invoke
from tests.offline.scored import record, write

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


def test_a_judge_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the environment is an application's. Its scores are those of a scored file, as the message says."""
    file = write_rows(tmp_path / "rows.csv")
    for judge in (None, "openai:m"):
        if judge:
            monkeypatch.setenv("RAGEVAL_JUDGE", judge)
        wrong = run(file, "--metrics", "unsupported_facts,trace")
        assert str(wrong.exception).startswith("trace: a judge is needed; score the file with `rageval-hooks score`")
        assert run(file, "--metrics", "unsupported_facts", "--models", "lexical").exit_code == 0


def test_scores_of_the_file_are_used(tmp_path: Path) -> None:
    """A scored file is measured as it is: nothing is computed again."""
    file, scored = write_rows(tmp_path / "rows.csv"), tmp_path / "scored.jsonl"
    options = ["--models", "lexical", "--metrics", "groundedness", "--threshold", "groundedness=0.9"]
    CliRunner().invoke(app, ["score", str(file), "-o", str(scored), *options])

    result = run(scored)

    assert result.exit_code == 0, result.output
    assert "groundedness (lexical): sorts answers nearly as people do" in result.stdout
    again = json.loads(run(scored, "--metrics", "groundedness", "--format", "json").stdout)
    assert [item["score"] for item in again] == ["groundedness"]
    assert "faithfulness" not in result.stdout
    assert "Cohen's kappa 1.00" in result.stdout
    assert "as an alarm: precision of fail 1.00, recall 1.00, F1 1.00" in result.stdout


def test_a_threshold_is_read_from_the_labels_or_fitted(tmp_path: Path) -> None:
    """The least value that passes; without labels the best one on these rows, which the text says."""
    for labels, threshold, fitted in ((True, 0.6, False), (False, 0.55, True)):
        rows = []
        for k in range(20):
            value = 0.6 + k / 100 if k % 2 else 0.5 - k / 100
            score = {"status": "scored", "name": "mine", "value": value, "low": 0, "high": 1}
            if labels:
                score["label"] = "pass" if k % 2 else "fail"
            turn = {"query": "Who?", "response": f"Berg {k}.", "metadata": {"label": k % 2}}
            rows.append({"id": f"q{k}", "turn": turn, "results": [score]})
        file = tmp_path / "scored.jsonl"
        file.write_text("\n".join(map(json.dumps, rows)))
        [found] = json.loads(run(file, "--format", "json").stdout)

        assert (found["threshold"], found["fitted"]) == (pytest.approx(threshold, abs=0.06), fitted)
        assert (found["auroc"], found["balanced_accuracy"], found["rows"]) == (1.0, 1.0, 20)
        assert ("fitted to these rows" in run(file).stdout) == fitted


def test_calibration_by_hand() -> None:
    """In two bins: .2 where a quarter is good, .8 where three quarters are: off by .05 in both."""
    rows = [(0.2, int(k == 0), "a") for k in range(4)] + [(0.8, int(k > 0), "b") for k in range(4)]
    assert calibration_error(Labelled.of(rows)) == pytest.approx(0.05)


def test_rows_about_one_passage_are_one_group(tmp_path: Path) -> None:
    """Intervals draw whole documents: a column names them, else their first passage."""
    file = write_rows(tmp_path / "rows.csv")
    rows, _ = labelled_rows(file, "label", None)
    assert [row.group for row in rows[:2]] == ["Pier 0 was designed by Berg.", "Pier 1 was designed by Meyer."]
    named, _ = labelled_rows(file, "label", "label")
    assert {row.group for row in named} == {"0", "1"}

    file.write_text("question,answer,document,label\nWho?,Berg,a.md,1\nWhen?,2019,b.md,0\n")
    for group in (None, "document"):
        assert [row.group for row in labelled_rows(file, "label", group)[0]] == ["a.md", "b.md"]


def test_the_alarm_is_measured(tmp_path: Path) -> None:
    """Two of three answers that fail are bad, and two of four bad answers fail. A score may never fail."""
    rows = [
        {"id": f"q{k}", "query": "Who?", "response": "Berg.", "label": int(k >= 4), "groundedness": value, "mrr": 1}
        for k, value in enumerate((0.1, 0.2, 0.9, 0.9, 0.3, 0.9, 0.9, 0.9, 0.9, 0.9))
    ]
    scores = [
        {
            "id": row["id"],
            "turn": {"query": row["query"], "response": row["response"], "metadata": {"label": row["label"]}},
            "results": [
                {
                    "status": "scored",
                    "name": name,
                    "value": row[name],
                    "label": "pass" if row[name] > 0.5 else "fail",  # type: ignore[operator]
                }
                for name in ("groundedness", "mrr")
            ],
        }
        for row in rows
    ]
    file = tmp_path / "scored.jsonl"
    file.write_text("\n".join(map(json.dumps, scores)))
    found = {item["score"]: item for item in json.loads(run(file, "--format", "json").stdout)}

    alarm = [found["groundedness"][f"fail_{name}"] for name in ("precision", "recall", "f1")]
    assert alarm == pytest.approx([2 / 3, 1 / 2, 4 / 7])
    assert (found["mrr"]["fail_precision"], found["mrr"]["fail_f1"]) == (None, 0)
    assert "as an alarm: precision of fail unknown, no row fails, recall 0.00, F1 0.00" in run(file).stdout
    assert "as an alarm: precision of fail 0.67, recall 0.50, F1 0.57" in run(file).stdout


def test_the_verdict_is_measured_as_an_alarm(tmp_path: Path) -> None:
    """The verdict comes first, whatever its AUROC. Only `bad` counts as an alarm; declined answers are left out."""
    verdicts = ["bad", "bad", "good", "doubtful", "bad", "good", "good", "doubtful", "good", "declined"]
    values = {"good": 1.0, "doubtful": 0.5, "bad": 0.0}
    lines = []
    for k, verdict in enumerate(verdicts):
        results: list[dict[str, Any]] = [{"status": "scored", "name": "mrr", "value": float(k >= 4)}]
        if verdict in values:
            results.append({"status": "scored", "name": "verdict", "value": values[verdict], "label": verdict})
        else:
            results.append({"status": "skipped", "name": "verdict", "reason": "the response declines"})
        turn = {"query": "Who?", "response": f"Berg {k}.", "metadata": {"label": int(k >= 4)}}
        lines.append(json.dumps({"id": f"q{k}", "turn": turn, "results": results}))
    file = tmp_path / "scored.jsonl"
    file.write_text("\n".join(lines))
    found = json.loads(run(file, "--format", "json").stdout)[0]

    assert (found["score"], found["rows"], found["left_out"]) == ("verdict", 9, 1)
    alarm = [found[f"fail_{name}"] for name in ("precision", "recall", "f1")]
    assert alarm == pytest.approx([2 / 3, 2 / 4, 4 / 7])
    assert "as an alarm: precision of bad 0.67, recall 0.50, F1 0.57" in run(file).stdout


def verdicts_with_people(path: Path, people: list[dict[str, str]]) -> Path:
    """Write answers that the local verdict calls bad every second time, and the judge every fourth time."""
    lines = []
    for k, said in enumerate(people):
        local, judged = k % 2, k % 4
        results: list[dict[str, Any]] = [
            {"status": "scored", "name": "verdict", "value": min(value, 1), "label": label, "metric": metric}
            for value, metric in ((local, "verdict"), (judged, "trace"))
            for label in [("good" if value else "bad")]
        ]
        results += [
            {"status": "scored", "name": "feedback", "value": float(label == "up"), "label": label,
             "annotator": "HUMAN", "metadata": {"annotated_by": who}}
            for who, label in said.items()
        ]  # fmt: skip
        lines.append(json.dumps({"id": f"q{k}", "turn": {"query": "Who?", "response": f"B {k}."}, "results": results}))
    path.write_text("\n".join(lines))
    return path


def test_several_people_and_two_verdicts(tmp_path: Path) -> None:
    """The local verdict and the judge's are measured, next to what several people say with ``feedback()``."""
    people = [{"ada": "up" if k % 2 else "down", "bob": "up" if k % 4 else "down", "eve": "up"} for k in range(40)]
    people[1] = {"ada": "up", "bob": "down"}
    people[2] = {"ada": "down"}
    file = verdicts_with_people(tmp_path / "scored.jsonl", people)
    result = run(file, "--format", "json")
    found = {item["score"]: item for item in json.loads(result.stdout)}

    assert result.stderr == "rageval-hooks: line 2: label has labels of people who disagree evenly\n"
    assert list(found) == ["verdict.trace", "verdict"]
    judged, local = found["verdict.trace"], found["verdict"]
    assert (judged["rows"], local["rows"]) == (39, 39)
    assert judged["fail_recall"] == pytest.approx(10 / 11)
    assert judged["kappa"] > local["kappa"]
    assert judged["alpha_low"] <= judged["alpha"] <= judged["alpha_high"]
    assert judged["alpha"] > judged["people_alpha"] > 0
    text = run(file).stdout
    assert f"Krippendorff's alpha with people {judged['alpha']:.2f}" in text
    assert f"of people among themselves {judged['people_alpha']:.2f}" in text


def test_labels_of_one_person_have_no_alpha(tmp_path: Path) -> None:
    """It is about several; ``--label`` names an annotation."""
    people = [{"ada": "up" if k % 2 else "down"} for k in range(20)]
    result = run(verdicts_with_people(tmp_path / "scored.jsonl", people), "--label", "feedback", "--format", "json")

    assert {item["alpha"] for item in json.loads(result.stdout)} == {None}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.0] * 500 + [1.0] * 500, 0),  # the score knows each answer
        ([0.0, 1.0] * 500, 1068),  # it knows nothing: 1.96² · .25 / .03²
        ([0.5] * 1000, 1068),
    ],
)
def test_how_many_labels_are_needed(values: list[float], expected: int) -> None:
    """For the share of bad answers within 3 points: the less, the better the score sorts."""
    labels = np.array([False] * 500 + [True] * 500)

    assert labels_needed(labels, np.array(values), 0.95) == expected
    assert labels_needed(labels, np.zeros(1000), 0.95) == 1068


def test_rows_without_a_label_are_named(tmp_path: Path) -> None:
    """The first three. An unlabelled file is an error, and so is one whose labels are all alike."""
    file = write_rows(tmp_path / "some.csv")
    with open(file, "a", encoding="utf-8") as more:
        more.write("Who?,[],Berg.,maybe\r\n" + "Who?,[],Berg.,\r\n" * 4)
    result = run(file, "--models", "lexical", "--metrics", "unsupported_facts", "--format", "json")
    assert json.loads(result.stdout)[0]["rows"] == 20
    assert result.stderr.splitlines() == [
        "rageval-hooks: line 22: label has the label 'maybe', not 1 or 0",
        "rageval-hooks: line 23: label has no label",
        "rageval-hooks: line 24: label has no label",
        "rageval-hooks: and 2 more rows cannot be used",
    ]
    with pytest.raises(ConfigurationError, match=r"no row of .* has a label in the column 'verdict'"):
        labelled_rows(write_rows(tmp_path / "rows.csv"), "verdict", None)
    with pytest.raises(ConfigurationError, match=r"all 20 labels in .* are the same"):
        labelled_rows(write_rows(tmp_path / "alike.csv", values=(1, 1)), "label", None)


def test_rows_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "some.csv")
    with open(file, "a", encoding="utf-8") as more:
        more.write("Who?,[],Berg.,1,more\r\n")
    result = run(file, "--models", "lexical", "--metrics", "unsupported_facts")
    assert result.stderr.startswith("rageval-hooks: line 22: ")
    assert len(result.stderr.splitlines()) == 1


def test_no_score_of_both_good_and_bad_rows(tmp_path: Path) -> None:
    """Their scores say nothing about the difference."""
    labels = [(0, {}), (1, {"mine": 1.0}), (1, {"mine": 0.5})]
    rows = [record(f"q{n}", scores=scores, metadata={"label": label}) for n, (label, scores) in enumerate(labels)]
    with pytest.raises(ConfigurationError, match=r"no score has values for both good and bad rows of .*a\.jsonl"):
        invoke("agreement", write(tmp_path / "a.jsonl", rows))


def test_what_the_area_under_the_curve_means() -> None:
    """The interval decides: below one half, in it, above it."""
    assert strength(0.2, 0.1, 0.4) == "sorts answers the wrong way round"
    assert strength(0.6, 0.4, 0.8) == "not distinguishable from chance"
    assert strength(0.99, 0.98, 1.0) == "sorts answers nearly as people do"


def test_kappa_by_hand() -> None:
    """Three of four agree; by chance two would: (.75 - .5) / (1 - .5)."""
    data = Labelled.of([(1, 1, "a"), (1, 0, "b"), (0, 0, "c"), (1, 1, "d")])

    assert kappa(data, 1) == pytest.approx((0.75 - 0.5) / 0.5)
    low, high = interval(partial(kappa, threshold=1), data, 0, 200)
    assert low <= 0.5 <= high <= 1


def test_the_interval_is_as_wide_as_theory_says() -> None:
    """Of a score that knows nothing: the standard error of the Mann-Whitney statistic."""
    random = np.random.default_rng(3)
    data = Labelled.of([(value, k % 2, str(k)) for k, value in enumerate(random.random(400))])
    low, high = interval(auroc, data, 0, 1000)
    error = math.sqrt((200 + 200 + 1) / (12 * 200 * 200))
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.15)


def test_a_map_file_that_is_not_there_is_written(tmp_path: Path) -> None:
    """With the columns that were found; the next command reads it."""
    file, columns = write_rows(tmp_path / "rows.csv"), tmp_path / "map.json"
    first = run(file, "--map-file", columns)

    assert json.loads(columns.read_text())["response"] == "answer"
    assert run(file, "--map-file", columns).stdout == first.stdout


def test_labels_of_one_kind_measure_nothing(tmp_path: Path) -> None:
    """Several people who agree about everything: neither alpha nor its interval is a number."""
    data = Labelled.of([(0.1 * k, 1, str(k)) for k in range(5)])

    assert math.isnan(alpha(data))
    assert all(map(math.isnan, interval(alpha, data, 0, 10)))
