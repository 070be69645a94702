"""Answers of judges: the JSON schema and the nonce that are asked for, and from a model's text to a validated object.

Models write line breaks, LaTeX and paths into JSON texts as they are, and single quotes around them. What the standard
library rejects is read by ``json-repair``. That library also completes an answer that is cut off, drops what it cannot
read, and merges objects. So its result counts only if it has exactly the words of the text. For anything else, the
model is asked once more.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.prompts import with_last
from rageval_hooks.runtime.jsonable import clean_text
from rageval_hooks.turn import Message

T = TypeVar("T", bound=BaseModel)
Schema = dict[str, Any]

NONCE_DESCRIPTION = "the code that the last message gives"
_NONCE = 'Set the field "{name}" of the object to "{value}".'
# A shorter object, such as {"score": 3}, may be an example in the prompt of a user's own metric and a right answer.
_MIN_QUOTATION = 40

# What providers accept in an enforced schema. Other keywords move to the description, where the model reads them, and
# pydantic checks them in the answer.
_KEPT = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum", "anyOf", "description"})
_DROPPED = frozenset("title default examples discriminator uniqueItems deprecated readOnly $defs const oneOf".split())

# For example <think> and </think>. Prompts have no such tag (see `neutralize`), so that no judged text brings one in.
_TAG = re.compile(r"<(/?)(?:think|thinking|reasoning)>", re.IGNORECASE)
# A text in JSON, or a boolean, which is the group. An unterminated text extends to the end.
_TEXT_OR_BOOLEAN = re.compile(r'"(?:[^"\\]|\\.)*"?|\b(true|false)\b')
# An escape such as \\n or \\u00e9, or a backslash with the letter that follows, such as \\f of \\frac.
_ESCAPE = re.compile(r"\\+(?:u[0-9a-f]{4}|\w?)")
# A word of letters that are not escaped in JSON, or a number, such as -0.5 or 50%.
_WORD = re.compile(r"[a-z0-9.%+-]+")
# After an object. If the object was cut off, json-repair reads this as a part of it.
_END_MARKER = '\n"end": 0}'
# For characters that are chosen to slow it down, json-repair takes up to 2 s at this length, and four times as long for
# twice the length.
_MAX_REPAIRED_LENGTH = 8000
_MAX_REPAIRS = 3
# Each malformed object costs a scan of the text before it, since the decoder counts lines for its message.
_MAX_OBJECTS = 1000
_MAX_PROBLEMS = 8
_INCOMPLETE = "it contains no complete JSON object"


# --------------------------------------------------------------------------- schemas


def schema_name(model: type[BaseModel]) -> str:
    """Return the model's name in the form that providers accept: letters, digits, ``_`` and ``-``, at most 64."""
    return re.sub(r"[^A-Za-z0-9_-]+", "_", model.__name__)[:64].strip("_") or "Answer"


@lru_cache(maxsize=256)
def nonce_name(model: type[BaseModel]) -> str:
    """Return the name of the field in which an answer repeats the nonce of its call; no field of the model has it."""
    names = {*model.model_fields, *_plain_schema(model).get("properties", {})}
    name = "nonce"
    while name in names:
        name += "_"
    return name


def full_schema(model: type[BaseModel]) -> Schema:
    """Return the JSON schema of an answer as pydantic has it, with the field for the nonce.

    Raises:
        ConfigurationError: the model does not describe an object.
    """
    schema, name = _plain_schema(model), nonce_name(model)
    # First, so that a model has copied it before a long answer makes it forget.
    properties = {name: {"type": "string", "description": NONCE_DESCRIPTION}, **schema.get("properties", {})}
    return {**schema, "properties": properties, "required": [name, *schema.get("required", ())]}


def _plain_schema(model: type[BaseModel]) -> Schema:
    schema = model.model_json_schema()
    if schema.get("$ref", "").startswith("#/$defs/"):  # a recursive model
        schema = {**schema["$defs"][schema["$ref"].removeprefix("#/$defs/")], "$defs": schema["$defs"]}
    if schema.get("type") != "object":
        raise ConfigurationError(f"the schema of a judge's answer must be an object; {model.__qualname__} is not")
    return schema


@lru_cache(maxsize=256)
def schema_json(model: type[BaseModel]) -> str:
    """Return the JSON schema as compact text for a prompt. The bytes are always the same.

    Raises:
        ConfigurationError: the model does not describe an object.
    """
    # Titles are pydantic's, and repeat the names.
    return json.dumps(_without_titles(full_schema(model)), ensure_ascii=False, separators=(",", ":"))


def _without_titles(value: Any) -> Any:
    if isinstance(value, Mapping):
        # The title of a schema is a text; a field that is called "title" is a schema.
        return {k: _without_titles(v) for k, v in value.items() if k != "title" or not isinstance(v, str)}
    return [_without_titles(item) for item in value] if isinstance(value, list) else value


@lru_cache(maxsize=256)
def strict_schema(model: type[BaseModel]) -> Schema | None:
    """Return the JSON schema in the subset that every provider with enforced schemas accepts.

    All properties are required, additional ones are forbidden, definitions are inlined, and bounds move to the
    descriptions. The converter of the package openai is private and made for OpenAI's service only.

    Returns:
        A dict that the caller must not change; None if the subset cannot express the schema: open mappings, tuples,
        recursion, ``not``.

    Raises:
        ConfigurationError: the model does not describe an object.
    """
    root = full_schema(model)
    # An open mapping has no properties but the nonce. Pydantic before 2.11 does not say that it is open.
    if "properties" not in _plain_schema(model):
        return None
    try:
        return _strict(root, root.get("$defs", {}), ())
    except ValueError:
        return None


def _strict(schema: Schema, definitions: Mapping[str, Schema], parents: tuple[str, ...]) -> Schema:
    """Return a schema in the strict subset.

    Raises:
        ValueError: the subset cannot express it.
    """
    if reference := schema.get("$ref"):
        name = reference.removeprefix("#/$defs/")
        if name in parents or name not in definitions:
            raise ValueError("a recursive definition cannot be inlined")
        parents = (*parents, name)
        schema = {**definitions[name], **{key: value for key, value in schema.items() if key != "$ref"}}
    found: Schema = {key: value for key, value in schema.items() if key in _KEPT}
    if "const" in schema:
        found["enum"] = [schema["const"]]
    # Providers know anyOf, but not oneOf. For an answer they mean the same.
    if variants := schema.get("anyOf") or schema.get("oneOf"):
        found["anyOf"] = [_strict(variant, definitions, parents) for variant in variants]
    if schema.get("type") == "object":
        if schema.get("additionalProperties") or "properties" not in schema:
            raise ValueError("an open mapping")
        found["properties"] = {name: _strict(part, definitions, parents) for name, part in schema["properties"].items()}
        found.update(required=list(found["properties"]), additionalProperties=False)
    elif schema.get("type") == "array":
        if not schema.get("items"):
            raise ValueError("items of any kind")
        found["items"] = _strict(schema["items"], definitions, parents)
    elif not found.keys() & {"type", "enum", "anyOf"}:
        raise ValueError("a value of any kind")
    # For example "The grade. (minimum: 0, maximum: 3)"
    others = {key: value for key, value in schema.items() if key not in _KEPT | _DROPPED}
    if not all(isinstance(value, str | int | float) for value in others.values()):
        raise ValueError("a keyword with a schema, such as `not`")
    if others:
        bounds = ", ".join(f"{key}: {value}" for key, value in others.items())
        found["description"] = f"{schema.get('description', '')} ({bounds})".strip()
    return found


# --------------------------------------------------------------------------- the nonce


@dataclass(frozen=True, kw_only=True)
class Nonce:
    """A code for each call, which the answer repeats, so that a quotation from a judged text is never the answer.

    A judge that refuses to follow an injected instruction often quotes it, and the quotation may be a valid answer. No
    author of a text can know the nonce. Its value is only in the last message: not in the schema, which providers
    cache, and not in the key of the answer cache.

    Attributes:
        name: the field of the answer that repeats it.
        value: the code.
    """

    name: str
    value: str

    @classmethod
    def new(cls, name: str) -> Nonce:
        """Draw a nonce: short enough for a small model to copy, and too long to guess."""
        return cls(name=name, value=secrets.token_hex(4))

    def ask_in(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Ask for the nonce at the end of the last message, so that the rest of the prompt stays the same."""
        return with_last(messages, _NONCE.format(name=self.name, value=self.value))

    def remove_from(self, answer: Any, prompt: str) -> dict[str, Any]:
        """Return an answer without its nonce.

        Args:
            answer: the object.
            prompt: the prompt without white space.

        Raises:
            ValueError: the answer does not repeat the nonce, or is a part of the prompt.
        """
        if not isinstance(answer, Mapping) or self.name not in answer:
            raise ValueError(f"{self.name}: Field required")
        if str(answer[self.name]).strip().casefold() != self.value:
            raise ValueError(f"{self.name}: Input should be the one that the last message gives")
        rest = {name: value for name, value in answer.items() if name != self.name}
        text = "".join(json.dumps(rest, ensure_ascii=False, separators=(",", ":")).split())
        if len(text) >= _MIN_QUOTATION and text in prompt:
            raise ValueError("the object is part of the prompt")
        return rest


# --------------------------------------------------------------------------- parsing


class UnusableAnswerError(Exception):
    """A text contains no valid answer. It never leaves the judges. Its message quotes no word of the answer.

    Args:
        problem: what is wrong.
        is_json: True if the text contains a JSON object. A provider that enforces schemas writes nothing else.
    """

    def __init__(self, problem: str, *, is_json: bool) -> None:
        super().__init__(problem)
        self.is_json = is_json


def parse_answer(text: str, schema: type[T], *, nonce: Nonce | None = None, prompt: str = "") -> T:
    """Return the one object in ``text`` that is valid in the schema.

    It accepts bare JSON, JSON in a Markdown fence, and JSON with text around it. Reasoning up to the last closing tag
    is ignored. If several different objects are valid, none is accepted.

    Args:
        text: the model's text.
        schema: the schema of the answer. A boolean is not accepted as a number.
        nonce: accept only an object that repeats it: any other may be a quotation from a judged text. None for an
            answer that no model wrote.
        prompt: what the model was asked. An object that is part of it is a quotation and not the answer.

    Raises:
        UnusableAnswerError: no object is valid, or several are.
    """
    end, is_open = 0, False
    for tag in _TAG.finditer(text):
        end, is_open = tag.end(), not tag[1]
    if is_open:
        raise UnusableAnswerError("its reasoning has no closing tag", is_json=True)
    text = text[end:]
    objects, broken = _objects(text)
    if len(objects) == _MAX_OBJECTS:
        raise UnusableAnswerError("it contains too many JSON objects", is_json=True)
    problem = broken or (_INCOMPLETE if text.strip() else "it is empty")
    prompt = "".join(prompt.split())
    # The dump is the key: a repetition of the same object is one answer.
    fitting: dict[str, T] = {}
    for found in objects:
        try:
            value = _validated(found, schema, nonce, prompt)
            fitting[value.model_dump_json()] = value
        except RecursionError:
            problem = "it is nested too deeply"
        except ValueError as error:
            # A part of a broken object is no answer, and what it lacks says nothing.
            if not broken or nonce is None or json.dumps(nonce.name) in found:
                problem = str(error)
    if len(fitting) > 1:
        raise UnusableAnswerError("it contains several different answers", is_json=True)
    if not fitting:
        raise UnusableAnswerError(problem, is_json=bool(objects))
    return next(iter(fitting.values()))


def _objects(text: str) -> tuple[list[str], str]:
    """Return the outermost JSON objects, and what is wrong with the first broken one; empty if none is.

    The scan continues after the malformed part of a broken object.
    """
    decoder = json.JSONDecoder()
    found: list[str] = []
    broken, problem = 0, ""
    position = text.find("{")
    while position >= 0 and len(found) < _MAX_OBJECTS and broken < _MAX_OBJECTS:
        try:
            _, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            broken += 1
            end = max(error.pos, position + 1)
            # Not more than one character: it may be of a judged text.
            is_cut = not text[error.pos :].strip() or error.msg.startswith("Unterminated")
            what = f"character {error.pos - position + 1}, which is {text[error.pos : error.pos + 1]!r}: {error.msg}"
            if broken <= _MAX_REPAIRS and (repaired := _repaired(text[position : text.rfind("}") + 1])):
                return [*found, repaired], ""
            problem = problem or (_INCOMPLETE if is_cut else f"its JSON object is broken at {what}")
        except (ValueError, RecursionError):  # too many digits, or nested too deeply
            break
        else:
            found.append(text[position:end])
        position = text.find("{", end)
    return found, problem


def _repaired(text: str) -> str:
    r"""Return the valid form of a broken JSON object; empty if the repair would add or lose a word.

    Args:
        text: from the object's opening brace to the last closing brace of the answer.

    Example:
        >>> _repaired("{'why': 'a raw\nnewline', 'good': True,}")
        '{"why": "a raw\\nnewline", "good": true}'
        >>> _repaired('{"part": {"why": "x"}'), _repaired('{"good": 3 of 5}'), _repaired('{"a": 1,} {"a": 2}')
        ('', '', '')
    """
    import json_repair  # few answers need it

    if len(text) > _MAX_REPAIRED_LENGTH:
        return ""
    try:
        found = json.dumps(json_repair.loads(text + _END_MARKER, skip_json_loads=True))
    except (ValueError, RecursionError):  # nested too deeply
        return ""
    return found if found.startswith("{") and _words(found) == _words(text) else ""


def _words(text: str) -> list[str]:
    return _WORD.findall(_ESCAPE.sub(" ", text.lower()))


def _validated(text: str, schema: type[T], nonce: Nonce | None, prompt: str) -> T:
    """Return an object of the schema.

    Raises:
        ValueError: the object is not the answer to this call, or not valid; the message quotes no word of it.
    """
    given = json.loads(text, object_pairs_hook=_no_duplicates)
    if nonce is not None:
        given = nonce.remove_from(given, prompt)
    try:
        # An escape such as "\ud800" is valid JSON, but pydantic rejects it.
        text = clean_text(json.dumps(given, ensure_ascii=False, allow_nan=False))
    except ValueError:
        raise ValueError("a number is not finite") from None
    with suppress(ValidationError):
        return schema.model_validate_json(text, strict=True)
    # Models write "3" for 3, which is accepted. Then pydantic would also read true as 1, but not "true".
    text = _TEXT_OR_BOOLEAN.sub(lambda found: f'"{found[1]}"' if found[1] else found[0], text)
    try:
        value = schema.model_validate_json(text)
        json.dumps(value.model_dump(), default=str, allow_nan=False)  # it also reads "NaN" as a number
    except ValidationError as error:
        raise ValueError(_describe(error, schema)) from None
    except ValueError:
        raise ValueError("a number is not finite") from None
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Parsers read these differently.
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _describe(error: ValidationError, schema: type[BaseModel]) -> str:
    """Say what is wrong. Keys of open mappings are words of the answer and are not shown."""
    known = schema_json(schema)
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for item in problems[:_MAX_PROBLEMS]:
        place = ".".join(str(part) if isinstance(part, int) or f'"{part}":{{' in known else "…" for part in item["loc"])
        # This message of pydantic quotes the answer.
        what = "Input should be another one" if item["type"] == "union_tag_invalid" else item["msg"]
        lines.append(f"{place or 'the object'}: {what}")
    if len(problems) > len(lines):
        lines.append(f"and {len(problems) - len(lines)} more")
    return "; ".join(lines)
