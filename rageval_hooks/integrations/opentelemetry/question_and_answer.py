"""The question of a turn and its answer, from its spans."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rageval_hooks.integrations.capture.values import answer_keys_in, question_among
from rageval_hooks.integrations.opentelemetry.messages import Said, is_content, messages_of
from rageval_hooks.integrations.opentelemetry.prompts import parts_of
from rageval_hooks.integrations.opentelemetry.turn_spans import TurnSpans, works
from rageval_hooks.runtime.jsonable import string_of
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.literals import read_repr
from rageval_hooks.runtime.narrowing import items_or_empty, mapping_or_empty

_ASKED = "query question input user_input query_str query_bundle task user_message message prompt topic content text"
_SAID = ("answer", "response", "output", "result", "generated_answer", "final_answer", "raw", "content", "text")
_WRAPPERS = ("messages", "kwargs", "message", "data", "replies", "outputs", "llm", "generator")
_MAX_DEPTH = 8
# "[[ ## answer ## ]]" of DSPy's prompts and answers.
_FIELD = re.compile(r"^\[\[ ## (\w{1,80}) ## \]\][ \t]{0,8}$", re.MULTILINE)


class QuestionAndAnswer:
    """Finds the question of a turn and its answer.

    Args:
        spans: the spans of the turn.
    """

    def __init__(self, spans: TurnSpans) -> None:
        self._spans = spans

    @cached_property
    def answer(self) -> str:
        """The answer; empty without one."""
        written = "" if self._spans.answering is None else _plain_answer(self._spans.answering.answer)
        root = self._spans.root
        if root is None:
            return written
        if root.kind == "chain" and not works(root):
            return ""  # for example a step that makes a prompt
        if root.answer:
            return _plain_answer(root.answer)
        for output in (root.output, self._output_inside):
            if isinstance(output, str):
                return _plain_answer(output)
            if output is not None:
                raw = "" if self._spans.answering is None else self._spans.answering.answer
                texts = list(strings_in(output))
                if raw and any(raw.strip() in text for text in texts):
                    return written
                if found := _inner(output, _SAID):
                    return _plain_answer(found)
        return written

    @property
    def _output_inside(self) -> Any:
        """The output of the chain or agent that alone is inside the root, which may have none of its own."""
        facts = self._spans.root
        while facts is not None and facts.output is None:
            inner = [one for one in facts.children if one.kind in ("agent", "chain") and works(one)]
            facts = inner[0] if len(inner) == 1 else None
        return None if facts is None else facts.output

    @cached_property
    def question(self) -> str:
        """The question; empty if no span has it."""
        return next(filter(None, map(self._asked, self._questions())), "")

    def _questions(self) -> Iterator[str]:
        model = self._spans.answering or next(iter(self._spans.models), None)
        for facts in (model, *self._spans.all):
            variables = {} if facts is None or facts.kind != "model" else facts.variables
            named = (variables.get(name) for name in ("question", "query", "input", "user_input"))
            yield next((text for text in named if isinstance(text, str)), "")
        root = self._spans.root
        outer = [] if root is None else [root, *(one for one in root.inside() if one.kind in ("agent", "chain"))]
        for facts in outer:
            yield from (string_of(task.get("description")) for task in facts.tasks)
            if facts.given:
                yield _last_of_user(facts.given)
            if said := [one for one in messages_of(facts.input, "") if one.role == "user"]:
                yield _last_of_user(said)
            if facts.input is not None:
                yield _inner(facts.input, _ASKED.split()) or question_among(mapping_or_empty(facts.input))
            if facts is root and model is not None:
                yield _last_of_user(model.given)
        if model is not None:
            yield _last_of_user(model.given)
        yield from (facts.query for facts in self._spans.of_kind("search", "rerank"))

    def _asked(self, text: str) -> str:
        """Return the question in a text, which may be a prompt with passages."""
        if not is_content(text):
            return ""
        last = text.strip().rpartition("\n")[2].strip()
        known = next((one.query for one in self._spans.of_kind("search") if one.query and last.endswith(one.query)), "")
        return parts_of(text).question or (known if last != text.strip() else "") or text


def _last_of_user(given: Sequence[Said]) -> str:
    return next((said.text for said in reversed(given) if said.role == "user" and said.text), "")


def _plain_answer(text: str) -> str:
    """Return the answer in a text: under DSPy's marks, or under the key of an answer in JSON; else the text."""
    marks = list(_FIELD.finditer(text))
    if marks:
        ends = [*(mark.start() for mark in marks[1:]), len(text)]
        fields = {mark[1]: text[mark.end() : end].strip() for mark, end in zip(marks, ends, strict=True)}
        key = next(iter(answer_keys_in(fields)), None)
        return fields[key] if key else next((item for name, item in fields.items() if item and name != "reasoning"), "")
    read = read_repr(text)
    if isinstance(read, dict):
        key = next(
            (one for one in answer_keys_in(read, _SAID) if isinstance(read[one], str) and read[one].strip()), None
        )
        return read[key] if key else text
    if items_or_empty(read) and all(isinstance(item, (list, dict)) for item in read):
        return _inner(read, _SAID) or text
    return text


def _inner(value: Any, keys: Sequence[str], depth: int = _MAX_DEPTH) -> str:
    """Return the text under one of the names, at any level of objects, lists, messages and LangChain's ``kwargs``."""
    value = read_repr(value)
    if isinstance(value, str):
        return value if is_content(value) else ""
    if not depth:
        return ""
    parts: list[Any] = []
    if isinstance(value, (list, tuple)):
        parts = list(value[::-1])  # the last message is the newest
    elif isinstance(value, Mapping):
        known = [value[name] for name in (*keys, *_WRAPPERS) if name in value]
        parts = known or [item for item in value.values() if isinstance(item, (Mapping, list))]
    return next(filter(None, (_inner(part, keys, depth - 1) for part in parts)), "")


def strings_in(value: Any, depth: int = _MAX_DEPTH) -> Iterator[str]:
    """Yield the texts in a value, at any level."""
    value = read_repr(value)
    if isinstance(value, str):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from strings_in(item, depth - 1)
    elif depth:
        for item in items_or_empty(value):
            yield from strings_in(item, depth - 1)
