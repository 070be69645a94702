"""BERTScore of repeated answers. ROUGE is tested with the reports that show it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.errors import ConfigurationError, ModelUnavailableError
from rageval_hooks.offline.report import BertScore, load_bertscore
from tests import tiny_models


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


@pytest.mark.needs_torch
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
        assert by_hand.pairs(pair) == [pytest.approx(f1, abs=1e-6)]


@pytest.mark.needs_torch
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

    [found] = scorer.pairs([one, other])

    assert found == pytest.approx(float(2 * precision * recall / (precision + recall)), abs=1e-6)
    assert scorer.name == f"{encoder}, layer 2"


@pytest.mark.needs_torch
def test_bertscore_is_that_of_its_package(scorer: BertScore, encoder: Path) -> None:
    """The numbers of bert-score 0.3.13, as far as it works, where it is installed."""
    package = pytest.importorskip("bert_score")
    theirs = package.BERTScorer(model_type=str(encoder), num_layers=2, device="cpu")
    answers = ["The pier was opened in 2019.", "the old tower is new", "a question of the city"]

    found = scorer.pairs(answers)

    pairs = [(0, 1), (0, 2), (1, 2)]
    expected = theirs.score([answers[j] for _, j in pairs], [answers[i] for i, _ in pairs], batch_size=1)[2]
    assert found == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.needs_torch
def test_empty_and_long_answers(scorer: BertScore) -> None:
    """An empty answer is excluded; one that is longer than the model can read is truncated."""
    found = scorer.pairs(["the pier", " \n", "the " * 100, "the pier"])

    assert len(found) == 3
    assert found[1] == pytest.approx(1.0, abs=1e-5)
    assert scorer.pairs(["", "the"]) == []


@pytest.mark.needs_torch
def test_an_encoder_of_robertas_kind(encoder: Path) -> None:
    """Two of its positions are not for tokens: an answer is truncated to the others, and no earlier."""
    import torch
    from transformers import AutoTokenizer, RobertaConfig, RobertaModel

    tokenizer = AutoTokenizer.from_pretrained(encoder)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
        model = RobertaModel(
            RobertaConfig(vocab_size=len(tokenizer), max_position_embeddings=10, initializer_range=0.5, **sizes)
        )
    scorer = BertScore(model.eval(), tokenizer, 1, None, "roberta")

    # Eight tokens, of which the first and the last are special.
    assert scorer.pairs(["the the the the the the pier", "the " * 6]) == [pytest.approx(1.0, abs=1e-5)]
    assert scorer.pairs(["the the the the the pier", "the " * 6])[0] < 0.999


@pytest.mark.needs_torch
def test_rescaling_with_a_baseline(encoder: Path, scorer: BertScore) -> None:
    """(F1 - b) / (1 - b)."""
    from transformers import AutoModel, AutoTokenizer

    model, tokenizer = AutoModel.from_pretrained(encoder).eval(), AutoTokenizer.from_pretrained(encoder)
    answers = ["the pier", "the old tower"]
    [raw] = scorer.pairs(answers)
    rescaled = BertScore(model, tokenizer, 2, 0.25, "encoder")

    assert rescaled.pairs(answers) == [pytest.approx((raw - 0.25) / 0.75)]
    assert rescaled.name == "encoder, layer 2, rescaled"


@pytest.mark.needs_torch
def test_the_default_model_has_its_layer_and_its_baseline(tmp_path: Path) -> None:
    """xlm-roberta-large, English, layer 17: known, also for a folder of that name. Nothing else is rescaled."""
    folder = tiny_models.build_encoder(tmp_path / "xlm-roberta-large", layers=17)

    assert load_bertscore(str(folder)).name.endswith("xlm-roberta-large, layer 17, rescaled")
    assert load_bertscore(str(folder), rescale=False).baseline is None
    assert load_bertscore(str(folder), language="de").baseline is None
    assert load_bertscore(str(folder), layers=2).baseline is None


@pytest.mark.needs_torch
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "layers is required for .*: give the layer to compare"),
        ({"layers": 3}, "layers=3: .* has layers 0 to 2"),
    ],
)
def test_what_cannot_be_compared_is_said_at_once(encoder: Path, options: dict[str, Any], message: str) -> None:
    """Before anything is scored."""
    with pytest.raises(ConfigurationError, match=message):
        load_bertscore(str(encoder), **options)


@pytest.mark.needs_torch
def test_an_encoder_that_is_not_here_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is downloaded where that is not wanted."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ModelUnavailableError) as raised:
        load_bertscore("nobody/no-such-encoder", layers=1)
    assert "is not on this machine and may not be downloaded. Download it where there is a" in raised.value.reason
