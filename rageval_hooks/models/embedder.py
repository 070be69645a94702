"""Text and token embeddings by a sentence-transformers model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rageval_hooks.errors import ModelUnavailableError, model_requires
from rageval_hooks.models.embedding import Embedding, TokenVectors, unit
from rageval_hooks.models.onnx import Graph, onnx_is_wanted, open_graph
from rageval_hooks.models.pytorch import limit_threads, quiet_transformers
from rageval_hooks.models.sources import find_model, read_json, reading
from rageval_hooks.models.tokenizing import LONGEST_WORD, load_tokenizer, most_tokens, word_start
from rageval_hooks.runtime.pool import running_pass
from rageval_hooks.settings import ONNX_FILE, ModelSettings

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from rageval_hooks.models.embedding import FloatArray, IntArray


Forward = Callable[["dict[str, IntArray]"], "tuple[FloatArray, FloatArray]"]
"""Takes token ids, mask and types of a text, each of shape (1, tokens); returns the vectors of its tokens, of shape
(1, tokens, d), and that of the text, of shape (1, d)."""

_LONGEST_WINDOW: Final = 512


class Embedder:
    """Embeds texts. A text that is longer than the model reads is embedded in several windows.

    Each window is one forward pass. On the CPU batches gain little (benchmarks/RESULTS.md, "Backends"), and in int8 a
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

    def embed_all(self, texts: Sequence[str], pause: Callable[[], None] = lambda: None) -> list[Embedding]:
        """Embed several texts; see :meth:`embed`."""
        return [self.embed(text, pause) for text in texts]

    def fits(self, text: str) -> bool:
        """Return True if a text fits one window. The text is tokenized; there is no forward pass."""
        return not self._tokenizer.encode(text).overflowing

    def cut(self, text: str) -> list[tuple[int, int]]:
        """Cut a text into the fewest windows, about equally long, between words if possible.

        Returns:
            The places of the windows in the text, as (start, end).
        """
        whole = self._tokenizer.encode(text)
        parts = [whole, *whole.overflowing]
        if len(parts) == 1:
            return [(0, len(text))]
        places = chain.from_iterable(part.offsets for part in parts)
        is_special = chain.from_iterable(part.special_tokens_mask for part in parts)
        offsets = [place for place, special in zip(places, is_special, strict=True) if not special]
        # Each window gets its own special tokens, and may grow by a word.
        room = self.window_tokens - sum(whole.special_tokens_mask)
        count = -(-len(offsets) // (room - LONGEST_WORD))
        tokens = [word_start(text, offsets, number * len(offsets) // count) for number in range(1, count)]
        return list(pairwise([0, *(offsets[token][0] for token in tokens), len(text)]))

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
        ModelUnavailableError: the model cannot be loaded.
    """
    name = settings.embedder
    onnx_file = settings.onnx_file if onnx_is_wanted(settings) else ""
    folder = find_model("embedder", name, download=settings.download, onnx_file=onnx_file)
    with reading("embedder", name):
        pooling = _pooling(folder)
        graph = open_graph("embedder", name, folder, settings, "encoder") if pooling else None
        if graph is None or pooling is None:
            return _load_by_torch(folder, settings)
        # The scores of a file that the user chose are not those of the model itself.
        shown = name if settings.onnx_file == ONNX_FILE else f"{name}, {settings.onnx_file}"
        window = min(most_tokens(folder) or _LONGEST_WINDOW, _LONGEST_WINDOW)
        return Embedder(shown, load_tokenizer("embedder", folder, name), window, _forward_by_onnx(graph, pooling))


def _forward_by_onnx(graph: Graph, pooling: str) -> Forward:
    def forward(inputs: dict[str, IntArray]) -> tuple[FloatArray, FloatArray]:
        tokens = graph.run(inputs)
        return tokens, tokens[:, 0] if pooling == "cls" else tokens.mean(axis=1, dtype="float64")

    return forward


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
    with model_requires("embedder", "sentence-transformers", "local", "an embedder that PyTorch computes"):
        from sentence_transformers import SentenceTransformer
    import torch

    name = settings.embedder
    with quiet_transformers():
        model = SentenceTransformer(
            str(folder), device=settings.device, local_files_only=True, trust_remote_code=False
        ).eval()
    if not getattr(model.tokenizer, "is_fast", False):
        raise ModelUnavailableError("embedder", f"{name} has no fast tokenizer, which token positions need")
    names = set(model.tokenizer.model_input_names)

    def forward(inputs: dict[str, IntArray]) -> tuple[FloatArray, FloatArray]:
        limit_threads()
        with torch.inference_mode():
            given = {key: torch.from_numpy(value).to(model.device) for key, value in inputs.items() if key in names}
            found = model(given)
            return found["token_embeddings"].float().cpu().numpy(), found["sentence_embedding"].float().cpu().numpy()

    window = min(int(model.max_seq_length or _LONGEST_WINDOW), _LONGEST_WINDOW)
    return Embedder(name, load_tokenizer("embedder", folder, name), window, forward)
