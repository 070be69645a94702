"""The form of an answer in the subset that providers enforce."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field, RootModel

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.answers import schema_json, schema_name, strict_schema


class Support(BaseModel):
    key: str
    keys: list[str] = Field(default_factory=list, max_length=9)


class Level(Enum):
    low = "low"
    high = "high"


class Node(BaseModel):
    children: list[Node] = []


def properties(annotation: Any, default: Any = ...) -> dict[str, Any] | None:
    """Return the strict schema of one field of this type."""
    model = type("Model", (BaseModel,), {"__annotations__": {"field": annotation}, "field": default})
    if default is ...:
        model = type("Model", (BaseModel,), {"__annotations__": {"field": annotation}})
    schema = strict_schema(model)
    return None if schema is None else schema["properties"]["field"]


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (str, {"type": "string"}),
        (Annotated[float, Field(ge=0, lt=1)], {"type": "number", "description": "(exclusiveMaximum: 1, minimum: 0)"}),
        (
            Annotated[int, Field(le=3, description="The grade.")],
            {"type": "integer", "description": "The grade. (maximum: 3)"},
        ),
        (Literal["yes", "no"], {"type": "string", "enum": ["yes", "no"]}),
        (Literal["yes"], {"type": "string", "enum": ["yes"]}),
        (Level, {"type": "string", "enum": ["low", "high"]}),
        (Optional[bool], {"anyOf": [{"type": "boolean"}, {"type": "null"}]}),  # noqa: UP045
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (
            Annotated[list[str], Field(min_length=1)],
            {"type": "array", "items": {"type": "string"}, "description": "(minItems: 1)"},
        ),
        (
            Support,
            {
                "type": "object",
                "properties": {
                    "key": {"type": "string"},
                    "keys": {"type": "array", "items": {"type": "string"}, "description": "(maxItems: 9)"},
                },
                "required": ["key", "keys"],
                "additionalProperties": False,
            },
        ),
    ],
    ids=str,
)
def test_types_in_the_strict_subset(annotation: Any, schema: dict[str, Any]) -> None:
    """References are put in place, bounds go into the description, every property is required."""
    assert properties(annotation) == schema


def test_defaults_make_no_property_optional() -> None:
    """The subset has no optional ones; the model writes the default out."""
    assert properties(int, 3) == {"type": "integer"}


@pytest.mark.parametrize("annotation", [dict[str, int], Any, tuple[int, str], list[Any], Node])
def test_what_the_subset_has_no_words_for(annotation: Any) -> None:
    """Then there is no strict schema, and the answer is asked for otherwise."""
    assert properties(annotation) is None


def test_a_recursive_model_is_still_described_in_prompts() -> None:
    """With its definitions."""
    assert strict_schema(Node) is None
    assert json.loads(schema_json(Node))["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


@pytest.mark.parametrize("model", [RootModel[list[int]], RootModel[int]])
def test_only_objects_can_be_asked_for(model: type[BaseModel]) -> None:
    """A bare list is a mistake in the metric."""
    with pytest.raises(ConfigurationError, match="object"):
        strict_schema(model)


def test_an_open_mapping_as_a_whole_cannot_be_enforced() -> None:
    """Its keys are not known. Older versions of pydantic say no more of one than that it is an object."""

    class AsBefore(RootModel[dict[str, Any]]):
        @classmethod
        def model_json_schema(cls, *args: Any, **options: Any) -> dict[str, Any]:
            return {"title": "AsBefore", "type": "object"}

    assert strict_schema(RootModel[dict[str, int]]) is None
    assert strict_schema(AsBefore) is None


def test_a_property_may_be_called_title() -> None:
    """The name of a property is not taken for the keyword."""

    class Book(BaseModel):
        title: str
        default: int

    assert set(json.loads(schema_json(Book))["properties"]) == {"nonce", "title", "default"}
    strict = strict_schema(Book)
    assert strict is not None
    assert strict["required"] == ["nonce", "title", "default"]


def test_the_text_is_the_same_each_time_and_says_the_bounds() -> None:
    """The schema is part of prompts and of cache keys."""
    assert schema_json(Support) == (
        '{"properties":{"nonce":{"type":"string","description":"the code that the last message gives"},'
        '"key":{"type":"string"},"keys":{"items":{"type":"string"},"maxItems":9,"type":"array"}},'
        '"required":["nonce","key"],"type":"object"}'
    )


def test_names_have_the_characters_that_providers_take() -> None:
    """Generic models have brackets and commas in theirs."""
    model = type("Answer[list[int], é]", (Support,), {})
    assert schema_name(model) == "Answer_list_int"
    assert len(schema_name(type("x" * 100, (Support,), {}))) == 64


def test_a_keyword_that_holds_a_schema_cannot_be_enforced() -> None:
    """For example ``not``: as words in a description it would be no more than a hint."""

    class NoZero(BaseModel):
        grade: int = Field(json_schema_extra={"not": {"const": 0}})

    assert strict_schema(NoZero) is None
