"""Which columns of a row hold the question, the answer and so on: a table of names, and what the user maps.

A field is in a column with one of its names, or inside an object of another tool: ``inputs.question``, either nested or
as the name of a column. Everything else is named by the user.
"""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain, product
from typing import Any

from rageval_hooks.errors import ConfigurationError, TurnError, UnknownNameError, requires
from rageval_hooks.offline.records.values import are_no_texts, chat_text, last_exchange, may_be_passages
from rageval_hooks.runtime.literals import unpacked
from rageval_hooks.runtime.narrowing import is_missing, mapping_or_empty
from rageval_hooks.text.wording import counted


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
    "rank": _names("rank target_rank"),
    "document": ("document",),
    "answerable": _names(
        "answerable is_answerable unanswerable is_unanswerable is_impossible expected_abstain should_abstain"
    ),
    "error": _names("error exception error_message"),
}
"""Field of a record → the names of its column, the preferred one first.

They are those of this package, Ragas, DeepEval, open-rag-eval, MLflow, LangSmith, Langfuse, Phoenix, TruLens,
RAGChecker and AutoRAG, and the plain words for question, answer and context in other languages.
"""

_CONTAINERS: dict[str, tuple[str, ...]] = {
    "query": _names("inputs input request query vars example item data messages conversation conversations"),
    "response": _names("outputs output response answer prediction result sample messages conversation conversations"),
    "passages": _names("outputs output response inputs input item vars result retrieval data"),
    "reference": _names(
        "reference_outputs reference_output expected_output expected_outputs expectations expected reference "
        "ground_truth item"
    ),
    "id": _names("example data"),
}
"""Field → the objects in which other tools nest it: LangSmith and Phoenix write ``inputs.question``."""

_INSIDE = {
    "query": (*ALIASES["query"], "<user>"),
    "response": (*ALIASES["response"], "text", "content", "<assistant>"),
    "passages": ALIASES["passages"],
    # Within an object the object says whether an answer is golden.
    "reference": (*ALIASES["reference"], *ALIASES["response"], "text", "content", "<assistant>"),
    "id": ALIASES["id"],
}
"""Field → its names within a container. Of chat messages it is the last one of a role."""

# Between a lower-case letter or digit and a capital: "actualOutput" becomes "actual_output".
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# Names of golden answers and of questions, which are never proposed for the response: "true_answers", "answer_ok".
_NO_RESPONSE = re.compile(
    r"gold|true|truth|correct|expect|ideal|reference|target|label|\bgt\b|_gt\b|\bgt_|human|input|quer|question|prompt"
    r"|_ok\b|context|passage|chunk|evidence|document|title"
)
_MAX_PROPOSED = 8

_ANSWER_WORDS = frozenset(
    "answer answers response responses reply output outputs prediction predictions predicted pred completion "
    "completions generation generated hypothesis respuesta antwort reponse risposta resposta antwoord odpowiedz cevap "
    "jawaban".split()
)
_ANSWER_SIGNS = ("ответ", "回答", "答案", "답변")
_SYSTEM_WORDS = re.compile(r"model|bot|llm|rag|gpt|claude|gemini|llama|mistral|assistant|agent|system")
"""Words in the names of columns that hold what an application answered: "Bot Answer", "gpt4_answer", "model_result"."""

# What is written about an answer, or next to it.
_NO_ANSWER = re.compile(
    r"comment|expla|reason|rational|feedback|note|score|label|rating|rank|relevan|faith|metric|judge|verdict|critique"
    r"|token|latency|time|cost|length|count|type|format|source|citation|url|name|language|category|status|error|start"
    r"|instruction|template|version|metadata|schema|history|step|thought|tool|config|option|param|_id\b|^id\b"
)
_MIN_SHARED_WORDS = 0.5
"""Jaccard index of the words of two columns that both hold an answer."""


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Return a column name in the form of :data:`ALIASES`: ``ground_truth`` for ``Ground Truth`` or ``groundTruth``."""
    found = _CAMEL.sub("_", str(name).strip()).lower().replace(" ", "_").replace("-", "_")
    # This form separates a letter from its accent: "réponse" becomes "reponse". Other scripts stay as they are.
    letters = "".join(letter for letter in unicodedata.normalize("NFKD", found) if not unicodedata.combining(letter))
    return letters if letters.isascii() else found


def has_column(name: str, columns: Iterable[str]) -> bool:
    """Return True if one of the columns is a field's, under any of its names."""
    return bool(_direct(tuple(columns))[name])


@lru_cache(maxsize=256)
def _direct(columns: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the columns with a name of each field, the preferred one first."""
    # The first of several columns with the same canonical name wins, so it is entered last.
    names = {canonical(column): column for column in reversed(columns)}
    return {name: [names[alias] for alias in aliases if alias in names] for name, aliases in ALIASES.items()}


class ColumnMap:
    """``--map FIELD=COLUMN``: the columns of a file, as the user names them.

    Args:
        columns: field → a column, a JMESPath expression into nested values such as ``contexts[].text``, or an empty
            text for a field that the file does not have. Of several files the same map is used for each.
        ignored: columns that are not read.

    Raises:
        ConfigurationError: a field is not known, or a path is not a valid expression.
    """

    def __init__(self, columns: Mapping[str, str], ignored: Iterable[str] = ()) -> None:
        for name in columns:
            if name not in ALIASES:
                raise UnknownNameError("field of --map", name, ALIASES)
        self.columns = dict(columns)
        self.ignored = frozenset(ignored)
        self.absent = frozenset(name for name, path in columns.items() if not path)
        self.paths = {name: path for name, path in columns.items() if path}
        self._compiled: dict[str, Any] = {}
        for path in self.paths.values():
            if not set(".[]|") & set(path):
                continue
            with requires("jmespath", "offline", "paths into nested columns"):
                import jmespath  # type: ignore[import-untyped]
                from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]
            try:
                self._compiled[path] = jmespath.compile(path)
            except JMESPathError as error:
                reason = str(error).splitlines()[0]
                raise ConfigurationError(f"--map: {path!r} is not a path such as contexts[].text: {reason}") from None

    @classmethod
    def parse(cls, given: Iterable[str], ignored: Iterable[str] = ()) -> ColumnMap | None:
        """Return the map that options such as ``["response=chatgpt_response"]`` describe; None for no options.

        Args:
            given: of ``--map``.
            ignored: of ``--ignore``.

        Raises:
            ConfigurationError: an option is not of this form.
        """
        columns: dict[str, str] = {}
        for option in given:
            name, equals, column = option.partition("=")
            if not equals:
                raise ConfigurationError(f"--map {option!r} should be FIELD=COLUMN, such as response=chatgpt_answer")
            columns[name.strip()] = column.strip()
        ignored = frozenset(ignored)
        return cls(columns, ignored) if columns or ignored else None

    def value(self, name: str, row: Mapping[str, Any]) -> Any:
        """Return the value of a field in a row; None if it has none, also for a function in the path such as join()."""
        path = self.paths[name]
        # A name with dots in it comes before a path.
        if path in row or path not in self._compiled:
            return row.get(path)
        from jmespath.exceptions import JMESPathError

        try:
            # Cells of tables hold lists and objects as text.
            cells = {name: unpacked(value) if name in path else value for name, value in row.items()}
            return self._compiled[path].search(cells)
        except JMESPathError:  # join(', ', answers) of a row whose answers are null
            return None


def reading_options(mapping: ColumnMap | None, encoding: str | None) -> dict[str, Any]:
    """Return the options that decide what is read from a file, by the names that a user knows; without those not given.

    With other options the rows are others: results of the two are never mixed.
    """
    ignored = sorted(mapping.ignored) if mapping else None
    options = {"map": mapping and mapping.columns, "ignore": ignored or None, "encoding": encoding}
    return {name: value for name, value in options.items() if value is not None}


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


def take_fields(row: Mapping[str, Any], mapping: ColumnMap | None = None) -> Fields:
    """Sort the values of a row by field.

    Args:
        row: values by column.
        mapping: the columns that the user named; they come first.
    """
    found = Fields()
    # Columns that are a field, and those that hold one inside: {"answer": {"result": …}} has no reference.
    used: set[str] = set()
    opened: set[str] = set()
    mapping = mapping or ColumnMap({})
    if mapping.ignored:
        row = {column: value for column, value in row.items() if column not in mapping.ignored}
    for name, path in mapping.paths.items():
        found.take(name, path, mapping.value(name, row))
        used.add(path)
        opened.add(re.split(r"[.\[]", path)[0])
    direct = _direct(tuple(row))
    places: _Places | None = None
    # In the order of ALIASES: a column belongs to the first field that wants it.
    for name in ALIASES:
        if name in found.values or name in mapping.absent:
            continue
        candidates = [column for column in direct[name] if column not in used and column not in opened]
        if name == "passages":
            # In our own column such a value is an error, which is reported where it is read.
            candidates = [column for column in candidates if column == name or may_be_passages(row[column])]
        filled = [column for column in candidates if not is_missing(row[column])]
        # Passages may be an object themselves: texts by their ids.
        is_nested = name in _CONTAINERS and name != "passages"
        plain = [column for column in filled if not (is_nested and isinstance(unpacked(row[column]), Mapping))]
        if plain:
            found.take(name, plain[0], row[plain[0]])
            found.others[name] = plain[1:]
            used.add(plain[0])
            continue
        places = _places_in(row) if places is None else places
        # Most rows have no objects, and there are a hundred places to look in.
        wanted = product(_CONTAINERS.get(name, ()), _INSIDE.get(name, ())) if places else ()
        inside = map(places.get, wanted)
        if place := next((place for place in inside if place is not None and place[0] not in used), None):
            column, path, value = place
            found.take(name, path, value)
            (used if column == path else opened).add(column)
        elif candidates:
            # An empty column is still the field's column: a missing value is reported as such.
            column = (filled or candidates)[0]
            found.take(name, column, row[column])
            used.add(column)
    # Messages that hold both the question and the answer: a question after the last answer has none.
    if found.columns.get("query") == found.columns.get("response") and (pair := _exchange_in(row, found)):
        found.values["query"], found.values["response"] = pair
    found.rest = {column: value for column, value in row.items() if column not in used and not is_missing(value)}
    return found


def _exchange_in(row: Mapping[str, Any], found: Fields) -> tuple[str, str] | None:
    path = found.columns.get("query", "")
    return last_exchange(row.get(path.removesuffix(".messages"), found.values.get("query"))) if path else None


_Places = dict[tuple[str, str], tuple[str, str, Any]]
"""Object and name in it → column, path and value."""


def _places_in(row: Mapping[str, Any]) -> _Places:
    """Return what a row has inside its objects: ``inputs.question`` in LangSmith, ``inputs/question`` in MLflow."""
    places: _Places = {}
    for column, value in row.items():
        outer, *inner = re.split(r"[./]", canonical(column))
        content = unpacked(value)
        if inner:
            items = [(inner[-1], column, value)]
        else:
            items = [(canonical(key), f"{column}.{key}", item) for key, item in mapping_or_empty(content).items()]
        items += [(f"<{role}>", f"{column}.messages", chat_text(content, role)) for role in ("user", "assistant")]
        for name, path, item in items:
            if not is_missing(item):
                places.setdefault((outer, name), (column, path, item))
    return places


def as_options(columns: Mapping[str, str]) -> str:
    """Return columns by field as options of a command: ``--map response=gpt_reply``."""
    return " ".join(f"--map {field}={shlex.quote(path)}" for field, path in columns.items())


def check_columns(
    where: str,
    rows: Sequence[Mapping[str, Any]],
    required: Sequence[str],
    mapping: ColumnMap | None = None,
    *,
    show: Callable[[Mapping[str, str]], str] = as_options,
    note: Callable[[str], object] = lambda _: None,
) -> None:
    """Check that rows have the required columns and those that the user named; note which of several were taken.

    Args:
        where: what is checked, in front of the message: ``"a.csv: "``.
        rows: the first rows.
        required: fields that must have a column.
        mapping: columns that the user named.
        show: returns how the user names the columns of some fields.
        note: called with what the user should know.

    Raises:
        TurnError: a column is missing. The message lists the columns, and those that may be meant.
    """
    if not rows:
        return
    columns = list(dict.fromkeys(chain.from_iterable(rows)))
    found = [take_fields(row, mapping) for row in rows]
    for name, path in mapping.paths.items() if mapping is not None else ():
        # A misspelled column would be empty in every row. No passages in any row is a result, and so is an empty cell.
        values = [fields.values[name] for fields in found]
        if path not in columns and all(value is None or (value == [] and name != "passages") for value in values):
            raise TurnError(
                f"{where}nothing is under {path!r}, which --map names for the {name}. "
                f"Found in the first {counted(len(rows), 'row')}: {', '.join(columns)}"
            )
    missing = [name for name in required if not any(name in fields.values for fields in found)]
    if missing:
        used = set(chain.from_iterable(fields.columns.values() for fields in found))
        free = [(column, value) for row in rows for column, value in row.items() if column not in used]
        hint = _hint(missing, free, show)
        if missing == ["response"] and has_column("reference", columns):
            hint += ". If the file has questions only, ask your application first: rageval-hooks run"
        if missing == ["query"] and "response" in required:
            hint += (
                ". If there are no questions, name metrics that need none: --metrics "
                "faithfulness,groundedness,unsupported_facts"
            )
        raise TurnError(where + str(missing_column(missing[0], columns)) + hint)
    if "response" in required and not (mapping and "response" in mapping.columns):
        _check_response(where, rows, found, mapping, show)
    # For these a wrong choice of the column changes scores. It is the same in most rows, so the first one is noted.
    for name in ("query", "response", "passages", "reference"):
        for fields in found:
            # A column that another field takes is no alternative.
            others = [other for other in fields.others.get(name, ()) if other not in fields.columns.values()]
            if others:
                listed = ", ".join(map(repr, others))
                note(
                    f"the {name} is taken from {fields.columns[name]!r}, not from {listed}: --map names another column"
                )
                break


def _check_response(
    where: str,
    rows: Sequence[Mapping[str, Any]],
    found: Sequence[Fields],
    mapping: ColumnMap | None,
    show: Callable[[Mapping[str, str]], str],
) -> None:
    """Check that only one column can hold what the application answered: next to it may be the golden answer.

    Raises:
        TurnError: there are two.
    """
    ignored = mapping.ignored if mapping else frozenset()
    candidates: dict[str, None] = {}
    alike: dict[str, list[float]] = {}
    for row, fields in zip(rows, found, strict=True):
        chosen = fields.values.get("response")
        if not isinstance(chosen, str) or not chosen.strip():
            continue
        used = set(fields.columns.values())
        said = set(chosen.lower().split())
        for path, text in _texts_in(row):
            column = re.split(r"[.]", path)[0]
            if path in used or column in used | ignored or path in ignored or _NO_RESPONSE.search(canonical(path)):
                continue
            name = canonical(path)
            if _NO_ANSWER.search(name):
                continue
            words = set(re.findall(r"[^\W\d_]+", name))
            is_long = len(text.split()) > 2
            if (words & _ANSWER_WORDS or any(sign in name for sign in _ANSWER_SIGNS)) or (
                is_long and _SYSTEM_WORDS.search(name)
            ):
                candidates[path] = None
            elif is_long:
                other = set(text.lower().split())
                alike.setdefault(path, []).append(len(said & other) / len(said | other))
    for path, shares in alike.items():
        if sum(share >= _MIN_SHARED_WORDS for share in shares) > len(rows) / 2:
            candidates[path] = None
    if not candidates:
        return
    taken = next(fields.columns["response"] for fields in found if "response" in fields.columns)
    paths = [taken, *candidates][:_MAX_PROPOSED]
    choices = " or ".join(show({"response": path}) for path in paths)
    raise TurnError(
        f"{where}several columns may hold the response: {', '.join(map(repr, paths))}. One of them may be the "
        f"reference. Choose with {choices}"
    )


def _texts_in(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the texts of a row, also those inside its objects, with their columns or paths."""
    for column, value in row.items():
        content = unpacked(value)
        for key, item in mapping_or_empty(content).items():
            if isinstance(item, str) and item.strip():
                yield f"{column}.{key}", item
        if isinstance(content, str) and content.strip():
            yield column, content


def missing_column(name: str, found: Sequence[str]) -> TurnError:
    """Return the error for a field without a column."""
    accepted = ", ".join(ALIASES[name][:8])
    return TurnError(
        f"there is no column for the {name}: accepted are {accepted} …; found: {', '.join(found) or '(none)'}"
    )


def _hint(missing: Sequence[str], cells: Sequence[tuple[str, Any]], show: Callable[[Mapping[str, str]], str]) -> str:
    """Return the end of the message for missing columns: how to name them, and which columns hold texts.

    Args:
        missing: the fields without a column.
        cells: the columns that no field takes, and their values.
        show: returns how the user names the columns of some fields.
    """
    texts = dict.fromkeys(column for column, value in cells if _holds_text(value))
    # Columns whose names look like a reference, a question or passages are never proposed for the response.
    proposed = {
        name: [column for column in texts if name != "response" or not _NO_RESPONSE.search(canonical(column))]
        for name in missing
    }
    only = {name: columns[0] for name, columns in proposed.items() if len(columns) == 1}
    # The text may be inside an object, too.
    if len(set(only.values())) == len(proposed) and not any(isinstance(unpacked(cell), Mapping) for _, cell in cells):
        return f". Try {show(only)}"
    named = show(dict.fromkeys(proposed, "COLUMN"))
    return f". Name it with {named}, or COLUMN.KEY for a value in it" + "".join(
        f"; the {name} may be {', '.join(columns[:_MAX_PROPOSED])}" for name, columns in proposed.items() if columns
    )


def _holds_text(value: Any) -> bool:
    found = unpacked(value)
    text = found[0] if isinstance(found, list) and found else found
    # Numbers and names of files are no texts.
    return isinstance(text, str) and not are_no_texts(text.replace(",", "."))
