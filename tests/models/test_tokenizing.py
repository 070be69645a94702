"""How much a model reads at once, and where texts are cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.models.tokenizing import load_tokenizer, most_tokens, position_limit, word_start


@pytest.mark.parametrize(
    ("config", "limit"),
    [
        ({"max_position_embeddings": 512, "model_type": "bert"}, 512),
        ({"max_position_embeddings": 514, "model_type": "roberta"}, 512),
        ({"max_position_embeddings": 514, "model_type": "xlm-roberta"}, 512),
        ({"max_position_embeddings": 512, "position_biased_input": False}, None),
        ({"model_type": "t5"}, None),
    ],
)
def test_positions_limit_what_a_model_reads(config: dict[str, Any], limit: int | None) -> None:
    """RoBERTa's begin after that of its padding; relative ones have no limit."""
    assert position_limit(config) == limit


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 256}, "config.json": {"max_position_embeddings": 512}}, 256),
        ({"config.json": {"max_position_embeddings": 512}, "tokenizer_config.json": {"model_max_length": 128}}, 128),
        ({"config.json": {"max_position_embeddings": 512}, "tokenizer_config.json": {"model_max_length": 1e30}}, 512),
        ({"config.json": {}}, None),
    ],
)
def test_the_files_of_a_model_say_how_much_it_reads(files: dict[str, Any], limit: int | None, tmp_path: Path) -> None:
    """The library's own setting first, then the lower one of positions and tokenizer."""
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))

    assert most_tokens(tmp_path) == limit


@pytest.mark.parametrize(
    ("text", "last", "expected"),
    [
        ("a bc de", 3, 3),  # "d" begins a word
        ("a bcde", 3, 1),  # the word began two tokens before
        ("abcdefghijklmnopqrstuvwxyz", 20, 20),  # one long word
    ],
)
def test_a_text_is_cut_where_a_word_begins(text: str, last: int, expected: int) -> None:
    """Each letter is a token here; spaces are none."""
    offsets = [(place, place + 1) for place, letter in enumerate(text) if letter != " "]

    assert word_start(text, offsets, last) == expected


def test_a_model_without_a_fast_tokenizer_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without transformers, which reads the older formats, the reason says so."""
    pytest.importorskip("tokenizers")
    monkeypatch.setattr("rageval_hooks.models.tokenizing.find_spec", lambda name: None)

    with pytest.raises(ValueError, match=r"it has no fast tokenizer \(tokenizer\.json\)"):
        load_tokenizer(tmp_path)
