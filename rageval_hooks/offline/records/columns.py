"""Which columns of a row hold the question, the answer and so on: the names that other tools give them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rageval_hooks.errors import TurnError
from rageval_hooks.offline.records.cells import chat_text, is_missing, unpacked
from rageval_hooks.offline.records.mapping import ColumnMap

__all__ = ["ALIASES", "Fields", "canonical", "check_columns", "has_column", "take_fields"]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALIASES: dict[str, tuple[str, ...]] = {
    "query": _names(
        "query user_input question input query_text user_query user_question question_text query_str prompt "
        "user_prompt instruction search_query request problem inputs"
    ),
    # "answer", "output" and "result" come last: next to a column such as "prediction" they hold the golden answer.
    "response": _names(
        "response actual_output generated_answer generated_text generated_response prediction predicted_answer "
        "model_answer model_output model_response llm_answer llm_response llm_output rag_answer rag_response "
        "system_answer bot_response assistant_response final_answer completion generation generated hypothesis "
        "pred answer output result outputs"
    ),
    "passages": _names(
        "passages retrieved_contexts retrieval_context contexts retrieved_passages context retrieved_context documents "
        "chunks retrieved_documents retrieved_docs retrieved_chunks retrieved_nodes retrieved_texts source_documents "
        "source_nodes search_results retrieval_results ctxs docs retrieved evidence sources knowledge context_texts"
    ),
    # "answer" and "answers" are references only if they are not taken as the response.
    "reference": _names(
        "reference reference_answer expected_output ground_truth ground_truths ground_truth_answer golden_answer "
        "expected_answer golden_answers gold_answer gold_answers gt_answer gold gt groundtruth expected_response "
        "expected_answers expected ideal ideal_answer correct_answer correct_answers true_answer target_answer "
        "reference_answers reference_output reference_outputs expected_outputs best_answer human_answer "
        "ground_truth_answers golden answers answer"
    ),
    "id": _names("id query_id question_id turn_id example_id sample_id qid"),
    "run": _names("run query_run repetition repetition_number"),
    "citations": ("citations",),
    "metadata": _names("metadata additional_metadata"),
    "target": _names("target chunk_id target_id"),
    "target_text": _names(
        "target_text chunk chunk_text reference_contexts reference_context golden_context gold_context source_text "
        "ground_truth_context ground_truth_contexts gold_passages"
    ),
    "rank": _names("rank target_rank ranks"),
    "document": ("document",),
    "error": _names("error exception error_message"),
}
"""Field of a record → the names of its column, the preferred one first.

They are those of this package, Ragas, DeepEval, open-rag-eval, MLflow, LangSmith, Langfuse, Phoenix, TruLens,
RAGChecker and ARES.
"""

_CONTAINERS: dict[str, tuple[str, ...]] = {
    "query": _names("inputs input request query vars example data messages conversation conversations"),
    "response": _names("outputs output response prediction result run_outputs messages conversation conversations"),
    "passages": _names("outputs output response inputs input vars result retrieval data"),
    "reference": _names(
        "reference_outputs reference_output expected_output expected_outputs expectations expected reference "
        "ground_truth"
    ),
    "id": _names("example data"),
}
"""Field → the objects in which other tools nest it: LangSmith and Phoenix write ``inputs.question``."""

_ROLES = {"query": "user", "response": "assistant"}
"""Field → the role whose last message it is, in a column of chat messages."""

_PACKED_NAMES = frozenset({"generated_answer", "retrieved_passages"})
"""Columns of open-rag-eval, which hold lists and objects as text in files of any format."""

# Between a lower-case letter or digit and a capital: "actualOutput" becomes "actual_output".
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# What separates the parts of a flattened name: "inputs.question" in LangSmith, "inputs/question" in MLflow.
_SEPARATOR = re.compile(r"[./]")
_MOST_NAMES_SHOWN = 8
_FEWEST_WORDS_OF_PASSAGE = 5


@dataclass
class Fields:
    """The values of a row by field.

    Attributes:
        values: field → value; a field without a value is absent.
        columns: field → the column or path that the value comes from.
        others: field → further columns that might have been meant.
        rest: columns that no field takes, with their values.
        packed: fields whose text holds a list or object, whatever the format of the file.
    """

    values: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    packed: set[str] = field(default_factory=set)

    def get(self, name: str) -> Any:
        """Return the value of a field; None if it has none."""
        return self.values.get(name)

    def _set(self, name: str, column: str, value: Any) -> None:
        self.values[name], self.columns[name] = value, column


def canonical(name: str) -> str:
    """Return a column name in the form of :data:`ALIASES`: ``ground_truth`` for ``Ground Truth`` or ``groundTruth``."""
    return _CAMEL.sub("_", str(name).strip()).lower().replace(" ", "_").replace("-", "_")


def has_column(name: str, columns: Iterable[str]) -> bool:
    """Return True if one of the columns is a field's, under any of its names."""
    return any(canonical(column) in ALIASES[name] for column in columns)


def check_columns(found: Iterable[str], required: Iterable[str], hint: str = "") -> None:
    """Check that a row has the columns that are needed.

    Raises:
        TurnError: a column is missing; the message names the accepted columns, those that there are, and the hint.
    """
    names = list(found)
    for name in required:
        if not has_column(name, names):
            raise missing_column(name, names, hint)


def missing_column(name: str, found: Sequence[str], hint: str = "") -> TurnError:
    """Return the error for a field without a column."""
    accepted = ", ".join(ALIASES[name][:_MOST_NAMES_SHOWN])
    return TurnError(
        f"there is no column for the {name}: accepted are {accepted} …; found: {', '.join(found) or '(none)'}{hint}"
    )


def take_fields(row: Mapping[str, Any], mapping: ColumnMap | None = None) -> Fields:
    """Sort the values of a row by field.

    Args:
        row: values by column.
        mapping: the columns that the user named; they come first.
    """
    found = Fields()
    if mapping is not None:
        for name, path in mapping.paths.items():
            found._set(name, path, mapping.value(name, row))
    plan = _plan(tuple(row))
    for name in ALIASES:
        if name not in found.values:
            _take(name, plan, row, found)
    _take_passage_document(found)
    used = {column for column in found.columns.values() if column in row}
    # A column that another field takes is no alternative.
    found.others = {name: [one for one in others if one not in used] for name, others in found.others.items()}
    found.rest = {column: value for column, value in row.items() if column not in used and not is_missing(value)}
    return found


@dataclass(frozen=True)
class _Plan:
    """What the columns of a file could be.

    Attributes:
        direct: field → columns with one of its names, the preferred one first.
        nested: field → columns with a flattened name, such as ``inputs.question``.
        containers: field → columns that may hold an object with the field.
    """

    direct: Mapping[str, list[str]]
    nested: Mapping[str, list[str]]
    containers: Mapping[str, list[str]]


@lru_cache(maxsize=256)
def _plan(columns: tuple[str, ...]) -> _Plan:
    # The first of several columns with the same canonical name wins, so it is entered last.
    names = {canonical(column): column for column in reversed(columns)}
    flat = {tuple(_SEPARATOR.split(name)): column for name, column in names.items() if _SEPARATOR.search(name)}
    nested: dict[str, list[str]] = {}
    for name, containers in _CONTAINERS.items():
        for parts, column in flat.items():
            if parts[0] in containers and parts[-1] in _nested_names(name):
                nested.setdefault(name, []).append(column)
    return _Plan(
        direct={name: [names[alias] for alias in aliases if alias in names] for name, aliases in ALIASES.items()},
        nested=nested,
        containers={
            name: [names[container] for container in containers if container in names]
            for name, containers in _CONTAINERS.items()
        },
    )


def _nested_names(name: str) -> tuple[str, ...]:
    """Return a field's names within an object, where the object says whether an answer is golden."""
    more = {"query": (), "response": ("text", "content"), "reference": (*ALIASES["response"], "text", "content")}
    return (*ALIASES[name], *more.get(name, ()))


def _take(name: str, plan: _Plan, row: Mapping[str, Any], found: Fields) -> None:
    taken = set(found.columns.values())
    candidates = [column for column in plan.direct[name] if column not in taken]
    present = [column for column in candidates if not is_missing(row[column])]
    for column in present:
        value = row[column]
        if name in _CONTAINERS and isinstance(unpacked(value), Mapping) and name != "passages":
            continue  # an object is looked into below
        found._set(name, column, value)
        found.others[name] = [other for other in present if other != column]
        if canonical(column) in _PACKED_NAMES:
            found.packed.add(name)
        return
    if _take_nested(name, plan, row, found):
        return
    # An empty column is still the field's column: a missing value is reported as such.
    if candidates:
        column = (present or candidates)[0]
        found._set(name, column, row[column])


def _take_nested(name: str, plan: _Plan, row: Mapping[str, Any], found: Fields) -> bool:
    for column in plan.nested.get(name, ()):
        if not is_missing(row[column]):
            found._set(name, column, row[column])
            return True
    for column in plan.containers.get(name, ()):
        value = unpacked(row[column])
        if isinstance(value, list) and (text := chat_text(value, _ROLES.get(name, ""))):
            found._set(name, column, text)
            return True
        if isinstance(value, Mapping) and (inner := _inner(name, value)) is not None:
            found._set(name, f"{column}.{inner[0]}", inner[1])
            return True
    return False


def _inner(name: str, value: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Return the key and value of a field within an object such as ``{"question": ...}`` or ``{"messages": [...]}``."""
    keys = {canonical(key): key for key in reversed(list(value))}
    for alias in _nested_names(name):
        if alias in keys and not is_missing(value[keys[alias]]):
            return keys[alias], value[keys[alias]]
    if name in ("query", "response", "reference"):
        if text := chat_text(value, _ROLES.get(name, "assistant")):
            return "messages", text
        # An object with one text holds nothing else: {"my_app_answer": "..."}.
        texts = [(key, item) for key, item in value.items() if isinstance(item, str) and item.strip()]
        if len(texts) == 1 and len(value) == 1:
            return texts[0]
    return None


def _take_passage_document(found: Fields) -> None:
    """Take a column ``document`` as the passage if it holds text, as ARES writes it, and not a file's name."""
    value = found.get("document")
    if "passages" in found.values or "response" not in found.values:
        return
    is_text = isinstance(value, str) and len(value.split()) >= _FEWEST_WORDS_OF_PASSAGE
    if is_text or isinstance(value, list):
        found._set("passages", found.columns.pop("document"), found.values.pop("document"))
