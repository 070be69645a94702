"""Text and token embeddings by a sentence-transformers model."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import ModelUnavailableError, model_requires
from rageval_hooks.models.embedding import Embedding, TokenVectors, unit
from rageval_hooks.models.onnx import use_onnx
from rageval_hooks.models.sources import load_pretrained
from rageval_hooks.models.torchscript import use_torchscript
from rageval_hooks.runtime.executors import model_executor
from rageval_hooks.settings import ModelSettings

if TYPE_CHECKING:
    from rageval_hooks.models.embedding import FloatArray

    _Features = tuple[dict[str, list[int]], list[tuple[int, int]]]
    _Window = tuple[FloatArray, TokenVectors]

__all__ = ["SHORT", "Embedder", "load_embedder"]

SHORT = 240
"""Maximum length of a text that is embedded in a batch with others, in characters: about 60 tokens."""

_LONGEST_WINDOW = 512
_LONGEST_WORD = 12
"""Maximum number of tokens by which a cut moves to be between words."""


_ENCODED = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
"""Inputs of models, and the attributes of the tokenizer's output that have them."""


def _go_on() -> None:
    """Continue."""


class Embedder:
    """Embeds texts, one forward pass per window of text.

    Windows are not batched: on a CPU the padding costs what a batch gains, and the last bits of a text's vectors would
    depend on the other texts. Only the short texts of one turn are batched (:meth:`embed_short`). See
    benchmarks/RESULTS.md, "Local scoring".

    Args:
        model: a ``sentence_transformers.SentenceTransformer`` with a fast tokenizer.
        name: the model's name, which is recorded with its scores.
    """

    def __init__(self, model: Any, name: str) -> None:
        if not getattr(model.tokenizer, "is_fast", False):
            raise ModelUnavailableError("embedder", f"{name} has no fast tokenizer, which token positions need")
        self._model = model
        self._device = model.device
        self.name = name
        self.window_tokens = _window_tokens(model)
        self._names = [(name, _ENCODED[name]) for name in model.tokenizer.model_input_names if name in _ENCODED]
        # A mask hides the padding from the model; 0 serves a tokenizer that names no token for it.
        self._padding = {"input_ids": model.tokenizer.pad_token_id or 0}
        # A copy, since every call of the library changes padding and truncation of its tokenizer.
        self._tokenizer = copy.deepcopy(model.tokenizer.backend_tokenizer)
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.window_tokens)

    def embed(self, text: str, pause: Callable[[], None] = _go_on) -> Embedding:
        """Embed a text, in as many windows as it needs.

        Args:
            text: the text.
            pause: called before each window; what it raises stops the work.
        """
        executor = model_executor()
        windows, further = executor.submit(self._begin, text, pause).result()
        for features, offsets in further:
            pause()
            windows.append(executor.submit(self._forward, features, offsets).result())
        return Embedding.of(windows)

    def embed_short(self, texts: Sequence[str], pause: Callable[[], None] = _go_on) -> list[Embedding]:
        """Embed short texts in one padded forward pass.

        This is faster for texts of up to some dozens of tokens, since a pass has a fixed cost.

        Args:
            texts: each of at most :data:`SHORT` characters.
            pause: called before the pass; what it raises stops the work.
        """
        return model_executor().submit(self._embed_short, list(texts), pause).result()

    def _embed_short(self, texts: list[str], pause: Callable[[], None]) -> list[Embedding]:
        found: dict[int, _Features] = {}
        for index, text in enumerate(texts):
            # A text without tokens has no window; a short text has at most one.
            for features in self._features(self._tokenizer.encode(text), 0)[:1]:
                found[index] = features
        embeddings = [Embedding.of([])] * len(texts)
        if not found:
            return embeddings
        pause()
        inputs, places = zip(*found.values(), strict=True)
        for index, window in zip(found, self._forward_all(inputs, places), strict=True):
            embeddings[index] = Embedding.of([window])
        return embeddings

    def fits(self, text: str) -> bool:
        """Return True if a text fits one window. The text is tokenized; there is no forward pass."""
        return model_executor().submit(lambda: not self._tokenizer.encode(text).overflowing).result()

    def _begin(self, text: str, pause: Callable[[], None]) -> tuple[list[_Window], list[_Features]]:
        """Tokenize a text and embed its first window, so that most texts need one call on the model's thread.

        Returns:
            The first window, if there is one, and what is still to be embedded.
        """
        features = self._tokenize(text)
        if not features:
            return [], []
        pause()
        return [self._forward(*features[0])], features[1:]

    def _tokenize(self, text: str) -> list[_Features]:
        whole = self._tokenizer.encode(text)
        if not whole.overflowing:
            return self._features(whole, 0)
        found: list[_Features] = []
        for start, end in self._cut(text, whole):
            found += self._features(self._tokenizer.encode(text[start:end]), start)
        return found

    def _pieces(self, text: str) -> list[tuple[int, int]]:
        """Cut a text into the fewest pieces that fit a window, about equally long, between words if possible."""
        whole = self._tokenizer.encode(text)
        return self._cut(text, whole) if whole.overflowing else [(0, len(text))]

    def _cut(self, text: str, whole: Any) -> list[tuple[int, int]]:
        windows = [whole, *whole.overflowing]
        places = chain.from_iterable(window.offsets for window in windows)
        is_special = chain.from_iterable(window.special_tokens_mask for window in windows)
        # Special tokens, such as [CLS], have no place in the text.
        offsets = [place for place, special in zip(places, is_special, strict=True) if not special]
        # Each piece gets its own special tokens, and may grow by a word.
        room = self.window_tokens - sum(whole.special_tokens_mask)
        count = -(-len(offsets) // (room - _LONGEST_WORD))
        cuts = [_between_words(offsets, number * len(offsets) // count) for number in range(1, count)]
        return list(pairwise([0, *cuts, len(text)]))

    def _features(self, encoded: Any, base: int) -> list[_Features]:
        """Return the windows of a tokenized text that have tokens.

        Args:
            encoded: the tokenized text.
            base: where the text begins in the whole text, in characters.
        """
        found: list[_Features] = []
        for window in (encoded, *encoded.overflowing):
            # Special tokens are not in the text: their place is empty.
            places = [(start + base, end + base) if end > start else (0, 0) for start, end in window.offsets]
            if any(end for _, end in places):
                inputs = {name: getattr(window, attribute) for name, attribute in self._names}
                found.append((inputs, places))
        return found

    def _forward(self, features: dict[str, list[int]], offsets: list[tuple[int, int]]) -> _Window:
        return self._forward_all([features], [offsets])[0]

    def _forward_all(
        self, features: Sequence[dict[str, list[int]]], offsets: Sequence[list[tuple[int, int]]]
    ) -> list[_Window]:
        import numpy as np
        import torch

        length = max(map(len, offsets))
        with torch.inference_mode():
            inputs = {
                name: torch.tensor([_padded(row[name], length, self._padding.get(name, 0)) for row in features])
                for name in features[0]
            }
            output = self._model({name: values.to(self._device) for name, values in inputs.items()})
            vectors = output["sentence_embedding"].float().cpu().numpy()
            tokens = output["token_embeddings"].float().cpu().numpy()
        windows = []
        for row, places in enumerate(np.asarray(there, dtype=np.int64) for there in offsets):
            real = places[:, 1] > places[:, 0]
            found = TokenVectors(places[real, 0], places[real, 1], unit(tokens[row, : len(places)][real]))
            windows.append((unit(vectors[row]), found))
        return windows


def _padded(values: list[int], length: int, padding: int) -> list[int]:
    return values + [padding] * (length - len(values))


def _between_words(offsets: list[tuple[int, int]], index: int) -> int:
    """Return the character at which to cut before a token: the nearest gap between words before it, else the token."""
    for candidate in range(index, max(index - _LONGEST_WORD, 1), -1):
        if offsets[candidate][0] > offsets[candidate - 1][1]:
            return offsets[candidate][0]
    return offsets[index][0]


def _window_tokens(model: Any) -> int:
    return min(int(model.max_seq_length or _LONGEST_WINDOW), _LONGEST_WINDOW)


def load_embedder(settings: ModelSettings) -> Embedder:
    """Load the embedder that the settings name.

    Raises:
        ModelUnavailableError: the model cannot be loaded.
    """
    with model_requires("embedder", "sentence-transformers", "local", "the embedder"):
        from sentence_transformers import SentenceTransformer

    def load(path: str, local: bool) -> Embedder:
        model = SentenceTransformer(path, device=settings.device, local_files_only=local, trust_remote_code=False)
        name = settings.embedder
        if settings.backend == "onnx":
            name = use_onnx("embedder", model, settings, path if local else None)
        else:
            use_torchscript("embedder", model, _window_tokens(model))
        return Embedder(model.eval(), name)

    return load_pretrained("embedder", settings.embedder, settings.download, load)
