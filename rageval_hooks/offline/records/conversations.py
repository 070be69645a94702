"""A conversation and the passages retrieved for it, in two JSON files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.integrations.conversation import turns_from_conversation
from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.offline.records.formats.json import read_document
from rageval_hooks.offline.records.record import Record

__all__ = ["read_conversation"]

_MESSAGES = ("conversation_turns", "messages", "turns", "conversation", "chat")
_CONTEXTS = ("contexts", "vector_data", "passages", "documents", "retrieved_contexts")


def read_conversation(messages: Path, contexts: Path) -> Iterator[tuple[int, Record]]:
    """Yield a record for each answer of a conversation, with its number.

    Args:
        messages: a JSON array of messages, or an object with one under one of the usual names.
        contexts: a JSON array of passages for all answers, or of one such array per answer; or an object with it.

    Raises:
        ConfigurationError: there is no such file.
        TurnError: it is not JSON, or the two do not fit together; the message says where.
    """
    # The passages of a turn are matched to its answer by their position.
    turns = turns_from_conversation(_array(messages, _MESSAGES), _array(contexts, _CONTEXTS))
    for number, turn in enumerate(turns, 1):
        yield number, Record(id=turn.id, turn=turn)


def _array(path: Path, names: tuple[str, ...]) -> list[Any]:
    with SourceFile(path) as file, file.reading():
        found = _search(read_document(file), names)
    if found is None:
        raise TurnError(f"{path} has no array under one of {', '.join(names)}")
    return found


def _search(document: Any, names: tuple[str, ...]) -> list[Any] | None:
    if isinstance(document, list):
        return document
    if not isinstance(document, dict):
        return None
    # Exports nest the array in objects: `{"data": {"messages": [...]}}`.
    inner = (_search(document[name], names) for name in (*names, "data") if name in document)
    return next((found for found in inner if found is not None), None)
