"""A conversation and the passages retrieved for it, in two JSON files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError, TurnError
from rageval_hooks.integrations.conversation import turns_from_conversation
from rageval_hooks.offline.records.record import Record
from rageval_hooks.runtime.narrowing import mapping_or_empty

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
    try:
        # Editors on Windows begin files with a byte order mark, which "utf-8-sig" drops.
        document = json.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise TurnError(f"{path} is not JSON: {error}") from None
    found = _search(document, names)
    if found is None:
        raise TurnError(f"{path} has no array under one of {', '.join(names)}")
    return found


def _search(document: Any, names: tuple[str, ...]) -> list[Any] | None:
    if isinstance(document, list):
        return document
    # Exports nest the array in objects: `{"data": {"messages": [...]}}`.
    fields = mapping_or_empty(document)
    inner = (_search(fields[name], names) for name in (*names, "data") if name in fields)
    return next((found for found in inner if found is not None), None)
