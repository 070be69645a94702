"""``benchmarks/validity.py``: its statistics by hand, and the whole program on a small set."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.offline import agreement

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"


@pytest.fixture(scope="module")
def programs() -> Iterator[None]:
    """Make the modules of the folder importable."""
    sys.path.insert(0, str(BENCHMARKS))
    yield
    sys.path.remove(str(BENCHMARKS))


def labelled(*rows: tuple[float, int] | tuple[float, int, str]) -> agreement.Labelled:
    return agreement.Labelled.of([(*row, str(index))[:3] for index, row in enumerate(rows)])


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(0.9, 1), (0.1, 0)], 1.0),
        ([(0.1, 1), (0.9, 0)], 0.0),
        ([(0.5, 1), (0.5, 0)], 0.5),
        ([(0.9, 1), (0.4, 1), (0.5, 0), (0.1, 0)], 0.75),
        ([(0.5, 1), (0.4, 1), (0.5, 0), (0.1, 0)], (0.5 + 1 + 0 + 1) / 4),
    ],
)
def test_auroc_counts_pairs(rows: list[tuple[float, int]], expected: float) -> None:
    """The share of pairs that stand the right way round, ties half."""
    assert agreement.auroc(labelled(*rows)) == pytest.approx(expected)


@given(st.lists(st.tuples(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), st.sampled_from([0, 1])), min_size=2))
def test_auroc_is_that_of_scikit_learn(rows: list[tuple[float, int]]) -> None:
    """With ties."""
    from sklearn.metrics import roc_auc_score

    data = labelled(*rows)
    if data.has_both:
        assert agreement.auroc(data) == pytest.approx(roc_auc_score(data.labels, data.values))


def test_the_bootstrap_draws_whole_groups() -> None:
    """Copies of a row in one group make the interval no narrower; the same seed gives the same interval."""
    random_rows = random.Random(0)
    rows = [(random_rows.random() + 0.3 * (index % 2), index % 2, str(index)) for index in range(60)]
    data, copied = labelled(*rows), labelled(*(rows * 5))
    apart = labelled(*((v, y, f"{g}/{n}") for n in range(5) for v, y, g in rows))

    low, high = agreement.interval(agreement.auroc, data, 0, 300)

    assert low < agreement.auroc(data) < high
    assert agreement.interval(agreement.auroc, copied, 0, 300) == (low, high)
    other_low, other_high = agreement.interval(agreement.auroc, apart, 0, 300)
    assert other_high - other_low < 0.7 * (high - low)


def test_calibration_error_by_hand() -> None:
    """Two bins: .15 against one of two, .9 against one of one."""
    data = labelled((0.1, 0), (0.19, 1), (0.9, 1))

    assert agreement.calibration_error(data) == pytest.approx(2 / 3 * (0.5 - 0.145) + 1 / 3 * 0.1)


def test_the_best_threshold() -> None:
    """On a grid; the middle one of those that are as good; over sets, each counts the same."""
    one = labelled((0.2, 0), (0.3, 0), (0.5, 1), (0.9, 1))
    other = labelled((0.6, 0), (0.8, 1))

    assert agreement.best_threshold([one], 0.01) == (pytest.approx(0.40), 1.0)
    assert agreement.best_threshold([other], 0.01) == (pytest.approx(0.70), 1.0)
    assert agreement.best_threshold([one, other], 0.01) == (pytest.approx(0.70), pytest.approx(0.875))
    assert agreement.balanced_accuracy(one, 0.7) == 0.75


# ------------------------------------------------------------------------------------------ the program


def write_set(path: Path, count: int, *, offset: int = 0) -> None:
    names = "Berg Meyer Olsen Novak Silva Haas Dubois Rossi Weber Costa".split()
    rows = [
        {
            "id": f"{path.stem}-{number}",
            "query": f"Who designed pier {number}?",
            "passages": [f"Pier {number} was designed by {names[number % 10]} and opened in {1950 + number}."],
            "response": f"Pier {number} was designed by {names[(number + (number % 2) * 3) % 10]}.",
            "label": 1 - number % 2,
            "task": "faithfulness",
            "source": "made up",
            "extra": {"group": f"g{number // 2}"},
        }
        for number in range(offset, offset + count)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@dataclass(frozen=True)
class Result:
    """What the program printed, and its exit status: 0, another number, or a message."""

    status: int | str
    output: str
    errors: str


Validity = Callable[..., Result]


@pytest.fixture
def validity(programs: None, capsys: pytest.CaptureFixture[str]) -> Validity:
    """Runs the program with arguments."""
    import validity

    def run(*arguments: Any) -> Result:
        status: Any = 0
        try:
            validity.main(list(map(str, arguments)))
        except SystemExit as ended:
            status = ended.code
        output, errors = capsys.readouterr()
        return Result(status, output, errors)

    return run


def test_the_program_measures_sets_and_goes_on_from_its_cache(validity: Validity, tmp_path: Path) -> None:
    """Scores that see the wrong name have an AUROC of 1; the dev set gives the threshold."""
    data, cache = tmp_path / "data", tmp_path / "cache"
    data.mkdir()
    write_set(data / "piers_dev.jsonl", 20)
    write_set(data / "piers_test.jsonl", 30, offset=100)
    scores = "groundedness,unsupported_facts,hallucination"
    options = (data, "--tiers", "lexical", "--scores", scores, "--bootstrap", 50, "--cache", cache)

    first = validity(*options, "--limit", 12)
    lines = (cache / "piers_test.lexical.jsonl").read_text().splitlines()
    (cache / "piers_test.lexical.jsonl").write_text("\n".join(lines[:-1]) + '\n{"half a li')
    whole = validity(*options, "--json")
    again = validity(*options, "--json")

    assert first.status == whole.status == again.status == 0, first.errors + whole.errors
    assert "| piers_test | groundedness | lexical | 1.000 | 1.000–1.000 |" in first.output
    assert "| piers_test | unsupported_facts | lexical | 1.000 |" in first.output
    assert "piers_test, lexical: 30/30 rows" in whole.errors
    assert json.loads(whole.output) == json.loads(again.output)
    found = {(row["set"], row["score"]): row for row in json.loads(whole.output)}
    assert set(found) == {(f"piers_{part}", score) for part in ("dev", "test") for score in scores.split(",")}
    test = found["piers_test", "groundedness"]
    assert (test["rows"], test["skipped"], test["auroc"], test["models"]) == (30, 0, 1.0, "lexical")
    assert test["dev_threshold"] == found["piers_dev", "groundedness"]["threshold"]
    assert test["at_dev_threshold"] == 1.0
    assert "Berg" not in (cache / "piers_dev.lexical.jsonl").read_text()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": 1}', "a.jsonl, line 1: not a labelled row (KeyError: 'query')"),
        ("not JSON", "a.jsonl, line 1: not a labelled row (JSONDecodeError"),
        ("", "a.jsonl has no rows"),
    ],
)
def test_what_cannot_be_measured_is_said_at_once(validity: Validity, tmp_path: Path, line: str, message: str) -> None:
    """With the file and the line; nothing was computed."""
    (tmp_path / "a.jsonl").write_text(line)

    result = validity(tmp_path)

    assert message in str(result.status)
    assert result.output == ""
