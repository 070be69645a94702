"""HHEM, through its real loading code, on a tiny T5 of the published layout."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

import rageval_hooks.models.hhem as module
from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models import Models, load_now
from rageval_hooks.models.hhem import Hhem
from rageval_hooks.models.sources import on_this_machine
from rageval_hooks.settings import ModelSettings
from tests import tiny_models
from tests.lazily import LazyModule

safetensors_torch = LazyModule("safetensors.torch")
torch = LazyModule("torch")
transformers = LazyModule("transformers")

pytestmark = pytest.mark.needs_torch

PAIRS = [
    ("The new pier was opened in 2019.", "The pier was opened in 2019."),
    ("The new pier was opened in 2019.", "An old tower."),
    ("An old tower.", "The new pier was opened in 2019."),
    ("", "Anna Berg, an engineer."),
    ("{text1} 100 %", "</s> {braces} <pad>"),
    ("今天 \ufffd café — £3", "今天?"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_models.build_hhem(tmp_path_factory.mktemp("models") / "hhem")


@pytest.fixture(scope="module")
def hhem(folder: Path) -> Hhem:
    return load_now("hhem", ModelSettings(hhem=str(folder)))


@pytest.fixture(scope="module")
def library(folder: Path) -> Any:
    """The model as transformers makes it of a config that was written down, with the weights put in one by one."""
    config = transformers.T5Config(
        vocab_size=len(safetensors_torch.load_file(folder / "model.safetensors")["t5.transformer.shared.weight"]),
        d_model=32,
        d_kv=12,
        d_ff=48,
        num_layers=3,
        num_heads=2,
        feed_forward_proj="gated-gelu",
        num_labels=2,
    )
    model = transformers.T5ForTokenClassification(config)
    weights = {key[3:]: value for key, value in safetensors_torch.load_file(folder / "model.safetensors").items()}
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert (missing, unexpected) == (["transformer.encoder.embed_tokens.weight"], [])
    return model.eval()


@pytest.mark.parametrize(("source", "response"), PAIRS)
def test_support_is_what_the_published_code_computes(
    hhem: Hhem, library: Any, folder: Path, source: str, response: str
) -> None:
    """Softmax over the two outputs at the first token of the prompt, class 1."""
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), pad_token="<pad>")
    prompt = (
        f"<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {source}\n\nHypothesis: {response}"
    )
    inputs = tokenizer([prompt], return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    with torch.no_grad():
        expected = torch.softmax(library(**inputs).logits[:, 0, :], dim=-1)[0, 1]

    assert inputs["input_ids"][0, 0] == 0
    assert hhem.support(source, response) == pytest.approx(float(expected), abs=1e-6)


def test_support_depends_on_both_texts_and_their_order(hhem: Hhem) -> None:
    """The tiny model tells pairs apart, so that the comparison above means something; bits do not change."""
    values = [hhem.support(*pair) for pair in PAIRS]

    assert len({round(value, 4) for value in values}) == len(PAIRS)
    assert [hhem.support(*pair) for pair in reversed(PAIRS)][::-1] == values
    assert all(0 <= value <= 1 for value in values)


# ------------------------------------------------------------------------------------------ loading


def test_weights_that_name_the_embedding_twice_are_the_same_model(hhem: Hhem, folder: Path, tmp_path: Path) -> None:
    """Some files have the shared matrix under both of its names, some only under the other."""
    weights = safetensors_torch.load_file(folder / "model.safetensors")
    shared = weights["t5.transformer.shared.weight"]
    for number, kept in enumerate([["shared"], ["encoder.embed_tokens"], ["shared", "encoder.embed_tokens"]]):
        other = shutil.copytree(folder, tmp_path / str(number))
        rest = {key: value for key, value in weights.items() if key != "t5.transformer.shared.weight"}
        safetensors_torch.save_file(
            rest | {f"t5.transformer.{name}.weight": shared.clone() for name in kept}, other / "model.safetensors"
        )

        assert load_now("hhem", ModelSettings(hhem=str(other))).support(*PAIRS[0]) == hhem.support(*PAIRS[0])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda w: w.pop("t5.classifier.bias"), 'not HHEM-2: .*Missing key.*"classifier.bias"'),
        (
            lambda w: w.update({"t5.extra": torch.ones(1)}),
            'not HHEM-2: .*Unexpected key.*"extra"',
        ),
        (
            lambda w: w.update({"t5.classifier.weight": torch.ones(3, 32)}),
            "not HHEM-2: .*size mismatch for classifier.weight",
        ),
        (
            lambda w: [w.pop(key) for key in list(w) if "DenseReluDense" in key],
            "not HHEM-2: .*transformer.encoder.block.0.layer.1.DenseReluDense",
        ),
    ],
)
def test_another_models_weights_are_refused(folder: Path, tmp_path: Path, change: Any, reason: str) -> None:
    """Never a score of weights that are half random; the reason names what does not fit."""
    other = shutil.copytree(folder, tmp_path / "other")
    weights = safetensors_torch.load_file(folder / "model.safetensors")
    change(weights)
    safetensors_torch.save_file(weights, other / "model.safetensors")

    with pytest.raises(ModelUnavailableError, match=reason):
        load_now("hhem", ModelSettings(hhem=str(other)))


def test_a_cross_encoder_is_refused(tmp_path: Path) -> None:
    """Such as HHEM-1, a DeBERTa, which has the same name on the hub in another branch."""
    other = tiny_models.build_cross_encoder(tmp_path / "bert")
    tiny_models.build_hhem(tmp_path / "t5", tokenizer=other)

    with pytest.raises(ModelUnavailableError, match="is not HHEM-2"):
        load_now("hhem", ModelSettings(hhem=str(other)))


def test_another_models_tokenizer_is_refused(folder: Path, tmp_path: Path) -> None:
    """It would give the model token ids of another vocabulary, without any error."""
    other = shutil.copytree(folder, tmp_path / "other")
    bert = tiny_models.build_cross_encoder(tmp_path / "bert")
    shutil.copy(bert / "tokenizer.json", other)

    with pytest.raises(ModelUnavailableError, match=r"its tokenizer\.json is not the one of google/flan-t5-base"):
        load_now("hhem", ModelSettings(hhem=str(other)))


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    """With what is missing."""
    (tmp_path / "config.json").write_text("{}")
    tiny_models.build_hhem(tmp_path / "t5", tokenizer=tmp_path)

    with pytest.raises(ModelUnavailableError, match=r"cannot be loaded: FileNotFoundError: .*model\.safetensors"):
        load_now("hhem", ModelSettings(hhem=str(tmp_path)))


def cached(home: Path, name: str, *files: Path) -> None:
    """Put files where the hub's cache has them."""
    repository = home / f"models--{name.replace('/', '--')}"
    snapshot = repository / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0")
    for file in files:
        shutil.copy(file, snapshot)


NAME = "rageval-tests/hhem"


def test_the_hub_cache_has_weights_and_tokenizer_apart(
    hhem: Hhem, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As published: the tokenizer belongs to Flan-T5. No network, and none of the model's code."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    # tests/conftest.py switches downloads off for the process: here only the setting forbids them.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    connections: list[object] = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *address, **options: connections.append(address))
    assert not on_this_machine("hhem", NAME)
    cached(tmp_path, NAME, folder / "model.safetensors", folder / "config.json", folder / "modeling_hhem_v2.py")

    with pytest.raises(ModelUnavailableError) as raised:
        load_now("hhem", ModelSettings(hhem=NAME, download=False))
    assert raised.value.reason == (
        f"{NAME} cannot be loaded: the tokenizer of google/flan-t5-base is not on this machine, and may not be "
        "downloaded. Download it where there is a network (hf download google/flan-t5-base tokenizer.json) and put it "
        "next to model.safetensors"
    )
    cached(tmp_path, "google/flan-t5-base", folder / "tokenizer.json")
    found = load_now("hhem", ModelSettings(hhem=NAME, download=False))

    assert connections == []
    assert on_this_machine("hhem", NAME)
    assert found.name == NAME
    assert found.support(*PAIRS[0]) == hhem.support(*PAIRS[0])


def test_what_is_not_here_is_said_with_what_to_do() -> None:
    """There is no lexical tier to go to."""
    with pytest.raises(ModelUnavailableError) as raised:
        load_now("hhem", ModelSettings(hhem=NAME, download=False))
    assert raised.value.reason == (
        f"{NAME} is not on this machine and may not be downloaded. Download it where there is a network "
        f"(hf download {NAME}) and set models={{'hhem': '/path'}}"
    )


def test_nothing_lexical_stands_in_for_it() -> None:
    """The tier without weights has no such score, and says so."""
    with pytest.raises(ModelUnavailableError, match="the lexical tier has no replacement for it"):
        Models(ModelSettings(hhem="lexical")).hhem(wait=True)


def test_it_is_loaded_in_the_background_like_the_others(folder: Path) -> None:
    """And shared."""
    models = Models(ModelSettings(hhem=str(folder)))
    models.load(["hhem"])

    assert models.hhem(wait=True) is Models(ModelSettings(hhem=str(folder))).hhem(wait=True)
    assert models.state("hhem") == "ready"


@pytest.mark.skipif(
    not on_this_machine("hhem", ModelSettings().hhem), reason="the published weights are not on this machine"
)
@pytest.mark.parametrize(
    ("source", "response", "published"),
    [
        ("The capital of France is Berlin.", "The capital of France is Paris.", 0.0111),
        ("I am in California", "I am in United States.", 0.6474),
        ("I am in United States", "I am in California.", 0.1290),
    ],
)
def test_the_published_weights_say_what_their_card_says(source: str, response: str, published: float) -> None:
    """The examples of the model's card, wherever the model itself is in the hub's cache."""
    model = load_now("hhem", ModelSettings(download=False))

    assert model.support(source, response) == pytest.approx(published, abs=2e-3)


# ------------------------------------------------------------------------------------------ windows


@pytest.fixture
def small(hhem: Hhem, monkeypatch: pytest.MonkeyPatch) -> Hhem:
    """Windows of 64 tokens that share 16."""
    monkeypatch.setattr(module, "WINDOW_TOKENS", 64)
    monkeypatch.setattr(module, "OVERLAP_TOKENS", 16)
    monkeypatch.setattr(module, "RESPONSE_TOKENS", 32)
    return hhem


@pytest.mark.parametrize("words", [1, 64, 65, 100, 1000])
def test_windows_overlap_and_lose_nothing(small: Hhem, folder: Path, words: int) -> None:
    """A word is a token here."""
    text = " ".join(random.Random(0).choices(tiny_models._WORDS, k=words))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    windows = small.source_windows(text)

    assert windows == [text] if words <= 64 else len(windows) > 1
    assert all(len(tokenizer.encode(window, add_special_tokens=False).ids) <= 64 for window in windows)
    place = 0
    for number, window in enumerate(windows):
        start = text.index(window, max(0, place - len(window)))
        assert start <= place
        if number:
            assert 10 <= len(text[start:place].split()) <= 20
        place = start + len(window)
    assert place == len(text)
    assert {word for window in windows for word in window.split()} == set(text.split())


def test_pieces_of_a_response_do_not_overlap(small: Hhem) -> None:
    """Together they are the response."""
    text = "the pier was opened in 2019 " * 30

    assert "".join(small.response_pieces(text)) == text
    assert small.response_pieces("the pier") == ["the pier"]


@pytest.mark.parametrize("text", ["x" * 1000, "今" * 1000, " " * 1000, "\n\n" * 500, "a\u0301" * 500])
def test_a_text_without_words_is_cut_all_the_same(small: Hhem, text: str) -> None:
    """Somewhere."""
    windows = small.response_pieces(text)

    assert "".join(windows) == text


def test_the_tiny_model_has_the_published_layout(folder: Path) -> None:
    """What the tests above load is like what the hub has."""
    names = set(safetensors_torch.load_file(folder / "model.safetensors"))

    assert json.loads((folder / "config.json").read_text())["model_type"] == "HHEMv2"
    assert all(name.startswith("t5.") for name in names)
    assert {"t5.classifier.weight", "t5.classifier.bias", "t5.transformer.shared.weight"} <= names
    assert "t5.transformer.encoder.final_layer_norm.weight" in names
    assert not any("decoder" in name for name in names)
