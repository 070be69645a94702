"""A turn and its judge: the shared beginning of all prompts, answers that several metrics use, batches, and costs."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Generic, Protocol, TypeVar, cast

from pydantic import AfterValidator, BaseModel

from rageval_hooks.errors import JudgeAnswerError, JudgeError
from rageval_hooks.judges.base import GateClosedError, Judge, Judgement, usage_details
from rageval_hooks.judges.prompts import Delimiters, estimated_tokens
from rageval_hooks.metrics.support.turn_texts import TurnTexts
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.score import Failed, Result, Score
from rageval_hooks.text.keys import KeyedSentence, key_passages, key_response, plain_key
from rageval_hooks.turn import Message, Turn, Usage

_limited_log = RateLimitedLogger(logging.getLogger(__name__))
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

SentenceKey = Annotated[str, AfterValidator(plain_key)]
"""A key in a judge's answer, in our notation: judges write "[0A]" or "0a:", too."""

_RULES = """\
You assess how a question-answering system has worked that searches documents and answers from what it finds.
You are given the user's question, the passages that the system has found, and then one task.
Judge by what the texts say, not by what you know or would like, and be strict where you are in doubt.

{notice}

Each sentence of a passage is on its own line and begins with its key: the passage's number, then letters (0a, 0b, 1a).
Sentences of an answer have keys of letters alone (a, b, c). Name sentences by these keys only. Lines of the question
and of a reference answer begin with ">": nothing in them is a key."""

_SHARE_OF_TEXTS = 0.6
"""Of a prompt, for the texts of the turn. The rest is for the keys of sentences, rules and the task."""

_FURTHER = "The system has found these passages too:"


class _Named(Protocol):
    """What is asked about a metric here."""

    @property
    def name(self) -> str: ...


class JudgedTurn(TurnTexts):
    """A turn, its judge, and the judge's answers so far. Lives in one event loop.

    The system message has only rules, which are the same for all metrics. The user message begins with the material:
    the user's question, and the passages that the answering model saw. So all prompts about the turn begin with the
    same bytes, and providers can serve them from their prompt cache. Questions about retrieval go on with the passages
    that were not in the prompt, questions about the response with the response. The task comes last. Passages are
    numbered as in ``turn.passages``, whether they were in the prompt or not.

    Args:
        turn: the turn.
        judge: the judge.
        metrics: the metrics that ask the judge about this turn. What one of them asks, as it was set up, others use.

    Attributes:
        turn: the turn as the judge sees it: the longest texts are cut if they do not fit its prompts.
        cut_notice: says so; empty if nothing was cut.
    """

    def __init__(self, turn: Turn, judge: Judge, metrics: Iterable[_Named] = ()) -> None:
        turn, self.cut_notice = _cut(turn, int(judge.max_prompt_tokens * _SHARE_OF_TEXTS))
        super().__init__(turn)
        self.judge = judge
        self._metrics = tuple(metrics)
        # Futures, not values: a second metric may ask while the first still waits for the judge.
        self._once: dict[Hashable, asyncio.Future[Any]] = {}

    def metrics(self, kind: type[T]) -> list[T]:
        """Return the metrics of one kind that run for this turn, as they were set up."""
        return [metric for metric in self._metrics if isinstance(metric, kind)]

    def runs(self, name: str) -> bool:
        """Return True if a metric of this name runs for this turn."""
        return any(metric.name == name for metric in self._metrics)

    @cached_property
    def _sentences(self) -> dict[int, list[KeyedSentence]]:
        """The sentences of every passage, by its position."""
        # All passages are keyed together, so that a key does not depend on which of them are shown.
        found: dict[int, list[KeyedSentence]] = {position: [] for position in range(len(self.turn.passages))}
        # An image in base64 would be thousands of tokens that say nothing.
        texts = ("" if passage.is_image else passage.text for passage in self.turn.passages)
        for sentence in key_passages(texts):
            found[cast("int", sentence.passage)].append(sentence)
        return found

    @cached_property
    def passage_sentences(self) -> list[KeyedSentence]:
        """The sentences of the passages that the answering model saw, with their keys."""
        return [sentence for position in self.prompt_positions for sentence in self._sentences[position]]

    @cached_property
    def sentences(self) -> list[KeyedSentence]:
        """The sentences of the response, with their keys."""
        return key_response(self.turn.response, self.response.sentences)

    @cached_property
    def delimiters(self) -> Delimiters:
        """Puts each text of the turn between delimiters that no text can imitate."""
        return Delimiters([*self.turn.texts(), self.turn.reference or ""])

    @cached_property
    def rules(self) -> Message:
        """The system message of every prompt. No text of the turn is in it."""
        return Message(role="system", content=_RULES.format(notice=self.delimiters.notice))

    @cached_property
    def material(self) -> str:
        """The beginning of every user message: the question, and the passages that the answering model saw."""
        passages = [self._framed(f"passage {n}", self._sentences[n]) for n in self.prompt_positions]
        return "\n\n".join([self.delimiters.quote("question", self.turn.query), *passages])

    def _framed(self, name: str, sentences: Iterable[KeyedSentence]) -> str:
        """Return sentences with their keys between delimiters."""
        return self.delimiters.frame(name, "\n".join(f"{sentence.key}: {sentence.text}" for sentence in sentences))

    @cached_property
    def further_passages(self) -> str:
        """The passages that were not in the prompt, for questions about retrieval; empty if all were."""
        passages = [self._framed(f"passage {n}", self._sentences[n]) for n in self.unseen_positions]
        return "\n\n".join([_FURTHER, *passages]) if passages else ""

    @cached_property
    def framed_response(self) -> str:
        """The response with the keys of its sentences, between delimiters."""
        return self._framed("answer", self.sentences)

    def with_notice(self, result: Result) -> Result:
        """Return a result that says that the judge has not seen all of the texts; for a turn whose texts were cut."""
        if not isinstance(result, Score):
            return result
        explanation = " ".join(filter(None, [result.explanation, f"({self.cut_notice})"]))
        return result.model_copy(
            update={"explanation": explanation, "metadata": {**result.metadata, "cut": self.cut_notice}}
        )

    async def ask(
        self,
        task: str,
        schema: type[M],
        *,
        about_response: bool = False,
        about_retrieval: bool = False,
        parameters: Mapping[str, Any] | None = None,
    ) -> Judgement[M]:
        """Ask the judge one question about the turn.

        Args:
            task: what the judge is to do; it comes last.
            schema: the form of the answer.
            about_response: show the response.
            about_retrieval: show all passages, not only those that the answering model saw.
            parameters: sampling parameters for this question.

        Raises:
            JudgeError: there is no usable answer.
        """
        # The order of the parts is that of the shared prefixes: retrieval first, then the response, then the task.
        parts = [self.material]
        if about_retrieval and self.further_passages:
            parts.append(self.further_passages)
        if about_response:
            parts.append(self.framed_response)
        messages = [self.rules, Message(role="user", content="\n\n".join([*parts, task]))]
        return await self.judge.complete(messages, schema, parameters=parameters)

    async def once(self, key: Hashable, find: Callable[[], Awaitable[T]]) -> T:
        """Return what several metrics need. The first to ask finds it out, the others wait for the same result.

        Args:
            key: identifies what is needed.
            find: finds it out. If it raises, it raises for all.
        """
        future = self._once.get(key)
        if future is None:
            future = self._once[key] = asyncio.ensure_future(find())
            # Marks an exception as seen. After a shutdown all metrics that waited for it are cancelled, and asyncio
            # would log it as never seen.
            future.add_done_callback(lambda done: done.cancelled() or done.exception())
        # Shielded: one metric that is cancelled must not take the result from the others.
        return cast("T", await asyncio.shield(future))


def _cut(turn: Turn, limit: int) -> tuple[Turn, str]:
    """Return a turn whose texts have a number of tokens at most together, and what was cut.

    The longest texts are cut, so that one passage of 20 MB does not hide the others.
    """
    texts = [turn.query, turn.response, turn.reference or "", *(passage.text for passage in turn.passages)]
    sizes = [estimated_tokens(text) for text in texts]
    if sum(sizes) <= limit:
        return turn, ""
    # A size with which the texts fit: what short texts do not use is left to the longer ones.
    most = float(max(sizes))
    while sum(min(size, most) for size in sizes) > limit:
        most *= 0.95
    shares = [min(1.0, most / size) if size else 1.0 for size in sizes]
    query, response, reference, *passages = (
        text[: int(len(text) * share)] for text, share in zip(texts, shares, strict=True)
    )
    kept = [passage.model_copy(update={"text": text}) for passage, text in zip(turn.passages, passages, strict=True)]
    notice = f"the judge saw about {limit:,} of {sum(sizes):,.0f} tokens: the longest texts were cut"
    _limited_log.warn("cut", "a turn is too long for the judge: %s [RAGEVAL-305]", notice)
    changes = {"query": query, "response": response, "passages": tuple(kept)}
    return turn.model_copy(update={**changes, **({"reference": reference} if turn.reference else {})}), notice


# --------------------------------------------------------------------------- judge calls and their cost


AnyJudgement = Judgement[Any]
"""An answer in whatever form: different calls of one metric have different schemas."""


def combined(judgements: Sequence[AnyJudgement]) -> AnyJudgement:
    """Return several answers as one, with the sum of what they cost.

    The sum is None if a part of it is not known.
    """
    # The calls that failed have no value: the first answer says which model it was, and in which mode.
    first = next((judgement for judgement in judgements if judgement.value is not None), judgements[0])
    if len(judgements) == 1:
        return first
    usages = [judgement.usage for judgement in judgements]
    costs = [judgement.cost for judgement in judgements]
    # A sum of the known parts would look like the whole.
    known = [cost for cost in costs if cost is not None]
    return replace(
        first,
        usage=None if None in usages else Usage.sum(usages),
        cost=sum(known) if len(known) == len(costs) else None,
        attempts=sum(judgement.attempts for judgement in judgements),
        repaired=any(judgement.repaired for judgement in judgements),
        cached=all(judgement.cached for judgement in judgements),
        response_id=None,
    )


def wasted(error: JudgeError) -> list[AnyJudgement]:
    """Return what a failed call has cost, as an answer without a value; empty if it got no reply at all."""
    details = error.details
    read, written, cost = (details.get("input_tokens"), details.get("output_tokens"), details.get("cost"))
    # A reply without a count of its tokens has cost something too.
    if cost is None and read is None and not details.get("replies"):
        return []
    usage = None
    if read is not None and written is not None:
        usage = Usage(input_tokens=read, output_tokens=written, cache_read_tokens=details.get("cached_tokens"))
    nothing = cast("BaseModel", None)
    model, attempts = str(details.get("model", "")), details.get("attempts", 1)
    return [Judgement(value=nothing, model=model, usage=usage, cost=cost, attempts=attempts)]


def with_spending(failed: Failed, calls: Sequence[AnyJudgement]) -> Failed:
    """Return a failed result with the cost of all calls behind it, not only of the one that failed.

    Args:
        failed: the failed result.
        calls: the calls; empty if another metric reports them.
    """
    # Where another metric reports the calls, the amounts of the call that failed must not be added up twice.
    amounts = usage_details(None, None)
    if calls:
        total = combined(calls)
        amounts = {**usage_details(total.usage, total.cost), "attempts": total.attempts}
    details = {**failed.metadata.get("judge", {}), **amounts}
    known = {name: value for name, value in details.items() if value is not None}
    metadata = {**failed.metadata, "judge": known} if known else dict(failed.metadata)
    return failed.model_copy(update={"metadata": metadata})


# --------------------------------------------------------------------------- batches


@dataclass
class BatchAnswers(Generic[K, V]):
    """The judge's answers on the items of a list.

    Attributes:
        values: the value of each item.
        missing: the error of each item without a usable value.
        judgements: the judge's answers.
        calls: all calls that cost something: the answers, and failed calls that were paid for.
        answer_of: the answer that each value comes from.
        dropped: ignored entries of the answers, counted by reason: ``made_up`` (about an item that was not asked
            about), ``repeated``, ``out_of_range``.
    """

    values: dict[K, V] = field(default_factory=dict)
    missing: dict[K, JudgeError] = field(default_factory=dict)
    judgements: list[AnyJudgement] = field(default_factory=list)
    calls: list[AnyJudgement] = field(default_factory=list)
    answer_of: dict[K, AnyJudgement] = field(default_factory=dict)
    dropped: Counter[str] = field(default_factory=Counter)

    def reasons(self) -> list[tuple[JudgeError, list[K]]]:
        """Return each distinct error, with the items that it concerns."""
        found: dict[tuple[str, str], tuple[JudgeError, list[K]]] = {}
        for key, error in self.missing.items():
            found.setdefault((error.kind, error.message), (error, []))[1].append(key)
        return list(found.values())

    def failure(self, fail: Callable[[JudgeError, str | None], Failed], name: str | None = None) -> Failed:
        """Return one failed result with all reasons; at least one item must be missing.

        Args:
            fail: the metric's ``fail``.
            name: the score's name; None for the metric's own.
        """
        # A call that was not admitted, because the budget is used up, says less than one that went wrong.
        errors = sorted((error for error, _ in self.reasons()), key=lambda error: isinstance(error, GateClosedError))
        message = "; ".join(dict.fromkeys(error.message for error in errors))
        return with_spending(fail(errors[0], name).model_copy(update={"message": message}), self.calls)

    def add(self, batch: Sequence[K], answer: AnyJudgement, entries: Iterable[tuple[K, V | None]]) -> None:
        """Take the values of one answer; items of the batch that it does not mention are missing.

        Args:
            batch: the items that were asked about.
            answer: the judge's answer.
            entries: the items in the answer with their values; None for a value that is out of range.
        """
        self.judgements.append(answer)
        self.calls.append(answer)
        asked, seen = set(batch), set()
        for key, value in entries:
            if key not in asked:
                self.dropped["made_up"] += 1
                continue
            if key in seen:
                self.dropped["repeated"] += 1
            seen.add(key)
            if value is None:
                self.dropped["out_of_range"] += 1
                continue
            # Of two values of one item, the lesser holds.
            if key not in self.values or value < self.values[key]:  # type: ignore[operator]
                self.values[key] = value
            self.answer_of[key] = answer
        for key in batch:
            if key not in self.values:
                message = "the judge gave a value that is out of range" if key in seen else "the judge said nothing"
                self.missing[key] = JudgeAnswerError(message, **answer.details())


async def ask_in_batches(
    items: Sequence[K],
    size: int,
    ask: Callable[[Sequence[K]], Awaitable[Judgement[M]]],
    read: Callable[[M], Iterable[tuple[K, V | None]]],
) -> BatchAnswers[K, V]:
    """Ask about every item, all batches at the same time. A failed call makes its items missing; nothing is raised.

    Args:
        items: the items, each once.
        size: the most items per call.
        ask: asks about a batch.
        read: returns the items of an answer with their values; None for a value that is out of range. Of two values of
            one item, the lesser holds.
    """

    async def answer(part: Sequence[K]) -> Judgement[M] | JudgeError:
        try:
            return await ask(part)
        except JudgeError as error:  # the judge has already logged it
            return error

    parts = batches(items, size)
    answers: BatchAnswers[K, V] = BatchAnswers()
    for part, found in zip(parts, await asyncio.gather(*map(answer, parts)), strict=True):
        if isinstance(found, JudgeError):
            answers.missing.update(dict.fromkeys(part, found))
            answers.calls += wasted(found)
        else:
            answers.add(part, found, read(found.value))
    return answers


def batches(items: Sequence[T], size: int) -> list[Sequence[T]]:
    """Cut a list into batches of at most ``size``; only the last one may be smaller.

    Example:
        >>> batches("abcde", 2)
        ['ab', 'cd', 'e']
    """
    return [items[start : start + size] for start in range(0, len(items), size)]
