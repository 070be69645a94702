"""Which passages the model saw: their texts are looked for in its prompt."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from xml.sax.saxutils import escape

from rageval_hooks.turn import Passage

__all__ = ["LEAST_PART", "SCORE_KEYS", "PromptText", "mark_dropped", "mark_seen", "passage_key", "unique_passages"]

SCORE_KEYS = ("relevance_score", "score", "_score", "similarity_score", "similarity", "rerank_score", "@search.score")
"""Where stores and rerankers put their score in a document's metadata, the most specific first."""

LEAST_PART = 24
"""Shorter parts of a text are found elsewhere by chance. In characters."""

_MOST_WORK = 50_000_000
"""Characters of the prompt times passages; beyond it nothing is looked for."""

# Runs of white space, also as JSON and Python write it: "\n", "  \t" or the two characters backslash and n.
_SPACE = re.compile(r"(?:\s|\\[nrt])+")


class PromptText:
    """The text of a prompt, in which other texts are looked for.

    Runs of white space count as one space. A text is also found as Python's ``repr``, JSON and XML write it, because
    applications format whole documents into their prompts.

    Args:
        text: all text of the prompt.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._flat: str | None = None

    @property
    def flat(self) -> str:
        """The text with single spaces."""
        if self._flat is None:
            self._flat = _flatten(self.text)
        return self._flat

    def contains(self, text: str) -> bool:
        """Return True if the whole text is in the prompt."""
        stripped = text.strip()
        # The usual case first: the application has put the text into the prompt unchanged.
        if stripped in self.text:
            return True
        return any(form in self.flat for form in _forms(stripped))

    def share_of(self, text: str) -> float:
        """Return the share of a text that is in the prompt: 1 for all of it, else its longest beginning or ending."""
        if self.contains(text):
            return 1.0
        return max((self._share_of_form(form) for form in _forms(text.strip())), default=0.0)

    def _share_of_form(self, text: str) -> float:
        size = len(text)
        if not size:
            return 0.0
        beginning = _longest(size, lambda length: text[:length] in self.flat)
        ending = _longest(size, lambda length: text[size - length :] in self.flat)
        return max(beginning, ending) / size


def _flatten(text: str) -> str:
    return _SPACE.sub(" ", text).strip()


def _forms(text: str) -> Iterator[str]:
    """Yield the ways in which a text may be written in a prompt, each once."""
    seen = set()
    for form in (
        text,
        repr(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        json.dumps(text)[1:-1],
        escape(text),
    ):
        flat = _flatten(form)
        if flat not in seen:
            seen.add(flat)
            yield flat


def _longest(size: int, is_there: Callable[[int], bool]) -> int:
    """Return the greatest length that is there, by bisection: if one length is there, every shorter one is too."""
    # Looking for every length would take quadratic time: passages may have thousands of characters.
    low = min(LEAST_PART, size)
    if not is_there(low):
        return 0
    high = size
    while low < high:
        middle = (low + high + 1) // 2
        if is_there(middle):
            low = middle
        else:
            high = middle - 1
    return low


def mark_seen(passages: Sequence[Passage], prompt: str | None) -> tuple[Passage, ...]:
    """Mark which passages are in the prompt that the model received.

    Args:
        passages: the passages.
        prompt: all text of the prompt; None if there was no prompt: then the passages stay unmarked.
    """
    if prompt is None or len(prompt) * len(passages) > _MOST_WORK:
        return tuple(passages)
    text = PromptText(prompt)
    return tuple(_marked(passage, text) for passage in passages)


def _marked(passage: Passage, prompt: PromptText) -> Passage:
    if not passage.text.strip():
        return passage  # every prompt contains an empty text
    share = prompt.share_of(passage.text)
    return passage.model_copy(update={"in_prompt": share == 1.0, "prompt_share": share})


def mark_dropped(passage: Passage) -> Passage:
    """Mark a passage that did not reach the prompt."""
    return passage.model_copy(update={"in_prompt": False, "prompt_share": 0.0})


def passage_key(passage: Passage) -> tuple[str | None, str]:
    """Return what two copies of a passage have in common: the id and the text."""
    return passage.id, passage.text


def unique_passages(passages: Iterable[Passage]) -> tuple[Passage, ...]:
    """Drop repetitions of a passage with the same id and text: an agent may retrieve it several times."""
    seen: dict[tuple[str | None, str], Passage] = {}
    for passage in passages:
        seen.setdefault(passage_key(passage), passage)
    return tuple(seen.values())
