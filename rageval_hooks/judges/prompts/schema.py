"""JSON schemas of answers: strict for providers that enforce them, compact for prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError

__all__ = ["NONCE_DESCRIPTION", "full_schema", "nonce_name", "schema_json", "schema_name", "strict_schema"]

Schema = dict[str, Any]

# Some providers refuse these keywords in an enforced schema. They move to the description, where the model reads them,
# and pydantic checks them in the answer.
_BOUNDS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "exclusiveMinimum": "more than {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matching {}",
    "format": "in the format {}",
}
_DROPPED = frozenset({"title", "default", "examples", "discriminator", "uniqueItems", "deprecated", "readOnly"})
_STRICT = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "description"})


_NAMED = frozenset({"properties", "$defs"})
"""Keywords whose value has names of fields and definitions as keys."""

NONCE_DESCRIPTION = "the code that the last message gives"


class _NotStrictError(Exception):
    """The schema cannot be expressed in the strict subset."""


def schema_name(model: type[BaseModel]) -> str:
    """Return the model's name in the form that providers accept: letters, digits, ``_`` and ``-``, at most 64."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", model.__name__)[:64].strip("_") or "Answer"


@lru_cache(maxsize=256)
def schema_json(model: type[BaseModel]) -> str:
    """Return the JSON schema as compact text for a prompt. The bytes are always the same.

    Raises:
        ConfigurationError: the model does not describe an object.
    """
    return json.dumps(_without(full_schema(model), {"title"}), ensure_ascii=False, separators=(",", ":"))


@lru_cache(maxsize=256)
def _strict_json(model: type[BaseModel]) -> str | None:
    try:
        root = full_schema(model)
        # An open mapping has no properties but the nonce.
        _check_closed(_plain_schema(model))
        return json.dumps(_strict(root, root.get("$defs", {}), ()))
    except _NotStrictError:
        return None


def strict_schema(model: type[BaseModel]) -> Schema | None:
    """Return the JSON schema in the subset that every provider with enforced schemas accepts.

    All properties are required, additional ones are forbidden, definitions are inlined, and bounds move to the
    descriptions. The converter of the package openai is private and made for OpenAI's service only.

    Returns:
        A new dict; None if the subset cannot express the schema: open mappings, tuples, recursion, ``not``.

    Raises:
        ConfigurationError: the model does not describe an object.
    """
    text = _strict_json(model)
    return None if text is None else json.loads(text)


@lru_cache(maxsize=256)
def nonce_name(model: type[BaseModel]) -> str:
    """Return the name of the field in which an answer repeats the nonce of its call; no field of the model has it."""
    name = "nonce"
    while name in _names(model):
        name += "_"
    return name


def _names(model: type[BaseModel]) -> set[str]:
    return {*model.model_fields, *_plain_schema(model).get("properties", {})}


def full_schema(model: type[BaseModel]) -> Schema:
    """Return the JSON schema of an answer as pydantic has it, with the field for the nonce.

    Raises:
        ConfigurationError: the model does not describe an object.
    """
    schema = _plain_schema(model)
    name = nonce_name(model)
    # First, so that a model has copied it before a long answer makes it forget.
    nonce = {"type": "string", "description": NONCE_DESCRIPTION}
    properties = {name: nonce, **schema.get("properties", {})}
    return {**schema, "properties": properties, "required": [name, *schema.get("required", ())]}


def _plain_schema(model: type[BaseModel]) -> Schema:
    schema = model.model_json_schema()
    if schema.get("$ref", "").startswith("#/$defs/"):  # a recursive model
        schema = {**schema["$defs"][schema["$ref"].removeprefix("#/$defs/")], "$defs": schema["$defs"]}
    if schema.get("type") != "object":
        raise ConfigurationError(f"the schema of a judge's answer must be an object; {model.__qualname__} is not")
    return schema


def _without(value: Any, keys: set[str], named: bool = False) -> Any:
    """Return a schema without some keywords. ``named`` means that the keys of ``value`` are names, not keywords."""
    if isinstance(value, Mapping):
        kept: Schema = {}
        for key, item in value.items():
            if named or key not in keys:
                kept[key] = _without(item, keys, named=not named and key in _NAMED)
        return kept
    if isinstance(value, list):
        return [_without(item, keys) for item in value]
    return value


def _strict(schema: Schema, definitions: Mapping[str, Schema], parents: tuple[str, ...]) -> Schema:
    # A copy: pydantic caches the schema of a model.
    schema, parents = _resolved(deepcopy(schema), definitions, parents)
    _check_keywords(schema)
    found: Schema = {key: value for key, value in schema.items() if key in _STRICT}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    # Providers know anyOf, but not oneOf. For an answer they mean the same.
    variants = schema.get("anyOf") or schema.get("oneOf")
    if variants:
        found["anyOf"] = [_strict(variant, definitions, parents) for variant in variants]
    if schema.get("type") == "object":
        found.update(_strict_object(schema, definitions, parents))
    elif schema.get("type") == "array":
        found["items"] = _strict_items(schema, definitions, parents)
    elif not found.keys() & {"type", "enum", "anyOf"}:
        raise _NotStrictError("a value of any kind")
    description = _described(schema)
    if description:
        found["description"] = description
    return found


def _check_keywords(schema: Schema) -> None:
    """Raise if a schema has a keyword that can neither be kept nor dropped."""
    left = set(schema) - _STRICT - set(_BOUNDS) - _DROPPED - {"$defs", "const", "oneOf"}
    if left:
        raise _NotStrictError(sorted(left))


def _described(schema: Schema) -> str:
    """Return the description with the bounds, for example "The grade. (at least 0, at most 3)"."""
    parts = [str(schema.get("description", ""))]
    bounds = [text.format(schema[key]) for key, text in _BOUNDS.items() if key in schema]
    if bounds:
        parts.append(f"({', '.join(bounds)})")
    return " ".join(filter(None, parts))


def _strict_items(schema: Schema, definitions: Mapping[str, Schema], parents: tuple[str, ...]) -> Schema:
    if not schema.get("items"):
        raise _NotStrictError("items of any kind")
    return _strict(schema["items"], definitions, parents)


def _resolved(
    schema: Schema, definitions: Mapping[str, Schema], parents: tuple[str, ...]
) -> tuple[Schema, tuple[str, ...]]:
    """Replace a reference by its definition."""
    while True:
        # pydantic wraps a reference that has a description into "allOf".
        if len(parts := schema.get("allOf", ())) == 1:
            del schema["allOf"]
            schema = {**parts[0], **schema}
        elif reference := schema.pop("$ref", None):
            name = reference.removeprefix("#/$defs/")
            # A recursive definition cannot be inlined.
            if name in parents or name not in definitions:
                raise _NotStrictError(f"reference {name}")
            parents = (*parents, name)
            schema = {**definitions[name], **schema}
        else:
            return schema, parents


def _check_closed(schema: Schema) -> None:
    """Raise if a schema allows properties that it does not name."""
    if schema.get("additionalProperties") or "properties" not in schema:
        raise _NotStrictError("an open mapping")


def _strict_object(schema: Schema, definitions: Mapping[str, Schema], parents: tuple[str, ...]) -> Schema:
    _check_closed(schema)
    properties = {name: _strict(value, definitions, parents) for name, value in schema["properties"].items()}
    return {"properties": properties, "required": list(properties), "additionalProperties": False}
