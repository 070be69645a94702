"""What the keys that an application chose say: which one names the answer, the question, or something else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from rageval_hooks.runtime.selecting import common

__all__ = [
    "answer_keys_in",
    "is_answer_object_key",
    "is_beside_answer",
    "names_search",
    "names_search_results",
    "question_keys_in",
]

_USUAL = ("answer", "output", "result", "response", "output_text", "text", "generation", "content")
"""Keys of the usual outputs, for example {"answer": "…", "context": […]} of a retrieval chain, or {"output": "…"}."""

_SPEAKERS = frozenset({"ai", "assistant", "bot", "chatbot", "generated"})
_ANSWERS = frozenset({"answer", "message", "output", "reply", "report", "response", "result", "text"})

# A router's or a grader's text, and what applications make of a finished answer: a title, follow-up questions,
# a critique.
_BESIDE = frozenset(
    "check critique evaluation feedback followup followups grade grader guard intent label plan queries query question "
    "questions rationale reason reasoning review route router score status suggestion suggestions summary title topic "
    "verdict".split()
)

_SEARCH_RESULTS = frozenset(
    "background chunk chunks content contents context contexts doc docs document documents evidence facts knowledge "
    "passage passages references results retrieval retrieved search snippet snippets source sources web".split()
)
_SEARCHES = frozenset(
    "context docs documents fetch find knowledge lookup passages rag retrieval retrieve search".split()
)

_USERS = frozenset({"client", "customer", "human", "user"})
_USERS_TEXTS = frozenset({"input", "message", "prompt", "query", "question", "request", "text"})
_MESSAGES = frozenset({"message", "request", "utterance"})
"""Keys of a question next to other strings, for example {"message": "…", "language": "en"}."""

# "final" and "Answer" of "finalAnswer", "follow" and "ups" of "follow_ups", "URL" of "URL".
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def answer_keys_in(keys: Iterable[Any], usual: Sequence[str] = _USUAL) -> list[str]:
    """Return the keys under which an answer is expected, the most certain one first.

    Args:
        keys: the keys of an output.
        usual: the keys that the framework uses, the preferred one first.
    """
    names = [key for key in keys if isinstance(key, str)]
    # {"answer": draft, "final_answer": text}: the application says which one counts.
    final = [name for name in names if _is_final(name)]
    known = common(usual, names)
    spoken = [name for name in names if _is_spoken(name)]
    return [*final, *known, *spoken]


def is_answer_object_key(key: str) -> bool:
    """Return True if an object under a key is certainly the answer. Under "result" it may be a grader's verdict."""
    return key == "answer" or _is_final(key)


def is_beside_answer(key: Any) -> bool:
    """Return True if a key names something that is made next to the answer, for example ``follow_up_questions``."""
    words = _words(str(key))
    return not _BESIDE.isdisjoint(words) or words[:1] == ["follow"]


@lru_cache(maxsize=1000)  # asked in the request, for the keys of every state
def names_search_results(key: Any) -> bool:
    """Return True for the key of a text that may be a search result, for example ``context`` or ``web_results``."""
    return not _SEARCH_RESULTS.isdisjoint(_words(str(key)))


@lru_cache(maxsize=1000)
def names_search(function: str) -> bool:
    """Return True for the name of a function that searches, for example ``search_web`` or ``get_context``."""
    return not _SEARCHES.isdisjoint(_words(function))


def _is_final(key: str) -> bool:
    """Return True for ``final``, ``final_answer``, ``finalResponse`` and the like."""
    words = _words(key)
    if words[:1] != ["final"]:
        return False
    return len(words) == 1 or words[-1] in _ANSWERS


def _is_spoken(key: str) -> bool:
    """Return True for ``reply``, ``bot_response``, ``generated_answer`` and the like."""
    words = _words(key)
    if words == ["reply"]:
        return True
    return len(words) == 2 and words[0] in _SPEAKERS and words[1] in _ANSWERS


def question_keys_in(keys: Iterable[str]) -> list[str]:
    """Return the keys that name the question most clearly; several if they name it equally."""
    names = list(keys)
    for names_question in (_is_users_text, _is_question, _is_message):
        found = list(filter(names_question, names))
        if found:
            return found
    return []


def _is_users_text(key: str) -> bool:
    """Return True for ``user_message``, ``customer_question``, ``userInput`` and the like."""
    words = _words(key)
    return len(words) == 2 and words[0] in _USERS and words[1] in _USERS_TEXTS


def _is_question(key: str) -> bool:
    """Return True for ``original_question``, ``search_query`` and the like."""
    return _words(key)[-1:] in (["question"], ["query"])


def _is_message(key: str) -> bool:
    return key.lower() in _MESSAGES


def _words(key: str) -> list[str]:
    """Return the words of a key in lower case: ["final", "answer"] of ``final_answer`` and of ``finalAnswer``."""
    return [word.lower() for word in _WORDS.findall(key)]
