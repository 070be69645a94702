"""Instructions about the answer's format. They come last, so that prompts of a turn keep their common prefix."""

from __future__ import annotations

from pydantic import BaseModel

from rageval_hooks.judges.prompts.nonce import Nonce
from rageval_hooks.judges.prompts.schema import schema_json
from rageval_hooks.turn import Message

__all__ = ["INSTRUCTIONS_VERSION", "with_repair", "with_schema"]

INSTRUCTIONS_VERSION = "2"
"""Part of the cache key: a change of these texts invalidates cached answers."""

_SCHEMA = """Answer with one JSON object and nothing else: no introduction, no Markdown fence, no remarks.
The object must fit this JSON Schema:
{schema}"""

_REPAIR = """That answer cannot be used: {problem}.
Give the answer again, complete and corrected, as one JSON object and nothing else. {nonce}"""

_QUOTED = 6000
"""Maximum length of an unusable answer in the request for a correction, in characters."""


def with_schema(messages: tuple[Message, ...], schema: type[BaseModel]) -> tuple[Message, ...]:
    """Append the schema to the last message, for models whose provider does not enforce it."""
    text = _SCHEMA.format(schema=schema_json(schema))
    last = messages[-1]
    if last.role != "user":
        return (*messages, Message(role="user", content=text))
    return (*messages[:-1], Message(role="user", content=f"{last.content}\n\n{text}"))


def with_repair(messages: tuple[Message, ...], answer: str, problem: str, nonce: Nonce) -> tuple[Message, ...]:
    """Append the unusable answer and the request to correct it."""
    shown = answer if len(answer) <= _QUOTED else f"{answer[:_QUOTED]} […]"
    return (
        *messages,
        Message(role="assistant", content=shown or "(no answer)"),
        Message(role="user", content=_REPAIR.format(problem=problem, nonce=nonce.request)),
    )
