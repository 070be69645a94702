"""A turn and its judge: the shared beginning of all prompts, and the answers that several metrics use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel

from rageval_hooks.judges.base import Judge, Judgement
from rageval_hooks.judges.prompts import Delimiters, estimated_tokens
from rageval_hooks.metrics.support.turn_texts import TurnTexts
from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.score import Result, Score
from rageval_hooks.text.keys import KeyedSentence, key_passages, key_response
from rageval_hooks.turn import Message, Turn

if TYPE_CHECKING:
    from rageval_hooks.metrics.base import Metric

_limited_log = RateLimitedLogger(logging.getLogger(__name__))
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

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

    def __init__(self, turn: Turn, judge: Judge, metrics: Iterable[Metric] = ()) -> None:
        turn, self.cut_notice = _cut(turn, int(judge.max_prompt_tokens * _SHARE_OF_TEXTS))
        super().__init__(turn)
        self.judge = judge
        self.judgements: list[Judgement[Any]] = []
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
        return "\n\n".join([self.delimiters.quote("question", self.turn.query), *self._framed(self.prompt_positions)])

    def _framed(self, positions: Sequence[int]) -> list[str]:
        """Return passages with the keys of their sentences, each between delimiters."""
        frames = []
        for position in positions:
            lines = [f"{sentence.key}: {sentence.text}" for sentence in self._sentences[position]]
            frames.append(self.delimiters.frame(f"passage {position}", "\n".join(lines)))
        return frames

    @cached_property
    def further_passages(self) -> str:
        """The passages that were not in the prompt, for questions about retrieval; empty if all were."""
        frames = self._framed(self.unseen_positions)
        return "\n\n".join([_FURTHER, *frames]) if frames else ""

    @cached_property
    def framed_response(self) -> str:
        """The response with the keys of its sentences, between delimiters."""
        lines = [f"{sentence.key}: {sentence.text}" for sentence in self.sentences]
        return self.delimiters.frame("answer", "\n".join(lines))

    def with_notice(self, result: Result) -> Result:
        """Return a result that says that the judge has not seen all of the texts."""
        if not self.cut_notice or not isinstance(result, Score):
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
        judgement = await self.judge.complete(messages, schema, parameters=parameters)
        self.judgements.append(judgement)
        return judgement

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
    # The largest size with which the texts fit: what short texts do not use is left to the longer ones.
    left, most = float(limit), 0.0
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        most = left / count
        if size > most:
            break
        left -= size
    shares = [min(1.0, most / size) if size else 1.0 for size in sizes]
    query, response, reference, *passages = (
        text[: int(len(text) * share)] for text, share in zip(texts, shares, strict=True)
    )
    kept = [passage.model_copy(update={"text": text}) for passage, text in zip(turn.passages, passages, strict=True)]
    notice = f"the judge saw about {limit:,} of {sum(sizes):,.0f} tokens: the longest texts were cut"
    _limited_log.warn("cut", "a turn is too long for the judge: %s [RAGEVAL-305]", notice)
    changes = {"query": query, "response": response, "passages": tuple(kept)}
    return turn.model_copy(update={**changes, **({"reference": reference} if turn.reference else {})}), notice
