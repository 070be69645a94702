"""A model's tokenizer, how much the model reads at once, and where a text may be cut."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.errors import requires
from rageval_hooks.models.sources import read_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

    FloatArray = NDArray[np.floating[Any]]
    IntArray = NDArray[np.int64]


_ABSOLUTE_OFFSET: Final = ("roberta", "xlm-roberta", "camembert")
"""Model types whose first position is the padding token's index plus one: they read two tokens fewer than they have
positions."""

MAX_WORD_LENGTH: Final = 12
"""Maximum number of tokens by which a cut moves to be between words."""


def load_tokenizer(folder: Path) -> Tokenizer:
    """Return a model's fast tokenizer, without padding and truncation.

    Raises:
        MissingDependencyError: the package tokenizers is not installed.
        ValueError: the model has none, which the places of tokens need.
    """
    with requires("tokenizers", "local", "a local model"):
        from tokenizers import Tokenizer
    path = folder / "tokenizer.json"
    tokenizer: Any = None
    if path.is_file():
        tokenizer = Tokenizer.from_file(str(path))
    elif find_spec("transformers") is not None:
        from transformers import AutoTokenizer

        # It reads the older formats, such as vocab.txt.
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer = getattr(found, "backend_tokenizer", None)
    if not isinstance(tokenizer, Tokenizer):
        raise ValueError("it has no fast tokenizer (tokenizer.json), which places of tokens need")
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def most_tokens(folder: Path) -> int | None:
    """Return the most tokens that a model reads, as sentence-transformers finds it; None if its files do not say."""
    if given := (read_json(folder / "sentence_bert_config.json") or {}).get("max_seq_length"):
        return int(given)
    positions = position_limit(read_json(folder / "config.json") or {})
    limits = (positions, (read_json(folder / "tokenizer_config.json") or {}).get("model_max_length"))
    return min((int(limit) for limit in limits if limit), default=None)


def position_limit(config: Mapping[str, Any]) -> int | None:
    """Return the most tokens for which a model has positions; None if they are relative, as T5's and DeBERTa's are.

    Args:
        config: the model's ``config.json``.
    """
    count = config.get("max_position_embeddings")
    if not isinstance(count, int) or config.get("position_biased_input") is False:
        return None
    return count - 2 if config.get("model_type") in _ABSOLUTE_OFFSET else count


def even_windows(text: str, offsets: Sequence[tuple[int, int]], size: int, overlap: int = 0) -> list[tuple[int, int]]:
    """Cut a text into the fewest windows, about equally long, between words if possible.

    Args:
        text: the text.
        offsets: the places of its tokens, without special tokens.
        size: the most tokens of a window.
        overlap: tokens that two neighbouring windows share.

    Returns:
        The places of the windows in the text, as (start, end).
    """
    count = -(-(len(offsets) - overlap) // (size - overlap - MAX_WORD_LENGTH))
    cuts = [number * (len(offsets) - overlap) // count for number in range(1, count)]

    def place(token: int) -> int:
        return offsets[word_start(text, offsets, token)][0]

    starts = [0, *map(place, cuts)]
    ends = [*(place(cut + overlap) for cut in cuts), len(text)]
    return list(zip(starts, ends, strict=True))


def word_start(text: str, offsets: Sequence[tuple[int, int]], last: int, lowest: int = 0) -> int:
    """Return the token before which a text is best cut: the last one up to ``last`` that begins a word.

    Args:
        text: the text.
        offsets: the places of its tokens, without special tokens.
        last: the number of the last token that may be returned.
        lowest: the token after which the returned one has to be.

    Returns:
        ``last`` itself if no word begins within some tokens before it.
    """
    for token in range(last, max(last - MAX_WORD_LENGTH, lowest), -1):
        start = offsets[token][0]
        # Some tokenizers count the space before a word as part of it.
        begins_word = text[start : start + 1].isspace() or text[start - 1 : start].isspace()
        if begins_word and start > offsets[lowest][0]:
            return token
    return last
