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
sizes: ``google/flan-t5-base``'s config          the same, unless ``config.json`` has others
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

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rageval_hooks.errors import requires
from rageval_hooks.models.pytorch import limit_threads
from rageval_hooks.models.sources import HUB_DEADLINE, find_model, hub_is_offline, read_config
from rageval_hooks.models.tokenizing import even_windows, load_tokenizer
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

_WEIGHTS = "model.safetensors"
_TOKENIZER = "tokenizer.json"
_SHARED = "transformer.shared.weight"
_EMBEDDED = "transformer.encoder.embed_tokens.weight"
_FLAN_T5_BASE: Final = {
    "vocab_size": 32128,
    "d_model": 768,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 12,
    "num_heads": 12,
    "relative_attention_num_buckets": 32,
}


@dataclass(frozen=True, eq=False)
class Hhem:
    """Scores a source and a response that the model reads together.

    Attributes:
        model: a ``T5ForTokenClassification`` with two outputs.
        tokenizer: the tokenizer of its foundation, without padding and truncation.
        name: the model's name, which is recorded with its scores.
    """

    model: Any
    tokenizer: Tokenizer
    name: str

    def support(self, source: str, response: str) -> float:
        """Return the probability that the source supports the response, in one pass over both."""
        import torch

        tokens = self.tokenizer.encode(PROMPT.format(text1=source, text2=response)).ids
        with running_pass(), torch.inference_mode():
            limit_threads(_CORES)
            ids = torch.tensor([tokens], device=self.model.device)
            logits = self.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 0]
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
        return [text[start:end] for start, end in even_windows(text, offsets, size, overlap)]


def load_hhem(settings: ModelSettings) -> Hhem:
    """Load the model that the settings name: a folder, or a name on the hub.

    Raises:
        ModelUnavailableError: it is not on this machine and cannot be downloaded.
        ValueError: it is another model.
    """
    name = settings.hhem
    folder = find_model("hhem", name, download=settings.download)
    # PyTorch takes seconds and half a gigabyte: it is not imported for a model that is not there.
    with requires("sentence-transformers", "torch", "the model of hhem"):
        import torch
        from safetensors.torch import load_file
        from transformers import T5Config, T5ForTokenClassification
    weights = {key.removeprefix("t5."): value for key, value in load_file(folder / _WEIGHTS).items()}
    # Both names are the same matrix, and files have it once.
    for one, other in ((_SHARED, _EMBEDDED), (_EMBEDDED, _SHARED)):
        if one in weights:
            weights.setdefault(other, weights[one])
    config = read_config(folder)
    sizes = {field: config.get(field, size) for field, size in _FLAN_T5_BASE.items()}
    # The meta device needs no memory and no random numbers: every weight is loaded below.
    with torch.device("meta"):
        model = T5ForTokenClassification(T5Config(**sizes, num_labels=2, feed_forward_proj="gated-gelu"))
    try:
        model.load_state_dict(weights, assign=True)
    except RuntimeError as error:
        raise ValueError(f"it is not HHEM-2: {' '.join(str(error).split())}") from error
    tokenizer = load_tokenizer(folder if (folder / _TOKENIZER).is_file() else _foundation(settings.download))
    if tokenizer.encode(PROMPT).tokens[:1] != ["<pad>"] or tokenizer.get_vocab_size() > sizes["vocab_size"]:
        raise ValueError(f"its {_TOKENIZER} is not the one of {FOUNDATION}")
    return Hhem(model.to(settings.device).eval(), tokenizer, name)


def _foundation(download: bool) -> Path:
    """Return the folder of the tokenizer as published: it belongs to Flan-T5.

    Raises:
        ValueError: it is not on this machine and may not be downloaded.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    found = try_to_load_from_cache(FOUNDATION, _TOKENIZER)
    if not isinstance(found, str):
        # Not left to hf_hub_download: it sends a request even with local_files_only.
        if not download or hub_is_offline():
            raise ValueError(
                f"the tokenizer of {FOUNDATION} is not on this machine, and may not be downloaded. Download it where "
                f"there is a network (hf download {FOUNDATION} {_TOKENIZER}) and put it next to {_WEIGHTS}"
            )
        found = hf_hub_download(FOUNDATION, _TOKENIZER, etag_timeout=HUB_DEADLINE)
    return Path(found).parent
