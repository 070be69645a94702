"""What the pure ``turn_from_*`` functions share: which passages the model was shown, and how long things took."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from rageval_hooks.turn import Passage

__all__ = [
    "SCORE_KEYS",
    "busy_seconds",
    "carries",
    "finite",
    "first_string",
    "is_a",
    "mark_shown",
    "or_else",
    "unique_passages",
    "writer_of",
]

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")

SCORE_KEYS = ("relevance_score", "score", "_score", "similarity_score", "similarity", "rerank_score", "@search.score")
"""Where stores and rerankers put their score in a document's metadata, the most specific first."""

_LEAST_PART = 24
_MOST_WORK = 50_000_000
_WORDS = re.compile(r"\w+")
_MARKS = re.compile(r"\[[^\]\s]{1,12}\]|[*_`#>]")
_SPACE = re.compile(r"(?:\s|\\[nrt])+")  # escaped white space too: a tool's answer may be JSON


def or_else(default: D) -> Callable[[Callable[P, T]], Callable[P, T | D]]:
    """Have a function that reads the application's values return a default where one of them cannot be read.

    An array has no truth value, a proxy of what is not there no class, a number of thousands of digits no text: what an
    application passes through its chains may raise when it is looked at, and that is no reason to lose the turn.
    """

    def decorate(read: Callable[P, T]) -> Callable[P, T | D]:
        @wraps(read)
        def reading(*args: P.args, **kwargs: P.kwargs) -> T | D:
            try:
                return read(*args, **kwargs)
            except Exception:
                return default

        return reading

    return decorate


@or_else(False)
def is_a(value: Any, classes: type | tuple[type, ...]) -> bool:
    """Whether a value is an instance of a class; False if it does not say."""
    return isinstance(value, classes)


@or_else(None)
def finite(value: Any) -> float | None:
    """Return a number as a float; None if it is no number, or not finite."""
    if value is None:
        return None
    number = float(value)
    return number if number - number == 0 else None


def mark_shown(passages: Sequence[Passage], prompt: str | None) -> tuple[Passage, ...]:
    """Mark which passages stand in the prompt that the model was given.

    White space counts as alike. Of a passage that stands there in part, the longest beginning or ending is taken.

    Args:
        passages: what was retrieved.
        prompt: all text of the final prompt; None if there was no prompt: then nothing is marked.
    """
    if prompt is None or len(prompt) * len(passages) > _MOST_WORK:
        return tuple(passages)
    flat: str | None = None
    marked = []
    for passage in passages:
        text = passage.text.strip()
        if not text:
            marked.append(passage)
            continue
        share = 1.0 if text in prompt else None
        if share is None:
            if flat is None:
                flat = _flatten(prompt)
            share = _share(_flatten(text), flat)
        marked.append(passage.model_copy(update={"in_prompt": share == 1.0, "prompt_share": share}))
    return tuple(marked)


def _flatten(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def _share(text: str, prompt: str) -> float:
    if text in prompt:
        return 1.0
    size = len(text)
    beginning = _longest(size, lambda length: text[:length] in prompt)
    ending = _longest(size, lambda length: text[size - length :] in prompt)
    return max(beginning, ending) / size


def _longest(size: int, stands_there: Callable[[int], bool]) -> int:
    """Return the greatest length that stands there: where one does, every shorter one does too."""
    low = min(_LEAST_PART, size)
    if not stands_there(low):
        return 0
    high = size
    while low < high:
        middle = (low + high + 1) // 2
        if stands_there(middle):
            low = middle
        else:
            high = middle - 1
    return low


def unique_passages(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """Drop a passage that came before with the same id and text: an agent may retrieve it again and again."""
    seen: dict[tuple[str | None, str], Passage] = {}
    for passage in passages:
        seen.setdefault((passage.id, passage.text), passage)
    return tuple(seen.values())


def writer_of(response: str, calls: Sequence[T], text_of: Callable[[T], str]) -> T | None:
    """Return the model call that wrote a response: others rewrite the question before it, or judge the answer after it.

    It is the last one whose text the response is, but for capitals, white space, and marks of Markdown and citations.
    If there is none, it is the last call of all if that shares its words with the response; else the one that most of
    the response is by, or that has it as a part of more (a field of an object). None if there is no such call either.

    Args:
        response: the response.
        calls: the model calls by start time.
        text_of: returns what a call wrote.
    """
    wanted = _bare(response)
    if not wanted or not calls:
        return None
    texts = [text_of(call).strip() for call in calls]
    same = [call for call, text in zip(calls, texts, strict=True) if _bare(text) == wanted]
    if same:
        return same[-1]
    words, last = set(_WORDS.findall(wanted)), set(_WORDS.findall(_bare(texts[-1])))
    if 2 * len(words & last) >= len(words) or (last and 5 * len(words & last) >= 4 * len(last)):
        return calls[-1]
    shares = [_shared(response.strip(), text) for text in texts]
    most = max(shares)
    return (
        None if not most else next(call for call, share in zip(calls[::-1], shares[::-1], strict=True) if share == most)
    )


def _bare(text: str) -> str:
    return " ".join(_MARKS.sub(" ", text).casefold().split())


def _shared(response: str, written: str) -> int:
    """Return how many characters of a response a model wrote."""
    if carries(response, written):
        return len(written)
    if len(response) < _LEAST_PART and " " not in response:
        return 0  # a word stands there by chance
    return len(response) if response in written or json.dumps(response, ensure_ascii=False)[1:-1] in written else 0


def carries(text: str, written: str) -> bool:
    """Whether a text is what a model wrote, perhaps with more around it: not a word that stands there by chance."""
    text, written = text.strip(), written.strip()
    return bool(written) and len(written) >= min(_LEAST_PART, len(text) / 2) and written in text


def busy_seconds(intervals: Iterable[tuple[int, int]]) -> float | None:
    """Return the seconds covered by some intervals in nanoseconds, overlaps once; None if there are none."""
    total = 0
    last_end: int | None = None
    for start, end in sorted(intervals):
        if last_end is None or start > last_end:
            total += max(0, end - start)
            last_end = max(start, end)
        elif end > last_end:
            total += end - last_end
            last_end = end
    return None if last_end is None else total / 1e9


def first_string(mapping: Mapping[Any, Any], keys: Iterable[str]) -> str | None:
    """Return the first non-empty value under some keys, as a string."""
    for key in keys:
        found = _string(mapping.get(key))
        if found:
            return found
    return None


@or_else("")
def _string(value: Any) -> str:
    return "" if value is None else str(value)
