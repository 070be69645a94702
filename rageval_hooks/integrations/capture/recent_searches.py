"""Searches shortly before a turn: an application may call a store, then a model, with nothing around both.

A search belongs to the turn of the model whose prompt has what it found. In another context, such as that of a thread
that the application has sent it to, it must also have been for a question that is in the prompt.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field

from rageval_hooks.integrations.capture.passages import mark_seen, unique_passages
from rageval_hooks.turn import Passage

_MAX_SEARCHES = 20
"""Searches that a context remembers."""

_SECONDS = 60.0
"""For so long a search is remembered."""

_MAX_ELSEWHERE = 100
"""Searches of all contexts that are remembered."""


@dataclass(eq=False)
class RecentSearch:
    """A search outside of any turn with an answer.

    Attributes:
        query: what was searched for.
        found: the passages.
        at: when it ended, by the monotonic clock.
        turn_id: the turn whose prompt had what it found first; None so far.
    """

    query: str
    found: Sequence[Passage]
    at: float = field(default_factory=time.monotonic)
    turn_id: str | None = None


_recent: ContextVar[list[RecentSearch] | None] = ContextVar("rageval_hooks_recent_searches", default=None)
_everywhere: deque[RecentSearch] = deque(maxlen=_MAX_ELSEWHERE)
_forgotten_at = 0.0


def forget_searches() -> None:
    """Forget the searches of all contexts: what was searched before ``instrument()`` belongs to no turn of it."""
    global _forgotten_at
    _forgotten_at = time.monotonic()


def recent_searches(*, everywhere: bool = False) -> list[RecentSearch]:
    """Return the searches of this context, or of all contexts, before now."""
    oldest = max(_forgotten_at, time.monotonic() - _SECONDS)
    searches = list(_everywhere) if everywhere else _recent.get() or ()
    return [search for search in searches if search.at > oldest]


def give_context_a_list() -> None:
    """Give the context a list of its own, to which tasks may append that inherit it: they cannot set a variable."""
    _recent.set(list(_recent.get() or ()))


def note_search(search: RecentSearch, *, in_task: bool = False) -> None:
    """Remember a search of this context.

    Args:
        search: the search.
        in_task: True if this is called in a task that the framework made for its callback.
    """
    _everywhere.append(search)
    if not in_task:
        give_context_a_list()
    if (searches := _recent.get()) is not None:
        searches.append(search)
        del searches[:-_MAX_SEARCHES]


def passages_before(
    searches: Sequence[RecentSearch], turn_id: str, prompt: str
) -> tuple[tuple[Passage, ...], list[str]]:
    """Return what searches before a turn found that is in its prompt, and what they asked.

    Args:
        searches: the searches of its context before the root of the turn.
        turn_id: the id of that root.
        prompt: all text of the prompts behind the answer.
    """
    # Of other contexts, only searches for what this prompt asks: another request at the same time asks something else.
    # A short query may be in it by chance. Even then the prompt has the passages, which nothing else has found.
    new = (search for search in recent_searches(everywhere=True) if search.turn_id in (None, turn_id))
    others = [search for search in new if search.query.strip() and search.query in prompt]
    for group in (searches, others):
        passages: list[Passage] = []
        queries: list[str] = []
        for search in group:
            found = mark_seen(search.found, prompt)
            if any(passage.prompt_share and passage.seen_by_model for passage in found):
                search.turn_id = search.turn_id or turn_id
                # An earlier answer of the conversation was written from it, too.
                from_turn = None if search.turn_id == turn_id else search.turn_id
                passages += [one.model_copy(update={"from_turn": from_turn}) for one in found]
                queries += [search.query] if from_turn is None else []
        if passages:
            return unique_passages(passages), queries
    return (), []


def question_in(prompt: str, asked: Sequence[str]) -> str:
    """Return what was searched for, if it is in the prompt that the application wrote; else the prompt."""
    return max((one for one in asked if one in prompt), key=len, default="") or prompt
