"""What cells hold: missing values, lists and objects that a program wrote as text, chat messages, passages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.integrations.capture.passages import TEXT_KEYS, passage_of, passage_of_mapping
from rageval_hooks.integrations.capture.values import finite, first_key
from rageval_hooks.integrations.conversation import exchanges, is_from_assistant, is_from_user, message_text
from rageval_hooks.runtime.literals import unpacked
from rageval_hooks.runtime.narrowing import is_missing, is_number, mapping_or_empty
from rageval_hooks.text.formatting import shorten
from rageval_hooks.text.wording import with_article
from rageval_hooks.turn import Passage

_KINDS = {dict: "object", list: "list", bool: "boolean", int: "number", float: "number", str: "text"}

# What begins like a list or object of texts: "['a", "[{'text'".
_LISTED = re.compile(r"\[\s*[\"'{]|\{\s*[\"']")
# "[Document(page_content='a')]", "[NodeWithScore(node=…", "array(['a'], dtype=object)", and a list of arrays.
_CALL = re.compile(r"(?:\[\s*)?(?:array\(\[|[A-Z][A-Za-z]{2,40}\([a-z_]{2,40}=)")
_MAX_DEPTH = 3
"""Levels of lists and objects that are proposed for --map; deeper ones are contents."""


def kind_of(value: Any) -> str:
    """Return the kind of a value, for messages: ``a list``."""
    return with_article(_KINDS.get(type(value), type(value).__name__))


def check_list(value: Any, name: str) -> None:
    """Check that a text that begins like a list or an object could be read.

    Raises:
        TurnError: it was printed by numpy or pandas, is a call such as ``Document(...)``, or is cut off.
    """
    text = unpacked(value)
    if isinstance(text, str) and (_CALL.match(text.strip()) or _LISTED.match(text.strip())):
        raise TurnError(
            f"the {name} begin like a list, which is neither JSON nor a list of Python: {shorten(text, 60)!r}. "
            "Objects of Python and arrays of numpy cannot be read from their print: write the file as JSON Lines or "
            "Parquet, or the texts with json.dumps"
        )


def leaves(value: Any, path: str, depth: int = _MAX_DEPTH) -> Iterator[tuple[str, Any]]:
    """Yield the values inside the lists and objects of a cell, with their paths: ``hits[].text``."""
    content = unpacked(value)
    if depth and content and isinstance(content, Mapping):
        for key, item in content.items():
            yield from leaves(item, f"{path}.{key}", depth - 1)
    elif depth and content and isinstance(content, list):
        for item in content:
            yield from leaves(item, f"{path}[]", depth - 1)
    else:
        yield path, content


def chat_text(value: Any, role: str) -> str:
    """Return the text of the last message of the user, or of the assistant's last answer; empty if there is none.

    Args:
        value: messages in the format of OpenAI, LangChain or ShareGPT, an object with ``messages``, or the ``choices``
            of a chat completion.
        role: ``user`` or ``assistant``.
    """
    messages = messages_in(value)
    if role == "user":
        return next((message_text(message) for message in reversed(messages) if is_from_user(message)), "")
    pairs = exchanges(messages)
    if pairs or any(map(is_from_user, messages)):
        return pairs[-1][1] if pairs else ""
    # The messages of an answer alone, such as the choices of a chat completion.
    return "\n\n".join(filter(None, (message_text(message) for message in messages if is_from_assistant(message))))


def last_exchange(value: Any) -> tuple[str, str] | None:
    """Return the last question of messages that has an answer, and the answer; None if no question has one."""
    return next(reversed(exchanges(messages_in(value))), None)


def messages_in(value: Any) -> list[Any]:
    """Return the chat messages of a cell; empty for any other value."""
    value = unpacked(value)
    if isinstance(value, Mapping):
        choices = value.get("choices")
        if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
            return [{**mapping_or_empty(choices[0].get("message")), "role": "assistant"}]
        value = value.get("messages")
    return value if isinstance(value, list) else []


def metadata_in(value: Any) -> Mapping[str, Any]:
    """Return the metadata of a cell, which may be JSON.

    Raises:
        TurnError: it is not an object.
    """
    found = unpacked(value)
    if is_missing(found):
        return {}
    if not isinstance(found, Mapping):
        raise TurnError(f"the metadata is {kind_of(found)}, not an object")
    return found


# --------------------------------------------------------------------------- passages

_WRAPPERS = ("contexts", "passages", "documents", "chunks", "results", "hits", "nodes", "docs")
"""Keys of objects that hold the list of passages: ``{"documents": [...], "took": 5}``."""

# "5", "0.7", addresses without a blank, ids such as "doc_12", and names of files, also with a place in them:
# "docs/Report.docx", "a.md#3".
_NO_TEXT = re.compile(
    r"[+-]?\d+(?:\.\d+)?|https?://\S+|(?=[a-z_.:/#-]{0,64}[0-9])[a-z0-9_.:/#-]{1,64}"
    r"|[^#]{1,200}\.(?:pdf|md|txt|rst|docx?|pptx?|xlsx?|html?|csv|jsonl?|epub)(?:#.*)?",
    re.IGNORECASE | re.DOTALL,
)
# Between the sources of one cell: "a.pdf | b.pdf", "a.pdf; b.pdf".
_BETWEEN = re.compile(r"[|;,\n]")
# Keys of objects that say where a passage is from, without its text.
_SOURCE_KEYS = frozenset(
    "title url uri link href source file filename file_name file_path path page page_number section name id doc_id "
    "document_id chunk_id chunk_index index rank score similarity distance relevance type author date".split()
)


def passages_in(value: Any, path: str = "COLUMN") -> list[Passage]:
    """Return the passages of a cell.

    Args:
        value: a text, a list, or an object by id. A text may hold a list of passages.
        path: where it is, for messages.

    Raises:
        TurnError: a passage has no text; the message says which keys are accepted.
    """
    if is_missing(value):
        return []
    check_list(value, "passages")
    found = unpacked(value)
    if isinstance(found, Mapping) and first_key(found, TEXT_KEYS, str):
        found = [found]
    if isinstance(found, Mapping) and (wrapper := first_key(found, _WRAPPERS, list)):
        return passages_in(found[wrapper], f"{path}.{wrapper}")
    # '{"a": 1}' is a text about JSON, and "[1, 2]" one about numbers.
    has_items = isinstance(found, list) and any(isinstance(item, (str, list, Mapping)) for item in found)
    if isinstance(value, str) and not has_items and found != []:
        return [Passage(text=value)]
    if isinstance(found, Mapping):
        found = [{"id": key, **(item if isinstance(item, Mapping) else {"text": item})} for key, item in found.items()]
    if not isinstance(found, (list, tuple)):
        raise TurnError(f"the passages are {kind_of(found)}: give a list of texts or of objects with a text")
    return [_passage(item, number, path) for number, item in enumerate(_flat(found), 1)]


def _flat(items: Iterable[Any]) -> Iterator[Any]:
    """Yield the items of nested lists that are not empty.

    A pair of passage and score, ``["text", 0.7]``, as ``similarity_search_with_score`` returns it, stays together.
    """
    for item in items:
        is_list = isinstance(item, (list, tuple)) and not hasattr(item, "_fields")
        if is_list and not (len(item) == 2 and not isinstance(item[0], (list, tuple)) and any(map(is_number, item))):
            yield from _flat(item)
        elif not is_missing(item):
            yield item


def _passage(item: Any, number: int, path: str) -> Passage:
    if isinstance(item, (list, tuple)) and not hasattr(item, "_fields"):
        content, score = item if is_number(item[1]) else item[::-1]
        return _passage(content, number, path).model_copy(update={"score": finite(score)})
    passage = passage_of_mapping(item, metadata_in) if isinstance(item, Mapping) else passage_of(item)
    if passage is not None:
        return passage
    if not isinstance(item, Mapping):
        raise TurnError(
            f"passage {number} is {kind_of(item)}: give a text, or an object with text, id, score, metadata"
        )
    texts = [key for key, value in item.items() if isinstance(value, str) and " " in value.strip()]
    hint = f". Try --map passages='{path}[].{texts[0]}'" if len(texts) == 1 else ""
    raise TurnError(
        f"passage {number} has no text: accepted are {', '.join(TEXT_KEYS[:8])} …; "
        f"found: {', '.join(map(str, item))}{hint}"
    )


def may_be_passages(value: Any) -> bool:
    """Return False for a cell that certainly holds no texts of passages.

    A wrong passage is worse than none: an answer would be compared with the number 5 or the name of a file.
    """
    found = unpacked(value)
    return any(map(_may_be_passage, found if isinstance(found, (list, tuple)) else [found]))


def _may_be_passage(item: Any) -> bool:
    if isinstance(item, Mapping):
        # {"title": "Handbook", "url": "https://…"} says where a passage is from.
        return not _SOURCE_KEYS.issuperset(str(key).lower().replace(" ", "_") for key in item)
    if isinstance(item, str):
        return not are_no_texts(item)
    return isinstance(item, (list, tuple)) or passage_of(item) is not None


def are_no_texts(text: str) -> bool:
    """Return True for numbers, addresses, ids and names of files, and several of them: ``a.pdf; b.pdf``."""
    return all(_NO_TEXT.fullmatch(part) for part in filter(None, map(str.strip, _BETWEEN.split(text))))
