"""Load a grounding model: what its ``config.json`` says, how it wants its input written, and its weights.

A model gives meaningless numbers for input in any other form. Sources of the forms, read in November 2026:

- ``lettucedetect``: the package lettucedetect 0.2.3, ``prompts/qa_prompt_en.txt``, ``summary_prompt_en.txt`` and
  ``detectors/transformer.py`` (at most 4,096 tokens);
- ``minicheck``: github.com/Liyan06/MiniCheck, ``minicheck/inference.py``: source and claim joined by the end token;
  sources in chunks of 400 tokens (500 words for Flan-T5), at most 2,048 tokens (512 for RoBERTa);
- ``factcg``: github.com/derenlei/FactCG, ``factcg/utils.py`` and ``inference.py``: one text, in chunks of 550 words, at
  most 2,048 tokens;
- ``pair``: the model cards of ``cross-encoder/nli-*``: premise and hypothesis as a pair of at most 512 tokens.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models.classifier import load_logits
from rageval_hooks.models.grounding import GroundingModel, PairModel, TokenModel, probabilities
from rageval_hooks.models.hhem import load_hhem
from rageval_hooks.models.onnx import onnx_is_wanted
from rageval_hooks.models.sources import find_model, read_json, reading
from rageval_hooks.models.tokenizing import load_tokenizer, position_limit
from rageval_hooks.settings import ModelSettings

if TYPE_CHECKING:
    from tokenizers import Encoding


Family = Literal["tokens", "pair", "seq2seq", "hhem"]
_VERSION: Final = "1"
"""Changes when a model is asked in another way and its scores change: the template, the windows, the aggregation."""

_MOST_TOKENS: Final = 4096
"""Tokens that a token classifier reads at once, as in LettuceDetect's own package; reading more gains little."""

# The last part of a class name in `architectures`, such as "ModernBertForTokenClassification".
_FAMILIES: Final[dict[str, Family]] = {
    "HHEMv2ForSequenceClassification": "hhem",
    "ForTokenClassification": "tokens",
    "ForSequenceClassification": "pair",
    "ForConditionalGeneration": "seq2seq",
}
# Names of labels, in lower case. The first of each is the one that messages recommend.
_SUPPORTED: Final = (
    "entailment", "entail", "entails", "entailed", "supported", "support", "consistent", "grounded", "faithful"
)  # fmt: skip
_UNSUPPORTED: Final = ("hallucinated", "hallucination", "unsupported", "not_supported", "ungrounded")

# The commit of a snapshot in the hub's cache: ".../snapshots/0f1e2d…".
_SNAPSHOT: Final = re.compile(r"snapshots[/\\]([0-9a-f]{40})")


class _Template(NamedTuple):
    """How a source and a claim become the input of a sequence-pair model.

    Attributes:
        form: the text, with the fields ``source``, ``claim`` and ``end``, the tokenizer's end token. Empty if the
            tokenizer joins the two texts.
        limit: the most tokens of one input.
        window: the most tokens of a source in one input.
    """

    form: str
    limit: int
    window: int


_FACTCG: Final = (
    '{source}\n\nChoose your answer: based on the paragraph above can we conclude that "{claim}"?'
    "\n\nOPTIONS:\n- Yes\n- No\nI think the answer is "
)
_TEMPLATES: Final = {
    "pair": _Template("", limit=512, window=400),
    "minicheck": _Template("{source}{end}{claim}", limit=2048, window=400),
    # 500 words and 550 words of English are about 650 and 700 tokens.
    "minicheck-t5": _Template("predict: {source}{end}{claim}", limit=2048, window=650),
    "factcg": _Template(_FACTCG, limit=2048, window=700),
}


def load_grounding(settings: ModelSettings) -> GroundingModel:
    """Load the model that the settings name.

    Raises:
        ModelUnavailableError: the model cannot be loaded, or is of another kind; the message says what to do.
    """
    name = settings.grounding
    onnx_file = settings.onnx_file if onnx_is_wanted(settings) else ""
    folder = find_model("grounding", name, download=settings.download, onnx_file=onnx_file)
    with reading("grounding", name):
        config = read_json(folder / "config.json")
        if not isinstance(config, dict):
            raise _unavailable(f"{name} has no config.json with a JSON object: give a model's folder")
        family = _family(config, name)
        template = _template(config, name, family, settings.grounding_template)
        kind = "token classification" if family == "tokens" else "sequence pair"
        details = {"family": kind, "template": template, "backend": "torch"}
        if snapshot := _SNAPSHOT.search(os.path.realpath(folder)):
            details["revision"] = snapshot.group(1)
        version = f"{template}-{_VERSION}"
        if family == "hhem":
            return _load_hhem(settings, version, details)
        index = 1 if family == "seq2seq" else _index(config, name, family, template)
        logits, details["backend"] = load_logits("grounding", name, folder, settings, family)
        tokenizer = load_tokenizer("grounding", folder, name)
        positions = position_limit(config)
        if family == "tokens":
            limit = min(_MOST_TOKENS, positions or _MOST_TOKENS)
            return TokenModel(
                name=name,
                version=version,
                details=details,
                tokenizer=tokenizer,
                limit=limit,
                window=limit,
                logits=logits,
                index=index,
            )
        form, limit, window = _TEMPLATES["minicheck-t5" if family == "seq2seq" else template]
        end = _end_token(folder)

        def encode(source: str, claim: str) -> Encoding:
            if not form:
                return tokenizer.encode(source, claim)
            return tokenizer.encode(form.format(source=source, claim=claim, end=end))

        def support(source: str, claim: str) -> tuple[float, int]:
            encoding = encode(source, claim)
            return float(probabilities(logits(encoding))[index]), len(encoding.ids)

        return PairModel(
            name=name,
            version=version,
            details=details,
            tokenizer=tokenizer,
            limit=min(limit, positions or limit),
            support=support,
            window=window,
            overhead=len(encode("", "").ids) + 8,  # joining source and claim may add some tokens
        )


def _unavailable(reason: str) -> ModelUnavailableError:
    return ModelUnavailableError("grounding", reason)


def _family(config: Mapping[str, Any], name: str) -> Family:
    classes = [str(item) for item in config.get("architectures") or ()]
    for ending, family in _FAMILIES.items():
        if any(item.endswith(ending) for item in classes):
            return family
    raise _unavailable(
        f"{name} has the architecture {', '.join(classes) or 'unknown'}. A grounding model classifies tokens or pairs "
        "of texts: …ForTokenClassification or …ForSequenceClassification in config.json"
    )


def _template(config: Mapping[str, Any], name: str, family: Family, given: str) -> str:
    """Return the template that the settings give, or the one that the model's name tells.

    Raises:
        ModelUnavailableError: the family cannot use it.
    """
    # These families have one template each. MiniCheck-Flan-T5 is the only model that writes text and can be used.
    only = {"tokens": "lettucedetect", "hhem": "hhem"}
    names = f"{name} {config.get('_name_or_path', '')}".lower()
    template = given
    if given == "auto":
        by_name = next((known for known in ("minicheck", "factcg") if known in names), "pair")
        template = only.get(family, by_name)
    if family == "seq2seq" and template != "minicheck":
        raise _unavailable(
            f"{name} writes text. The only such model that can be used is MiniCheck-Flan-T5: if {name} is one, set "
            "models={'grounding_template': 'minicheck'}"
        )
    if template != only.get(family, template) or (family not in only and template in only.values()):
        raise _unavailable(f"{name}: grounding_template={template!r} does not fit its architecture: omit it")
    return template


def _index(config: Mapping[str, Any], name: str, family: Family, template: str) -> int:
    """Return the output that means *supported* (pairs) or *unsupported* (tokens).

    Raises:
        ModelUnavailableError: the labels do not say which one it is.
    """
    # In lower case. Without names, transformers has LABEL_0 and LABEL_1.
    given = config.get("id2label") or {index: f"label_{index}" for index in range(int(config.get("num_labels") or 2))}
    labels = {int(key): re.sub("[- ]", "_", str(label).strip().lower()) for key, label in given.items()}
    wanted = _UNSUPPORTED if family == "tokens" else _SUPPORTED
    by_label = {label: index for index, label in labels.items()}
    known = [by_label[label] for label in wanted if label in by_label]
    if family == "tokens" and len(labels) == 2:
        # Of two outputs, the other one of *supported*.
        known += [1 - by_label[label] for label in _SUPPORTED if label in by_label]
    if known:
        return known[0]
    # LettuceDetect, MiniCheck and FactCG do not name their two labels: 1 is *unsupported* and *supported*.
    are_unnamed = len(labels) == 2 and all(label in (f"label_{index}", str(index)) for index, label in labels.items())
    if template != "pair" and are_unnamed:
        return 1
    raise _unavailable(
        f"{name} has the labels {', '.join(labels.values())}, of which none is known to mean {wanted[0]!r}: "
        f"write id2label in its config.json, with {wanted[0]!r} for that label"
    )


def _end_token(folder: Path) -> str:
    """Return the token at the end of a text, which some templates need."""
    config = read_json(folder / "tokenizer_config.json") or {}
    token = config.get("eos_token") or config.get("sep_token") or ""
    return str(token.get("content", "")) if isinstance(token, Mapping) else str(token)


def _load_hhem(settings: ModelSettings, version: str, details: dict[str, str]) -> PairModel:
    """Load HHEM, which has a prompt of its own."""
    model = load_hhem(settings.model_copy(update={"hhem": settings.grounding}))

    def support(source: str, claim: str) -> tuple[float, int]:
        tokens = sum(len(model.tokenizer.encode(text).ids) for text in (source, claim))
        return model.support(source, claim), tokens

    return PairModel(
        name=settings.grounding,
        version=version,
        details=details,
        tokenizer=model.tokenizer,
        limit=2048,
        support=support,
        window=1024,
        overhead=64,  # of its prompt
    )
