"""Text and token embeddings by a sentence-transformers model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import MissingDependencyError, ModelUnavailableError
from rageval_hooks.models.embedding import Embedding, TokenVectors, unit
from rageval_hooks.models.sources import load_pretrained
from rageval_hooks.settings import ModelSettings
from rageval_hooks.threads import model_executor

if TYPE_CHECKING:
    from rageval_hooks.models.embedding import FloatArray

__all__ = ["Embedder", "load_embedder"]

_LONGEST_WINDOW = 512
_LONGEST_WORD = 12
"""Tokens that a cut may move to fall between words."""


def _go_on() -> None:
    """Do not stop."""


class Embedder:
    """Embeds texts, one forward pass per window of text.

    Windows are not put together into padded batches: on a CPU that is not faster (the padding costs what the batch
    gains), and the numbers of one text would depend, in their last bits, on its neighbours. See benchmarks/RESULTS.md.

    Args:
        model: a ``sentence_transformers.SentenceTransformer`` with a fast tokenizer.
        name: the model's name, for the scores that it makes.
    """

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._tokenizer = model.tokenizer
        if not getattr(self._tokenizer, "is_fast", False):
            raise ModelUnavailableError("embedder", f"{name} has no fast tokenizer, which token positions need")
        self.name = name
        self.window_tokens = min(int(model.max_seq_length or _LONGEST_WINDOW), _LONGEST_WINDOW)

    def embed(self, text: str, pause: Callable[[], None] = _go_on) -> Embedding:
        """Embed a text, in as many windows as it needs.

        Args:
            text: the text.
            pause: called before each window; what it raises stops the work.
        """
        windows = []
        for features, offsets in model_executor().submit(self._tokenize, text).result():
            pause()
            windows.append(model_executor().submit(self._forward, features, offsets).result())
        return Embedding.of(windows)

    def fits(self, text: str) -> bool:
        """Return whether a text is read at once, in one window. Costs its tokens, no forward pass."""
        return model_executor().submit(lambda: len(self._pieces(text)) == 1).result()

    def _tokenize(self, text: str) -> list[tuple[dict[str, list[int]], list[tuple[int, int]]]]:
        return [window for start, end in self._pieces(text) for window in self._features(text[start:end], start)]

    def _pieces(self, text: str) -> list[tuple[int, int]]:
        """Cut a text into the fewest pieces that fit a window, about equally long, between words where that goes."""
        if len(text) < self.window_tokens:  # a token has at least one character
            return [(0, len(text))]
        encoded = self._tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        offsets = encoded["offset_mapping"]
        room = self.window_tokens - self._tokenizer.num_special_tokens_to_add()
        count = 1 if len(offsets) <= room else -(-len(offsets) // (room - _LONGEST_WORD))
        cuts = [_between_words(offsets, number * len(offsets) // count) for number in range(1, count)]
        return list(pairwise([0, *cuts, len(text)]))

    def _features(self, text: str, base: int) -> list[tuple[dict[str, list[int]], list[tuple[int, int]]]]:
        encoded = self._tokenizer(
            text,
            truncation=True,
            max_length=self.window_tokens,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in encoded]
        return [
            (
                {name: encoded[name][index] for name in names},
                [(start + base, end + base) if end > start else (0, 0) for start, end in offsets],
            )
            for index, offsets in enumerate(encoded["offset_mapping"])
            if any(end > start for start, end in offsets)
        ]

    def _forward(
        self, features: dict[str, list[int]], offsets: list[tuple[int, int]]
    ) -> tuple[FloatArray, TokenVectors]:
        import numpy as np
        import torch

        device = self._model.device
        with torch.inference_mode():
            inputs = {name: torch.tensor([values], device=device) for name, values in features.items()}
            output = self._model(inputs)
            vector = output["sentence_embedding"][0].float().cpu().numpy()
            tokens = output["token_embeddings"][0].float().cpu().numpy()
        places = np.asarray(offsets, dtype=np.int64)
        real = places[:, 1] > places[:, 0]
        return unit(vector), TokenVectors(places[real, 0], places[real, 1], unit(tokens[: len(places)][real]))


def _between_words(offsets: list[tuple[int, int]], index: int) -> int:
    """Return the character at which to cut before a token: the nearest gap between words before it, if there is one."""
    for candidate in range(index, max(index - _LONGEST_WORD, 1), -1):
        if offsets[candidate][0] > offsets[candidate - 1][1]:
            return offsets[candidate][0]
    return offsets[index][0]


def load_embedder(settings: ModelSettings) -> Embedder:
    """Load the embedder that the settings name.

    Raises:
        ModelUnavailableError: it cannot be had.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        missing = MissingDependencyError("sentence-transformers", "local", "the embedder")
        raise ModelUnavailableError("embedder", str(missing)) from error

    def load(path: str, local: bool) -> Embedder:
        model = SentenceTransformer(path, device=settings.device, local_files_only=local, trust_remote_code=False)
        return Embedder(model.eval(), settings.embedder)

    return load_pretrained("embedder", settings.embedder, settings.download, load)
