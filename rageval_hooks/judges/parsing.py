"""From the text that a model wrote to a checked object, however the JSON is wrapped; or why not."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

__all__ = ["UnusableAnswerError", "parse_answer"]

T = TypeVar("T", bound=BaseModel)

_THOUGHTS = re.compile(r"\A\s*<(think|thinking|reasoning)>.*?</\1>", re.DOTALL)
_MAX_BROKEN = 1000  # each costs a look at all that stands before it: the decoder counts lines for its message
_MAX_PROBLEMS = 8


class UnusableAnswerError(Exception):
    """A text holds no answer that fits. Never leaves the judges.

    Args:
        problem: what is wrong, without the answer's own words.
        is_json: whether there was a JSON object at all; a provider that enforces schemas writes nothing else.
    """

    def __init__(self, problem: str, *, is_json: bool) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_json = is_json


def parse_answer(text: str, schema: type[T]) -> T:
    """Return the one object in ``text`` that fits the schema.

    Takes bare JSON, JSON in a Markdown fence, and JSON with words, or a model's thoughts, around it. Where several
    different objects fit, none is taken: the model may have quoted one that a judged text wanted it to write.

    Raises:
        UnusableAnswerError: none fits, or several do.
    """
    text = _THOUGHTS.sub("", text, count=1).strip().removeprefix("\ufeff")
    fitting: dict[str, T] = {}
    problem, is_json = "there is no complete JSON object in it" if text else "it is empty", False
    for candidate in _objects(text):
        is_json = True
        try:
            value = schema.model_validate_json(candidate)
        except ValidationError as error:
            problem = _describe(error)
        else:
            fitting[value.model_dump_json()] = value
    if len(fitting) == 1:
        return next(iter(fitting.values()))
    if fitting:
        problem = "there are several different answers in it"
    raise UnusableAnswerError(problem, is_json=is_json)


def _objects(text: str) -> Iterator[str]:
    """Yield the JSON objects of a text that stand in no other.

    What was read of a broken object is not looked at again.
    """
    broken = 0
    position = text.find("{")
    while position >= 0 and broken < _MAX_BROKEN:
        try:
            _, end = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            broken += 1
            end = max(error.pos, position + 1)
        except (ValueError, RecursionError) as error:
            problem = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
            raise UnusableAnswerError(problem, is_json=True) from None
        else:
            yield text[position:end]
        position = text.find("{", end)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _finite(text: str) -> float:
    if not math.isfinite(number := float(text)):
        raise ValueError("a number is not finite")
    return number


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


_DECODER = json.JSONDecoder(object_pairs_hook=_no_duplicates, parse_float=_finite, parse_constant=_no_constant)


def _describe(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [f"{'.'.join(map(str, item['loc'])) or 'the object'}: {item['msg']}" for item in problems[:_MAX_PROBLEMS]]
    more = len(problems) - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more else "")
