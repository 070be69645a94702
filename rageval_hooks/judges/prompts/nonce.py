"""A nonce for each call: the answer repeats it, so that a quotation from a judged text is never the answer.

A judge that refuses to follow an injected instruction often quotes it, and the quotation may be a valid answer. No
author of a text can know the nonce. Its value is only in the last message: not in the schema, which providers cache,
and not in the key of the answer cache.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from rageval_hooks.judges.prompts.schema import nonce_name
from rageval_hooks.runtime.selecting import entries_except
from rageval_hooks.turn import Message

__all__ = ["Nonce", "is_quoted", "without_spaces"]

# Short enough for a small model to copy, and too long to guess.
_BYTES = 4
_REQUEST = 'Set the field "{name}" of the object to "{value}".'
# A shorter object, such as {"score": 3}, may be an example in the prompt of a user's own metric and a right answer.
_SHORTEST_QUOTATION = 40


@dataclass(frozen=True)
class Nonce:
    """The nonce of one call.

    Attributes:
        name: the field of the answer that repeats it.
        value: the nonce.
    """

    name: str
    value: str

    @classmethod
    def new(cls, schema: type[BaseModel]) -> Nonce:
        """Draw a nonce for an answer in a schema."""
        return cls(nonce_name(schema), secrets.token_hex(_BYTES))

    @property
    def request(self) -> str:
        """The sentence of the prompt that asks for it."""
        return _REQUEST.format(name=self.name, value=self.value)

    def ask_in(self, messages: tuple[Message, ...]) -> tuple[Message, ...]:
        """Ask for the nonce at the end of the last message, so that the rest of the prompt stays the same."""
        last = messages[-1]
        if last.role != "user":
            return (*messages, Message(role="user", content=self.request))
        return (*messages[:-1], Message(role="user", content=f"{last.content}\n\n{self.request}"))

    def remove_from(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Return an answer without its nonce.

        Raises:
            ValueError: the answer does not repeat the nonce.
        """
        if self.name not in answer:
            raise ValueError(f"{self.name}: Field required")
        if str(answer[self.name]).strip().casefold() != self.value:
            raise ValueError(f"{self.name}: Input should be the one that the last message gives")
        return entries_except(answer, self.name)


def is_quoted(answer: Mapping[str, Any], prompt: str) -> bool:
    """Return True if an object is part of the prompt, whatever its white space.

    Args:
        answer: the object, without the nonce.
        prompt: the prompt without its white space; see :func:`without_spaces`.
    """
    text = without_spaces(json.dumps(answer, ensure_ascii=False, separators=(",", ":")))
    return len(text) >= _SHORTEST_QUOTATION and text in prompt


def without_spaces(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())
