"""What a prompt is told about the answer's form. Always behind everything else: the shared prefix stays as it is."""

from __future__ import annotations

from pydantic import BaseModel

from rageval_hooks.judges.prompts.schema import schema_json
from rageval_hooks.turn import Message

__all__ = ["INSTRUCTIONS_VERSION", "with_repair", "with_schema"]

INSTRUCTIONS_VERSION = "1"
"""Changes with these texts, and makes cached answers void."""

_SCHEMA = """Answer with one JSON object and nothing else: no introduction, no Markdown fence, no remarks.
The object must fit this JSON Schema:
{schema}"""

_REPAIR = """That answer cannot be used: {problem}.
Give the answer again, complete and corrected, as one JSON object and nothing else."""

_QUOTED = 6000
"""Characters of a wrong answer that are shown to the model again."""


def with_schema(messages: tuple[Message, ...], schema: type[BaseModel]) -> tuple[Message, ...]:
    """Return the messages with the schema behind the last one, for models whose provider does not enforce it."""
    text = _SCHEMA.format(schema=schema_json(schema))
    last = messages[-1]
    if last.role != "user":
        return (*messages, Message(role="user", content=text))
    return (*messages[:-1], Message(role="user", content=f"{last.content}\n\n{text}"))


def with_repair(messages: tuple[Message, ...], answer: str, problem: str) -> tuple[Message, ...]:
    """Return the messages with the wrong answer and the request for a better one behind them."""
    shown = answer if len(answer) <= _QUOTED else f"{answer[:_QUOTED]} […]"
    return (
        *messages,
        Message(role="assistant", content=shown or "(no answer)"),
        Message(role="user", content=_REPAIR.format(problem=problem)),
    )
