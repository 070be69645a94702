"""The prompts for a test set: questions about a chunk, and a second look at them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic import Field as Described

from rageval_hooks.judges.base import Judge
from rageval_hooks.judges.prompts.delimiters import Delimiters
from rageval_hooks.offline.testsets.chunks import Chunk
from rageval_hooks.offline.testsets.styles import STYLES
from rageval_hooks.text.wording import counted

__all__ = [
    "PROMPTS_VERSION",
    "REASONS",
    "Pair",
    "QuestionPairs",
    "QuestionVerdicts",
    "Verdict",
    "draft",
    "second_look",
]

PROMPTS_VERSION = "3"
"""Changes with the prompts. Answers to older prompts are not reused."""

REASONS = {
    "missing": "not written by the judge",
    "empty": "without a question or an answer",
    "unanswered": "not answered by the chunk",
    "refers": "about “the text” itself, not understandable without it",
    "unsupported": "with a reference answer that the chunk does not support",
    "unjudged": "passed over in the second look",
    "duplicate": "asked before",
    "single": "multi-hop, but answered by one of its two chunks alone",
    "answerable": "meant to be unanswerable, but answered by a chunk",
    "off topic": "meant to be unanswerable, but not about the documents",
}
"""Why a question is rejected."""


class Pair(BaseModel):
    """A question and its answer."""

    question: str = Described(description="the question, as a user would ask it")
    answer: str = Described(description="the complete and correct answer, from the passage alone")


class QuestionPairs(BaseModel):
    """The judge's questions about a chunk."""

    pairs: list[Pair] = Described(description="one pair for each line of the task, in its order")


class Verdict(BaseModel):
    """The verdict of the second look on one question."""

    number: int = Described(description="the question's number")
    answered: bool = Described(description="whether the passage alone answers the question, all of it")
    self_contained: bool = Described(
        description="whether a reader who has never seen the passage understands what is asked"
    )
    answer_supported: bool = Described(description="whether the passage supports everything that the answer claims")
    reason: str = Described(default="", description="where one of these is false: why, in a few words")


class QuestionVerdicts(BaseModel):
    """The second look at the questions of a chunk."""

    verdicts: list[Verdict] = Described(description="one verdict per question")


_WRITER = """\
You write test questions for a system that answers users' questions from a collection of documents.
You are given one passage of the collection. The users do not know it and have never seen it.

{notice}"""

_DRAFT = """\
Task: write {count} about the passage, with the answers, in this order:
{lines}

For each of them:
- The passage must hold the whole answer. Do not use what you know from elsewhere.
- The question must be understood without the passage: name the thing, person, product or place that it is about. Never
  mention a passage, text, document, section, table or author, and no "above", "here" or "mentioned".
- The passage may be one of thousands: ask so that hardly another one answers the same question.
- The answer is short and complete: it says everything that was asked for and nothing else.
- Question and answer are in the passage's language.{distinct}"""

_CHECKER = """\
You check test questions for a system that answers users' questions from a collection of documents.
You are given one passage of the collection, and questions about it with their answers. Be strict.

{notice}"""

_CHECK = """\
Task: say of each question above, by its number,
- answered: whether the passage alone answers the question, every part of it. False if the answer is only to be guessed
  or known from elsewhere.
- self_contained: whether a reader who has never seen the passage understands what is asked. False if the question
  speaks of a text, passage, document, section, table or author, or points at something with "this", "above" or
  "mentioned" that it does not name.
- answer_supported: whether the passage supports everything that the given answer claims, and the answer is one to the
  question.
Short search terms are questions too: what they look for is what is asked."""


async def draft(judge: Judge, chunk: Chunk, styles: Sequence[str]) -> list[dict[str, str]]:
    """Have questions written about a chunk.

    Args:
        judge: who writes.
        chunk: what they are about.
        styles: of each question.

    Returns:
        As many as there are styles, or fewer, each with ``question``, ``answer`` and ``style``.

    Raises:
        JudgeError: there is no usable answer.
    """
    # The delimiters are chosen so that no text can close its frame: instructions in documents stay data.
    delimiters = Delimiters([chunk.document, chunk.text])
    lines = "\n".join(f"{number}. a question that {STYLES[style]}" for number, style in enumerate(styles, 1))
    distinct = "\n- No two of them ask for the same thing." if len(styles) > 1 else ""
    task = _DRAFT.format(count=counted(len(styles), "question"), lines=lines, distinct=distinct)
    found = await judge.complete(_messages(_WRITER, delimiters, chunk, task), QuestionPairs)
    return [
        {"question": pair.question.strip(), "answer": pair.answer.strip(), "style": style}
        for pair, style in zip(found.value.pairs, styles, strict=False)
    ]


async def second_look(judge: Judge, chunk: Chunk, pairs: Sequence[Mapping[str, str]]) -> list[str | None]:
    """Have the judge look at questions again.

    Returns:
        For each question why it is rejected, a key of :data:`REASONS`; None for a good one.

    Raises:
        JudgeError: there is no usable answer.
    """
    asked = {number: pair for number, pair in enumerate(pairs, 1) if _is_whole(pair)}
    if not asked:
        return ["empty"] * len(pairs)
    verdicts = await _verdicts(judge, chunk, asked)
    reasons = {number: _reason(verdicts.get(number, ())) for number in asked}
    return [reasons.get(number, "empty") for number in range(1, len(pairs) + 1)]


def _is_whole(pair: Mapping[str, str]) -> bool:
    return bool(pair["question"] and pair["answer"])


async def _verdicts(judge: Judge, chunk: Chunk, asked: Mapping[int, Mapping[str, str]]) -> dict[int, list[Verdict]]:
    """Return the judge's verdicts by the number of their question."""
    texts = {f"{name} {number}": pair[name] for number, pair in asked.items() for name in ("question", "answer")}
    delimiters = Delimiters([chunk.document, chunk.text, *texts.values()])
    frames = [delimiters.frame(title, text) for title, text in texts.items()]
    task = "\n\n".join([*frames, _CHECK])
    found = await judge.complete(_messages(_CHECKER, delimiters, chunk, task), QuestionVerdicts)
    verdicts: dict[int, list[Verdict]] = {}
    for verdict in found.value.verdicts:
        verdicts.setdefault(verdict.number, []).append(verdict)
    return verdicts


_REASON_BY_VERDICT = {"answered": "unanswered", "self_contained": "refers", "answer_supported": "unsupported"}
"""Field of a verdict → the reason if it is false, the most important first."""


def _reason(verdicts: Sequence[Verdict]) -> str | None:
    """Return why a question is rejected; if it was judged twice, the stricter verdict holds."""
    # Judges skip questions in long lists.
    if not verdicts:
        return "unjudged"
    for name, reason in _REASON_BY_VERDICT.items():
        if not all(getattr(verdict, name) for verdict in verdicts):
            return reason
    return None


def _messages(instructions: str, delimiters: Delimiters, chunk: Chunk, task: str) -> list[Any]:
    # The texts are not in the system message, which models obey more than others.
    shown = [delimiters.frame("source of the passage", chunk.document), delimiters.frame("passage", chunk.text)]
    return [("system", instructions.format(notice=delimiters.notice)), ("user", "\n\n".join([*shown, task]))]
