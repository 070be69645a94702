"""The ``--map`` that would make an unknown file readable, guessed from names and values."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rageval_hooks.offline.records.cells import unpacked

__all__ = ["Candidate", "suggest_map"]

_MOST_DEPTH = 4
_HINTS: dict[str, tuple[str, ...]] = {
    "query": ("question", "query", "prompt", "ask", "instruction", "user", "input", "problem"),
    "response": ("answer", "response", "output", "generat", "predict", "complet", "reply", "gpt", "llm", "model"),
    "passages": ("context", "passage", "doc", "chunk", "retriev", "evidence", "source", "snippet", "knowledge"),
    "reference": ("reference", "gold", "truth", "expect", "ideal", "correct", "target", "label"),
}
_GOLDEN = _HINTS["reference"]
_NOT_TEXT = ("id", "url", "time", "date", "score", "model_name", "name", "type", "lang")
_MANY_WORDS = 8


@dataclass(frozen=True)
class Candidate:
    """A place in a row where a field might be.

    Attributes:
        path: a column, or a JMESPath expression.
        texts: some of its values.
        is_list: True if a row has several.
    """

    path: str
    texts: Sequence[str]
    is_list: bool


def suggest_map(fields: Iterable[str], rows: Sequence[Mapping[str, Any]], used: Collection[str] = ()) -> str:
    """Return the options that would map missing fields: ``--map response=gpt_reply``; empty if there is no good guess.

    Args:
        fields: the fields without a column.
        rows: the first rows of the file.
        used: columns that other fields take.
    """
    candidates = [found for found in _candidates(rows) if found.path not in used]
    options = []
    for field in fields:
        best = max(candidates, key=lambda found: _rating(field, found), default=None)
        if best is None or _rating(field, best) <= 0:
            continue
        options.append(f"--map {field}={_quoted(best.path)}")
        candidates.remove(best)
    return " ".join(options)


def _quoted(path: str) -> str:
    return f"'{path}'" if any(character in path for character in "[] |&;*") else path


def _rating(field: str, candidate: Candidate) -> float:
    """Return how well a place suits a field; 0 or less if it does not."""
    name = candidate.path.lower()
    words = _mean_words(candidate.texts)
    rating = 3.0 if any(hint in name for hint in _HINTS[field]) else 0.0
    if field != "reference" and any(hint in name for hint in _GOLDEN):
        rating -= 2
    if name.rpartition(".")[2].removesuffix("[]") in _NOT_TEXT or name.endswith("_id"):
        rating -= 3
    if field == "passages":
        return rating + (2 if candidate.is_list else 0) + (1 if words >= _MANY_WORDS else -1)
    if candidate.is_list:
        return rating - 3
    if field == "query":
        asked = sum(text.rstrip().endswith("?") for text in candidate.texts)
        return rating + 3 * asked / len(candidate.texts)
    return rating + (1 if words >= _MANY_WORDS / 2 else 0)


def _mean_words(texts: Sequence[str]) -> float:
    return sum(len(text.split()) for text in texts) / len(texts)


def _candidates(rows: Sequence[Mapping[str, Any]]) -> list[Candidate]:
    texts: dict[str, list[str]] = {}
    lists: set[str] = set()
    for row in rows[:20]:
        for column, value in row.items():
            for path, text, is_list in _texts(str(column), value, _MOST_DEPTH):
                texts.setdefault(path, []).append(text)
                if is_list:
                    lists.add(path)
    return [Candidate(path, found, path in lists) for path, found in texts.items()]


def _texts(path: str, value: Any, depth: int, is_list: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Yield the texts in a value, each with its path and whether a list is around it."""
    value = unpacked(value)
    if isinstance(value, str):
        if value.strip():
            yield path, value, is_list
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(f"{path}.{_identifier(str(key))}", item, depth - 1, is_list)
    elif depth and isinstance(value, list):
        plain = all(isinstance(item, str) for item in value)
        for item in value[:5]:
            yield from _texts(path if plain else f"{path}[]", item, depth - 1, is_list=True)


def _identifier(key: str) -> str:
    """Return a key as JMESPath has it: quoted unless it is a plain identifier."""
    return key if key.isidentifier() else f'"{key}"'
