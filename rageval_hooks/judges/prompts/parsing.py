"""Parse a model's text into a validated object, with or without text around the JSON."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from rageval_hooks.judges.prompts.nonce import Nonce, is_quoted, without_spaces
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.runtime.narrowing import is_number, items_or_empty, mapping_or_empty, text_or_empty

__all__ = ["UnusableAnswerError", "parse_answer"]

T = TypeVar("T", bound=BaseModel)

# For example <think> and </think>
_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning)>", re.IGNORECASE)
# For example ```json
_FENCE = re.compile(r"```[\w-]*")
# Special tokens of chat templates that servers leak, for example <|im_start|>assistant or </s>.
_TOKEN = re.compile(
    r"<[|｜](?:channel[|｜]>\s*final|(?:start|im_start)[|｜]>\s*assistant|constrain[|｜]>\s*json|[^|｜<>\s]{1,40}[|｜]>)|"
    r"</?s>|<(?:eos|bos|start_of_turn|end_of_turn)>"
)
# The words outside of the object, for example "Final" and "answer" of "**Final answer:**".
_WORD = re.compile(r"[^\W_]+")
# What may be before the object; the empty label is no label.
_LABELS = frozenset(
    {"", "json", "answer", "final answer", "json answer", "output", "json output", "result", "response"}
)
# Each malformed object costs a scan of the text before it, since the decoder counts lines for its message.
_MAX_BROKEN = 1000
_MAX_PROBLEMS = 8
# Messages of pydantic that quote the answer.
_QUOTING = frozenset({"union_tag_invalid"})


class UnusableAnswerError(Exception):
    """A text contains no valid answer. It never leaves the judges.

    Args:
        problem: what is wrong, without words of the answer.
        is_json: True if the text contains a JSON object. A provider that enforces schemas writes nothing else.
        in_words: True if an object is valid and only the text around it is wrong.
    """

    def __init__(self, problem: str, *, is_json: bool, in_words: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_json = is_json
        self.in_words = in_words


class _Found(NamedTuple):
    """A JSON object in a text, with its position."""

    start: int
    end: int
    value: Any


def parse_answer(text: str, schema: type[T], *, alone: bool = False, nonce: Nonce | None = None, prompt: str = "") -> T:
    """Return the one object in ``text`` that is valid in the schema.

    It accepts bare JSON, JSON in a Markdown fence, and JSON with text around it. Reasoning up to the last closing tag
    is ignored. If several different objects are valid, none is accepted: the model may have quoted one that a judged
    text asked it to write.

    Args:
        text: the model's text.
        schema: the schema of the answer. A boolean is not accepted as a number.
        alone: accept no object with text or other objects around it. If the provider enforces JSON, such text shows
            that the object is a quotation and not the answer. A repetition of the same object is accepted.
        nonce: accept only an object that repeats it. None for an answer that no model wrote.
        prompt: what the model was asked. An object that is part of it is a quotation and not the answer.

    Raises:
        UnusableAnswerError: no object is valid, or several are.
    """
    text = _without_thoughts(text).strip().removeprefix("\ufeff")
    problem = "it contains no complete JSON object" if text else "it is empty"
    found = list(_objects(text))
    prompt = without_spaces(prompt)
    # The dump is the key: a repetition of the same object is one answer.
    fitting: dict[str, T] = {}
    others = 0
    for item in found:
        try:
            given, answer = _without_nonce(text[item.start : item.end], item.value, nonce, prompt)
            value = _validated(answer, given, schema)
        except ValueError as error:
            problem = str(error)
            others += 1
        else:
            fitting[value.model_dump_json()] = value
    answers = list(fitting.values())
    if not answers:
        raise UnusableAnswerError(problem, is_json=bool(found))
    if len(answers) > 1:
        raise UnusableAnswerError("it contains several different answers", is_json=True)
    if alone and (others or _has_words(text, found)):
        raise UnusableAnswerError("it contains more than one JSON object", is_json=True, in_words=True)
    return answers[0]


def _without_nonce(text: str, given: Any, nonce: Nonce | None, prompt: str) -> tuple[Any, str]:
    """Return an object without its nonce, as Python has it and as JSON.

    Raises:
        ValueError: the object is not the answer to this call.
    """
    if nonce is None:
        return given, text
    rest = nonce.remove_from(given)
    try:
        # An escape such as "\\ud800" is valid JSON, but pydantic rejects it.
        answer = clean_text(json.dumps(rest, ensure_ascii=False))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if is_quoted(rest, prompt):
        raise ValueError("the object is part of the prompt")
    return rest, answer


def _validated(text: str, given: Any, schema: type[T]) -> T:
    """Return an object of the schema.

    Args:
        text: the object as JSON.
        given: the same, as Python has it.
        schema: the schema.

    Raises:
        ValueError: the object is not valid; the message says why without words of the answer.
    """
    try:
        value = schema.model_validate_json(text)
    except ValidationError as error:
        raise ValueError(_describe(error, schema)) from None
    # pydantic reads true as 1.
    for place in _counted_booleans(given, value):
        raise ValueError(f"{'.'.join(place)}: Input should be a number, not true or false")
    return value


def _without_thoughts(text: str) -> str:
    """Return the text after the last closing tag of reasoning. Tags inside of JSON objects do not count.

    Raises:
        UnusableAnswerError: the reasoning has no closing tag.
    """
    # Only closing tags have the slash.
    ends = [0, *(tag.end() for tag in _tags(text) if tag[1])]
    text = text[ends[-1] :]
    if next(_tags(text), None) is not None:
        raise UnusableAnswerError("its reasoning has no closing tag", is_json=True)
    return text


def _tags(text: str) -> Iterator[re.Match[str]]:
    # Most answers have no tags, and need no scan for objects.
    if _TAG.search(text) is None:
        return
    found = list(_objects(text, strict=False))
    starts = [item.start for item in found]
    for tag in _TAG.finditer(text):
        before = bisect_right(starts, tag.start())
        if not before or tag.start() >= found[before - 1].end:
            yield tag


def _has_words(text: str, found: list[_Found]) -> bool:
    """Return True if words are outside of the objects. Fences, special tokens and a leading label do not count."""
    ends = [0, *(item.end for item in found)]
    starts = [*(item.start for item in found), len(text)]
    before, *behind = (_words(text[end:start]) for end, start in zip(ends, starts, strict=True))
    return any(behind) or before.lower() not in _LABELS


def _words(text: str) -> str:
    return " ".join(_WORD.findall(_FENCE.sub(" ", _TOKEN.sub(" ", text))))


def _objects(text: str, *, strict: bool = True) -> Iterator[_Found]:
    """Yield the outermost JSON objects of a text.

    The scan continues after the malformed part of a broken object.

    Args:
        text: the text.
        strict: reject objects that parsers read differently: duplicate keys, NaN, infinite numbers.

    Raises:
        UnusableAnswerError: an object is rejected.
    """
    decoder = _DECODER if strict else _LENIENT
    broken = 0
    position = text.find("{")
    while position >= 0 and broken < _MAX_BROKEN:
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            broken += 1
            end = max(error.pos, position + 1)
        except (ValueError, RecursionError) as error:
            if not strict:
                return
            problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise UnusableAnswerError(problem, is_json=True) from None
        else:
            yield _Found(position, end, value)
        position = text.find("{", end)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError("a number is not finite")
    return number


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_float=_finite, parse_constant=_no_constant)
_LENIENT = json.JSONDecoder()


def _counted_booleans(given: Any, value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths at which pydantic converted a boolean to a number.

    Args:
        given: the JSON value.
        value: the validated value.
        place: the path of both.
    """
    if isinstance(given, bool):
        # A boolean that stayed one is an answer of the right type.
        if is_number(value) or isinstance(value, Decimal):
            yield place
    elif isinstance(value, RootModel):
        yield from _counted_booleans(given, value.root, place)
    elif isinstance(given, dict):
        for name, item in _items(value):
            if name in given:
                yield from _counted_booleans(given[name], item, (*place, name))
    elif isinstance(given, list) and isinstance(value, (list, tuple)):
        for index, (one, other) in enumerate(zip(given, value, strict=False)):
            yield from _counted_booleans(one, other, (*place, str(index)))


def _items(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, BaseModel):
        # The JSON may have any of the names of a field.
        for name, field in type(value).model_fields.items():
            known = filter(None, map(text_or_empty, {name, field.alias, field.validation_alias}))
            yield from ((alias, getattr(value, name)) for alias in known)
    elif isinstance(value, Mapping):
        yield from ((str(key), item) for key, item in value.items())
    elif is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in fields(value))


def _describe(error: ValidationError, schema: type[BaseModel]) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for item in problems[:_MAX_PROBLEMS]:
        place = _place(item["loc"], schema) or "the object"
        lines.append(f"{place}: {_what(item)}")
    more = len(problems) - len(lines)
    if more:
        lines.append(f"and {more} more")
    return "; ".join(lines)


def _what(problem: Any) -> str:
    return "Input should be another one" if problem["type"] in _QUOTING else str(problem["msg"])


def _place(parts: tuple[int | str, ...], schema: type[BaseModel]) -> str:
    """Return the path of a problem. Keys of open mappings are words of the answer and are not shown."""
    names = _names(schema)
    shown = [str(part) if isinstance(part, int) or part in names else "…" for part in parts]
    return ".".join(shown)


@lru_cache(maxsize=256)
def _names(schema: type[BaseModel]) -> frozenset[str]:
    """Return the names of all fields at any depth."""
    return frozenset(_properties(schema.model_json_schema()))


def _properties(schema: Any) -> Iterator[str]:
    fields = mapping_or_empty(schema)
    yield from mapping_or_empty(fields.get("properties"))
    # A schema is nested in mappings and in lists, such as that of "anyOf".
    for item in (*fields.values(), *items_or_empty(schema)):
        yield from _properties(item)
