"""Reads a model's ``config.json``: its family, its template, and which output means *supported*."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Final, Literal

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models.grounding.templates import FACTCG, HHEM, LETTUCEDETECT, MINICHECK, PAIR
from rageval_hooks.models.sources import ABSOLUTE_OFFSET
from rageval_hooks.runtime.narrowing import mapping_or_empty

__all__ = ["Family", "Layout", "read_config", "read_layout", "unavailable"]

Family = Literal["tokens", "pair", "seq2seq", "hhem"]

_HHEM_CLASS: Final = "HHEMv2ForSequenceClassification"
# The last part of a class name in `architectures`, such as "ModernBertForTokenClassification".
_FAMILIES: Final[dict[str, Family]] = {
    "ForTokenClassification": "tokens",
    "ForSequenceClassification": "pair",
    "ForConditionalGeneration": "seq2seq",
}
# Names of labels, in lower case. The first of each is the one that messages recommend.
_SUPPORTED: Final = (
    "entailment", "entail", "entails", "entailed", "supported", "support", "consistent", "grounded", "faithful"
)  # fmt: skip
_UNSUPPORTED: Final = ("hallucinated", "hallucination", "unsupported", "not_supported", "ungrounded")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """How a model is read.

    Attributes:
        family: how its outputs are to be read.
        template: how its input is written.
        index: the output that means *supported* (pair), or *unsupported* (tokens).
        positions: the most tokens that it can read; None if its positions are relative.
    """

    family: Family
    template: str
    index: int
    positions: int | None


def unavailable(reason: str) -> ModelUnavailableError:
    """Return the error for a model that cannot be used in the slot."""
    return ModelUnavailableError("grounding", reason)


def read_config(folder: str, name: str) -> dict[str, Any]:
    """Return the content of a model's ``config.json``.

    Raises:
        ModelUnavailableError: there is no such file, or it is not a JSON object.
    """
    path = Path(folder) / "config.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise unavailable(f"{name} has no config.json ({error.strerror}): give a model's folder") from error
    except ValueError as error:
        raise unavailable(f"{name}: config.json is not valid JSON ({error})") from error
    if not isinstance(found, dict):
        raise unavailable(f"{name}: config.json is not a JSON object")
    return found


def read_layout(config: Mapping[str, Any], name: str, template: str) -> Layout:
    """Return how a model is to be read.

    Args:
        config: its ``config.json``.
        name: its name, for messages and to recognise its template.
        template: the template that the settings give; ``"auto"`` to recognise it.

    Raises:
        ModelUnavailableError: the model is of another kind, or its labels do not say which output means *supported*.
    """
    family = _family(config, name)
    found = _template(config, name, family) if template == "auto" else template
    _check_template(found, family, name)
    return Layout(
        family=family, template=found, index=_index(config, name, family, found), positions=_positions(config)
    )


def _family(config: Mapping[str, Any], name: str) -> Family:
    classes = list(map(str, config.get("architectures") or ()))
    if _HHEM_CLASS in classes:
        return "hhem"
    for item, (ending, family) in product(classes, _FAMILIES.items()):
        if item.endswith(ending):
            return family
    raise unavailable(
        f"{name} has the architecture {', '.join(classes) or 'unknown'}. A grounding model classifies tokens or pairs "
        "of texts: …ForTokenClassification or …ForSequenceClassification in config.json"
    )


def _template(config: Mapping[str, Any], name: str, family: Family) -> str:
    """Recognise a template by the model's name, or by the name that config.json keeps."""
    if family == "tokens":
        return LETTUCEDETECT
    if family == "hhem":
        return HHEM
    names = f"{name} {config.get('_name_or_path', '')}".lower()
    return next((template for template in (MINICHECK, FACTCG) if template in names), PAIR)


def _check_template(template: str, family: Family, name: str) -> None:
    """Raise an error for a template that a family cannot use."""
    if family == "seq2seq" and template != MINICHECK:
        raise unavailable(
            f"{name} writes text. The only such model that can be used is MiniCheck-Flan-T5: if {name} is one, set "
            f"models={{'grounding_template': '{MINICHECK}'}}"
        )
    # These two families have one template each, which no other family can use.
    only = {"tokens": LETTUCEDETECT, "hhem": HHEM}
    is_wrong = template != only[family] if family in only else template in only.values()
    if is_wrong:
        raise unavailable(f"{name}: grounding_template={template!r} does not fit its architecture: omit it")


def _index(config: Mapping[str, Any], name: str, family: Family, template: str) -> int:
    """Return the output that decides.

    Raises:
        ModelUnavailableError: the labels do not say which one it is.
    """
    # Both have known outputs: HHEM's class 1 is *consistent*, Flan-T5 writes "1".
    if family in ("hhem", "seq2seq"):
        return 1
    labels = _labels(config)
    wanted = _UNSUPPORTED if family == "tokens" else _SUPPORTED
    index = _named(labels, wanted)
    if index is None and family == "tokens":
        index = _opposite(labels, _SUPPORTED)
    if index is not None:
        return index
    # LettuceDetect, MiniCheck and FactCG do not name their two labels: 1 is *unsupported* and *supported*.
    if template != PAIR and _are_unnamed(labels):
        return 1
    raise unavailable(
        f"{name} has the labels {', '.join(labels.values())}, of which none is known to mean {wanted[0]!r}: "
        f"write id2label in its config.json, with {wanted[0]!r} for that label"
    )


def _named(labels: Mapping[int, str], names: Sequence[str]) -> int | None:
    """Return the output with one of several names; None without one. Earlier names win."""
    by_label = {label: index for index, label in labels.items()}
    return next((by_label[name] for name in names if name in by_label), None)


def _opposite(labels: Mapping[int, str], names: Sequence[str]) -> int | None:
    """Return the other one of two outputs, of which one has one of several names."""
    named = _named(labels, names)
    if named is None or len(labels) != 2:
        return None
    return 1 - named


def _labels(config: Mapping[str, Any]) -> dict[int, str]:
    """Return the label of each output, in lower case. Without any, transformers has two: LABEL_0 and LABEL_1."""
    by_index = mapping_or_empty(config.get("id2label"))
    if by_index:
        return {int(index): _flat(label) for index, label in by_index.items()}
    by_name = mapping_or_empty(config.get("label2id"))
    if by_name:
        return {int(index): _flat(label) for label, index in by_name.items()}
    count = int(config.get("num_labels") or 2)
    return {index: f"label_{index}" for index in range(count)}


def _flat(label: object) -> str:
    return str(label).strip().lower().replace("-", "_").replace(" ", "_")


def _are_unnamed(labels: Mapping[int, str]) -> bool:
    """Return True for the two names LABEL_0 and LABEL_1, and for 0 and 1."""
    return len(labels) == 2 and all(label in (f"label_{index}", str(index)) for index, label in labels.items())


def _positions(config: Mapping[str, Any]) -> int | None:
    """Return the most tokens that a model reads; None if its positions are relative, as T5's and DeBERTa's are."""
    count = config.get("max_position_embeddings")
    if not isinstance(count, int) or config.get("position_biased_input") is False:
        return None
    if config.get("model_type") in ABSOLUTE_OFFSET:
        return count - 2
    return count
