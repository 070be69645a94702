"""Which columns of a file hold the question, the answer and so on: known names, known tools, and what the user maps.

The first rows decide for the whole file. What they do not decide is an error that shows the columns.
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from rageval_hooks.errors import ConfigurationError, TurnError, UnknownNameError, requires
from rageval_hooks.integrations.conversation import exchanges
from rageval_hooks.offline.records.values import chat_text, last_exchange, may_be_passages, messages_in, texts_inside
from rageval_hooks.runtime.literals import unpacked
from rageval_hooks.runtime.narrowing import is_missing, mapping_or_empty
from rageval_hooks.text.formatting import shorten
from rageval_hooks.text.wording import counted


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


ALIASES: dict[str, tuple[str, ...]] = {
    "query": _names(
        "query user_input question input query_text user_query user_question question_text query_str prompt "
        "user_prompt instruction search_query test_question sample_question request problem inputs topic topic_title "
        "pregunta frage domanda pergunta vraag pytanie soru pertanyaan вопрос 问题 問題 質問 질문 cau_hoi "
        "messages conversation conversations"
    ),
    # "answer", "output" and "result" come late: next to a column such as "prediction" they hold the golden answer.
    "response": _names(
        "response actual_output generated_answer generated_text generated_response prediction predicted_answer "
        "model_answer model_output model_response llm_answer llm_response llm_output rag_answer rag_response "
        "system_answer bot_response assistant_response final_answer completion generation generated hypothesis "
        "actual_answer actual_response predicted predicted_response ai_answer ai_response chatbot_answer "
        "chatbot_response agent_answer agent_response output_text pred predictions predicted_answers generated_texts "
        "answer output result outputs "
        "respuesta antwort reponse risposta resposta antwoord odpowiedz cevap jawaban ответ 回答 答案 답변 cau_tra_loi "
        "messages conversation conversations"
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

They are those of this package, Ragas 0.1 to 0.4, chats of OpenAI and ShareGPT, TruLens 1 and 2, RAGChecker, AutoRAG,
LlamaIndex 0.14, Giskard, and the plain words for question, answer and context in other languages.
"""


class Tool(NamedTuple):
    """The columns of a tool that nests its fields, or gives a plain name another meaning.

    Attributes:
        name: the tool and its version.
        signs: columns that it has: ``a|b`` is one of them.
        paths: field → where it is, in order; ``inputs.?`` is under any name of the field in ``inputs``. Empty for a
            field that the file does not have. Other fields have their plain names.
    """

    name: str
    signs: str
    paths: Mapping[str, str]


# What a data set of examples calls its output is what the application should answer.
_EXAMPLES = {"query": "inputs.? input.?", "response": "", "reference": "outputs.? output.? outputs output"}

TOOLS = (
    Tool(
        "DeepEval 1 to 3",
        "actual_output|retrieval_context",
        {"passages": "retrieval_context", "target_text": "context"},
    ),
    Tool("TruLens 1 and 2", "record_json|app_id|app_version input output", {"passages": ""}),
    Tool("LangSmith 0.4, a data set", "inputs outputs dataset_id|split|dataset_split|source_run_id", _EXAMPLES),
    Tool(
        "Phoenix 8 to 20, an experiment",
        "input output repetition_number|reference_output",
        {
            "query": "input.?",
            "response": "output.?",
            "passages": "output.? input.?",
            "reference": "reference_output.? reference_output",
        },
    ),
    Tool("Phoenix 8 to 20, a data set", "input output example_id|node_id|splits", _EXAMPLES),
    Tool(
        "HotpotQA, 2WikiMultihopQA, MuSiQue",
        "answer supporting_facts|question_decomposition",
        {"response": " ".join(name for name in ALIASES["response"] if name != "answer"), "reference": "answer"},
    ),
    Tool(
        "LangSmith 0.4 to 0.15, an experiment; MLflow 2 and 3",
        "inputs|outputs",
        {
            "query": "inputs.? input.?",
            "response": "outputs.?",
            "passages": "outputs.? inputs.? input.?",
            "id": "example_id id",
            "reference": "reference_outputs.? reference.? expectations.? reference_outputs",
        },
    ),
    Tool(
        "MLflow 3, traces",
        "request",
        {
            "query": "request.?",
            "response": "response.?",
            "passages": "response.?",
            "reference": "expectations.?",
        },
    ),
    Tool(
        "promptfoo 0.100 and later",
        "vars response",
        {
            "query": "vars.?",
            "response": "response.output",
            "passages": "vars.?",
            "reference": "expected vars.?",
        },
    ),
    Tool(
        "OpenAI evals",
        "item|datasource_item sample",
        {
            "query": "item.? datasource_item.?",
            "response": "sample.?",
            "passages": "item.? datasource_item.?",
            "reference": "item.? datasource_item.?",
        },
    ),
    Tool(
        "Langfuse 2 and 3",
        "input",
        {
            "query": "input.?",
            "response": "output.?",
            "passages": "output.? input.? metadata.?",
            "reference": "expected_output.? reference_output.? expected.? expected_output",
        },
    ),
)
"""Tools that nest what they write. The first whose signs are there is the one."""

_PAIRS = frozenset(
    "id node_id inputs input outputs output metadata splits tags created_at updated_at modified_at".split()
)
"""Columns of a question with an output, which say nothing about a run."""

_CHATS = ("messages", "conversation", "conversations")
"""Columns with chat messages, which hold the question and its answer."""

_ANY_NAME = {
    **ALIASES,
    "response": (*ALIASES["response"], "text", "content"),
    # Within an object the object says whether an answer is golden.
    "reference": (*ALIASES["reference"], *ALIASES["response"], "text", "content"),
}
"""Field → its names within an object."""

# Between a lower-case letter or digit and a capital: "actualOutput" becomes "actual_output".
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# What templates have where a value should be: "N/A", "{{answer}}", "<your answer>", "TODO".
_PLACEHOLDER = re.compile(
    r"n\.?/?a\.?|none|null|nan|todo|tbd|tba|x{3,}|[?.\-_]+|string|placeholder|(?:your )?(?:answer|response)(?: here)?"
    r"|<[^<>]*>|\{\{[^{}]*\}\}|\$\{[^{}]*\}|lorem ipsum.*",
    re.IGNORECASE,
)

# Names of golden answers, of questions and of evidence: "true_answers", "answer_ok".
_NO_RESPONSE = re.compile(
    r"gold|true|truth|correct|expect|ideal|reference|target|label|\bgt\b|_gt\b|\bgt_|human|input|quer|question|prompt"
    r"|_ok\b|context|passage|chunk|evidence|document|title"
)
# What is written about an answer, or next to it.
_NO_ANSWER = re.compile(
    r"comment|expla|reason|rational|feedback|note|score|label|rating|rank|relevan|faith|metric|judge|verdict|critique"
    r"|token|latency|time|cost|length|count|type|format|source|citation|url|name|language|category|status|error|start"
    r"|instruction|template|version|metadata|schema|history|step|thought|tool|config|option|param|_id\b|^id\b"
    r"|role\b|preview|provider|finish"
)
_ANSWER_WORDS = re.compile(
    r"(?<![a-z])(?:answers?|responses?|repl(?:y|ies)|outputs?|predict(?:ions?|ed)|pred|completions?|generat(?:ion|ed)"
    r"|hypothesis|respuesta|antwort|reponse|risposta|resposta|antwoord|odpowiedz|cevap|jawaban)(?![a-z])"
    r"|ответ|回答|答案|답변"
)
_SYSTEM_WORDS = re.compile(
    r"model|bot(?![a-z])|llm|(?<![a-z])rag(?![a-z])|gpt|claude|gemini|llama|mistral|assistant|agent|system"
)
"""Words in the names of columns that hold what an application answered: "Bot Answer", "gpt4_answer", "model_result"."""

_QUESTION_WORDS = re.compile(
    r"question|quer|prompt|(?<![a-z])ask|utterance|pregunta|frage|domanda|pergunta|vraag|pytanie|soru|pertanyaan"
    r"|вопрос|问题|問題|質問|질문|cau_hoi"
)
_PASSAGE_WORDS = re.compile(
    r"context|passage|document|evidence|chunk|source|retriev|knowledge|fact|article|snippet|excerpt|kontext|kontekst"
    r"|contesto|fuente|fonte|quelle|trecho|extrait|sammanhang|контекст|上下文|文脈"
)
_NO_PASSAGES = re.compile(r"gold|true|truth|reference|target|title|url|_id\b|name|relevan|score")

_MIN_SHARED_WORDS = 0.5
"""Jaccard index of the words of two columns that both hold an answer."""
_MIN_LONG_TEXT = 40
"""Characters of a text that may be evidence, on average over the rows that have one."""
_MAX_NAME_LENGTH = 150
"""Characters of the name of a document; a longer text is its content."""
_MAX_SHOWN, _MAX_SAMPLE = 30, 60
"""Columns that a message shows, and characters of a value."""


@lru_cache(maxsize=4096)
def canonical(name: str) -> str:
    """Return a column name in the form of :data:`ALIASES`: ``ground_truth`` for ``Ground Truth`` or ``groundTruth``."""
    found = _CAMEL.sub("_", str(name).strip()).lower().replace(" ", "_").replace("-", "_")
    # This form separates a letter from its accent: "réponse" becomes "reponse". Other scripts stay as they are.
    letters = "".join(letter for letter in unicodedata.normalize("NFKD", found) if not unicodedata.combining(letter))
    return letters if letters.isascii() else found


def has_column(name: str, columns: Iterable[str]) -> bool:
    """Return True if one of the columns is a field's, under any of its names."""
    return not frozenset(ALIASES[name]).isdisjoint(map(canonical, columns))


@dataclass
class Fields:
    """The values of a row by field.

    Attributes:
        values: field → value; a field without a column is absent.
        columns: field → the column or path that the value comes from.
        rest: columns that no field takes, with their values.
    """

    values: dict[str, Any] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)

    def get(self, name: str) -> Any:
        """Return the value of a field; None if it has none."""
        return self.values.get(name)


class ColumnMap:
    """The columns of the fields, as the user names them (``--map FIELD=COLUMN``) or as they were found.

    Args:
        columns: field → a column, a JMESPath expression into nested values such as ``contexts[].text``, or an empty
            text for a field that the file does not have. Of several files the same map is used for each.
        ignored: columns that are not read.

    Raises:
        ConfigurationError: a field is not known.
    """

    def __init__(self, columns: Mapping[str, str], ignored: Iterable[str] = ()) -> None:
        for name in columns:
            if name not in ALIASES:
                raise UnknownNameError("field of --map", name, ALIASES)
        self.columns = dict(columns)
        self.ignored = frozenset(ignored)
        self.paths = {name: path for name, path in columns.items() if path}
        self._compiled: dict[str, Any] = {}
        for path in self.paths.values():
            if not set('[]|()"') & set(path):
                continue
            with requires("jmespath", "offline", "paths into nested columns"):
                import jmespath  # type: ignore[import-untyped]
                from jmespath.exceptions import JMESPathError  # type: ignore[import-untyped]
            # "[gpt-5] Answer" is the name of a column.
            with suppress(JMESPathError):
                self._compiled[path] = jmespath.compile(path)

    @classmethod
    def parse(cls, given: Iterable[str], ignored: Iterable[str] = (), file: Path | None = None) -> ColumnMap | None:
        """Return the map that options such as ``["response=chatgpt_response"]`` describe; None for no options.

        Args:
            given: of ``--map``; they come before those of the file.
            ignored: of ``--ignore``.
            file: a map that :meth:`write` wrote; without such a file there is none.

        Raises:
            ConfigurationError: an option or the file is not of this form.
        """
        columns: dict[str, str] = {}
        ignored = set(ignored)
        if file is not None and file.exists():
            try:
                kept = json.loads(file.read_text("utf-8"))
                ignored |= set(kept.pop("ignore", ()))
                columns |= {str(name): str(path) for name, path in kept.items()}
            except (ValueError, AttributeError, TypeError) as error:
                raise ConfigurationError(
                    f"--map-file {file} is not a JSON object of columns by field: {error}"
                ) from None
        for option in given:
            name, equals, column = option.partition("=")
            if not equals:
                raise ConfigurationError(f"--map {option!r} should be FIELD=COLUMN, such as response=chatgpt_answer")
            columns[name.strip()] = column.strip()
        return cls(columns, ignored) if columns or ignored else None

    def write(self, file: Path) -> None:
        """Write the map as JSON, for ``--map-file``."""
        kept = self.columns | ({"ignore": sorted(self.ignored)} if self.ignored else {})
        file.write_text(json.dumps(kept, ensure_ascii=False, indent=2) + "\n", "utf-8")

    def value(self, path: str, row: Mapping[str, Any]) -> Any:
        """Return what a row has at a path; None for nothing, also if a function such as join() does not suit it."""
        # A name with dots in it comes before a path.
        if path in row:
            return row[path]
        if path not in self._compiled:
            column, _, keys = path.partition(".")
            found = row.get(column)
            for key in filter(None, keys.split(".")):
                found = mapping_or_empty(unpacked(found)).get(key)
            return found
        from jmespath.exceptions import JMESPathError

        try:
            # Cells of tables hold lists and objects as text.
            cells = {name: unpacked(value) if name in path else value for name, value in row.items()}
            return self._compiled[path].search(cells)
        except JMESPathError:  # join(', ', answers) of a row whose answers are null
            return None

    def take(self, row: Mapping[str, Any]) -> Fields:
        """Sort the values of a row by field."""
        if self.ignored:
            row = {column: value for column, value in row.items() if column not in self.ignored}
        found = Fields(columns=self.paths)
        for name, path in self.paths.items():
            value = self.value(path, row)
            if value is not None or path in row or path in self._compiled:
                found.values[name] = value
        # Langfuse 2 wrote texts into its tables as JSON.
        texts = [found.get("query"), found.get("response")]
        if all(isinstance(text, str) and text.startswith('"') for text in texts):
            with suppress(ValueError):
                found.values["query"], found.values["response"] = map(json.loads, texts)
        # Messages that hold both the question and the answer: a question after the last answer has none.
        is_chat = "query" in self.paths and self.paths["query"] == self.paths.get("response")
        if is_chat and (pair := last_exchange(found.get("query"))):
            found.values["query"], found.values["response"] = pair
        used = set(self.paths.values())
        found.rest = {column: value for column, value in row.items() if column not in used and not is_missing(value)}
        return found


def as_options(columns: Mapping[str, str]) -> str:
    """Return columns by field as options of a command: ``--map response=gpt_reply``."""
    # "join(' ', parts)" has quotation marks of its own.
    quoted = {field: f'"{path}"' if "'" in path else shlex.quote(path) for field, path in columns.items()}
    return " ".join(f"--map {field}={path}" for field, path in quoted.items())


# --------------------------------------------------------------------------- which columns these are


@dataclass
class _Place:
    """A column, or a value inside the objects of a column, with what the first rows have there."""

    path: str
    values: list[Any] = field(default_factory=list)


def find_columns(
    where: str,
    rows: Sequence[Mapping[str, Any]],
    required: Sequence[str],
    given: ColumnMap | None = None,
    *,
    may_be_empty: bool = False,
    show: Callable[[Mapping[str, str]], str] = as_options,
    note: Callable[[str], object] = lambda _: None,
) -> ColumnMap:
    """Return the column of each field: those that the user named, and those with a known name.

    Args:
        where: what is read, in front of messages: ``"a.csv: "``.
        rows: the first rows.
        required: fields that must have a column.
        given: columns that the user named.
        may_be_empty: the rows are a batch of many, so answers may be missing from all of them.
        show: returns how the user names the columns of some fields.
        note: called with each choice that the user should know.

    Raises:
        TurnError: a column is missing, or two may hold the response. The message shows the columns.
    """
    given = given or ColumnMap({})
    rows = [{column: row[column] for column in row if column not in given.ignored} for row in rows]
    found, others = _known_columns(rows, given)
    for name, path in given.paths.items() if rows else ():
        # A misspelled column would be empty in every row. No passages in any row is a result, and so is an empty cell.
        values = [given.value(path, row) for row in rows]
        if not any(path in row for row in rows) and all(
            value is None or (value == [] and name != "passages") for value in values
        ):
            raise TurnError(f"{where}nothing is under {path!r}, which --map names for the {name}{_shown(rows)}")
    missing = [name for name in required if name not in found.paths]
    # A column of answers that is empty in every row is one that is still to be filled, unless every row failed.
    if "response" in required and not may_be_empty and not any("error" in found.take(row).values for row in rows):
        path = found.paths.get("response", "")
        if path and "response" not in given.columns and all(is_missing(found.value(path, row)) for row in rows):
            missing.append("response")
    if rows and missing:
        raise TurnError(where + _missing(missing, rows, found, show, is_run="response" in required))
    if "response" in required and "response" not in given.columns:
        _check_response(where, rows, found, others.pop("response", []), show)
    for line in _choices(rows, found, others, show):
        note(line)
    return found


def _known_columns(rows: Sequence[Mapping[str, Any]], given: ColumnMap) -> tuple[ColumnMap, dict[str, list[str]]]:
    """Return the columns with known names, and for each field further columns that might have been meant."""
    places: dict[str, _Place] = {}
    for row in rows:
        for column, value in row.items():
            name = canonical(column).replace("/", ".")
            places.setdefault(name, _Place(column)).values.append(value)
            for key, item in mapping_or_empty(unpacked(value)).items():
                places.setdefault(f"{name}.{canonical(key)}", _Place(f"{column}.{key}")).values.append(item)
    heads = {name.partition(".")[0] for name in places}
    tool = next((tool for tool in TOOLS if all(heads & set(sign.split("|")) for sign in tool.signs.split())), None)
    paths: dict[str, str] = {}
    others: dict[str, list[str]] = {}
    used = set(given.paths.values())
    # What a path leads into is no field itself, but an object with several of them.
    columns = set(chain.from_iterable(rows))
    opened = {
        column for column in columns for path in used - columns if re.search(rf"(?<!\w){re.escape(column)}(?!\w)", path)
    }
    # In the order of ALIASES: a column belongs to the first field that wants it.
    for name, aliases in ALIASES.items():
        if name in given.columns:
            paths[name] = given.columns[name]
            continue
        known = tool.paths.get(name) if tool else None
        nested = [
            inner
            for pattern in (known or "").split()
            for inner in (
                [f"{pattern[:-1]}{alias}" for alias in _ANY_NAME[name]] if pattern.endswith("?") else [pattern]
            )
        ]
        # A tool that has one place for a field has it in no other.
        plain = aliases if known is None or "?" in known else ()
        candidates = [
            places[inner]
            for inner in dict.fromkeys((*nested, *plain))
            if inner in places and places[inner].path not in used | (opened if "." not in inner else set())
        ]
        filled = [place for place in candidates if _suits(name, place.values)]
        empty = [
            place for place in candidates if all(map(is_missing, place.values)) or place.path == name == "passages"
        ]
        if not (filled or empty):
            continue
        first, *rest = (place.path for place in filled or empty[:1])
        paths[name] = first
        others[name] = rest
        if canonical(first.rpartition(".")[2]) not in _CHATS:
            used.add(first)
        if "." in first and first not in rows[0]:
            opened.add(first.partition(".")[0])
    # Ragas' samples of several turns have the question and the answer in "user_input".
    query = next((place for place in places.values() if place.path == paths.get("query")), None)
    has_chats = query is not None and not any(isinstance(unpacked(value), str) for value in query.values)
    if query and has_chats and "response" not in paths and _suits("response", query.values):
        paths["response"] = query.path
    return ColumnMap(paths, given.ignored), {
        # A column that another field takes is no alternative, nor is the object that it is in. Chats repeat the answer.
        name: [
            path
            for path in rest
            if path not in paths.values() and canonical(path) not in _CHATS and not paths[name].startswith(f"{path}.")
        ]
        for name, rest in others.items()
    }


def _suits(name: str, values: Iterable[Any]) -> bool:
    """Return True if one of the values can be that of a field."""
    filled = [value for value in values if not is_missing(value)]
    if name == "passages":
        return any(may_be_passages(value) and unpacked(value) != [] for value in filled)
    if name == "document":
        # A sentence is what the document says.
        return any(len(str(value)) <= _MAX_NAME_LENGTH and str(value).strip()[-1] not in ".!?。" for value in filled)
    if name not in ("query", "response", "reference"):
        return bool(filled)
    role = "user" if name == "query" else "assistant"
    return any(_is_text_for(name, unpacked(value), role) for value in filled)


def _is_text_for(name: str, value: Any, role: str) -> bool:
    if isinstance(value, str):
        return name == "query" or not _PLACEHOLDER.fullmatch(value.strip())
    if isinstance(value, Mapping):
        # SQuAD's {"text": [...], "answer_start": [...]}, and the completion of a chat.
        return isinstance(value.get("text"), list) if name == "reference" else bool(chat_text(value, role))
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value) and name != "reference":
        return bool(chat_text(value, role)) or not {"role", "from", "type", "speaker"} & value[0].keys()
    return True


# --------------------------------------------------------------------------- what is said about them


def _texts(rows: Sequence[Mapping[str, Any]], found: ColumnMap) -> dict[str, list[str]]:
    """Return the texts of the columns that no field takes, by column, or by path if they are in lists and objects."""
    used = set(found.paths.values())
    texts: dict[str, list[str]] = {}
    for row in rows:
        for column, value in row.items():
            for path, text in texts_inside(value, column):
                # A path takes what is inside, and "[context_1, context_2]" or "hits[].text" what it names.
                if not any(
                    path == taken or path.startswith((f"{taken}.", f"{taken}[")) or ("[" in taken and path in taken)
                    for taken in used
                ):
                    texts.setdefault(path, []).append(text)
    return texts


def _check_response(
    where: str,
    rows: Sequence[Mapping[str, Any]],
    found: ColumnMap,
    others: Sequence[str],
    show: Callable[[Mapping[str, str]], str],
) -> None:
    """Check that only one column can hold what the application answered: next to it may be the golden answer.

    Raises:
        TurnError: there are two, or the only one may have either.
    """
    taken = found.paths.get("response", "")
    heads = {canonical(column).partition(".")[0] for row in rows for column in row}
    if "." in taken and heads <= _PAIRS:
        choices = " or ".join(show({name: taken}) for name in ("response", "reference"))
        raise TurnError(
            f"{where}{taken!r} may be what the application answered, or what it should answer, as in the data sets of "
            f"LangSmith and Phoenix. Choose with {choices}{_shown(rows)}"
        )
    chosen = [set(str(found.value(taken, row)).lower().split()) for row in rows]
    candidates = dict.fromkeys(others)
    for path, texts in _texts(rows, found).items():
        name = canonical(path)
        if "[" in path or path in found.ignored or _NO_RESPONSE.search(name) or _NO_ANSWER.search(name):
            continue
        is_long = any(len(text.split()) > 2 for text in texts)
        alike = 0
        if len(texts) == len(rows):
            pairs = [(said, set(text.lower().split())) for said, text in zip(chosen, texts, strict=True)]
            alike = sum(len(said & other) >= _MIN_SHARED_WORDS * len(said | other) for said, other in pairs)
        if _ANSWER_WORDS.search(name) or (is_long and (_SYSTEM_WORDS.search(name) or alike > len(rows) / 2)):
            candidates[path] = None
    if candidates:
        paths = [taken, *candidates][:_MAX_SHOWN]
        choices = " or ".join(show({"response": path}) for path in paths)
        raise TurnError(
            f"{where}several columns may hold the response: {', '.join(map(repr, paths))}. One of them may be the "
            f"reference. Choose with {choices}{_shown(rows)}"
        )


def _choices(
    rows: Sequence[Mapping[str, Any]],
    found: ColumnMap,
    others: Mapping[str, Sequence[str]],
    show: Callable[[Mapping[str, str]], str],
) -> Iterator[str]:
    """Yield the choices that were made, and which long texts are not used."""
    # For these a wrong choice changes scores.
    for name in ("query", "response", "passages", "reference"):
        if paths := others.get(name):
            listed = ", ".join(map(repr, paths))
            yield f"the {name} is taken from {found.paths[name]!r}, not from {listed}: --map names another column"
    asked = found.paths.get("query", "")
    if any(len(exchanges(messages_in(found.value(asked, row)))) > 1 for row in rows):
        yield f"the conversations in {asked!r} have several answers: only the last is read"
    reference = found.paths.get("reference", "")
    if "response" in found.paths and canonical(reference) in ALIASES["response"]:
        yield (
            f"the response is taken from {found.paths['response']!r}, and {reference!r} is taken for the reference: "
            "--map names other columns"
        )
    texts = _texts(rows, found)
    unused = {path: known for path, known in texts.items() if sum(map(len, known)) >= _MIN_LONG_TEXT * len(known)}
    if unused:
        columns = dict.fromkeys(path.partition("[")[0] for path in unused)
        yield f"not used, although with long texts: {', '.join(map(repr, columns))}"
    if "passages" not in found.columns:
        # Of numbered columns, some may be short.
        path = _certain("passages", texts, rows) or _certain("passages", unused, rows)
        if path or unused:
            yield f"no column is known for the passages: name it with {show({'passages': path or 'COLUMN'})}"


def _certain(name: str, texts: Mapping[str, Sequence[str]], rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the only path that is certainly the field's: its name and its texts say so, in every row."""
    if name == "passages":
        paths = [path for path in texts if _PASSAGE_WORDS.search(canonical(path))]
        paths = [path for path in paths if not _NO_PASSAGES.search(canonical(path))]
        # context_1, context_2
        if len(paths) > 1 and len({re.sub(r"\d+", "", path) for path in paths}) == 1 and "[" not in paths[0]:
            return f"[{', '.join(map(_quoted, paths))}]"
    else:
        paths = []
        for path, values in texts.items():
            column = canonical(path)
            if len(values) < len(rows) or "[" in path or any(map(_PLACEHOLDER.fullmatch, map(str.strip, values))):
                continue
            # The name of a model has no blanks.
            is_prose = any(" " in text.strip() for text in values)
            is_answer = _ANSWER_WORDS.search(column) or (is_prose and _SYSTEM_WORDS.search(column))
            # The data sets of Phoenix call the golden answer output_answer.
            is_golden = column in ALIASES["reference"] or ("example_id" in rows[0] and column.startswith("output_"))
            asks = _QUESTION_WORDS.search(column) or all(text.rstrip().endswith(("?", "？")) for text in values)
            fits = {
                "query": asks and not is_answer,
                "response": is_answer and not asks and not is_golden and not _NO_RESPONSE.search(column),
            }
            if fits.get(name) and not _NO_ANSWER.search(column):
                paths.append(path)
    return paths[0] if len(paths) == 1 else None


def _quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else json.dumps(name)


def _missing(
    missing: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    found: ColumnMap,
    show: Callable[[Mapping[str, str]], str],
    *,
    is_run: bool,
) -> str:
    """Return the message for fields without a column: how to name them, and the columns."""
    texts = _texts(rows, found)
    certain = {name: _certain(name, texts, rows) for name in missing}
    if all(certain.values()) and len(set(certain.values())) == len(certain):
        hint = f". Try {show({name: path for name, path in certain.items() if path})}"
    else:
        named = {name: path or "COLUMN" for name, path in certain.items()}
        hint = f". Name it with {show(named)}; COLUMN.KEY is a value in an object, COLUMN[0] an item of a list"
    if missing == ["response"] and "reference" in found.paths:
        hint += ". If the file has questions only, ask your application first: rageval-hooks run"
    if missing == ["query"] and is_run:
        hint += (
            ". If there are no questions, name metrics that need none: --metrics "
            "faithfulness,groundedness,unsupported_facts"
        )
    return f"{_no_column(missing[0])}{hint}{_shown(rows)}"


def _no_column(name: str) -> str:
    return f"there is no column for the {name}: accepted are {', '.join(ALIASES[name][:8])} …"


def missing_column(name: str, found: Iterable[str]) -> TurnError:
    """Return the error for a row that lacks a field."""
    return TurnError(f"{_no_column(name)}; found: {', '.join(found) or '(none)'}")


def _shown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the end of a message: the columns of the first rows, those inside objects too, with a value of each."""
    values: dict[str, Any] = {}
    for column, value in ((column, unpacked(value)) for row in rows for column, value in row.items()):
        items = [(column, value)]
        if isinstance(value, Mapping):
            items = [(f"{column}.{key}", item) for key, item in value.items()]
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            items = [(f"{column}[].{key}", item) for key, item in value[0].items()]
        for path, item in items:
            if is_missing(values.get(path)):
                values[path] = item
    lines = [f"  {path}: {shorten(' '.join(str(value).split()), _MAX_SAMPLE)}" for path, value in values.items()]
    more = [f"  and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    head = f"Columns of the first {counted(len(rows), 'row')}, with a value of each:"
    return "\n".join(["", head, *lines[:_MAX_SHOWN], *more])
