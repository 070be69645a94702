"""Which columns of a row hold the question, the answer and so on: a table of names, and what the user maps.

A field is in a column with one of its names, or inside an object of another tool: ``inputs.question``, either nested or
as the name of a column. Everything else is named by the user.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain
from typing import Any

from rageval_hooks.errors import ConfigurationError, TurnError, UnknownNameError, requires
from rageval_hooks.offline.records.values import are_no_texts, chat_text, is_missing, may_be_passages, unpacked


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALIASES: dict[str, tuple[str, ...]] = {
    "query": _names(
        "query user_input question input query_text user_query user_question question_text query_str prompt "
        "user_prompt instruction search_query test_question sample_question request problem inputs topic topic_title "
        "pregunta frage domanda pergunta vraag pytanie soru pertanyaan вопрос 问题 問題 質問 질문 cau_hoi"
    ),
    # "answer", "output" and "result" come late: next to a column such as "prediction" they hold the golden answer.
    "response": _names(
        "response actual_output generated_answer generated_text generated_response prediction predicted_answer "
        "model_answer model_output model_response llm_answer llm_response llm_output rag_answer rag_response "
        "system_answer bot_response assistant_response final_answer completion generation generated hypothesis "
        "actual_answer actual_response predicted predicted_response ai_answer ai_response chatbot_answer "
        "chatbot_response agent_answer agent_response output_text pred predictions predicted_answers generated_texts "
        "answer output result outputs "
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
        "ground_truth_answers golden generation_gt right_answer long_answer respuesta_esperada respuesta_correcta "
        "erwartete_antwort reponse_attendue risposta_attesa resposta_esperada "
        "эталон 参考答案 标准答案 正解 정답 answers answer 答案"
    ),
    "id": _names("id _id query_id question_id turn_id example_id sample_id record_id topic_id qid"),
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
    "query": _names("inputs input request query vars example item data messages conversation conversations"),
    "response": _names(
        "outputs output response prediction result run_outputs sample messages conversation conversations"
    ),
    "passages": _names("outputs output response inputs input item vars result retrieval data"),
    "reference": _names(
        "reference_outputs reference_output expected_output expected_outputs expectations expected reference "
        "ground_truth item"
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

_ROLES = {"query": "user", "response": "assistant", "reference": "assistant"}
"""Field → the role whose last message it is, in a column of chat messages."""

_NOTED = ("query", "response", "passages", "reference")
"""Fields for which a wrong choice of the column changes scores."""

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
    r"|_ok\b|context|passage|chunk|evidence|document|title"
)


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
    return bool(_direct(tuple(columns))[name])


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
        if path not in self._compiled:
            return None
        from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]

        try:
            # Cells of tables hold lists and objects as text.
            cells = {name: unpacked(value) if name in path else value for name, value in row.items()}
            return self._compiled[path].search(cells)
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
    """

    values: dict[str, Any] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    others: dict[str, list[str]] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """Return the value of a field; None if it has none."""
        return self.values.get(name)

    def take(self, name: str, column: str, value: Any) -> None:
        """Set the value of a field, and where it comes from."""
        self.values[name] = value
        self.columns[name] = column


@lru_cache(maxsize=256)
def _direct(columns: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the columns with a name of each field, the preferred one first."""
    # The first of several columns with the same canonical name wins, so it is entered last.
    names = {canonical(column): column for column in reversed(columns)}
    return {name: [names[alias] for alias in aliases if alias in names] for name, aliases in ALIASES.items()}


def take_fields(row: Mapping[str, Any], mapping: ColumnMap | None = None) -> Fields:
    """Sort the values of a row by field.

    Args:
        row: values by column.
        mapping: the columns that the user named; they come first.
    """
    found = Fields()
    absent: Collection[str] = ()
    # Columns that are a field, and those that hold one inside: {"answer": {"result": …}} has no reference.
    used: set[str] = set()
    opened: set[str] = set()
    if mapping is not None:
        absent = mapping.absent
        for name, path in mapping.paths.items():
            found.take(name, path, mapping.value(name, row))
            used.add(path)
            opened.add(re.split(r"[.\[]", path)[0])
    direct = _direct(tuple(row))
    # In the order of ALIASES: a column belongs to the first field that wants it.
    for name in ALIASES:
        if name in found.values or name in absent:
            continue
        candidates = [column for column in direct[name] if column not in used and column not in opened]
        if name == "passages":
            # In our own column such a value is an error, which is reported where it is read.
            candidates = [column for column in candidates if column == name or may_be_passages(row[column])]
        present = [column for column in candidates if not is_missing(row[column])]
        # Passages may be an object themselves: texts by their ids.
        is_nested = name in _CONTAINERS and name != "passages"
        plain = [column for column in present if not (is_nested and isinstance(unpacked(row[column]), Mapping))]
        if plain:
            found.take(name, plain[0], row[plain[0]])
            found.others[name] = [other for other in present if other != plain[0]]
            used.add(plain[0])
        elif inside := _inside(name, row, used):
            column, path, value = inside
            found.take(name, path, value)
            (used if column == path else opened).add(column)
        elif name == "passages" and (columns := _numbered(row)):
            texts = [row[column] for column in columns if not is_missing(row[column])]
            found.take(name, " + ".join(columns), texts)
            used.update(columns)
        elif candidates:
            # An empty column is still the field's column: a missing value is reported as such.
            column = (present or candidates)[0]
            found.take(name, column, row[column])
            used.add(column)
    # ARES writes the passage into a column "document". The name of a file has fewer words.
    document = found.get("document")
    is_text = isinstance(document, list) or (isinstance(document, str) and len(document.split()) >= 5)
    if is_text and "passages" not in found.values and "response" in found.values and "passages" not in absent:
        found.take("passages", found.columns.pop("document"), found.values.pop("document"))
    for name, others in found.others.items():
        # A column that another field takes is no alternative.
        found.others[name] = [column for column in others if column not in used and name in _NOTED]
    found.rest = {column: value for column, value in row.items() if column not in used and not is_missing(value)}
    return found


def _inside(name: str, row: Mapping[str, Any], used: Collection[str]) -> tuple[str, str, Any] | None:
    """Return the column, the path and the value of a field that another tool nests; None without such a field."""
    if name not in _CONTAINERS:
        return None
    places: dict[tuple[str, str], tuple[str, str, Any]] = {}
    containers: dict[str, str] = {}
    for column, value in row.items():
        if column in used:
            continue
        # "inputs.question" in LangSmith, "inputs/question" in MLflow.
        parts = re.split(r"[./]", canonical(column))
        inner = unpacked(value)
        if len(parts) > 1 and not is_missing(value):
            places.setdefault((parts[0], parts[-1]), (column, column, value))
        elif isinstance(inner, Mapping):
            for key, item in inner.items():
                if not is_missing(item):
                    places.setdefault((parts[0], canonical(key)), (column, f"{column}.{key}", item))
        containers.setdefault(parts[0], column)
    # LangChain's RetrievalQA returns {"query": …, "result": …}, which scripts write into a column "answer".
    wanted = dict.fromkeys((*_CONTAINERS[name], *(ALIASES[name] if name in ("query", "response") else ())))
    for container in wanted:
        for alias in _INSIDE[name] if places else ():
            if found := places.get((container, alias)):
                return found
        if name in _ROLES and container in containers:
            column = containers[container]
            if text := chat_text(unpacked(row[column]), _ROLES[name]):
                return column, f"{column}.messages", text
    return None


def _numbered(row: Mapping[str, Any]) -> list[str]:
    """Return the columns that hold one passage each: ``context_1``, ``context_2``; empty without any."""
    groups: dict[tuple[str, str], dict[int, str]] = {}
    for column in row:
        if match := _NUMBERED.fullmatch(canonical(column)):
            groups.setdefault((match[1], match[3] or ""), {})[int(match[2])] = column
    for group in groups.values():
        texts = [row[column] for column in group.values() if not is_missing(row[column])]
        if texts and all(isinstance(text, str) for text in texts) and not all(map(are_no_texts, texts)):
            return [group[number] for number in sorted(group)]
    return []


def as_options(columns: Mapping[str, str]) -> str:
    """Return columns by field as options of a command: ``--map response=gpt_reply``."""
    # Blanks and brackets have a meaning in shells.
    paths = {field: path if path.replace("_", "").isalnum() else f"'{path}'" for field, path in columns.items()}
    return " ".join(f"--map {field}={path}" for field, path in paths.items())


def check_columns(
    where: str,
    rows: Sequence[Mapping[str, Any]],
    required: Sequence[str],
    mapping: ColumnMap | None = None,
    *,
    more: Callable[[], Iterable[Mapping[str, Any]]] = tuple,
    is_table: bool = False,
    show: Callable[[Mapping[str, str]], str] = as_options,
    note: Callable[[str], object] = lambda _: None,
) -> None:
    """Check that rows have the required columns and those that the user named; note which of several were taken.

    Args:
        where: what is checked, in front of the message: ``"a.csv: "``.
        rows: the first rows.
        required: fields that must have a column.
        mapping: columns that the user named.
        more: returns all rows. In JSON Lines a column may come late: a test set may have its references only in the
            rows of one source.
        is_table: True if every row has all columns, and objects are written into cells as text.
        show: returns how the user names the columns of some fields.
        note: called with what the user should know.

    Raises:
        TurnError: a column is missing. The message lists the columns, and those that may be meant.
    """
    if not rows:
        return
    columns = list(dict.fromkeys(chain.from_iterable(rows)))
    if mapping is not None:
        _check_mapping(where, rows, mapping, columns, more, is_table=is_table)
    found = [take_fields(row, mapping) for row in rows]
    missing = [name for name in required if not any(name in fields.values for fields in found)]
    for row in more() if missing and not is_table else ():
        missing = [name for name in missing if name not in take_fields(row, mapping).values]
        if not missing:
            break
    if missing:
        used = set(chain.from_iterable(fields.columns.values() for fields in found))
        hint = _hint(missing, rows, used, show)
        if missing == ["response"] and has_column("reference", columns):
            hint += ". If the file has questions only, ask your application first: rageval-hooks run"
        if missing == ["query"] and "response" in required:
            hint += (
                ". If there are no questions, name metrics that need none: --metrics "
                "faithfulness,groundedness,unsupported_facts"
            )
        raise TurnError(where + str(missing_column(missing[0], columns)) + hint)
    for name in ("query", "response"):
        values = [fields.values[name] for fields in found if name in fields.values] if name in required else []
        # In JSON a text is a text, also if it holds JSON: a model was asked to write it.
        if values and all(isinstance(unpacked(value) if is_table else value, Mapping) for value in values):
            column = next(fields.columns[name] for fields in found if name in fields.columns)
            hint = _hint([name], rows, (), show)
            raise TurnError(f"{where}the {name} is an object in the column {column}{hint}")
    # What the user should know of each field is the same in most rows.
    taken = {name: (fields, others) for fields in reversed(found) for name, others in fields.others.items() if others}
    for name, (fields, others) in taken.items():
        listed = ", ".join(map(repr, others))
        note(f"the {name} is taken from {fields.columns[name]!r}, not from {listed}: --map names another column")


def missing_column(name: str, found: Sequence[str]) -> TurnError:
    """Return the error for a field without a column."""
    accepted = ", ".join(ALIASES[name][:8])
    return TurnError(
        f"there is no column for the {name}: accepted are {accepted} …; found: {', '.join(found) or '(none)'}"
    )


def _check_mapping(
    where: str,
    rows: Sequence[Mapping[str, Any]],
    mapping: ColumnMap,
    columns: Sequence[str],
    more: Callable[[], Iterable[Mapping[str, Any]]],
    *,
    is_table: bool,
) -> None:
    """Check that the columns that the user named are there. A misspelled one would be empty in every row."""

    def unfound(names: list[str], rows: Iterable[Mapping[str, Any]]) -> list[str]:
        for row in rows if names else ():
            values = {name: mapping.value(name, row) for name in names}
            # No passages in any row is a result; a text is never an empty list.
            names = [name for name, value in values.items() if value is None or (value == [] and name != "passages")]
            if not names:
                break
        return names

    # A column that is there may be empty. Columns that come late and values under a path may be in later rows.
    absent = unfound([name for name, column in mapping.paths.items() if column not in columns], rows)
    if absent and all(mapping.is_path(name) or not is_table for name in absent):
        absent = unfound(absent, more())
    if absent:
        column = mapping.paths[absent[0]]
        close = get_close_matches(column, columns, n=1)
        guess = f" Did you mean {close[0]!r}?" if close else ""
        message = f"{where}nothing is under {column!r}, which --map names for the {absent[0]}."
        raise TurnError(f"{message}{guess} Found: {', '.join(columns)}")


def _hint(
    missing: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    used: Collection[str],
    show: Callable[[Mapping[str, str]], str],
) -> str:
    """Return the end of the message for missing columns: how to name them, and which columns hold texts."""
    proposed: dict[str, list[str]] = {}
    for name in missing:
        cells = (item for row in rows for item in row.items() if item[0] not in used)
        paths = dict.fromkeys(path for cell in cells for path in _paths(*cell, name == "passages", 3))
        # Columns whose names look like a reference, a question or passages are never proposed for the response.
        usable = [path for path in paths if name != "response" or not _NO_RESPONSE.search(canonical(path))]
        proposed[name] = usable[:8]
    only = {name: paths[0] for name, paths in proposed.items() if len(paths) == 1}
    if len(set(only.values())) == len(proposed):
        return f". Try {show(only)}"
    named = show(dict.fromkeys(proposed, "COLUMN"))
    return f". Name it with {named}" + "".join(
        f"; the {name} may be {', '.join(paths)}" for name, paths in proposed.items() if paths
    )


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
