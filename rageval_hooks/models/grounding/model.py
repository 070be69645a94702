"""The input and output of all grounding models, of any family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["GroundingInput", "GroundingModel", "Reading", "SentenceSupport", "Source", "Span", "UnsupportedSpan"]

Span = tuple[int, int]
Source = tuple[int, str]
"""A passage: its position in the turn, and its text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingInput:
    """The input of a model for one turn.

    Attributes:
        query: the user's question; may be empty.
        sources: the passages of the prompt, in their order.
        response: the answer, without citation markers.
        sentences: the sentences of the answer that are judged, as (start, end), in their order.
    """

    query: str
    sources: Sequence[Source]
    response: str
    sentences: Sequence[Span]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedSpan:
    """A part of the answer that the model calls unsupported.

    Attributes:
        start: its first character in the answer.
        end: the character after it.
        probability: the highest probability of its tokens to be unsupported, 0..1.
    """

    start: int
    end: int
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SentenceSupport:
    """The model's verdict on one sentence, by the window that supports it best.

    Attributes:
        span: the sentence, as (start, end) in the answer.
        support: the probability that the sentence is supported, 0..1.
        positions: positions of the passages in the best window.
        unsupported: the parts that are not supported (token classification only).
    """

    span: Span
    support: float
    positions: tuple[int, ...]
    unsupported: tuple[UnsupportedSpan, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The model's verdict on a turn.

    Attributes:
        sentences: the sentences that it could judge.
        windows: the number of windows in which the passages were read.
        passes: the number of forward passes.
        tokens: the number of tokens in all passes.
    """

    sentences: tuple[SentenceSupport, ...]
    windows: int
    passes: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class GroundingModel(ABC):
    """A loaded model.

    Attributes:
        name: the model's name, which is recorded with its scores.
        version: the version of the way in which it is asked; changes when its scores change.
        threshold: from which support on a sentence counts as supported: the limit that the model was trained with.
        details: further facts for the metadata of scores: family, template, backend, revision.
    """

    name: str
    version: str
    threshold: float = 0.5
    details: dict[str, str] = field(default_factory=dict)

    @abstractmethod
    def read(
        self, inputs: GroundingInput, *, max_passes: int | None = None, pause: Callable[[], None] = lambda: None
    ) -> Reading:
        """Judge the sentences of an answer.

        Args:
            inputs: the turn.
            max_passes: the most forward passes; None for no limit.
            pause: called before each pass; what it raises stops the work.

        Raises:
            InputTooLargeError: the turn needs more passes.
        """
