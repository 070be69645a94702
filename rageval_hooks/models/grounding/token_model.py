"""Token classification: the model reads passages and answer together, and marks the tokens without support."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rageval_hooks.errors import InputTooLargeError
from rageval_hooks.models.grounding.model import (
    GroundingInput,
    GroundingModel,
    Reading,
    SentenceSupport,
    Span,
    UnsupportedSpan,
)
from rageval_hooks.models.grounding.network import Encoded, Network, probabilities
from rageval_hooks.models.grounding.templates import lettucedetect_prompt
from rageval_hooks.models.grounding.windows import Measure, Window, pack, pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer

__all__ = ["MOST_TOKENS", "TokenModel"]

MOST_TOKENS: Final = 4096
"""Tokens that are read at once, as in LettuceDetect's own package; models that read more gain little and take long."""

_PASSAGE_TOKENS: Final = 10
"""An upper bound of the tokens of "passage 12: " and the line break."""

_LEAST_ROOM: Final = 64
"""Tokens for passages and answer without which a model cannot judge anything."""

_SEAM: Final = 16
"""Tokens that joining prompt, passages and answer may add."""


@dataclass(frozen=True, slots=True)
class _Token:
    """A token of the answer: its place there, and its probability to be unsupported."""

    start: int
    end: int
    unsupported: float


@dataclass(frozen=True, kw_only=True)
class TokenModel(GroundingModel):
    """Reads the prompt of LettuceDetect, with the answer as second text.

    The support of a sentence is 1 minus the highest probability of its tokens to be unsupported: one wrong number makes
    a sentence wrong. If the passages need several windows, the window that supports a sentence best counts for it.

    Attributes:
        network: computes two logits per token.
        tokenizer: the model's, without padding and truncation.
        index: the output that means *unsupported*.
        limit: the most tokens of one pass.
    """

    network: Network
    tokenizer: Tokenizer
    index: int
    limit: int

    def read(
        self, inputs: GroundingInput, *, max_passes: int | None = None, pause: Callable[[], None] = lambda: None
    ) -> Reading:
        """Judge the sentences; see :class:`GroundingModel`."""
        measure = Measure(self.tokenizer)
        asked = replace(inputs, query=_first_tokens(inputs.query, self.limit // 8, measure))
        room = self._room(asked.query, measure)
        # The answer takes half of the room at most, so that the other half can hold passages.
        groups = _groups(asked.response, asked.sentences, room // 2, measure)
        longest = max((measure.count(_text(asked.response, group)) for group in groups), default=0)
        windows = pack(asked.sources, room - longest, measure, overhead=_PASSAGE_TOKENS)
        passes = len(groups) * len(windows)
        if max_passes is not None and passes > max_passes:
            raise InputTooLargeError(
                f"{len(windows)} windows of the passages for {len(groups)} parts of the answer are more than "
                f"max_passes={max_passes} passes of the model"
            )
        best: dict[Span, SentenceSupport] = {}
        tokens = 0
        for group in groups:
            for window in windows:
                pause()
                found, read = self._read_tokens(asked, group, window)
                tokens += read
                _keep_best(best, group, found, window, self.threshold)
        sentences = _by_sentence(best, inputs.sentences)
        return Reading(sentences=sentences, windows=len(windows), passes=passes, tokens=tokens)

    def _room(self, query: str, measure: Measure) -> int:
        """Return the number of tokens that the question leaves for passages and answer.

        Raises:
            InputTooLargeError: too few are left.
        """
        special = self.tokenizer.num_special_tokens_to_add(True)
        room = self.limit - special - measure.count(lettucedetect_prompt(query, [])) - _SEAM
        if room < _LEAST_ROOM:
            raise InputTooLargeError(f"{self.name} reads {self.limit} tokens: too few for passages and an answer")
        return room

    def _read_tokens(self, inputs: GroundingInput, group: Sequence[Span], window: Window) -> tuple[list[_Token], int]:
        """Return the answer's tokens, with places in the whole response, and the number of tokens of the pass."""
        prompt = lettucedetect_prompt(inputs.query, window.texts)
        text, begin = _text(inputs.response, group), group[0][0]
        encoding = self.tokenizer.encode(prompt, text)
        shares = probabilities(self.network.logits(Encoded(encoding.ids, encoding.type_ids)))[:, self.index]
        found = []
        for owner, (start, end), share in zip(encoding.sequence_ids, encoding.offsets, shares, strict=True):
            # 1 is the second text of the pair; special tokens belong to neither.
            if owner != 1:
                continue
            # Many tokenizers count the space before a word as part of it: " It" begins the next sentence all the same.
            start += len(text[start:end]) - len(text[start:end].lstrip())
            if end > start:
                found.append(_Token(begin + start, begin + end, float(share)))
        return found, len(encoding.ids)


def _groups(response: str, sentences: Sequence[Span], size: int, measure: Measure) -> list[list[Span]]:
    """Group the sentences of an answer, so that each group has at most ``size`` tokens; usually there is one."""
    groups: list[list[Span]] = []
    used = before = 0
    for start, end in pieces(response, sentences, size, measure):
        # Sentences that are not judged, such as "Yes, it is.", are read where they are between two of a group.
        tokens = measure.count(response[before:end])
        if not groups or used + tokens > size:
            groups.append([])
            used = 0
            tokens = measure.count(response[start:end])
        groups[-1].append((start, end))
        used += tokens
        before = end
    return groups


def _text(response: str, group: Sequence[Span]) -> str:
    """Return the answer from the first to the last sentence of a group, with what is between them."""
    return response[group[0][0] : group[-1][1]]


def _first_tokens(text: str, size: int, measure: Measure) -> str:
    """Return the first tokens of a question: one that fills the window would leave no room for passages."""
    if len(text) <= size:
        return text
    start, end = measure.cut(text, size)[0]
    return text[start:end]


def _keep_best(
    best: dict[Span, SentenceSupport], group: Sequence[Span], tokens: Sequence[_Token], window: Window, threshold: float
) -> None:
    """Keep for each sentence what the window says that supports it best."""
    for span in group:
        own = [token for token in tokens if span[0] <= token.start < span[1]]
        if not own:
            continue
        support = 1.0 - max(token.unsupported for token in own)
        known = best.get(span)
        if known is None or support > known.support:
            marked = tuple(_unsupported(own, 1.0 - threshold))
            best[span] = SentenceSupport(span=span, support=support, positions=window.positions, unsupported=marked)


def _unsupported(tokens: Sequence[_Token], limit: float) -> list[UnsupportedSpan]:
    """Return the runs of tokens whose probability to be unsupported exceeds the limit."""
    runs: list[list[_Token]] = []
    before = False
    for token in tokens:
        marked = token.unsupported > limit
        if marked and not before:
            runs.append([])
        if marked:
            runs[-1].append(token)
        before = marked
    return [
        UnsupportedSpan(start=run[0].start, end=run[-1].end, probability=max(token.unsupported for token in run))
        for run in runs
    ]


def _by_sentence(best: dict[Span, SentenceSupport], sentences: Sequence[Span]) -> tuple[SentenceSupport, ...]:
    """Return one result per sentence; a sentence that was cut has the support of its worst piece."""
    found = []
    for start, end in sentences:
        own = [result for span, result in best.items() if start <= span[0] < end]
        if not own:
            continue
        worst = min(own, key=lambda result: result.support)
        marked = tuple(span for result in own for span in result.unsupported)
        found.append(replace(worst, span=(start, end), unsupported=marked))
    return tuple(found)
