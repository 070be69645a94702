"""What the judge is asked for a test set: questions about chunks in some styles, and a second look at them.

Most questions are about one chunk. Multi-hop questions need two, and unanswerable ones are answered by none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel
from pydantic import Field as Described

from rageval_hooks.errors import UnknownNameError
from rageval_hooks.judges.base import Judge
from rageval_hooks.judges.prompts import Delimiters
from rageval_hooks.offline.testsets.chunks import Chunk
from rageval_hooks.text.wording import counted

PROMPTS_VERSION = "3"
"""Changes with the prompts. Answers to older prompts are not reused."""

STYLES: dict[str, str] = {
    "factual": "asks for one fact that the passage states, in a plain sentence",
    "paraphrased": (
        "asks for one fact that the passage states, in other words than the passage's own: synonyms, another sentence "
        "structure; only names and numbers stay"
    ),
    "multi-part": "asks, in one sentence, for two facts from different sentences of the passage",
    "keyword": "is two to six words as one types them into a search field: no sentence, no question mark",
    "reasoning": "needs a step of thought: a comparison, a sum or a consequence of things that the passage says",
    "yes-no": "can be answered by yes or no; the reference answer says which, and why",
    "scenario": "is asked by a person who tells his situation in a sentence, and what he wants to know, in the next",
}
"""Style → what a question of it is like."""

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


def resolve_styles(given: Iterable[str]) -> tuple[str, ...]:
    """Return the styles that are wanted; each item may name several, with commas between them.

    Raises:
        UnknownNameError: there is no such style.
    """
    names = [word.strip().lower().replace("_", "-") for item in given for word in item.split(",")]
    # Styles take turns, so that a repeated one would be asked for twice as often by mistake.
    styles = tuple(dict.fromkeys(filter(None, names)))
    for name in styles:
        if name not in STYLES:
            raise UnknownNameError("style", name, STYLES)
    return styles or ("factual",)


class QuestionPair(BaseModel):
    """A question and its answer."""

    question: str = Described(description="the question, as a user would ask it")
    answer: str = Described(description="the complete and correct answer, from the passage alone")


class QuestionPairs(BaseModel):
    """The judge's questions about a chunk."""

    pairs: list[QuestionPair] = Described(description="one pair for each line of the task, in its order")

    def written(self) -> list[tuple[str, str]]:
        """Return the questions with their answers."""
        return [(pair.question, pair.answer) for pair in self.pairs]


class OpenQuestion(BaseModel):
    """A question that the passages do not answer."""

    question: str = Described(description="the question, as a user would ask it")
    missing: str = Described(description="the information that the passages lack, in a few words")


class OpenQuestions(BaseModel):
    """The judge's questions without an answer."""

    questions: list[OpenQuestion] = Described(description="as many as the task says")

    def written(self) -> list[tuple[str, str]]:
        """Return the questions, which have no answers."""
        return [(item.question, "") for item in self.questions]


class QuestionCheck(BaseModel):
    """What the second look says of one question."""

    number: int = Described(description="the question's number")
    answered: bool = Described(description="whether the passage alone answers the question, all of it")
    self_contained: bool = Described(
        description="whether a reader who has never seen the passage understands what is asked"
    )
    answer_supported: bool = Described(description="whether the passage supports everything that the answer claims")
    reason: str = Described(default="", description="where one of these is false: why, in a few words")

    def why_not(self) -> str | None:
        """Return why the question is rejected, a key of :data:`REASONS`; None for a good one."""
        if not self.answered:
            return "unanswered"
        if not self.self_contained:
            return "refers"
        return None if self.answer_supported else "unsupported"


class QuestionChecks(BaseModel):
    """The second look at the questions of a chunk."""

    checks: list[QuestionCheck] = Described(description="one entry per question")


class LinkedCheck(QuestionCheck):
    """What the second look says of a question about two passages."""

    answered: bool = Described(description="whether the two passages together answer the question, all of it")
    one_is_enough: bool = Described(description="whether one of the passages, without the other, answers it already")

    def why_not(self) -> str | None:
        """Return why the question is rejected."""
        return "single" if self.answered and self.one_is_enough else super().why_not()


class LinkedChecks(BaseModel):
    """The second look at questions about two passages."""

    checks: list[LinkedCheck] = Described(description="one entry per question")


class OpenCheck(BaseModel):
    """What the second look says of a question that should have no answer."""

    number: int = Described(description="the question's number")
    answered: bool = Described(description="whether any of the passages answers it, or the main part of it")
    self_contained: bool = Described(description="whether it is understood without having seen a passage")
    on_topic: bool = Described(description="whether a user could expect this collection of documents to answer it")
    reason: str = Described(default="", description="why, in a few words")

    def why_not(self) -> str | None:
        """Return why the question is rejected."""
        if self.answered:
            return "answerable"
        if not self.self_contained:
            return "refers"
        return None if self.on_topic else "off topic"


class OpenChecks(BaseModel):
    """The second look at questions that should have no answer."""

    checks: list[OpenCheck] = Described(description="one entry per question")


_WRITER = """\
You write test questions for a system that answers users' questions from a collection of documents.
You are given {given} of the collection. The users do not know {them} and have never seen {them}.
{notice}"""

_CHECKER = """\
You check test questions for a system that answers users' questions from a collection of documents.
You are given {given} of the collection, and questions{about}. Be strict.
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


@dataclass(frozen=True)
class _Prompts:
    """What the judge is asked for a kind of questions, and the forms of its answers."""

    draft: str
    drafts: type[QuestionPairs | OpenQuestions]
    check: str
    checks: type[QuestionChecks | LinkedChecks | OpenChecks]
    checked: tuple[str, ...] = ("question", "answer")


_KINDS = {
    "plain": _Prompts(_DRAFT, QuestionPairs, _CHECK, QuestionChecks),
    "multi-hop": _Prompts(_DRAFT_MULTI_HOP, QuestionPairs, _CHECK_MULTI_HOP, LinkedChecks),
    "unanswerable": _Prompts(_DRAFT_UNANSWERABLE, OpenQuestions, _CHECK_UNANSWERABLE, OpenChecks, ("question",)),
}


async def draft(judge: Judge, kind: str, chunks: Sequence[Chunk], styles: Sequence[str]) -> list[dict[str, str]]:
    """Have questions written about chunks.

    Args:
        judge: who writes.
        kind: ``plain``, about the only chunk; ``multi-hop``, which needs all of them; or ``unanswerable``, about the
            subject of the first.
        chunks: what the questions are about.
        styles: of each question.

    Returns:
        As many as there are styles, or fewer, each with ``question``, ``answer`` (empty if there is none) and
        ``style``.

    Raises:
        JudgeError: there is no usable answer.
    """
    task = _KINDS[kind].draft.format(
        count=counted(len(styles), "question"),
        lines="\n".join(f"{number}. a question that {STYLES.get(style)}" for number, style in enumerate(styles, 1)),
        distinct="\n- No two of them ask for the same thing." if len(styles) > 1 else "",
    )
    messages = _messages(_WRITER, chunks, {}, task, is_plain=kind == "plain")
    found = (await judge.complete(messages, _KINDS[kind].drafts)).value
    return [
        {"question": question.strip(), "answer": answer.strip(), "style": style}
        for (question, answer), style in zip(found.written(), styles, strict=False)
    ]


async def look_again(
    judge: Judge, kind: str, chunks: Sequence[Chunk], pairs: Sequence[Mapping[str, str]]
) -> list[str | None]:
    """Have the judge check questions.

    Args:
        judge: who checks.
        kind: of the questions, see :func:`draft`.
        chunks: what they are about; for unanswerable questions, the chunks of the whole collection that come closest.
        pairs: the questions with their answers.

    Returns:
        For each question why it is rejected, a key of :data:`REASONS`; None for a good one.

    Raises:
        JudgeError: there is no usable answer.
    """
    prompts = _KINDS[kind]
    asked = {number: pair for number, pair in enumerate(pairs, 1) if all(pair[name] for name in prompts.checked)}
    if not asked:
        return ["empty"] * len(pairs)
    texts = {f"{name} {number}": pair[name] for number, pair in asked.items() for name in prompts.checked}
    messages = _messages(_CHECKER, chunks, texts, prompts.check, is_plain=kind == "plain")
    found: dict[int, list[str | None]] = {}
    for check in (await judge.complete(messages, prompts.checks)).value.checks:
        found.setdefault(check.number, []).append(check.why_not())
    reasons: list[str | None] = []
    for number in range(1, len(pairs) + 1):
        # Judges skip questions in long lists.
        own = found.get(number, ["unjudged"]) if number in asked else ["empty"]
        # If it was judged twice, the stricter answer holds: the reasons are in the order of REASONS.
        reasons.append(min((reason for reason in own if reason), key=list(REASONS).index, default=None))
    return reasons


def _messages(
    instructions: str, chunks: Sequence[Chunk], questions: Mapping[str, str], task: str, *, is_plain: bool
) -> list[Any]:
    """Return a prompt with framed chunks and questions.

    The delimiters are chosen so that no text can close its frame: instructions in documents stay data. The texts are
    not in the system message, which models obey more than others.
    """
    framed: dict[str, str] = {}
    for number, chunk in enumerate(chunks, 1):
        name = "passage" if is_plain else f"passage {number}"
        framed[f"source of the {name}" if is_plain else f"source of {name}"] = chunk.document
        framed[name] = chunk.text
    framed.update(questions)
    delimiters = Delimiters(framed.values())
    system = instructions.format(
        given="one passage" if is_plain else "passages",
        them="it" if is_plain else "them",
        about=" about it with their answers" if is_plain else "",
        notice=delimiters.notice,
    )
    shown = [delimiters.frame(name, text) for name, text in framed.items()]
    return [("system", system), ("user", "\n\n".join([*shown, task]))]
