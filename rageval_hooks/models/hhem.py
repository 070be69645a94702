"""HHEM-2.1-Open: the probability that a source supports a text. No remote code is run.

The model is ``vectara/hallucination_evaluation_model`` (Apache-2.0; 440 MB). The table compares its
public files with this module:

===============================================  =======================================================================
published                                        here
===============================================  =======================================================================
class ``HHEMv2ForSequenceClassification``, with  transformers' own ``T5ForTokenClassification``, which is T5's *encoder*
one part: ``t5``, a ``T5ForTokenClassification``  and a linear layer of two outputs; there is no decoder
weights ``t5.transformer.shared.weight``,        the same names without ``t5.``
``t5.transformer.encoder.block.N.layer.M.…``,
``t5.transformer.encoder.final_layer_norm.…``
weights ``t5.classifier.weight`` and ``.bias``   ``classifier.weight``, ``classifier.bias``
sizes: ``google/flan-t5-base``'s config          read off the shapes of the weights, and what all of Flan-T5 share:
                                                 distances up to 128, gated GELU, layer norms with 1e-6
tokenizer: that of ``google/flan-t5-base``       ``tokenizer.json`` next to the weights, else from the hub
prompt (see ``PROMPT``), one text per pair       the same
softmax over both outputs at the first token     the same; 0 is *hallucinated*, 1 is *consistent*
(``<pad>``), class 1
===============================================  =======================================================================

Sources: the model's card, ``configuration_hhem_v2.py`` and ``modeling_hhem_v2.py``. The published class itself does not
load with transformers 5 (it lacks ``all_tied_weights_keys``). Weights are read from safetensors only, and every one
must be there by name and shape: a loader that keeps the prefix silently scores with random weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rageval_hooks.errors import ModelUnavailableError, model_requires
from rageval_hooks.models.pytorch import limit_threads
from rageval_hooks.models.sources import find_model, hub_file, reading
from rageval_hooks.models.tokenizing import LONGEST_WORD, load_tokenizer, word_start
from rageval_hooks.runtime.pool import running_pass
from rageval_hooks.settings import ModelSettings

if TYPE_CHECKING:
    from tokenizers import Tokenizer


FOUNDATION = "google/flan-t5-base"
PROMPT = "<pad> Determine if the hypothesis is true given the premise?\n\nPremise: {text1}\n\nHypothesis: {text2}"

WINDOW_TOKENS = 2048
"""Tokens of a source that are read at once: about the 8,192 characters of Open RAG Eval. T5 has no limit, but
time and memory grow with the square."""

OVERLAP_TOKENS = 256
"""Tokens that two neighbouring windows share, so that a sentence at a border is complete in one of them."""

RESPONSE_TOKENS = 1024
"""Tokens of a response that are read at once."""

_CORES = 2


class Hhem:
    """Scores a source and a response that the model reads together.

    Args:
        model: a ``T5ForTokenClassification`` with two outputs.
        tokenizer: the tokenizer of its foundation, without padding and truncation.
        name: the model's name, which is recorded with its scores.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, name: str) -> None:
        self.name = name
        self.tokenizer = tokenizer
        self._model = model

    def support(self, source: str, response: str) -> float:
        """Return the probability that the source supports the response, in one pass over both."""
        import torch

        tokens = self.tokenizer.encode(PROMPT.format(text1=source, text2=response)).ids
        with running_pass(), torch.inference_mode():
            limit_threads(_CORES)
            ids = torch.tensor([tokens], device=self._model.device)
            logits = self._model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 0]
            return float(torch.softmax(logits.float(), dim=-1)[1])

    def source_windows(self, source: str) -> list[str]:
        """Return the windows in which a source is read; the source itself if it fits one."""
        return self._windows(source, WINDOW_TOKENS, OVERLAP_TOKENS)

    def response_pieces(self, response: str) -> list[str]:
        """Return the pieces in which a response is read; the response itself if it fits one pass."""
        return self._windows(response, RESPONSE_TOKENS, 0)

    def _windows(self, text: str, size: int, overlap: int) -> list[str]:
        """Cut a text into the fewest windows of ``size`` tokens, about equally long, between words if possible."""
        # A token has at least one character, so short texts need not be tokenized.
        if len(text) < size:
            return [text]
        offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets
        if len(offsets) <= size:
            return [text]
        room = size - overlap - LONGEST_WORD
        count = -(-(len(offsets) - overlap) // room)
        cuts = [number * (len(offsets) - overlap) // count for number in range(1, count)]

        def place(token: int) -> int:
            return offsets[word_start(text, offsets, token)][0]

        starts = [0, *map(place, cuts)]
        ends = [*(place(cut + overlap) for cut in cuts), len(text)]
        return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def load_hhem(settings: ModelSettings) -> Hhem:
    """Load the model that the settings name: a folder, or a name on the hub.

    Raises:
        ModelUnavailableError: the model cannot be loaded.
    """
    name = settings.hhem

    folder = find_model("hhem", name, download=settings.download)
    # PyTorch takes seconds and half a gigabyte: it is not imported for a model that is not there.
    with model_requires("hhem", "sentence-transformers", "local", "the model of hhem"):
        import torch  # noqa: F401
        from transformers import T5ForTokenClassification  # noqa: F401
    with reading("hhem", name):
        model = _build(_read_weights(folder / _WEIGHTS), name)
        tokenizer = _load_tokenizer(folder, settings)
        _check_tokenizer(tokenizer, int(model.config.vocab_size), name)
        return Hhem(model.to(settings.device).eval(), tokenizer, name)


def _load_tokenizer(folder: Path, settings: ModelSettings) -> Tokenizer:
    if (folder / _TOKENIZER).is_file():
        return load_tokenizer("hhem", folder, settings.hhem)
    found = hub_file(FOUNDATION, _TOKENIZER, settings.download)
    if found is None:
        raise ModelUnavailableError(
            "hhem",
            f"{settings.hhem} is here, but the tokenizer of {FOUNDATION} is not, and may not be downloaded. Download "
            f"it where there is a network (hf download {FOUNDATION} {_TOKENIZER}) and put it next to {_WEIGHTS}",
        )
    return load_tokenizer("hhem", Path(found).parent, settings.hhem)


_WEIGHTS = "model.safetensors"
_TOKENIZER = "tokenizer.json"
_PREFIX = "t5."
_SHARED = "transformer.shared.weight"
_EMBEDDED = "transformer.encoder.embed_tokens.weight"
_ATTENTION = "transformer.encoder.block.0.layer.0.SelfAttention"
_FEED_FORWARD = "transformer.encoder.block.0.layer.1.DenseReluDense"


def _read_weights(path: Path) -> dict[str, Any]:
    """Return the weights by the names that transformers uses."""
    from safetensors.torch import load_file

    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}")
    weights = {key.removeprefix(_PREFIX): value for key, value in load_file(path).items()}
    # Both names are the same matrix, and some files have it once.
    for one, other in ((_SHARED, _EMBEDDED), (_EMBEDDED, _SHARED)):
        if one in weights:
            weights.setdefault(other, weights[one])
    return weights


def _build(weights: Mapping[str, Any], name: str) -> Any:
    """Build the model that has exactly these weights.

    Raises:
        ModelUnavailableError: the weights belong to another kind of model.
    """
    import torch
    from transformers import T5Config, T5ForTokenClassification

    try:
        sizes = _sizes(weights)
    except KeyError as error:
        raise ModelUnavailableError(
            "hhem", f"{name} is not HHEM-2: it has no weight {_PREFIX}{error.args[0]}"
        ) from None
    config = T5Config(
        **sizes,
        num_labels=2,
        feed_forward_proj="gated-gelu",
        relative_attention_max_distance=128,
        layer_norm_epsilon=1e-6,
    )
    # The meta device needs no memory and no random numbers: every weight is loaded below.
    with torch.device("meta"):
        model = T5ForTokenClassification(config)
    needed = {key: value.shape for key, value in model.state_dict().items()}
    given = {key: value.shape for key, value in weights.items()}
    wrong = sorted(key for key in needed.keys() | given.keys() if needed.get(key) != given.get(key))
    if wrong:
        raise ModelUnavailableError("hhem", f"{name} is not HHEM-2: its weights differ in {', '.join(wrong[:3])}")
    model.load_state_dict(weights, assign=True)
    return model


def _sizes(weights: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of the model, read from the shapes of its weights.

    Raises:
        KeyError: a weight is missing.
    """
    vocabulary, width = weights[_SHARED].shape
    buckets, heads = weights[f"{_ATTENTION}.relative_attention_bias.weight"].shape
    blocks = {key.split(".")[3] for key in weights if key.startswith("transformer.encoder.block.")}
    return {
        "vocab_size": vocabulary,
        "d_model": width,
        "d_kv": weights[f"{_ATTENTION}.q.weight"].shape[0] // heads,
        "d_ff": weights[f"{_FEED_FORWARD}.wi_0.weight"].shape[0],
        "num_layers": len(blocks),
        "num_heads": heads,
        "relative_attention_num_buckets": buckets,
    }


def _check_tokenizer(tokenizer: Tokenizer, vocabulary: int, name: str) -> None:
    """Raise an error for a tokenizer that belongs to another model."""
    first = tokenizer.encode(PROMPT).tokens[:1]
    if first != ["<pad>"] or tokenizer.get_vocab_size() > vocabulary:
        raise ModelUnavailableError("hhem", f"{name} has a {_TOKENIZER} that is not the one of {FOUNDATION}")
