"""Which columns of a row hold the question, the answer and so on: a table of names, and what the user maps.

A field is in a column with one of its names, or inside an object of another tool: ``inputs.question``, either nested or
as the name of a column.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from rageval_hooks.errors import ConfigurationError, TurnError, UnknownNameError, requires
from rageval_hooks.offline.records.values import are_no_texts, chat_text, is_missing, may_be_passages, unpacked

__all__ = ["ALIASES", "ColumnMap", "Fields", "canonical", "has_column", "missing_column", "suggest", "take_fields"]


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALIASES: dict[str, tuple[str, ...]] = {
    "query": _names(
        "query user_input question input query_text user_query user_question question_text query_str prompt "
        "user_prompt instruction search_query test_question sample_question request problem inputs "
        "pregunta frage domanda pergunta vraag pytanie soru pertanyaan вопрос 问题 問題 質問 질문 cau_hoi"
    ),
    # "answer", "output" and "result" come late: next to a column such as "prediction" they hold the golden answer.
    "response": _names(
        "response actual_output generated_answer generated_text generated_response prediction predicted_answer "
        "model_answer model_output model_response llm_answer llm_response llm_output rag_answer rag_response "
        "system_answer bot_response assistant_response final_answer completion generation generated hypothesis "
        "actual_answer actual_response predicted predicted_response ai_answer ai_response chatbot_answer "
        "chatbot_response agent_answer agent_response pred predictions predicted_answers generated_texts answer output "
        "result outputs "
        "respuesta antwort reponse risposta resposta antwoord odpowiedz cevap jawaban ответ 回答 答案 답변 cau_tra_loi"
    ),
    "passages": _names(
        "passages retrieved_contexts retrieval_context contexts retrieved_passages context retrieved_context documents "
        "chunks retrieved_documents retrieved_docs retrieved_chunks retrieved_nodes retrieved_texts source_documents "
        "source_nodes search_results retrieval_results ctxs docs retrieved evidence sources knowledge context_texts "
        "retrieved_contents hits search_hits contexto kontext contexte contesto контекст 上下文 文脈"
    ),
    # "answer" and "answers" are references only if they are not taken as the response.
    "reference": _names(
        "reference reference_answer expected_output ground_truth ground_truths ground_truth_answer golden_answer "
        "expected_answer golden_answers gold_answer gold_answers gt_answer gold gt groundtruth expected_response "
        "expected_answers expected ideal ideal_answer correct_answer correct_answers true_answer true_answers "
        "target_answer reference_answers reference_output reference_outputs expected_outputs best_answer human_answer "
        "ground_truth_answers golden generation_gt respuesta_esperada respuesta_correcta erwartete_antwort "
        "reponse_attendue risposta_attesa resposta_esperada эталон 参考答案 标准答案 正解 정답 answers answer 答案"
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
    "answerable": _names(
        "answerable is_answerable unanswerable is_unanswerable is_impossible expected_abstain should_abstain"
    ),
    "error": _names("error exception error_message"),
}
"""Field of a record → the names of its column, the preferred one first.

They are those of this package, Ragas, DeepEval, open-rag-eval, MLflow, LangSmith, Langfuse, Phoenix, TruLens,
RAGChecker, ARES and AutoRAG, and the plain words for question, answer and context in other languages.
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

_INSIDE = {
    **ALIASES,
    "response": (*ALIASES["response"], "text", "content"),
    # Within an object the object says whether an answer is golden.
    "reference": (*ALIASES["reference"], *ALIASES["response"], "text", "content"),
}
"""Field → its names within a container."""

_ROLES = {"query": "user", "response": "assistant"}
"""Field → the role whose last message it is, in a column of chat messages."""

_NOTED_FIELDS = ("query", "response", "passages", "reference")
"""Fields for which a wrong choice of the column changes scores."""

_PACKED_NAMES = frozenset({"generated_answer", "retrieved_passages"})
"""Columns of open-rag-eval, which hold lists and objects as text in files of any format."""

# Between a lower-case letter or digit and a capital: "actualOutput" becomes "actual_output".
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# "context_1", "retrieved_cont1", "Chunk 2 text" and "doc1_content": one passage each, in the order of their numbers.
_NUMBERED = re.compile(
    r"((?:retrieved_|top_|source_)?(?:context|cont|ctx|content|passage|chunk|document|doc|source|evidence|snippet)"
    r"s?(?:_text|_content)?_?)(\d{1,3})(_?(?:text|content))?"
)

# Names of golden answers and of questions, which are never proposed for the response: "true_answers", "answer_ok".
_NO_RESPONSE = re.compile(
    r"gold|true|truth|correct|expect|ideal|reference|target|label|\bgt\b|_gt\b|\bgt_|human|input|quer|question|prompt"
    r"|_ok\b|context|passage|chunk|evidence|document"
)
_MOST_PROPOSED = 8


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Return a column name in the form of :data:`ALIASES`: ``ground_truth`` for ``Ground Truth`` or ``groundTruth``."""
    found = _CAMEL.sub("_", str(name).strip()).lower().replace(" ", "_").replace("-", "_")
    if found.isascii():
        return found
    # This form separates a letter from its accent: "réponse" becomes "reponse". Other scripts stay as they are.
    letters = "".join(letter for letter in unicodedata.normalize("NFKD", found) if not unicodedata.combining(letter))
    return letters if letters.isascii() else found


def has_column(name: str, columns: Iterable[str]) -> bool:
    """Return True if one of the columns is a field's, under any of its names."""
    return bool(_plan(tuple(columns)).direct[name])


class ColumnMap:
    """``--map FIELD=COLUMN``: the columns of a file, as the user names them.

    Args:
        columns: field → a column, a JMESPath expression into nested values such as ``contexts[].text``, or an empty
            text for a field that the file does not have. Of several files the same map is used for each.

    Raises:
        ConfigurationError: a field is not known, or a path is not a valid expression.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        for name in columns:
            if name not in ALIASES:
                raise UnknownNameError("field of --map", name, ALIASES)
        self.absent = frozenset(name for name, path in columns.items() if not path)
        self.paths = {name: path for name, path in columns.items() if path}
        self._compiled = {path: _compile(path) for path in self.paths.values() if set(".[]|") & set(path)}

    @classmethod
    def parse(cls, given: Iterable[str]) -> ColumnMap | None:
        """Return the map that options such as ``["response=chatgpt_response"]`` describe; None for no options.

        Raises:
            ConfigurationError: an option is not of this form.
        """
        columns: dict[str, str] = {}
        for option in given:
            name, equals, column = option.partition("=")
            if not equals:
                raise ConfigurationError(f"--map {option!r} should be FIELD=COLUMN, such as response=chatgpt_answer")
            columns[name.strip()] = column.strip()
        return cls(columns) if columns else None

    def is_path(self, name: str) -> bool:
        """Return True if a field is mapped to something that may be a path, and not only a column's name."""
        return self.paths[name] in self._compiled

    def value(self, name: str, row: Mapping[str, Any]) -> Any:
        """Return the value of a field in a row; None if it has none, also for a function in the path such as join()."""
        path = self.paths[name]
        if path in row:  # a name with dots in it comes before a path
            return row[path]
        expression = self._compiled.get(path)
        if expression is None:
            return None
        from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]

        try:
            # Cells of tables hold lists and objects as text.
            return expression.search({name: unpacked(value) if name in path else value for name, value in row.items()})
        except JMESPathError:  # join(', ', answers) of a row whose answers are null
            return None


def _compile(path: str) -> Any:
    with requires("jmespath", "offline", "paths into nested columns"):
        import jmespath  # type: ignore[import-untyped]
        from jmespath.exceptions import JMESPathError
    try:
        return jmespath.compile(path)
    except JMESPathError as error:
        reason = str(error).splitlines()[0]
        raise ConfigurationError(f"--map: {path!r} is not a path such as contexts[].text: {reason}") from None


@dataclass
class Fields:
    """The values of a row by field.

    Attributes:
        values: field → value; a field without a column is absent.
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

    def take(self, name: str, column: str, value: Any) -> None:
        """Set the value of a field, and where it comes from."""
        self.values[name] = value
        self.columns[name] = column


@dataclass(frozen=True)
class _Plan:
    """The columns that could hold each field: the same for all rows with these columns.

    Attributes:
        fields: the fields, in the order of ALIASES: a column belongs to the first one that wants it.
        direct: field → columns with one of its names, the preferred one first.
        flat: field → columns such as ``inputs.question``.
        containers: field → columns that may hold an object with the field.
        numbered: groups of columns that hold one passage each: ``context_1``, ``context_2``.
    """

    fields: Sequence[str]
    direct: Mapping[str, list[str]]
    flat: Mapping[str, list[str]]
    containers: Mapping[str, list[str]]
    numbered: list[list[str]]


@lru_cache(maxsize=256)
def _plan(columns: tuple[str, ...]) -> _Plan:
    # The first of several columns with the same canonical name wins, so it is entered last.
    names = {canonical(column): column for column in reversed(columns)}
    direct = {name: [names[alias] for alias in aliases if alias in names] for name, aliases in ALIASES.items()}
    flat: dict[str, list[str]] = {name: [] for name in _CONTAINERS}
    groups: dict[tuple[str, str], dict[int, str]] = {}
    for column in columns:
        # "inputs.question" in LangSmith, "inputs/question" in MLflow.
        parts = re.split(r"[./]", canonical(column))
        for name, wanted in _CONTAINERS.items():
            if len(parts) > 1 and parts[0] in wanted and parts[-1] in _INSIDE[name]:
                flat[name].append(column)
        if found := _NUMBERED.fullmatch(canonical(column)):
            groups.setdefault((found[1], found[3] or ""), {})[int(found[2])] = column
    containers = {}
    for name, wanted in _CONTAINERS.items():
        # LangChain's RetrievalQA returns {"query": …, "result": …}, which scripts write into a column "answer".
        more = ALIASES[name] if name in _ROLES else ()
        containers[name] = [names[alias] for alias in dict.fromkeys((*wanted, *more)) if alias in names]
    numbered = [[group[number] for number in sorted(group)] for group in groups.values()]
    fields = [
        name
        for name in ALIASES
        if direct[name] or flat.get(name) or containers.get(name) or (name == "passages" and numbered)
    ]
    return _Plan(fields, direct, flat, containers, numbered)


def take_fields(row: Mapping[str, Any], mapping: ColumnMap | None = None) -> Fields:
    """Sort the values of a row by field.

    Args:
        row: values by column.
        mapping: the columns that the user named; they come first.
    """
    found = Fields()
    used: set[str] = set()
    absent: Collection[str] = ()
    if mapping is not None:
        absent = mapping.absent
        for name, path in mapping.paths.items():
            found.take(name, path, mapping.value(name, row))
            used.add(path)
    plan = _plan(tuple(row))
    for name in plan.fields:
        if name not in found.values and name not in absent:
            used.update(_take(name, plan, row, found, used))
    # ARES writes the passage into a column "document". The name of a file has fewer words.
    document = found.get("document")
    is_text = isinstance(document, list) or (isinstance(document, str) and len(document.split()) >= 5)
    if is_text and "passages" not in found.values and "response" in found.values and "passages" not in absent:
        found.take("passages", found.columns.pop("document"), found.values.pop("document"))
    for name, others in found.others.items():
        # A column that another field takes is no alternative.
        found.others[name] = [column for column in others if column not in used]
    for column, value in row.items():
        if column not in used and not is_missing(value):
            found.rest[column] = value
    return found


def _take(name: str, plan: _Plan, row: Mapping[str, Any], found: Fields, used: Collection[str]) -> Iterable[str]:
    """Take the value of a field, and return the columns that it fills."""
    # A column whose inside is another field is not a field as well: {"answer": {"result": ...}} has no reference.
    opened = {re.split(r"[.\[]", path)[0] for path in found.columns.values()}
    candidates = [column for column in plan.direct[name] if column not in used and column not in opened]
    if name == "passages":
        # In our own column such a value is an error, which is reported where it is read.
        candidates = [column for column in candidates if column == "passages" or may_be_passages(row[column])]
    present = [column for column in candidates if not is_missing(row[column])]
    # Passages may be an object themselves: texts by their ids.
    may_be_inside = name in _CONTAINERS and name != "passages"
    own = [column for column in present if not (may_be_inside and isinstance(unpacked(row[column]), Mapping))]
    if own:
        found.take(name, own[0], row[own[0]])
        if canonical(own[0]) in _PACKED_NAMES:
            found.packed.add(name)
        if name in _NOTED_FIELDS:
            found.others[name] = [other for other in present if other != own[0]]
        return own[:1]
    for column in plan.flat.get(name, ()):
        if column not in used and not is_missing(row[column]):
            found.take(name, column, row[column])
            return (column,)
    for column in plan.containers.get(name, ()):
        inner = _inside(name, unpacked(row[column]))
        if inner is not None:
            key, value = inner
            found.take(name, f"{column}.{key}" if key else column, value)
            return () if key else (column,)
    for columns in plan.numbered if name == "passages" else ():
        texts = [row[column] for column in columns if not is_missing(row[column])]
        if texts and all(isinstance(text, str) for text in texts) and not all(map(are_no_texts, texts)):
            found.take("passages", " + ".join(columns), texts)
            return columns
    # An empty column is still the field's column: a missing value is reported as such.
    for column in (*present, *candidates):
        found.take(name, column, row[column])
        return (column,)
    return ()


def _inside(name: str, value: Any) -> tuple[str, Any] | None:
    """Return the key and the value of a field within an object, or the text of chat messages without a key."""
    if isinstance(value, list):
        text = chat_text(value, _ROLES[name]) if name in _ROLES else ""
        return ("", text) if text else None
    if not isinstance(value, Mapping):
        return None
    keys = {canonical(key): key for key in reversed(list(value))}
    for alias in _INSIDE[name]:
        if alias in keys and not is_missing(value[keys[alias]]):
            return keys[alias], value[keys[alias]]
    if name not in ("query", "response", "reference"):
        return None
    if text := chat_text(value, _ROLES.get(name, "assistant")):
        return "messages", text
    # An object that holds nothing else: {"my_app_answer": "..."}.
    only = list(value.items())
    return only[0] if len(only) == 1 and isinstance(only[0][1], str) and only[0][1].strip() else None


def missing_column(name: str, found: Sequence[str], hint: str = "") -> TurnError:
    """Return the error for a field without a column."""
    accepted = ", ".join(ALIASES[name][:8])
    return TurnError(
        f"there is no column for the {name}: accepted are {accepted} …; found: {', '.join(found) or '(none)'}{hint}"
    )


def suggest(missing: Iterable[str], rows: Iterable[Mapping[str, Any]], used: Collection[str]) -> dict[str, list[str]]:
    """Return the columns or paths with texts that could be meant for missing fields, in the order of the file.

    Columns whose names look like a reference, a question or passages are not proposed for the response.

    Args:
        missing: the fields without a column.
        rows: the first rows.
        used: columns that other fields take.
    """
    rows = list(rows)
    found: dict[str, list[str]] = {}
    for name in missing:
        paths: dict[str, None] = {}
        for column, value in (item for row in rows for item in row.items()):
            if column not in used:
                paths.update(dict.fromkeys(_paths(column, value, name == "passages", 3)))
        if name == "response":
            paths = {path: None for path in paths if not _NO_RESPONSE.search(canonical(path))}
        found[name] = list(paths)[:_MOST_PROPOSED]
    return found


def _paths(path: str, value: Any, wants_lists: bool, depth: int) -> Iterator[str]:
    """Yield the places of texts in a value, as ``--map`` names them."""
    value = unpacked(value)
    # A name with blanks is quoted in a path, and stays as it is where it is the whole path.
    root = path if any(mark in path for mark in '."[') else _quoted(path)
    if isinstance(value, str):
        # Numbers and names of files are no texts.
        if not are_no_texts(value.replace(",", ".")):
            yield path
    elif isinstance(value, Mapping) and depth:
        for key, item in value.items():
            yield from _paths(f"{root}.{_quoted(str(key))}", item, wants_lists, depth - 1)
    elif isinstance(value, list) and value and depth:
        if all(isinstance(item, str) for item in value):
            yield path if wants_lists else f"{root}[0]"
        elif isinstance(value[0], (Mapping, list)):
            yield from _paths(f"{root}[]" if wants_lists else f"{root}[0]", value[0], wants_lists, depth - 1)


def _quoted(key: str) -> str:
    """Return a key as JMESPath has it: quoted unless it is a plain identifier."""
    return key if key.isidentifier() else f'"{key}"'
