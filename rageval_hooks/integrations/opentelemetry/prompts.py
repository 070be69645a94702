"""The question and the passages in a prompt, for spans that have them nowhere else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from rageval_hooks.integrations.capture.passages import text_results
from rageval_hooks.runtime.literals import read_repr
from rageval_hooks.turn import Passage

FOUND_IN_PROMPT = {"found_in": "prompt"}
"""Metadata of a passage that was read from the text of a prompt."""

_CONTEXT = (
    "context|contexts|background|documents|docs|passages|sources|search results|"
    "retrieved (?:context|documents|passages)|"
    "context information|relevant (?:context|documents|passages|information)|knowledge|knowledge base|evidence|"
    "references?|excerpts|snippets|information"
)
_QUESTION = "question|query|user question|user query|user input|user|input|ask|frage|pregunta"
_OTHER = "answer|response|assistant|instructions?|task|rules|history|chat history|conversation|output|format|reasoning"

# "Context:", "## Context", "**Question:** When …", "<context>", "[[ ## context ## ]]", alone or before a text.
_LABEL = re.compile(
    rf"^[ \t]{{0,8}}(?:[#*_]{{1,6}}[ \t]{{0,2}})?(?:<|\[\[ ## )?(?P<close>/)?(?P<label>{_CONTEXT}|{_QUESTION}|{_OTHER})"
    r"(?:>| ## \]\]|[ \t]{0,2}[:：](?:\*\*|__)?|(?:\*\*|__)[:：]?[ \t]{0,2}$)[ \t]{0,8}",
    re.IGNORECASE | re.MULTILINE,
)
_HEADING = re.compile(
    rf"^#{{1,6}}[ \t]{{1,2}}(?P<label>{_CONTEXT}|{_QUESTION}|{_OTHER})[ \t]{{0,8}}$", re.IGNORECASE | re.M
)
_RULE = re.compile(r"^[ \t]{0,8}(?:-{3,40}|={3,40}|\*{3,40})[ \t]{0,8}$", re.MULTILINE)
_BLANK = re.compile(r"\n[ \t]{0,8}\n\s{0,40}")
# "[1] ", "1. ", "(2) ", "- ", "Document 3: ", "Passage 1 (pier.md): ", in front of a passage.
_MARK = re.compile(
    r"^\s{0,8}(?:\[\w{1,12}\][:.]?|\(\d{1,3}\)|\d{1,3}[.)]|[-*•]|"
    r"(?:document|passage|source|context|chunk|doc|result)\s{0,2}#?\d{1,4}(?:\s{0,2}\([^)\n]{0,200}\))?\s{0,2}[:.\-])"
    r"[ \t]{1,4}",
    re.IGNORECASE,
)
_ELEMENT = re.compile(
    r"<(document|doc|passage|source|chunk|item|result)\b[^<>]{0,300}>(.*?)</\1>", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class PromptParts:
    """What a prompt is made of.

    Attributes:
        question: the question under its label; empty if no label names it.
        context: what is under the label of a context, or between the question and the instructions; empty for nothing.
    """

    question: str
    context: str


def parts_of(prompt: str, question: str = "") -> PromptParts:
    """Return the question and the context in a prompt.

    Args:
        prompt: the text of one message.
        question: the question, if it is known from elsewhere.
    """
    marks = _marks(prompt)
    questions = [mark for mark in marks if mark.kind == "question" and not mark.closes]
    asked = ""
    if questions:
        end = next((mark.start for mark in marks if mark.start > questions[-1].start), len(prompt))
        asked = next(iter(_paragraphs(prompt[questions[-1].end : end])), "")
    known = question.strip() or asked
    rules = list(_RULE.finditer(prompt))
    if len(rules) > 1 and (context := prompt[rules[0].end() : rules[1].start()].strip()):
        return PromptParts(asked, context)  # LlamaIndex's prompts have the context between two lines
    opening = next((mark for mark in marks if mark.kind == "context" and not mark.closes), None)
    if opening is not None:
        # A passage may have labels of its own: "Source: pier.md", or "Question:" and "Answer:" of a list of both.
        later = [mark for mark in marks if mark.start > opening.start]
        ends = [mark for mark in later if mark.closes and mark.kind == "context"][:1]
        ends = ends or [mark for mark in later if mark.kind == "question"][-1:]
        ends = ends or [mark for mark in later if mark.kind == "other"][-1:]
        context = _RULE.sub("\n\n", prompt[opening.end : ends[0].start if ends else len(prompt)]).strip()
        # The question may come last, without a label.
        if known and context.endswith(known):
            context = context.removesuffix(known).strip()
        return PromptParts(asked, context)
    if not known or known not in prompt:
        return PromptParts(asked, "")
    before, _, after = prompt.rpartition(known)
    if questions:
        before = before[: questions[-1].start]
    # The instructions come first, or after the question.
    paragraphs = _paragraphs(before)[1:] or ([] if before.strip() else _paragraphs(after)[1:])
    return PromptParts(asked, "\n\n".join(paragraphs))


@dataclass(frozen=True)
class _Mark:
    start: int
    end: int
    kind: str
    closes: bool


def _marks(prompt: str) -> list[_Mark]:
    found = [
        _Mark(one.start(), one.end(), _kind(one["label"]), bool(one.groupdict().get("close")))
        for one in (*_LABEL.finditer(prompt), *_HEADING.finditer(prompt))
    ]
    return sorted(found, key=lambda mark: mark.start)


def _kind(label: str) -> str:
    label = label.lower()
    if re.fullmatch(_QUESTION, label):
        return "question"
    return "context" if re.fullmatch(_CONTEXT, label) else "other"


def _paragraphs(text: str) -> list[str]:
    return [part.strip() for part in _BLANK.split(_RULE.sub("\n\n", text)) if part.strip()]


def passages_in(context: str, count: int | None = None) -> Sequence[Passage]:
    """Return the passages in a context: JSON or ``repr`` of documents, elements, or paragraphs.

    Args:
        context: the text.
        count: how many passages a search found, if that is known.
    """
    value = read_repr(context)
    if not isinstance(value, str):
        found = text_results(value, FOUND_IN_PROMPT, is_field=True)
        if found:
            return found
    parts = [inner.strip() for _, inner in _ELEMENT.findall(context)] or _paragraphs(context)
    lines = [line.strip() for line in context.splitlines() if line.strip()]
    # A list with a mark in front of each line.
    if len(lines) > 1 and (all(map(_MARK.match, lines)) or (count == len(lines) != len(parts))):
        parts = lines
    if any(map(_MARK.match, parts)) and not all(map(_MARK.match, parts)):
        # A passage may have several paragraphs: one begins where there is a mark.
        joined: list[str] = []
        for part in parts:
            if _MARK.match(part) or not joined:
                joined.append(part)
            else:
                joined[-1] += f"\n\n{part}"
        parts = joined
    if count == 1:
        parts = ["\n\n".join(parts)]
    texts = [_MARK.sub("", part).strip() for part in parts]
    texts = [text[1:-1] if text[:1] == "«" and text[-1:] == "»" else text for text in texts]
    return [Passage(text=text, metadata=dict(FOUND_IN_PROMPT)) for text in texts if text]
