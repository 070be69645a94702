"""Repeated runs of one question: ROUGE, BERTScore, and how much scores vary."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.errors import ConfigurationError, ModelUnavailableError
from rageval_hooks.offline.records.record import Record
from rageval_hooks.offline.report.bertscore import BertScore, load_bertscore
from rageval_hooks.offline.report.consistency import (
    BertScores,
    RougeScores,
    ScoreVariation,
    bertscore,
    consistency,
    rouge,
)
from rageval_hooks.score import Failed, Result, Score, Skipped, Target
from rageval_hooks.turn import Turn
from tests import tiny_models


def record(run: int, response: str = "An answer.", *results: Result, id: str = "q1", **fields: Any) -> Record:
    return Record(id=id, run=run, turn=Turn(query="Who?", response=response, **fields), results=results)


def scored(value: float, name: str = "groundedness", **fields: Any) -> Score:
    return Score(name=name, value=value, **fields)


# ------------------------------------------------------------------------------------------ variation


def variations(runs: list[Record]) -> tuple[ScoreVariation, ...]:
    [found] = consistency(runs)
    return found.variations


GOLDEN = [
    # values, mean, variance (n - 1), coefficient
    ((0.6, 0.8), 0.7, 0.02, math.sqrt(0.02) / 0.7),
    ((1.0, 2.0, 3.0), 2.0, 1.0, 0.5),
    ((0.5, 0.5, 0.5, 0.5), 0.5, 0.0, 0.0),
    ((0.0, 0.0), 0.0, 0.0, None),
    ((-1.0, 1.0), 0.0, 2.0, None),
    ((-1.0, -3.0), -2.0, 2.0, math.sqrt(2) / 2),
    ((0.7,), 0.7, None, None),
]


@pytest.mark.parametrize(("values", "mean", "variance", "coefficient"), GOLDEN)
def test_mean_variance_and_coefficient_of_variation(
    values: tuple[float, ...], mean: float, variance: float | None, coefficient: float | None
) -> None:
    """Of the sample; a mean of 0 has no coefficient, and one run no variance."""
    runs = [record(number, "An answer.", scored(value)) for number, value in enumerate(values, start=1)]

    [found] = variations(runs)

    assert found.mean == pytest.approx(mean)
    assert found.variance == (None if variance is None else pytest.approx(variance))
    assert found.coefficient == (None if coefficient is None else pytest.approx(coefficient))
    assert (found.runs, found.left_out) == (len(values), 0)


def test_what_was_skipped_or_failed_does_not_enter() -> None:
    """It is counted; so is a score that a run does not have at all. Scores of passages are not those of the turn."""
    passage = scored(0.0, target=Target(kind="passage", index=0))
    runs = [
        record(1, "A.", scored(0.4), passage, scored(3, "tokens")),
        record(2, "A.", Skipped(name="groundedness", reason="no words")),
        record(3, "A.", Failed(name="groundedness", error_type="ValueError")),
        record(4, "A."),
        record(5, "A.", scored(0.6)),
    ]

    grounded, tokens = variations(runs)

    assert (grounded.name, grounded.runs, grounded.left_out) == ("groundedness", 2, 3)
    assert grounded.mean == pytest.approx(0.5)
    assert grounded.variance == pytest.approx(0.02)
    assert (tokens.name, tokens.runs, tokens.left_out, tokens.variance) == ("tokens", 1, 4, None)


def test_a_score_that_no_run_has_does_not_appear() -> None:
    """There is nothing to say of it."""
    assert variations([record(1, "A.", Skipped(name="x", reason="y")), record(2)]) == ()


_values = st.lists(st.floats(0, 1), min_size=2, max_size=6)


@given(_values, st.randoms())
def test_the_order_of_runs_does_not_matter(values: list[float], order: random.Random) -> None:
    """The mean lies between the values, and nothing is negative."""
    runs = [record(number, "A.", scored(value)) for number, value in enumerate(values, start=1)]
    [found] = variations(runs)
    order.shuffle(runs)

    [shuffled] = variations(runs)

    assert shuffled == found
    assert min(values) - 1e-12 <= found.mean <= max(values) + 1e-12
    assert found.variance is not None
    assert found.variance >= 0
    assert (found.coefficient is None) == (found.mean == 0)


# ------------------------------------------------------------------------------------------ ROUGE


def test_rouge_of_two_answers() -> None:
    """Counted by hand: the earlier answer is the reference, the later one is compared with it."""
    found = rouge(["The cat sat on the mat.", "the cat ran"])

    assert isinstance(found, RougeScores)
    assert found.rouge1.model_dump() == pytest.approx({"precision": 2 / 3, "recall": 2 / 6, "f1": 4 / 9})
    assert found.rouge2.model_dump() == pytest.approx({"precision": 1 / 2, "recall": 1 / 5, "f1": 2 / 7})
    assert found.rougeL.model_dump() == pytest.approx({"precision": 2 / 3, "recall": 2 / 6, "f1": 4 / 9})
    assert (found.pairs, found.left_out) == (1, 0)


def test_rouge_is_the_mean_over_all_pairs() -> None:
    """Three answers are three pairs: (a, b), (a, c), (b, c)."""
    found = rouge(["one two", "one two", "one three"])

    assert isinstance(found, RougeScores)
    assert found.pairs == 3
    assert found.rouge1.f1 == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert found.rouge2.f1 == pytest.approx(1 / 3)


def test_answers_without_words_are_left_out_of_rouge() -> None:
    """They are unlike anything, and like one another: neither 0 nor 1 would be true."""
    found = rouge(["one two", "", "…", "今天", "one two"])

    assert isinstance(found, RougeScores)
    assert (found.rougeL.f1, found.pairs, found.left_out) == (1.0, 1, 3)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([], "no runs have an answer with words of a to z or digits; two are needed"),
        (["今天", "今天"], "no runs have an answer with words of a to z or digits; two are needed"),
        (["one", ""], "1 run has an answer with words of a to z or digits; two are needed"),
    ],
)
def test_fewer_than_two_answers_cannot_be_compared(answers: list[str], reason: str) -> None:
    """Which is said, and is no number."""
    assert rouge(answers) == Skipped(name="rouge", reason=reason)


_answers = st.lists(st.lists(st.sampled_from("a b c d".split()), max_size=5).map(" ".join), max_size=4)


@given(_answers)
def test_rouge_is_in_range_and_its_f1_of_any_order(answers: list[str]) -> None:
    """0..1; and answers that are all the same are 1, as far as they have pairs of words."""
    forward, backward = rouge(answers), rouge(answers[::-1])
    assert isinstance(forward, RougeScores) == isinstance(backward, RougeScores)
    if not isinstance(forward, RougeScores) or not isinstance(backward, RougeScores):
        return
    for name in ("rouge1", "rouge2", "rougeL"):
        one, other = getattr(forward, name), getattr(backward, name)
        assert all(0 <= value <= 1 for value in one.model_dump().values())
        assert one.f1 == pytest.approx(other.f1)
        assert one.precision == pytest.approx(other.recall)
    if len(set(filter(None, answers))) == 1:
        assert forward.rouge1.f1 == forward.rougeL.f1 == 1.0


# ------------------------------------------------------------------------------------------ BERTScore


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build_encoder(tmp_path_factory.mktemp("models") / "encoder")


@pytest.fixture(scope="module")
def scorer(encoder: Path) -> BertScore:
    return load_bertscore(str(encoder), layers=2)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> BertScore:
    """A BERT whose layer 0 is known: "the" and "pier" at right angles, "tower" half way, [CLS] and [SEP] apart.

    Its layer norm changes nothing: the vectors have a mean of 0 and a variance of 1.
    """
    import torch
    from transformers import AutoModel, AutoTokenizer

    folder = tiny_models.build_encoder(tmp_path_factory.mktemp("models") / "by-hand")
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    one, other, apart = (
        torch.tensor(pattern * 8, dtype=torch.float32) for pattern in ([1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1])
    )
    vectors = {"the": one, "pier": other, "tower": (one + other) / math.sqrt(2), "[CLS]": apart, "[SEP]": apart}
    embeddings = model.embeddings
    with torch.no_grad():
        for table in (embeddings.position_embeddings, embeddings.token_type_embeddings):
            table.weight.zero_()
        for token, vector in vectors.items():
            embeddings.word_embeddings.weight[tokenizer.convert_tokens_to_ids(token)] = vector
    return BertScore(model.eval(), tokenizer, 0, None, "by hand")


HALF_WAY = math.sqrt(0.5)


@pytest.mark.parametrize(
    ("one", "other", "f1"),
    [
        ("the", "the", 1.0),
        ("the", "pier", 0.0),
        ("the", "tower", HALF_WAY),
        # P: "the" is in both, 1. R: "the" 1, "pier" 0, mean 1/2. F1 = 2 · 1 · ½ / 1½.
        ("the pier", "the", 2 / 3),
        ("the pier", "tower", HALF_WAY),
        ("the the pier", "the pier", 1.0),
        # P: "the" 1, "tower" .7071, mean .8536. R: "the" 1.
        ("the", "the tower", 2 * (1 + HALF_WAY) / 2 / ((1 + HALF_WAY) / 2 + 1)),
        ("the pier", "tower tower", HALF_WAY),
    ],
)
def test_bertscore_by_hand(by_hand: BertScore, one: str, other: str, f1: float) -> None:
    """Best cosines, their means both ways, the harmonic mean; [CLS] and [SEP] are not counted. Of any order."""
    for pair in ((one, other), (other, one)):
        found = bertscore(pair, by_hand)
        assert isinstance(found, BertScores)
        assert found.f1 == pytest.approx(f1, abs=1e-6)
        assert (found.rescaled, found.truncated, found.left_out) == (False, 0, 0)


def test_bertscore_on_a_model_from_disk(scorer: BertScore, encoder: Path) -> None:
    """As written down here with the model of transformers: layer 2 of 2."""
    import torch
    from transformers import BertModel, BertTokenizerFast

    model, tokenizer = BertModel.from_pretrained(encoder), BertTokenizerFast.from_pretrained(encoder)
    one, other = "The pier was opened in 2019.", "the old tower is new"
    with torch.no_grad():
        x, y = (
            torch.nn.functional.normalize(model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0], dim=-1)
            for text in (one, other)
        )
    cosines = x @ y.T
    recall, precision = cosines.max(1).values[1:-1].mean(), cosines.max(0).values[1:-1].mean()

    found = bertscore([one, other], scorer)

    assert isinstance(found, BertScores)
    assert found.f1 == pytest.approx(float(2 * precision * recall / (precision + recall)), abs=1e-6)
    assert found.model == f"{encoder}, layer 2"


def test_bertscore_is_that_of_its_package(scorer: BertScore, encoder: Path) -> None:
    """The numbers of bert-score 0.3.13, as far as it works, where it is installed."""
    package = pytest.importorskip("bert_score")
    theirs = package.BERTScorer(model_type=str(encoder), num_layers=2, device="cpu")
    answers = ["The pier was opened in 2019.", "the old tower is new", "a question of the city"]

    found = bertscore(answers, scorer)

    assert isinstance(found, BertScores)
    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = theirs.score([answers[j] for _, j in pairs], [answers[i] for i, _ in pairs], batch_size=1)[2]
    assert found.values == pytest.approx(expected.tolist(), abs=1e-5)
    assert found.f1 == pytest.approx(float(expected.mean()), abs=1e-5)


def test_empty_and_long_answers_are_counted(scorer: BertScore) -> None:
    """An empty answer is excluded; one that is longer than the model can read is truncated and counted."""
    found = bertscore(["the pier", " \n", "the " * 100, "the pier"], scorer)

    assert isinstance(found, BertScores)
    assert (len(found.values), found.left_out, found.truncated) == (3, 1, 1)
    assert found.values[1] == pytest.approx(1.0, abs=1e-5)
    assert bertscore(["", "the"], scorer) == Skipped(
        name="bertscore", reason="1 run has an answer with words; two are needed"
    )


def test_rescaling_with_a_baseline(
    encoder: Path, scorer: BertScore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """(F1 - b) / (1 - b), with a number, or with the table of the package bert-score for that language."""
    package = tmp_path / "bert_score"
    (package / "rescale_baseline" / "de").mkdir(parents=True)
    (package / "__init__.py").touch()
    known = tmp_path / "bert-base-uncased"
    known.symlink_to(encoder)
    table = package / "rescale_baseline" / "de" / "bert-base-uncased.tsv"
    table.write_text("LAYER,P,R,F\n1,0.1,0.1,0.1\n2,0.4,0.4,0.25\n")
    monkeypatch.syspath_prepend(tmp_path)
    answers = ["the pier", "the old tower"]
    raw = bertscore(answers, scorer)
    assert isinstance(raw, BertScores)

    for model, options in ((encoder, {"baseline": 0.25}), (known, {"language": "de"})):
        found = bertscore(answers, load_bertscore(str(model), layers=2, **options))
        assert isinstance(found, BertScores)
        assert found.f1 == pytest.approx((raw.f1 - 0.25) / 0.75)
        assert found.rescaled
        assert found.model == f"{model}, layer 2, rescaled"
    assert bertscore(answers, load_bertscore(str(encoder), layers=2, baseline=0.25, rescale=False)) == raw
    assert load_bertscore(str(known), layers=2, language="fr").baseline is None


def test_the_default_model_has_its_baseline(encoder: Path, tmp_path: Path) -> None:
    """xlm-roberta-large, English, layer 17: known without a file, also for a folder of that name."""
    folder = tmp_path / "xlm-roberta-large"
    folder.symlink_to(encoder)

    with pytest.raises(ConfigurationError, match=r"layers=17: .* has layers 0 to 2"):
        load_bertscore(str(folder), download=False)
    assert load_bertscore(str(folder), layers=2, language="xx", download=False).baseline is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "layers is required for .*: give the layer to compare"),
        ({"layers": 3}, "layers=3: .* has layers 0 to 2"),
        ({"layers": 2, "baseline": 1.0}, "baseline=1.0: it must be between -1 and 1"),
    ],
)
def test_what_cannot_be_compared_is_said_at_once(encoder: Path, options: dict[str, Any], message: str) -> None:
    """Before anything is scored."""
    with pytest.raises(ConfigurationError, match=message):
        load_bertscore(str(encoder), **options)


@pytest.mark.needs_models
def test_an_encoder_that_is_not_here_is_said_with_what_to_do() -> None:
    """Nothing is downloaded where that is not wanted."""
    with pytest.raises(ModelUnavailableError) as raised:
        load_bertscore(download=False)
    assert raised.value.reason == (
        "xlm-roberta-large is not on this machine and may not be downloaded. Download it where there is a network "
        "(hf download xlm-roberta-large) and give its folder in place of its name"
    )


# ------------------------------------------------------------------------------------------ together


def test_the_runs_of_each_question_are_compared(scorer: BertScore) -> None:
    """Two runs suffice; the records may come in any order; a run that failed has no answer to compare."""
    records = [
        record(2, "the new pier", scored(0.8), id="b"),
        record(1, "the pier", scored(0.6), id="a"),
        record(1, "the pier", scored(0.6), id="b"),
        record(3, "the bri", id="b", status="cancelled"),
    ]

    second, first = consistency(records, scorer=scorer)

    assert (first.id, first.runs, second.id, second.runs) == ("a", 1, "b", 3)
    assert isinstance(first.rouge, Skipped)
    assert isinstance(first.bertscore, Skipped)
    assert isinstance(second.rouge, RougeScores)
    assert second.rouge.rouge1.model_dump() == pytest.approx({"precision": 2 / 3, "recall": 1.0, "f1": 0.8})
    assert second.rouge.left_out == 1
    assert isinstance(second.bertscore, BertScores)
    assert second.bertscore.left_out == 1
    [variation] = second.variations
    assert (variation.runs, variation.left_out, variation.mean) == (2, 1, pytest.approx(0.7))


def test_bertscore_is_left_out_without_an_encoder() -> None:
    """It takes a model of 2 GB."""
    [found] = consistency([record(1), record(2)])

    assert found.bertscore == Skipped(name="bertscore", reason="no encoder was given")
    assert isinstance(found.rouge, RougeScores)


def test_the_same_run_twice_is_an_error() -> None:
    """It would count as two."""
    with pytest.raises(ConfigurationError, match="run 1 of 'q1' occurs twice: give each repetition its own run number"):
        consistency([record(1), record(1)])


def test_a_comparison_goes_to_json_and_back(scorer: BertScore) -> None:
    """It is plain data."""
    [found] = consistency([record(1, "the pier", scored(1)), record(2, "a pier", scored(0))], scorer=scorer)

    assert type(found).model_validate_json(found.model_dump_json()) == found
