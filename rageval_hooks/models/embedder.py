"""Text and token embeddings by a sentence-transformers model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rageval_hooks.errors import requires
from rageval_hooks.models.onnx import onnx_file_wanted, open_graph, shown_name
from rageval_hooks.models.pytorch import limit_threads, quiet_transformers
from rageval_hooks.models.sources import find_model, read_json
from rageval_hooks.models.tokenizing import even_windows, load_tokenizer, most_tokens
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.pool import running_pass
from rageval_hooks.settings import ModelSettings
from rageval_hooks.text.words import words_of

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from rageval_hooks.models.tokenizing import FloatArray, IntArray


_ROWS = 16
"""Tokens that are compared with those of another text in one product of matrices."""


@dataclass(frozen=True)
class TokenVectors:
    """Contextual token embeddings of a text: the model's last layer.

    Attributes:
        starts: the first character of each token, in order; shape (t,).
        ends: the character after each token; shape (t,).
        vectors: rows of length 1, without special tokens; shape (t, d).
    """

    starts: IntArray
    ends: IntArray
    vectors: FloatArray


@dataclass(frozen=True)
class Embedding:
    """The embedding of a text.

    Attributes:
        windows: the embedding of each window, rows of length 1; shape (w, d), w = 0 for a text without tokens.
        tokens: the tokens of all windows.
    """

    windows: FloatArray
    tokens: TokenVectors

    @classmethod
    def of(cls, windows: Sequence[tuple[FloatArray, TokenVectors]]) -> Embedding:
        """Combine the windows of one text."""
        import numpy as np

        if not windows:
            return cls.together([])
        return cls(
            np.stack([vector for vector, _ in windows]),
            TokenVectors(
                np.concatenate([tokens.starts for _, tokens in windows]),
                np.concatenate([tokens.ends for _, tokens in windows]),
                np.concatenate([tokens.vectors for _, tokens in windows]),
            ),
        )

    @staticmethod
    def together(embeddings: Sequence[Embedding]) -> Embedding:
        """Return the windows of several texts as one embedding, without tokens."""
        import numpy as np

        parts = [embedding.windows for embedding in embeddings if len(embedding.windows)]
        none = np.empty(0, np.int64)
        windows = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
        return Embedding(windows, TokenVectors(none, none, np.empty((0, 0), np.float32)))

    @cached_property
    def vector(self) -> FloatArray:
        """The mean of the windows, of length 1; shape (d,)."""
        return unit(self.windows.mean(axis=0)) if len(self.windows) > 1 else self.windows[0]

    @property
    def is_empty(self) -> bool:
        """True if the text has no tokens."""
        return not len(self.windows)

    @property
    def size(self) -> int:
        """Memory in bytes."""
        tokens = self.tokens
        return self.windows.nbytes + tokens.starts.nbytes + tokens.ends.nbytes + tokens.vectors.nbytes

    def cosine(self, other: Embedding) -> float:
        """Return the cosine of the two whole texts, -1..1; 0 if one of them has no tokens."""
        return 0.0 if self.is_empty or other.is_empty else float(self.vector @ other.vector)

    def best_cosine(self, other: Embedding) -> float:
        """Return the best cosine of a window with the other whole text, -1..1; 0 if one of them has no tokens."""
        return 0.0 if self.is_empty or other.is_empty else float((self.windows @ other.vector).max())


def unit(vectors: FloatArray) -> FloatArray:
    """Return the vectors, scaled to length 1."""
    import numpy as np

    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.ascontiguousarray(vectors / np.maximum(lengths, 1e-12), dtype=np.float32)


def best_cosines(tokens: FloatArray, others: FloatArray) -> FloatArray:
    """Return the best cosine of each token with any token of another text.

    Args:
        tokens: rows of length 1; shape (t, d).
        others: rows of length 1; shape (u, d), u > 0.

    Returns:
        Shape (t,).
    """
    import numpy as np

    best = np.full(len(tokens), -1.0, np.float32)
    # BLAS computes products of at most 2 ** 18 multiplications on the calling thread. For larger ones it wakes threads
    # that wait actively for one another on all cores, which takes far longer in a busy application.
    columns = max(1, min(len(others), 2**18 // (_ROWS * tokens.shape[1])))
    for right in range(0, len(others), columns):
        part = others[right : right + columns].astype(np.float32, copy=False).T
        for left in range(0, len(tokens), _ROWS):
            rows = best[left : left + _ROWS]
            np.maximum(rows, (tokens[left : left + _ROWS] @ part).max(axis=1), out=rows)
    return best


def keep_words(text: str, embedding: Embedding) -> Embedding:
    """Return the embedding with the tokens of words only, in half precision: 0.8 kB per token.

    Only words are compared with a passage, so no score changes, and the cache holds twice as many passages.
    """
    import numpy as np

    tokens = embedding.tokens
    found = words_of(text)
    if not len(found):
        return Embedding.together([embedding])
    # For each token, the last word that begins before the token's end; it is kept if the two overlap.
    starts, ends = np.asarray(found.starts), np.asarray(found.ends)
    word = np.maximum(np.searchsorted(starts, tokens.ends, side="left") - 1, 0)
    kept = (starts[word] < tokens.ends) & (ends[word] > tokens.starts)
    vectors = TokenVectors(tokens.starts[kept], tokens.ends[kept], tokens.vectors[kept].astype(np.float16))
    return Embedding(embedding.windows, vectors)


# --------------------------------------------------------------------------- the model

Forward = Callable[["dict[str, IntArray]"], "tuple[FloatArray, FloatArray]"]
"""Takes token ids, mask and types of a text, each of shape (1, tokens); returns the vectors of its tokens, of shape
(1, tokens, d), and that of the text, of shape (1, d)."""

_MAX_WINDOW: Final = 512


class Embedder:
    """Embeds texts. A text that is longer than the model reads is embedded in several windows.

    Each window is one forward pass. On the CPU batches gain little (benchmarks/RESULTS.md), and in int8 a
    text's vectors would depend on the texts that happen to be in its batch.

    Args:
        name: the model's name, which is recorded with its scores.
        tokenizer: the model's, without padding and truncation.
        window_tokens: the most tokens that the model reads, special tokens included.
        forward: one forward pass.
    """

    def __init__(self, name: str, tokenizer: Tokenizer, window_tokens: int, forward: Forward) -> None:
        self.name = name
        self.window_tokens = window_tokens
        self._tokenizer = tokenizer
        tokenizer.enable_truncation(window_tokens)
        self._forward = forward

    def embed(self, text: str, pause: Callable[[], None] = lambda: None) -> Embedding:
        """Embed a text.

        Args:
            text: the text.
            pause: called before each pass; what it raises stops the work.
        """
        windows = []
        for base, part in self._windows(text):
            pause()
            with running_pass():
                windows.append(self._pass(base, part))
        return Embedding.of(windows)

    def fits(self, text: str) -> bool:
        """Return True if a text fits one window. The text is tokenized; there is no forward pass."""
        return not self._tokenizer.encode(text).overflowing

    def cut(self, text: str) -> list[tuple[int, int]]:
        """Cut a text that is longer than a window into the fewest ones, about equally long, between words if possible.

        Returns:
            The places of the windows in the text, as (start, end).
        """
        whole = self._tokenizer.encode(text)
        parts = [whole, *whole.overflowing]
        places = chain.from_iterable(part.offsets for part in parts)
        is_special = chain.from_iterable(part.special_tokens_mask for part in parts)
        offsets = [place for place, special in zip(places, is_special, strict=True) if not special]
        # Each window gets its own special tokens.
        return even_windows(text, offsets, self.window_tokens - sum(whole.special_tokens_mask))

    def _windows(self, text: str) -> list[tuple[int, Encoding]]:
        """Return the windows that have tokens of the text, each with its first character in the text."""
        whole = self._tokenizer.encode(text)
        windows = [(0, whole)]
        if whole.overflowing:
            windows = []
            for start, end in self.cut(text):
                part = self._tokenizer.encode(text[start:end])
                windows += [(start, encoded) for encoded in (part, *part.overflowing)]
        # Special tokens are not in the text: their place is empty.
        return [(base, part) for base, part in windows if any(end > start for start, end in part.offsets)]

    def _pass(self, base: int, part: Encoding) -> tuple[FloatArray, TokenVectors]:
        import numpy as np

        inputs = {"input_ids": part.ids, "attention_mask": part.attention_mask, "token_type_ids": part.type_ids}
        tokens, vectors = self._forward({name: np.asarray([values], np.int64) for name, values in inputs.items()})
        places = np.asarray(part.offsets, np.int64)
        real = places[:, 1] > places[:, 0]
        starts, ends = (places[real] + base).T
        return unit(vectors[0]), TokenVectors(starts, ends, unit(tokens[0][real]))


def load_embedder(settings: ModelSettings) -> Embedder:
    """Load the embedder that the settings name.

    Raises:
        ModelUnavailableError: it is not on this machine and cannot be downloaded.
        Exception: its files are damaged, or of another kind of model.
    """
    name = settings.embedder
    folder = find_model("embedder", name, download=settings.download, onnx_file=onnx_file_wanted(settings))
    pooling = _pooling(folder)
    graph = open_graph("embedder", folder, settings, "encoder") if pooling else None
    if graph is None or pooling is None:
        return _load_by_torch(folder, settings)
    window = min(most_tokens(folder) or _MAX_WINDOW, _MAX_WINDOW)
    tokenizer = load_tokenizer(folder)

    def forward(inputs: dict[str, IntArray]) -> tuple[FloatArray, FloatArray]:
        tokens = graph.run(inputs)
        return tokens, tokens[:, 0] if pooling == "cls" else tokens.mean(axis=1, dtype="float64")

    return Embedder(shown_name("embedder", settings, "onnx"), tokenizer, window, forward)


def _pooling(folder: Path) -> str | None:
    """Return how a model pools its tokens: ``mean`` or ``cls``; None for a model with other parts.

    sentence-transformers takes the mean of a model without ``modules.json``.
    """
    modules = read_json(folder / "modules.json")
    if modules is None:
        return "mean"
    kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"} or modules[0]["path"]:
        return None
    config = read_json(folder / modules[1]["path"] / "config.json") or {}
    if "pooling_mode" in config:
        return config["pooling_mode"] if config["pooling_mode"] in ("mean", "cls") else None
    # The older form: a truth value for each kind.
    modes = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    return {("pooling_mode_mean_tokens",): "mean", ("pooling_mode_cls_token",): "cls"}.get(tuple(modes))


def _load_by_torch(folder: Path, settings: ModelSettings) -> Embedder:
    with requires("sentence-transformers", "torch", "an embedder that PyTorch computes"):
        from sentence_transformers import SentenceTransformer
    import torch

    with quiet_transformers():
        model = SentenceTransformer(
            str(folder),
            device=settings.device,
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs={"use_safetensors": True},
        ).eval()
    names = set(model.tokenizer.model_input_names)

    def forward(inputs: dict[str, IntArray]) -> tuple[FloatArray, FloatArray]:
        limit_threads()
        with torch.inference_mode():
            given = {key: torch.from_numpy(value).to(model.device) for key, value in inputs.items() if key in names}
            found = model(given)
            return found["token_embeddings"].float().cpu().numpy(), found["sentence_embedding"].float().cpu().numpy()

    window = min(int(model.max_seq_length or _MAX_WINDOW), _MAX_WINDOW)
    return Embedder(settings.embedder, load_tokenizer(folder), window, forward)
