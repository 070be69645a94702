"""Which columns of a file hold the question, the answer and so on: known names, known tools, and what the user maps.

The first rows decide for the whole file. What they do not decide is an error that shows the columns.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import Any

from rageval_hooks.errors import ConfigurationError, TurnError, UnknownNameError, requires
from rageval_hooks.integrations.conversation import exchanges
from rageval_hooks.offline.records.values import (
    are_no_texts,
    chat_text,
    last_exchange,
    leaves,
    may_be_passages,
    messages_in,
)
from rageval_hooks.runtime.literals import unpacked
from rageval_hooks.runtime.narrowing import is_missing, mapping_or_empty
from rageval_hooks.text.formatting import shorten
from rageval_hooks.text.wording import counted

_TABLES: Mapping[str, Any] = tomllib.loads(files(__package__).joinpath("columns.toml").read_text(encoding="utf-8"))

ALIASES: dict[str, tuple[str, ...]] = {name: tuple(columns.split()) for name, columns in _TABLES["names"].items()}
"""Field of a record → the names of its column, the preferred one first."""

_ANY_NAME = {
    **ALIASES,
    "response": (*ALIASES["response"], "text", "content"),
    # Within an object the object says whether an answer is golden.
    "reference": (*ALIASES["reference"], *ALIASES["response"], "text", "content"),
}
"""Field → its names within an object."""

_WORDS = {kind: re.compile("|".join(words.split())) for kind, words in _TABLES["words"].items()}
"""What the name of a column is about → one of its parts: "Bot Answer" is about an answer."""

_PAIRS = frozenset(
    "id node_id inputs input outputs output metadata splits tags created_at updated_at modified_at".split()
)
"""Columns of a question with an output, which say nothing about a run."""

_CHATS = ("messages", "conversation", "conversations")
"""Columns with chat messages, which hold the question and its answer."""

# Between a lower-case letter or digit and a capital: "actualOutput" becomes "actual_output".
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")

# What templates have where a value should be: "N/A", "{{answer}}", "<your answer>", "TODO".
_PLACEHOLDER = re.compile(
    r"n\.?/?a\.?|none|null|nan|todo|tbd|tba|x{3,}|[?.\-_]+|string|placeholder|(?:your )?(?:answer|response)(?: here)?"
    r"|<[^<>]*>|\{\{[^{}]*\}\}|\$\{[^{}]*\}|lorem ipsum.*",
    re.IGNORECASE,
)

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
        """Sort the values of a row by field.

        Raises:
            TurnError: no row was there to find the columns.
        """
        if self is _UNSEEN:
            raise TurnError(
                "the first 100 rows are records, so its columns are not known: put such rows first, or give --map"
            )
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


_UNSEEN = ColumnMap({})
"""The columns of rows that are not among the first ones."""


def as_options(columns: Mapping[str, str]) -> str:
    """Return columns by field as options of a command: ``--map response=gpt_reply``."""
    # "join(' ', parts)" has quotation marks of its own.
    quoted = {field: f'"{path}"' if "'" in path else shlex.quote(path) for field, path in columns.items()}
    return " ".join(f"--map {field}={path}" for field, path in quoted.items())


# --------------------------------------------------------------------------- which columns these are


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
    if not rows:
        return given if given.columns else _UNSEEN
    sample = _Sample(rows, given, show)
    problem = sample.misnamed() or sample.missing(required, may_be_empty=may_be_empty)
    if not problem and "response" in required and "response" not in given.columns:
        problem = sample.unclear_response()
    if problem:
        raise TurnError(f"{where}{problem}{sample.columns()}")
    for line in sample.choices():
        note(line)
    return sample.found


class _Sample:
    """The first rows of a file, the columns that were found in them, and what is to be said about these.

    Args:
        rows: the rows.
        given: columns that the user named.
        show: returns how the user names the columns of some fields.
    """

    def __init__(
        self, rows: Sequence[Mapping[str, Any]], given: ColumnMap, show: Callable[[Mapping[str, str]], str]
    ) -> None:
        self._rows = rows
        self._given = given
        self._show = show
        # For each field further columns that might have been meant.
        self._others: dict[str, list[str]] = {}
        self.found = ColumnMap(self._known_columns(), given.ignored)
        self._leaves: dict[str, list[Any]] = {}
        for path, value in (leaf for row in rows for column, cell in row.items() for leaf in leaves(cell, column)):
            self._leaves.setdefault(path, []).append(value)
        used = set(self.found.paths.values())
        # What no field takes, by its path. A path takes what is inside, and "[context_1, context_2]" or "hits[].text"
        # what it names.
        self._unused = {
            path: values
            for path, values in self._leaves.items()
            if not any(
                path == taken or path.startswith((f"{taken}.", f"{taken}[")) or ("[" in taken and path in taken)
                for taken in used
            )
        }
        self._texts = {path: list(filter(_is_prose, values)) for path, values in self._unused.items()}
        self._texts = {path: texts for path, texts in self._texts.items() if texts}

    def _known_columns(self) -> dict[str, str]:
        """Return the columns that the user named, and those with known names."""
        # Canonical name → the column, or the value inside its objects, and what the first rows have there.
        places: dict[str, tuple[str, list[Any]]] = {}
        for column, value in chain.from_iterable(row.items() for row in self._rows):
            name = canonical(column).replace("/", ".")
            places.setdefault(name, (column, []))[1].append(value)
            for key, item in mapping_or_empty(unpacked(value)).items():
                places.setdefault(f"{name}.{canonical(key)}", (f"{column}.{key}", []))[1].append(item)
        heads = {name.partition(".")[0] for name in places}
        tools = _TABLES["tools"]
        tool: Mapping[str, str] = next(
            (tool["paths"] for tool in tools if all(heads & set(sign.split("|")) for sign in tool["signs"].split())), {}
        )
        of_tool = set(" ".join(tool.values()).split())
        given, paths = self._given, dict[str, str]()
        used = set(given.paths.values())
        columns = set(chain.from_iterable(self._rows))

        def is_free(path: str) -> bool:
            # What a path leads into is no field itself, but an object with several of them.
            inside = re.compile(rf"(?<!\w){re.escape(path)}(?!\w)")
            return path not in used and not (path in columns and any(map(inside.search, used - columns)))

        # In the order of ALIASES: a column belongs to the first field that wants it.
        for field_name, aliases in ALIASES.items():
            if field_name in given.columns:
                paths[field_name] = given.columns[field_name]
                continue
            known = tool.get(field_name)
            names: list[str] = []
            for pattern in (known or "").split():
                inner = _ANY_NAME[field_name] if pattern.endswith("?") else ("",)
                names += [pattern.removesuffix("?") + alias for alias in inner]
            # A tool that has one place for a field has it in no other.
            if known is None or "?" in known:
                names += [alias for alias in aliases if alias not in of_tool]
            candidates = [places[name] for name in dict.fromkeys(names) if name in places and is_free(places[name][0])]
            filled = [path for path, values in candidates if any(_may_be(field_name, unpacked(v)) for v in values)]
            empty = [
                path for path, values in candidates if all(map(is_missing, values)) or path == field_name == "passages"
            ]
            if not (filled or empty):
                continue
            first, *self._others[field_name] = filled or empty[:1]
            paths[field_name] = first
            if canonical(first.rpartition(".")[2]) not in _CHATS:
                used.add(first)
        # Ragas' samples of several turns have the question and the answer in "user_input".
        query = [unpacked(given.value(paths.get("query", ""), row)) for row in self._rows]
        has_chats = not any(isinstance(value, str) for value in query)
        if has_chats and "response" not in paths and any(_may_be("response", value) for value in query):
            paths["response"] = paths["query"]
        # A column that another field takes is no alternative, nor is the object that it is in. Chats repeat the answer.
        for field_name, rest in self._others.items():
            self._others[field_name] = [
                path
                for path in rest
                if path not in paths.values()
                and canonical(path) not in _CHATS
                and not paths[field_name].startswith(f"{path}.")
            ]
        return paths

    # ----------------------------------------------------------------------- what is wrong

    def misnamed(self) -> str | None:
        """Return the message for a column that the user named and that no row has: it is misspelled."""
        for name, path in self._given.paths.items():
            values = [self._given.value(path, row) for row in self._rows]
            # No passages in any row is a result, and so is an empty cell.
            is_nothing = all(value is None or (value == [] and name != "passages") for value in values)
            if is_nothing and not any(path in row for row in self._rows):
                return f"nothing is under {path!r}, which --map names for the {name}"
        return None

    def missing(self, required: Sequence[str], *, may_be_empty: bool) -> str | None:
        """Return the message for fields without a column, which says how to name them."""
        paths = self.found.paths
        missing = [name for name in required if name not in paths]
        # A column of answers that is empty in every row is one that is still to be filled, unless every row failed.
        if "response" in required and "response" in paths and not (may_be_empty or "response" in self._given.columns):
            rows = list(map(self.found.take, self._rows))
            if all(is_missing(row.get("response")) and "error" not in row.values for row in rows):
                missing.append("response")
        if not missing:
            return None
        certain = {name: self._certain(name) for name in missing}
        if all(certain.values()) and len(set(certain.values())) == len(certain):
            hint = f". Try {self._show({name: path for name, path in certain.items() if path})}"
        else:
            named = {name: path or "COLUMN" for name, path in certain.items()}
            hint = (
                f". Name it with {self._show(named)}; COLUMN.KEY is a value in an object, COLUMN[0] an item of a list"
            )
        if missing == ["response"] and "reference" in paths:
            hint += ". If the file has questions only, ask your application first: rageval-hooks run"
        if missing == ["query"] and "response" in required:
            hint += (
                ". If there are no questions, name metrics that need none: --metrics "
                "faithfulness,groundedness,unsupported_facts"
            )
        return f"{_no_column(missing[0])}{hint}"

    def unclear_response(self) -> str | None:
        """Return the message where more than one column may hold the response, or the only one the golden answer."""
        taken = self.found.paths["response"]
        said = [unpacked(self.found.value(taken, row)) for row in self._rows]
        heads = {canonical(column).partition(".")[0] for row in self._rows for column in row}
        # Golden answers are often lists; so is what an application writes in parts, but seldom under such a name.
        is_list = (
            "reference" not in self.found.paths
            and canonical(taken) in ALIASES["reference"]
            and not any(isinstance(value, str) and value for value in said)
            and any(isinstance(value, list) and value and isinstance(value[0], str) for value in said)
        )
        if is_list or ("." in taken and heads <= _PAIRS):
            response = f"{taken}[0]" if is_list else taken
            choices = f"{self._show({'response': response})} or {self._show({'reference': taken})}"
            return (
                f"{taken!r} may be what the application answered, or what it should answer, as in data sets of "
                f"questions. Choose with {choices}"
            )
        words = [set(str(value).lower().split()) for value in said]
        candidates = dict.fromkeys(self._others.get("response", ()))
        found = self._texts
        # Next to years and sums, these may be answers too.
        if all(_is_value(value) and not _is_prose(value) for value in said):
            found = {
                path: [str(value) for value in values if _is_value(value)] for path, values in self._unused.items()
            }
        for path, texts in found.items():
            is_alike = False
            if len(texts) == len(words):
                pairs = [(one, set(text.lower().split())) for one, text in zip(words, texts, strict=True)]
                alike = sum(len(one & other) >= _MIN_SHARED_WORDS * len(one | other) for one, other in pairs)
                is_alike = alike > len(pairs) / 2
            if texts and path not in self.found.ignored and _may_be_answer(path, texts, is_alike=is_alike):
                candidates[path] = None
        if not candidates:
            return None
        paths = [taken, *candidates][:_MAX_SHOWN]
        return (
            f"several columns may hold the response: {', '.join(map(repr, paths))}. One of them may be the reference. "
            f"Choose with {' or '.join(self._show({'response': path}) for path in paths)}"
        )

    # ----------------------------------------------------------------------- what is said

    def choices(self) -> Iterator[str]:
        """Yield the choices that were made, and which long texts are not used."""
        paths = self.found.paths
        # For these a wrong choice changes scores.
        for name in ("query", "response", "passages", "reference"):
            if others := self._others.get(name):
                listed = ", ".join(map(repr, others))
                yield f"the {name} is taken from {paths[name]!r}, not from {listed}: --map names another column"
        asked, reference = paths.get("query", ""), paths.get("reference", "")
        if any(len(exchanges(messages_in(self.found.value(asked, row)))) > 1 for row in self._rows):
            yield f"the conversations in {asked!r} have several answers: only the last is read"
        if "response" in paths and canonical(reference) in ALIASES["response"]:
            yield (
                f"the response is taken from {paths['response']!r}, and {reference!r} is taken for the reference: "
                "--map names other columns"
            )
        unused = [path for path, texts in self._texts.items() if sum(map(len, texts)) >= _MIN_LONG_TEXT * len(texts)]
        if unused:
            columns = dict.fromkeys(path.partition("[")[0] for path in unused)
            yield f"not used, although with long texts: {', '.join(map(repr, columns))}"
        if "passages" not in self.found.columns:
            # Of numbered columns, some may be short.
            path = self._certain("passages") or self._certain("passages", unused)
            if path or unused:
                yield f"no column is known for the passages: name it with {self._show({'passages': path or 'COLUMN'})}"

    def columns(self) -> str:
        """Return the end of a message: the columns, those inside objects too, with a value of each."""
        # If there are too many, the outer ones.
        paths = sorted(self._leaves, key=lambda path: path.count(".") + path.count("["))[:_MAX_SHOWN]
        lines = []
        for path in (path for path in self._leaves if path in paths):
            value = next((value for value in self._leaves[path] if not is_missing(value)), None)
            lines.append(f"  {path}: {shorten(' '.join(str(value).split()), _MAX_SAMPLE)}")
        more = [f"  and {len(self._leaves) - _MAX_SHOWN} more"] if len(self._leaves) > _MAX_SHOWN else []
        head = f"Columns of the first {counted(len(self._rows), 'row')}, with a value of each:"
        return "\n".join(["", head, *lines, *more])

    def _certain(self, name: str, among: Iterable[str] | None = None) -> str | None:
        """Return the only path that is certainly the field's: its name and its texts say so, in every row."""
        if name == "passages":
            paths = [
                path
                for path in (self._texts if among is None else among)
                if _says("passages", path) and not _says("no_passages", path)
            ]
            # context_1, context_2
            if len(paths) > 1 and len({re.sub(r"\d+", "", path) for path in paths}) == 1 and "[" not in paths[0]:
                is_word = re.compile(r"[A-Za-z_]\w*", re.ASCII).fullmatch
                return f"[{', '.join(path if is_word(path) else json.dumps(path) for path in paths)}]"
        else:
            paths = [path for path, texts in self._texts.items() if self._suits(name, path, texts)]
            # Another one is for an answer by its name, such as "response_b", but empty in some rows, or has numbers.
            if name == "response" and any(
                path not in paths and _may_be_answer(path, ()) and any(map(_is_value, values))
                for path, values in self._unused.items()
            ):
                return None
        return paths[0] if len(paths) == 1 else None

    def _suits(self, name: str, path: str, texts: Sequence[str]) -> bool:
        """Return True if a path is the question's, or the response's, by its name and its texts in every row."""
        is_full = len(texts) == len(self._rows) and not any(map(_PLACEHOLDER.fullmatch, map(str.strip, texts)))
        if not is_full or "[" in path or _says("no_answer", path):
            return False
        asks = _says("question", path) or all(text.rstrip().endswith(("?", "？")) for text in texts)
        answers = _says("answer", path) or (_is_sentence(texts) and _says("system", path))
        if name == "query":
            return asks and not answers
        # The data sets of Phoenix call the golden answer output_answer.
        column = canonical(path)
        is_golden = column in ALIASES["reference"] or ("example_id" in self._rows[0] and column.startswith("output_"))
        return name == "response" and answers and not (asks or is_golden) and _may_be_answer(path, texts)


def _says(kind: str, path: str) -> bool:
    """Return True if a word of the kind is in a name."""
    return _WORDS[kind].search(canonical(path)) is not None


def _is_sentence(texts: Iterable[str]) -> bool:
    """Return True if a text has several words, unlike the name of a model."""
    return any(len(text.split()) > 1 for text in texts)


def _is_value(value: Any) -> bool:
    """Return True for a text or a number, and False for a placeholder."""
    is_text = isinstance(value, (str, int, float)) and not isinstance(value, bool)
    return is_text and not is_missing(value) and not _PLACEHOLDER.fullmatch(str(value).strip())


def _is_prose(value: Any) -> bool:
    # Of "0,91" the comma separates no names.
    return isinstance(value, str) and bool(value.strip()) and not are_no_texts(value.replace(",", "."))


def _may_be_answer(path: str, texts: Iterable[str], *, is_alike: bool = False) -> bool:
    """Return True if a column may hold answers of an application.

    Args:
        path: its name.
        texts: its texts.
        is_alike: True if they are like those of a column that holds answers.
    """
    if "[" in path or _says("no_response", path) or _says("no_answer", path):
        return False
    is_named = _says("system", path) or _says("perhaps", path)
    return _says("answer", path) or (_is_sentence(texts) and (is_alike or is_named))


def _may_be(name: str, value: Any) -> bool:
    """Return True if a value can be that of a field."""
    if is_missing(value):
        return False
    if name == "passages":
        return may_be_passages(value)
    if name == "document":
        # A sentence is what the document says.
        return len(str(value)) <= _MAX_NAME_LENGTH and str(value).strip()[-1] not in ".!?。"
    if name not in ("query", "response", "reference"):
        return True
    if isinstance(value, str):
        return name == "query" or not _PLACEHOLDER.fullmatch(value.strip())
    role = "user" if name == "query" else "assistant"
    if isinstance(value, Mapping):
        # SQuAD's {"text": [...], "answer_start": [...]}, and the completion of a chat.
        return isinstance(value.get("text"), list) if name == "reference" else bool(chat_text(value, role))
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value) and name != "reference":
        return bool(chat_text(value, role)) or not {"role", "from", "type", "speaker"} & value[0].keys()
    return True


def _no_column(name: str) -> str:
    return f"there is no column for the {name}: accepted are {', '.join(ALIASES[name][:8])} …"


def missing_column(name: str, found: Iterable[str]) -> TurnError:
    """Return the error for a row that lacks a field."""
    return TurnError(f"{_no_column(name)}; found: {', '.join(found) or '(none)'}")
