"""Which tools search: a pure function of a tool's name, its description, the arguments of a call, and the result.

A tool searches if it fetches texts or records from a source: an index, the web, a database, files, mails. A document
that is read by its address or its id counts, because an answer may quote it. A tool that acts, computes, hands over or
thinks has found nothing. Neither has one that reads a live value (the weather, a price, the time), or that lists what
there is to ask for (tables, files, tools). The length of its text says nothing.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from rageval_hooks.integrations.capture.values import is_a, or_else, parsed_json, words_in
from rageval_hooks.turn import NOTHING_FOUND

Words = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of a tool, as the rules see it: words in lower case, and a result whose JSON is parsed."""

    name: Words
    description: Words
    arguments: frozenset[str]
    result: Any


# --------------------------------------------------------------------------- what names and descriptions say

_FIND = frozenset("fetch find finder look lookup query recall retrieval retrieve retriever search searcher".split())
_SEARCH = _FIND | frozenset(
    "ask browse check crawl cql discover dump explore extract get grep list load rag read scrape sql suggest".split()
)
"""``search_web``, ``customer_lookup``, ``execute_sql``, and where no rule before objects, ``get_article``."""

_SOURCE = frozenset(
    "arxiv articles docs documents evidence faq handbook knowledge news papers reviews wiki wikipedia".split()
)
"""``company_faq``, ``hotel_news``: names without a verb."""

_ACT = frozenset(
    "add append apply assign book cancel capture change click close commit compute confirm convert copy create "
    "delegate delete draft edit enhance escalate generate give handoff ingest insert manage mark memorize modify move "
    "notify open organize place plan post process publish put record reflect refund register remember remove rename "
    "reply report reset respond reverse route save schedule send set share start stop store submit summarize think "
    "transfer translate triage update upload upsert validate verify write".split()
)
"""``send_mail``, ``create_search_index``, ``transfer_to_billing``, ``think_tool``."""

_NO_SOURCE = frozenset(
    "analytics approval calculator checker clarification detection escalation feedback handoff human javascript "
    "moderation python repl shell speech terminal todos".split()
)
"""``sql_query_checker``, ``ask_human``, ``python_repl``."""

_VALUE = frozenset(
    "availability clock currency date datetime eligibility forecast grammar humidity links now obstacle price prices "
    "quote rate rates spelling stats temperature time timezone today weather".split()
)
"""``get_weather``, ``get_stock_price``: what they read is a value, and no text that could be searched."""

_CATALOG = frozenset(
    "actions agents branches collections columns directory engines functions schema schemas tables tools".split()
)
_FILES = frozenset("dir directory files folder folders tree worktree".split())
"""``get_table_schema``, ``list_files``: what can be asked for next."""

_QUERY = frozenset("cql keyword keywords q queries query question questions search searches sql term terms".split())
"""Words in the names of arguments: ``search_query``, ``keywords``."""

_NO_WORDS = frozenset({"true", "false", "null", "none", "ok"})


def _acts(words: Words) -> bool:
    """Return True if the first known verb is one of an action."""
    first = next((word for word in words if word in _ACT or word in _SEARCH), None)
    if first not in _ACT:
        return False
    # Some verbs are nouns, too: "reddit_post_search". At the beginning of a name they are verbs.
    return words[0] == first or _SEARCH.isdisjoint(words)


# --------------------------------------------------------------------------- what results say

_ERROR = re.compile(r"(?:error|exception|traceback)\b\s{0,9}[:(]", re.IGNORECASE)
"""``Error: the server is busy``, at the beginning."""
_NONE = re.compile(r"(?:no|0|zero)\b", re.IGNORECASE)
_FOUND = re.compile(r"\b(?:found|match\w{0,9}|results?|hits?|available)\b", re.IGNORECASE)
_NOT_FOUND = re.compile(r"\bnot found\b", re.IGNORECASE)
"""``No results found.`` and ``Order not found``, each as the only sentence."""

_STATEMENT = 500
"""Characters of a result in which it may say that nothing was found."""

_TEXTS = frozenset({"content", "text", "snippet", "page_content", "body", "summary", "document"})
_ABOUT = frozenset({"url", "link", "href", "score", "relevance_score", "distance", "source", "title", "metadata"})
"""Keys of a search result: its text, and what is said about it."""

_DEPTH = 4
"""Values within values of a result that are searched for texts."""


def _atoms_in(value: Any, depth: int = _DEPTH) -> Iterator[Any]:
    if not is_a(value, (list, tuple, Mapping)):
        yield from () if value is None else (value,)
    elif depth:
        for item in value.values() if is_a(value, Mapping) else value:
            yield from _atoms_in(item, depth - 1)


def _has_text(result: Any) -> bool:
    """Return False for a number, a truth value, an empty result, or truth values by name."""
    # Letters of any script: "12", "4.5 %" and "true" are no texts. Numbers by name are a record: {"revenue": 3}.
    is_record = is_a(result, (list, tuple, Mapping))
    return any(
        item.casefold() not in _NO_WORDS and any(map(str.isalpha, item))
        if is_a(item, str)
        else is_record and not is_a(item, bool)
        for item in _atoms_in(result)
    )


def _says_nothing(result: Any) -> bool:
    """Return True if a result only says that nothing was found, or that the search failed."""
    # {"error": "No results found", "query": "pier"}
    if is_a(result, Mapping):
        return bool(result.get("error"))
    if not is_a(result, str):
        return False
    # The beginning is enough: a statement is short, and a result may have megabytes.
    text = result[:_STATEMENT].strip(string.punctuation + string.whitespace)
    if _ERROR.match(text):
        return True
    is_one_sentence = "." not in text and "\n" not in text
    return is_one_sentence and bool((_NONE.match(text) and _FOUND.search(text)) or _NOT_FOUND.search(text))


def _has_results(result: Any) -> bool:
    """Return True for a list, or a mapping with a list, of texts with an address, a title or a score."""
    if is_a(result, Mapping):
        result = max((item for item in result.values() if is_a(item, (list, tuple))), key=len, default=())
    if not is_a(result, (list, tuple)):
        return False
    return any(is_a(item, Mapping) and not _TEXTS.isdisjoint(item) and not _ABOUT.isdisjoint(item) for item in result)


# --------------------------------------------------------------------------- the rules


def _reads_value(name: Words) -> bool:
    lists_files = "list" in name and not _FILES.isdisjoint(name)
    return lists_files or not (_VALUE | _CATALOG).isdisjoint(name)


RULES: tuple[tuple[str, bool, Callable[[_Call], bool]], ...] = (
    ("its result has no text", False, lambda call: not _has_text(call.result)),
    (NOTHING_FOUND, False, lambda call: _says_nothing(call.result)),
    ("its name says that it acts", False, lambda call: _acts(call.name)),
    ("its name says that it computes or asks a person", False, lambda call: not _NO_SOURCE.isdisjoint(call.name)),
    ("its name says that it reads a value or lists names", False, lambda call: _reads_value(call.name)),
    ("its name says that it searches", True, lambda call: not _SEARCH.isdisjoint(call.name)),
    ("an argument is a query", True, lambda call: any(not _QUERY.isdisjoint(words_in(one)) for one in call.arguments)),
    ("its description says that it acts", False, lambda call: _acts(call.description)),
    ("its name is that of a source", True, lambda call: not _SOURCE.isdisjoint(call.name)),
    ("its description says that it searches", True, lambda call: not _FIND.isdisjoint(call.description)),
    ("its result is a list of texts with addresses or scores", True, lambda call: _has_results(call.result)),
)
"""Why, whether the tool searches, and when the rule applies. The first one that applies decides."""

_UNKNOWN = "neither its name nor its arguments nor its result say that it searches"


@or_else((False, _UNKNOWN))
def searches(name: str | None, description: str | None, arguments: Any, result: Any) -> tuple[bool, str]:
    """Return whether a tool searches, and why.

    Args:
        name: the tool's name.
        description: what the tool says of itself.
        arguments: the arguments of the call by name, as a mapping or as JSON.
        result: what it returned: a text, which may be JSON, or a value.
    """
    first_sentence = (description or "").strip().partition("\n")[0].partition(".")[0]
    given = parsed_json(arguments)
    call = _Call(
        name=words_in(name or ""),
        description=_base_forms(first_sentence),
        arguments=frozenset(map(str, given if is_a(given, Mapping) else ())),
        result=parsed_json(result),
    )
    for reason, is_search, applies in RULES:
        if applies(call):
            return is_search, reason
    return False, _UNKNOWN


@lru_cache(maxsize=1000)
def _base_forms(text: str) -> Words:
    """Return the words of a text, verbs in their base form: "Searches the web" is ("search", "the", "web")."""
    known = _SEARCH | _ACT
    forms = ((word, word.removesuffix("s"), word.removesuffix("es")) for word in words_in(text))
    return tuple(next((form for form in some if form in known), some[0]) for some in forms)
