"""Values of the host application, which may raise whenever they are inspected, and what the names of fields say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, wraps
from types import MemberDescriptorType, ModuleType
from typing import Any, ParamSpec, TypeVar

from rageval_hooks.runtime.interrupts import raise_interrupt
from rageval_hooks.runtime.jsonable import plain_value, string_of

P = ParamSpec("P")
T = TypeVar("T")
D = TypeVar("D")


def or_else(default: D) -> Callable[[Callable[P, T]], Callable[P, T | D]]:
    """Make a function return a default where it would raise.

    Applications pass anything through their chains: arrays that have no truth value, proxies that raise when their
    class is asked for, integers with too many digits for ``str``. Such a value must not cost the whole turn.
    """

    def decorate(read: Callable[P, T]) -> Callable[P, T | D]:
        @wraps(read)
        def reading(*args: P.args, **kwargs: P.kwargs) -> T | D:
            try:
                return read(*args, **kwargs)
            except Exception as error:
                raise_interrupt(error)
                return default

        return reading

    return decorate


@or_else(False)
def is_a(value: Any, classes: type | tuple[type, ...]) -> bool:
    """Return True if a value is an instance of a class; False if the value raises when its class is asked for."""
    return isinstance(value, classes)


@or_else(None)
def finite(value: Any) -> float | None:
    """Return a number as a float; None if the value is not a finite number."""
    if value is None or isinstance(value, bool):
        return None
    number = float(value)
    # The difference is nan, which equals nothing, if the number is infinite or nan.
    return number if number - number == 0 else None


def parsed_json(value: Any) -> Any:
    """Return the JSON object or list in a text; any other value unchanged."""
    if not is_a(value, str) or value.strip()[:1] not in ("{", "["):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


@or_else(None)
def attribute_text(value: Any, name: str) -> str | None:
    """Return an attribute that is a string; None if there is no such attribute, or if it is something else."""
    text = getattr(value, name, None)
    return text if isinstance(text, str) else None


def first_key(mapping: Mapping[Any, Any], keys: Iterable[str], kind: type) -> str | None:
    """Return the first of some keys whose value is of a type; None without one."""
    return next((key for key in keys if is_a(mapping.get(key), kind)), None)


def last_of(items: Sequence[T]) -> T | None:
    """Return the last item; None without items."""
    return items[-1] if items else None


@or_else(None)
def first_string(mapping: Mapping[Any, Any] | None, keys: Iterable[str]) -> str | None:
    """Return the first non-empty value under some keys, as a string; None without such a value or a mapping."""
    if not mapping:  # frameworks leave optional mappings (metadata, parameters of a call) unset or empty
        return None
    for key in keys:
        value = mapping.get(key)
        if value is not None and (text := string_of(value)):
            return text
    return None


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
    "background chunk chunks content contents context contexts db doc docs document documents evidence facts hits "
    "knowledge matches passage passages points rag records references results retrieval retrieved rows search snippet "
    "snippets source sources sql web".split()
)
_SEARCHES = frozenset(
    "context docs documents fetch find knowledge lookup passages rag retrieval retrieve search".split()
)

# "query" and "str" of "query_str"; "search_term", "q"
_QUERIES = frozenset("input keyword keywords phrase q queries query question questions term terms topic topics".split())
_NO_QUERIES = frozenset("count embedding follow id ids language limit mode type vector".split())

_USERS = frozenset({"client", "customer", "human", "user"})
_USERS_TEXTS = frozenset({"input", "message", "prompt", "query", "question", "request", "text"})
# "final" and "Answer" of "finalAnswer", "follow" and "ups" of "follow_ups", "URL" of "URL".
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def answer_keys_in(keys: Iterable[Any], usual: Sequence[str] = _USUAL) -> list[str]:
    """Return the keys under which an answer is expected, the most certain one first.

    Args:
        keys: the keys of an output.
        usual: the keys that the framework uses, the preferred one first.
    """
    names = [key for key in keys if isinstance(key, str)]
    words_of = {name: words_in(name) for name in names}
    # {"answer": draft, "final_answer": text}: the application says which one counts.
    final = [name for name in names if _is_final(name)]
    known = [name for name in usual if name in words_of]
    # "reply", "bot_response", "generated_answer"
    spoken = [
        name
        for name, words in words_of.items()
        if words == ("reply",) or (len(words) == 2 and words[0] in _SPEAKERS and words[1] in _ANSWERS)
    ]
    return [*final, *known, *spoken]


def is_answer_object_key(key: str) -> bool:
    """Return True if an object under a key is certainly the answer. Under "result" it may be a grader's judgement."""
    return key == "answer" or _is_final(key)


def is_beside_answer(key: Any) -> bool:
    """Return True if a key names something that is made next to the answer, for example ``follow_up_questions``."""
    words = words_in(str(key))
    return not _BESIDE.isdisjoint(words) or words[:1] == ("follow",)


def names_search_results(key: Any) -> bool:
    """Return True for the key of a text that may be a search result: ``context``, ``sql_result``; not ``sql_query``."""
    words = words_in(str(key))
    return words[-1:] not in (("query",), ("queries",)) and not _SEARCH_RESULTS.isdisjoint(words)


def names_search(function: str) -> bool:
    """Return True for the name of a function that searches, for example ``search_web`` or ``get_context``."""
    return not _SEARCHES.isdisjoint(words_in(function))


def _is_final(key: str) -> bool:
    """Return True for ``final``, ``final_answer``, ``finalResponse`` and the like."""
    words = words_in(key)
    if words[:1] != ("final",):
        return False
    return len(words) == 1 or words[-1] in _ANSWERS


def question_among(fields: Mapping[Any, Any]) -> str:
    """Return the only string of some fields; of several, the one whose key names the question. Empty without one."""
    texts = {str(key): item for key, item in fields.items() if is_a(item, str) and item}
    if len(texts) == 1:
        return str(next(iter(texts.values())))
    words_of = {key: words_in(key) for key in texts}
    # "user_message", "customer_question", "userInput"
    of_user = [
        key for key, words in words_of.items() if len(words) == 2 and words[0] in _USERS and words[1] in _USERS_TEXTS
    ]
    # "original_question", "search_query"
    questions = [key for key, words in words_of.items() if words[-1:] in (("question",), ("query",))]
    # {"topic": "Piers", "language": "en"}
    subjects = [key for key in words_of if names_subject(key)]
    # {"message": "…", "language": "en"}
    messages = [key for key in words_of if key.lower() in ("message", "request", "utterance")]
    named = of_user or questions or subjects or messages
    return str(texts[named[0]]) if len(named) == 1 else ""


def names_subject(key: str) -> bool:
    """Return True for the key of what an application is to work on: ``topic``, ``research_task``, ``goal``."""
    return words_in(key)[-1:] in (("topic",), ("task",), ("subject",), ("goal",))


@or_else(())
def queries_among(fields: Mapping[Any, Any]) -> Sequence[str]:
    """Return the questions and keywords among the arguments of a search: texts, or lists of texts, by their names.

    For example ["pier", "ferry"] of {"queries": ["pier", "ferry"], "max_results": 3}. The id of an article and a
    thought are not searched for.
    """
    found: list[str] = []
    for key, item in fields.items():
        words = words_in(str(key))
        if not _QUERIES.isdisjoint(words) and _NO_QUERIES.isdisjoint(words):
            # An object is a query, too: {"queries": [{"query": "pier"}]}, or QueryBundle(query_str="pier").
            for one in item if is_a(item, (list, tuple)) else (item,):
                inner = one if is_a(one, Mapping) else {"query": attribute_text(one, "query_str")}
                found += [one] if is_a(one, str) else queries_among(inner) if any(inner.values()) else ()
    return [query for query in dict.fromkeys(found) if query.strip()]


@lru_cache(maxsize=2000)  # asked in the request, for the keys of every state
def words_in(key: str) -> tuple[str, ...]:
    """Return the words of a key in lower case: ("final", "answer") of ``final_answer`` and of ``finalAnswer``."""
    return tuple(word.lower() for word in _WORDS.findall(key))


# --------------------------------------------------------------------------- fields of a vector store

_COLLECTIONS = ("collection_name", "_collection_name", "index_name", "_index_name", "table_name", "_table_name")


_NO_FIELDS: dict[str, Any] = {}


@or_else(_NO_FIELDS)
def data_fields(value: Any) -> Mapping[str, Any]:
    """Return the items of a dictionary, or the public fields of an object that holds data; empty for anything else.

    No code of the object's class runs: a property may load a page or ask a server.

    Args:
        value: a dictionary, a dataclass, a named tuple, a pydantic model, or any object with fields of its own.
    """
    if isinstance(value, dict):
        return value if type(value) is dict else dict.copy(value)
    kind = type(value)
    if isinstance(value, tuple):
        return dict(zip(getattr(kind, "_fields", ()), value, strict=False))
    if isinstance(value, (type, ModuleType)) or callable(value):
        return {}
    fields = dict(getattr(value, "__dict__", {}))
    for base in kind.__mro__:
        for name, slot in vars(base).items():
            if isinstance(slot, MemberDescriptorType):  # @dataclass(slots=True)
                with suppress(AttributeError):  # it has never been set
                    fields.setdefault(name, slot.__get__(value))
    # Fields beyond those that a pydantic class names.
    fields.update(fields.pop("__pydantic_extra__", None) or {})
    return {name: item for name, item in fields.items() if not name.startswith("_")}


@or_else(_NO_FIELDS)
def own_fields(value: Any) -> Mapping[str, Any]:
    """Return the fields of an object. Only fields: a property may ask the store's server."""
    # A pydantic object keeps its private fields elsewhere.
    return {**(getattr(value, "__pydantic_private__", None) or {}), **(getattr(value, "__dict__", None) or {})}


def collection_name(store: Any) -> str:
    """Return the collection that a vector store searches, else the class of the store."""
    # The class at least tells a Chroma from a test's store in memory.
    return first_string(own_fields(store), _COLLECTIONS) or type(store).__name__


# --------------------------------------------------------------------------- parameters of a model call


# "api_key", "openai_api_key", "access_token", "extra_headers"; not "max_tokens" or "keep_alive".
_SECRET = re.compile(r"(^|[_-])(key|secret|password|token|authorization|credentials?|headers?)$", re.IGNORECASE)


@or_else({})
def public_parameters(given: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the parameters that were set, as JSON-able data.

    Args:
        given: all parameters of the call, as the framework reports them.
        without: names to omit. Names of credentials, and private names such as ``_type``, are always omitted.
    """
    found = {}
    for name, value in given.items():
        name = str(name)
        if value is None or name in without or name.startswith("_") or _SECRET.search(name):
            continue
        # A mapping may hold credentials too: {"extra_body": {"api_key": "…"}}.
        found[name] = public_parameters(value) if isinstance(value, dict) else plain_value(value)
    return found
