"""What the judge is asked for questions about several chunks: multi-hop ones, and ones that no chunk answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic import Field as Described

from rageval_hooks.judges.base import Judge
from rageval_hooks.judges.prompts.delimiters import Delimiters
from rageval_hooks.offline.testsets.chunks import Chunk
from rageval_hooks.offline.testsets.questions import QuestionPairs, Verdict
from rageval_hooks.text.wording import counted

__all__ = ["draft_multi_hop", "draft_unanswerable", "look_at_multi_hop", "look_at_unanswerable"]

Pairs = list[dict[str, str]]
Reasons = list[str | None]


class OpenQuestion(BaseModel):
    """A question that the passages do not answer."""

    question: str = Described(description="the question, as a user would ask it")
    missing: str = Described(description="the information that the passages lack, in a few words")


class OpenQuestions(BaseModel):
    """The judge's questions without an answer."""

    questions: list[OpenQuestion] = Described(description="as many as the task says")


class LinkedVerdict(Verdict):
    """What the second look says of a question about two passages."""

    answered: bool = Described(description="whether the two passages together answer the question, all of it")
    one_is_enough: bool = Described(description="whether one of the passages, without the other, answers it already")


class LinkedVerdicts(BaseModel):
    """The second look at questions about two passages."""

    verdicts: list[LinkedVerdict] = Described(description="one verdict per question")


class OpenVerdict(BaseModel):
    """What the second look says of a question that should have no answer."""

    number: int = Described(description="the question's number")
    answered: bool = Described(description="whether any of the passages answers it, or the main part of it")
    self_contained: bool = Described(description="whether it is understood without having seen a passage")
    on_topic: bool = Described(description="whether a user could expect this collection of documents to answer it")
    reason: str = Described(default="", description="why, in a few words")


class OpenVerdicts(BaseModel):
    """The second look at questions that should have no answer."""

    verdicts: list[OpenVerdict] = Described(description="one verdict per question")


_WRITER = """\
You write test questions for a system that answers users' questions from a collection of documents.
You are given passages of the collection. The users do not know them and have never seen them.

{notice}"""

_CHECKER = """\
You check test questions for a system that answers users' questions from a collection of documents.
You are given passages of the collection, and questions. Be strict.

{notice}"""

_HOW_TO_ASK = """\
- The question must be understood without the passages: name the things that it is about. Never mention a passage, text,
  document, section, table or author, and no "above", "here" or "mentioned".
- Write in the passages' language."""

_DRAFT_MULTI_HOP = (
    """\
Task: write {count} that can only be answered with both passages, each with its answer.

For each of them:
- Look for what connects the passages: a person, product, place, date or idea that both are about. Ask for something
  that needs a fact from the first and a fact from the second: one leads to the other, or both are compared or combined.
- If one passage alone would answer the question, ask for something else.
- Do not give away the connecting fact in the question: the reader has to find it.
- The answer is short and complete, and comes from the two passages alone.
"""
    + _HOW_TO_ASK
    + """
If the passages have nothing in common that a user could ask for, return no pairs."""
)

_DRAFT_UNANSWERABLE = (
    """\
Task: write {count} that a user of this collection could well ask, and that the passages do not answer.

For each of them:
- Stay with the things that the first passage is about, and ask for a detail that one would expect next to what it says
  but that is not there. The other passages show what else the collection has: that must not be the answer either.
- Do not assume anything that the passages contradict, and do not ask for opinions, forecasts or general knowledge.
- Ask for something specific, so that it is clear what an answer would be.
- Say what is missing.
"""
    + _HOW_TO_ASK
)

_CHECK_MULTI_HOP = """\
Task: say of each question above, by its number,
- answered: whether the two passages together answer it, every part of it. False if the answer is to be guessed or known
  from elsewhere.
- one_is_enough: whether one of the passages, without the other, answers it already.
- self_contained: whether a reader who has never seen the passages understands what is asked. False if the question
  speaks of a text, passage or document, or points at something that it does not name or describe.
- answer_supported: whether the passages support everything that the given answer claims."""

_CHECK_UNANSWERABLE = """\
Task: each question above is meant to have no answer in the collection. The passages are those that come closest to it.
Say of each question, by its number,
- answered: whether a passage answers it, or the main part of it, directly or by a plain conclusion.
- self_contained: whether a reader who has never seen the passages understands what is asked. False if the question
  speaks of a text, passage or document, or points at something that it does not name.
- on_topic: whether a user could expect documents such as these to answer it. False for general knowledge, opinions and
  other subjects."""


async def draft_multi_hop(judge: Judge, chunks: Sequence[Chunk], count: int) -> Pairs:
    """Have questions written that need all chunks.

    Returns:
        At most ``count`` questions, each with ``question``, ``answer`` and ``style``.

    Raises:
        JudgeError: there is no usable answer.
    """
    task = _DRAFT_MULTI_HOP.format(count=counted(count, "question"))
    found = await judge.complete(_messages(_WRITER, chunks, task), QuestionPairs)
    return [
        {"question": pair.question.strip(), "answer": pair.answer.strip(), "style": "multi-hop"}
        for pair in found.value.pairs[:count]
    ]


async def draft_unanswerable(judge: Judge, chunks: Sequence[Chunk], count: int) -> Pairs:
    """Have questions written that the chunks do not answer, about the subject of the first.

    Returns:
        At most ``count`` questions, each with ``question``, an empty ``answer`` and ``style``.

    Raises:
        JudgeError: there is no usable answer.
    """
    task = _DRAFT_UNANSWERABLE.format(count=counted(count, "question"))
    found = await judge.complete(_messages(_WRITER, chunks, task), OpenQuestions)
    return [
        {"question": item.question.strip(), "answer": "", "style": "unanswerable"}
        for item in found.value.questions[:count]
    ]


async def look_at_multi_hop(judge: Judge, chunks: Sequence[Chunk], pairs: Sequence[Mapping[str, str]]) -> Reasons:
    """Have the judge check that each question needs all chunks and that they answer it.

    Returns:
        For each question why it is rejected, a key of ``REASONS``; None for a good one.

    Raises:
        JudgeError: there is no usable answer.
    """
    asked = {number: pair for number, pair in enumerate(pairs, 1) if pair["question"] and pair["answer"]}
    if not asked:
        return ["empty"] * len(pairs)
    texts = {f"{name} {number}": pair[name] for number, pair in asked.items() for name in ("question", "answer")}
    found = await judge.complete(_messages(_CHECKER, chunks, _CHECK_MULTI_HOP, texts), LinkedVerdicts)
    return _reasons(pairs, asked, found.value.verdicts, _why_not_multi_hop)


async def look_at_unanswerable(judge: Judge, chunks: Sequence[Chunk], pairs: Sequence[Mapping[str, str]]) -> Reasons:
    """Have the judge check that no chunk answers the questions.

    Args:
        judge: who checks.
        chunks: those of the whole collection that come closest to the questions.
        pairs: the questions.

    Returns:
        For each question why it is rejected, a key of ``REASONS``; None for one without an answer.

    Raises:
        JudgeError: there is no usable answer.
    """
    asked = {number: pair for number, pair in enumerate(pairs, 1) if pair["question"]}
    if not asked:
        return ["empty"] * len(pairs)
    texts = {f"question {number}": pair["question"] for number, pair in asked.items()}
    found = await judge.complete(_messages(_CHECKER, chunks, _CHECK_UNANSWERABLE, texts), OpenVerdicts)
    return _reasons(pairs, asked, found.value.verdicts, _why_not_unanswerable)


def _reasons(
    pairs: Sequence[object], asked: Mapping[int, object], verdicts: Sequence[Any], why_not: Callable[[Any], str | None]
) -> Reasons:
    """Return why each question is rejected; of several verdicts on a question, the first that rejects it counts."""
    found: Reasons = []
    for number in range(1, len(pairs) + 1):
        own = [verdict for verdict in verdicts if verdict.number == number]
        if number not in asked:
            found.append("empty")
        elif not own:
            # Judges skip questions in long lists.
            found.append("unjudged")
        else:
            found.append(next(filter(None, map(why_not, own)), None))
    return found


def _why_not_multi_hop(verdict: LinkedVerdict) -> str | None:
    if not verdict.answered:
        return "unanswered"
    if verdict.one_is_enough:
        return "single"
    if not verdict.self_contained:
        return "refers"
    return None if verdict.answer_supported else "unsupported"


def _why_not_unanswerable(verdict: OpenVerdict) -> str | None:
    if verdict.answered:
        return "answerable"
    if not verdict.self_contained:
        return "refers"
    return None if verdict.on_topic else "off topic"


def _messages(
    instructions: str, chunks: Sequence[Chunk], task: str, questions: Mapping[str, str] | None = None
) -> list[Any]:
    """Return a prompt with framed chunks and questions.

    The delimiters are chosen so that no text can close its frame: instructions in documents stay data. The texts are
    not in the system message, which models obey more than others.
    """
    framed: dict[str, str] = {}
    for number, chunk in enumerate(chunks, 1):
        framed[f"source of passage {number}"] = chunk.document
        framed[f"passage {number}"] = chunk.text
    framed.update(questions or {})
    delimiters = Delimiters(framed.values())
    shown = [delimiters.frame(name, text) for name, text in framed.items()]
    return [("system", instructions.format(notice=delimiters.notice)), ("user", "\n\n".join([*shown, task]))]
