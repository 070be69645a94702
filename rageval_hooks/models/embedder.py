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
"""Takes token ids, mask and types, each of shape (texts, tokens); returns the vectors of the tokens, of shape
(texts, tokens, d), and those of the texts, of shape (texts, d)."""

_LONGEST_WINDOW: Final = 512

_GPU_BATCH: Final = 32


class Embedder:
    """Embeds texts. A text that is longer than the model reads is embedded in several windows.

    On the CPU each window is one forward pass. Batches gain little there (benchmarks/RESULTS.md, "Backends"), and in
    int8 a text's vectors would depend on the texts that happen to be in its batch.

    Args:
        name: the model's name, which is recorded with its scores.
        tokenizer: the model's, without padding and truncation.
        window_tokens: the most tokens that the model reads, special tokens included.
        forward: one forward pass.
        batch: the most windows in one pass.
    """

    def __init__(
        self, name: str, tokenizer: Tokenizer, window_tokens: int, forward: Forward, *, batch: int = 1
    ) -> None:
        self.name = name
        self.window_tokens = window_tokens
        self._tokenizer = tokenizer
        tokenizer.enable_truncation(window_tokens)
        self._forward = forward
        self._batch = batch

    def embed(self, text: str, pause: Callable[[], None] = lambda: None) -> Embedding:
        """Embed a text.

        Args:
            text: the text.
            pause: called before each pass; what it raises stops the work.
        """
        return self.embed_all([text], pause)[0]

    def embed_all(self, texts: Sequence[str], pause: Callable[[], None] = lambda: None) -> list[Embedding]:
        """Embed several texts; see :meth:`embed`. On a GPU, windows of similar length share a pass."""
        windows = [(number, base, part) for number, text in enumerate(texts) for base, part in self._windows(text)]
        by_length = sorted(range(len(windows)), key=lambda place: len(windows[place][2].ids))
        found: dict[int, tuple[FloatArray, TokenVectors]] = {}
        for start in range(0, len(windows), self._batch):
            places = by_length[start : start + self._batch]
            pause()
            with running_pass():
                done = self._pass([windows[place][1:] for place in places])
            found.update(zip(places, done, strict=True))
        of_text: list[list[tuple[FloatArray, TokenVectors]]] = [[] for _ in texts]
        for place, (number, _, _) in enumerate(windows):
            of_text[number].append(found[place])
        return [Embedding.of(parts) for parts in of_text]

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

    def _pass(self, windows: Sequence[tuple[int, Encoding]]) -> list[tuple[FloatArray, TokenVectors]]:
        import numpy as np

        length = max(len(part.ids) for _, part in windows)
        ids, mask, types = (np.zeros((len(windows), length), np.int64) for _ in range(3))
        for row, (_, part) in enumerate(windows):
            size = len(part.ids)
            ids[row, :size], mask[row, :size], types[row, :size] = part.ids, 1, part.type_ids
        tokens, vectors = self._forward({"input_ids": ids, "attention_mask": mask, "token_type_ids": types})
        found = []
        for row, (base, part) in enumerate(windows):
            places = np.asarray(part.offsets, np.int64)
            real = places[:, 1] > places[:, 0]
            starts, ends = (places[real] + base).T
            own = unit(tokens[row, : len(part.ids)][real])
            found.append((unit(vectors[row]), TokenVectors(starts, ends, own)))
        return found


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
        if pooling == "cls":
            return tokens, tokens[:, 0]
        mask = inputs["attention_mask"][:, :, None]
        return tokens, (tokens * mask).sum(axis=1) / mask.sum(axis=1)

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

    batch = 1 if settings.device == "cpu" else _GPU_BATCH
    window = min(int(model.max_seq_length or _LONGEST_WINDOW), _LONGEST_WINDOW)
    return Embedder(name, load_tokenizer("embedder", folder, name), window, forward, batch=batch)
