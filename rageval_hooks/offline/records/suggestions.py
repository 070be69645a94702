"""The ``--map`` that would make an unknown file readable, guessed from names and values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from rageval_hooks.offline.records.cells import is_text, unpacked
from rageval_hooks.offline.records.columns import names_sources

__all__ = ["Candidate", "suggest_columns", "suggest_map"]

_MOST_DEPTH = 4
_MOST_ROWS = 20
_MOST_ITEMS = 5
_MOST_OTHERS = 3
# Parts of names. One with a blank before it begins a word: "rag" is no hint in "paragraph", nor "eval" in "retrieval".
_HINTS: dict[str, tuple[str, ...]] = {
    "query": (
        *("question", "query", "prompt", " ask", "instruction", "user", "input", "problem"),
        *("pregunta", "frage", "domanda", "pergunta", "вопрос", "问题", "問題", "質問", "질문"),
    ),
    "response": (
        *("answer", "response", "output", "generat", "predict", "complet", "reply", "gpt", "llm", "model", " rag"),
        *("respuesta", "antwort", "réponse", "risposta", "resposta", "ответ", "回答", "답변"),
    ),
    "passages": (
        *("context", "passage", "paragraph", "doc", "chunk", "retriev", "evidence", "source", "snippet", "knowledge"),
        *("kontext", "contesto", "контекст", "上下文"),
    ),
    "reference": (
        *("reference", "gold", "truth", "expect", "ideal", "correct", "target", "label"),
        *("esperad", "erwartet", "attendu", "attes", "référence", "参考", "正解", "정답"),
    ),
}
_GOLDEN = _HINTS["reference"]
# Texts about an answer: "answer_relevance_reason", "judge.explanation", "justificativa".
_ABOUT_ANSWERS = (
    *("reason", "explan", "justif", "judge", "verdict", "feedback", "metric", "score", "relevanc", "faithful"),
    *("grounded", "critique", " eval", "trace", "comment"),
)
_NAMES = ("file", "paper", "title", "section", "page", "topic", "categor")
# Of two systems the one with retrieval is meant: not "No RAG" or "answer_without_rag".
_WITHOUT_RETRIEVAL = re.compile(r"(?:^|[\W_])(?:no|non|without|w/o|baseline|vanilla)(?:[\W_]|$)")
# Columns with these names hold facts about an answer, whatever other hints they have.
_NOT_TEXT = ("id", "url", "time", "date", "score", "model_name", "name", "type", "lang", "length", "count")
# The marks in "answer_with_rag" and in "outputs.rag-answer".
_BETWEEN_WORDS = re.compile(r"[\W_]+")
_MANY_WORDS = 8
_FEWEST_POINTS = 1
# Also those of Chinese, Arabic and Persian.
_QUESTION_MARKS = ("?", "？", "؟")
_SHELL_CHARACTERS = frozenset('[] |&;*"()<>$')


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

    See :func:`suggest_columns` for the arguments.
    """
    wanted = list(fields)
    found = suggest_columns(wanted, rows, used)
    # With one of several the file still cannot be read.
    if len(found) < len(wanted):
        return ""
    options = " ".join(f"--map {field}={_quoted(path)}" for field, path in found.items())
    others = [note for field, path in found.items() if (note := _others(field, path, rows, (*used, *found.values())))]
    return f"{options} ({'; '.join(others)})" if others else options


def suggest_columns(
    fields: Iterable[str], rows: Sequence[Mapping[str, Any]], used: Collection[str] = ()
) -> dict[str, str]:
    """Return the columns or paths that would do for missing fields; those without a good guess are not in it.

    Args:
        fields: the fields without a column.
        rows: the first rows of the file.
        used: columns that other fields take.
    """
    candidates = [found for found in _candidates(rows[:_MOST_ROWS]) if found.path not in used]
    columns: dict[str, str] = {}
    for field in fields:
        best = max(candidates, key=partial(_rating, field), default=None)
        if best is not None and _rating(field, best) >= _FEWEST_POINTS:
            columns[field] = best.path
            candidates.remove(best)
    return columns


def _others(field: str, path: str, rows: Sequence[Mapping[str, Any]], used: Collection[str]) -> str:
    """Return which other columns may hold a field, such as the answers of other systems; perhaps empty."""
    rating = _name_rating(field, path.lower())
    names = [
        found.path
        for found in _candidates(rows[:_MOST_ROWS])
        if found.path not in used and _rating(field, found) >= _FEWEST_POINTS
        # "baseline_answer" has two points less.
        if _name_rating(field, found.path.lower()) >= max(rating - 2, _FEWEST_POINTS)
    ]
    return f"the {field} may also be {', '.join(names[:_MOST_OTHERS])}" if names else ""


def _quoted(path: str) -> str:
    # These have a meaning in shells.
    needs_quotes = not _SHELL_CHARACTERS.isdisjoint(path)
    return f"'{path}'" if needs_quotes else path


def _rating(field: str, candidate: Candidate) -> float:
    """Return how well a place suits a field; less than :data:`_FEWEST_POINTS` if it does not."""
    # "Answer_Similarity" has a hint of the answer, but holds a score; "source_file" holds names of files.
    if all(map(_is_number, candidate.texts)) or all(map(names_sources, candidate.texts)):
        return -1
    return _name_rating(field, candidate.path.lower()) + _value_rating(field, candidate)


def _is_number(text: str) -> bool:
    try:
        # Half of Europe writes 0,71.
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _name_rating(field: str, path: str) -> float:
    rating = 3 if _has_hint(path, _HINTS[field]) else 0
    # "expected_answer" has a hint of the answer, but is the reference.
    if field != "reference" and _has_hint(path, _GOLDEN):
        rating -= 2
    last = path.rpartition(".")[2].removesuffix("[]")
    if last in _NOT_TEXT or path.endswith("_id"):
        rating -= 3
    if _has_hint(path, _ABOUT_ANSWERS):
        rating -= 3
    if field == "response":
        rating -= _penalty_of_response(path)
    # An answer may end in a question mark.
    if field == "query" and _is_answer_only(path):
        rating -= 4
    return rating


def _penalty_of_response(path: str) -> int:
    """Return how little the name of a place suits the answer of a system with retrieval."""
    penalty = 2 if _WITHOUT_RETRIEVAL.search(path) else 0
    # "Top Retrieved Text" is a passage, "user_input" a question, and "Papers" a list of titles.
    others = (*_HINTS["passages"], *_HINTS["query"], *_NAMES)
    if _has_hint(path, others) and not _has_hint(path, _HINTS["response"]):
        penalty += 3
    return penalty


def _is_answer_only(path: str) -> bool:
    """Return True for "answer", and False for "question_and_answer"."""
    return _has_hint(path, _HINTS["response"]) and not _has_hint(path, _HINTS["query"])


def _has_hint(path: str, hints: Iterable[str]) -> bool:
    words = " " + _BETWEEN_WORDS.sub(" ", path)
    return any(hint in words for hint in hints)


def _value_rating(field: str, candidate: Candidate) -> float:
    words = _mean_words(candidate.texts)
    if field == "passages":
        # Passages are long, and most often several.
        rating = 1 if words >= _MANY_WORDS else -1
        return rating + 2 * candidate.is_list
    if candidate.is_list:
        return -3
    if field == "query":
        asked = sum(text.rstrip().endswith(_QUESTION_MARKS) for text in candidate.texts)
        return 3 * asked / len(candidate.texts)
    # Answers are sentences, labels and categories are words.
    return 1 if words >= _MANY_WORDS / 2 else 0


def _mean_words(texts: Sequence[str]) -> float:
    return sum(len(text.split()) for text in texts) / len(texts)


def _candidates(rows: Sequence[Mapping[str, Any]]) -> list[Candidate]:
    texts: dict[str, list[str]] = {}
    is_list: dict[str, bool] = {}
    columns = chain.from_iterable(row.items() for row in rows)
    for column, value in columns:
        for path, text, in_list in _texts(str(column), value, _MOST_DEPTH):
            texts.setdefault(path, []).append(text)
            # One row with a list is enough.
            is_list[path] = is_list.get(path, False) or in_list
    return [Candidate(path, found, is_list[path]) for path, found in texts.items()]


def _texts(path: str, value: Any, depth: int, is_list: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Yield the texts in a value, each with its path and whether a list is around it."""
    value = unpacked(value)
    if isinstance(value, str):
        if value.strip():
            yield path, value, is_list
        return
    if depth == 0:
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(f"{_quoted_root(path)}.{_identifier(str(key))}", item, depth - 1, is_list)
    elif isinstance(value, list):
        # A list of texts is mapped by its name; parts of objects in a list need a path such as "contexts[].text".
        has_only_texts = all(map(is_text, value))
        inner = path if has_only_texts else f"{_quoted_root(path)}[]"
        for item in value[:_MOST_ITEMS]:
            yield from _texts(inner, item, depth - 1, is_list=True)


def _quoted_root(path: str) -> str:
    """Return a path whose first part, the column, is quoted if it is no identifier: "TEST DATA" is one column."""
    # Parts behind the column are quoted already.
    is_column = not any(mark in path for mark in '."[')
    return _identifier(path) if is_column else path


def _identifier(key: str) -> str:
    """Return a key as JMESPath has it: quoted unless it is a plain identifier."""
    return key if key.isidentifier() else f'"{key}"'
