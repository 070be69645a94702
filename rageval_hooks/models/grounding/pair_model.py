"""Sequence pairs: the model reads a source and one sentence, and says whether the source supports it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rageval_hooks.errors import InputTooLargeError
from rageval_hooks.models.grounding.model import GroundingInput, GroundingModel, Reading, SentenceSupport, Span
from rageval_hooks.models.grounding.network import Encoded, Network, probabilities
from rageval_hooks.models.grounding.templates import PairTemplate
from rageval_hooks.models.grounding.windows import Measure, Window, pack, pieces

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from rageval_hooks.models.hhem import Hhem

__all__ = ["HhemReader", "PairModel", "PairReader", "TemplateReader"]

_LEAST_ROOM = 32
"""Tokens for source and sentence without which a model cannot judge anything."""

_SEAM = 8
"""Tokens that joining source and sentence may add."""


class PairReader(ABC):
    """Gives the probability that a source supports a claim, and says how much it reads at once.

    Attributes:
        limit: the most tokens of one pass.
        window: the most tokens of a source.
        measure: counts tokens.
    """

    limit: int
    window: int
    measure: Measure

    @abstractmethod
    def support(self, source: str, claim: str) -> tuple[float, int]:
        """Return the probability that the source supports the claim, and the number of tokens that were read."""

    @abstractmethod
    def overhead(self) -> int:
        """Return the number of tokens that the template and the tokenizer add."""


class TemplateReader(PairReader):
    """Reads by a template: NLI models, MiniCheck, FactCG.

    Args:
        network: computes one vector of logits.
        tokenizer: the model's, without padding and truncation.
        end: its end token, which some templates need.
        template: how the input is written.
        index: the output that means *supported*.
        positions: the most tokens that the model can read; None if it has no limit.
    """

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer,
        end: str,
        template: PairTemplate,
        index: int,
        positions: int | None,
    ) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._end = end
        self._template = template
        self._index = index
        self.limit = template.limit if positions is None else min(template.limit, positions)
        self.window = template.window
        self.measure = Measure(tokenizer)

    def support(self, source: str, claim: str) -> tuple[float, int]:
        """Return the softmax of the logits for *supported*; see :class:`PairReader`."""
        encoded = self._encode(source, claim)
        shares = probabilities(self._network.logits(encoded))
        return float(shares[self._index]), len(encoded.ids)

    def overhead(self) -> int:
        """Return the length of the input for two empty texts."""
        return len(self._encode("", "").ids) + _SEAM

    def _encode(self, source: str, claim: str) -> Encoded:
        join = self._template.join
        # Without a template, the tokenizer joins the two texts with its separator.
        if join is None:
            found = self._tokenizer.encode(source, claim)
        else:
            found = self._tokenizer.encode(join(source, claim, self._end))
        return Encoded(found.ids, found.type_ids)


class HhemReader(PairReader):
    """Reads by HHEM's own prompt.

    Args:
        model: the loaded model.
    """

    limit = 2048
    window = 1024

    def __init__(self, model: Hhem) -> None:
        self._model = model
        self.measure = Measure(model.tokenizer)

    def support(self, source: str, claim: str) -> tuple[float, int]:
        """Return the probability of *consistent*; see :class:`PairReader`."""
        return self._model.support(source, claim), self.measure.count(source) + self.measure.count(claim)

    def overhead(self) -> int:
        """Return an upper bound of the tokens of the prompt."""
        return 64


@dataclass(frozen=True, kw_only=True)
class PairModel(GroundingModel):
    """Asks for each sentence whether a window of the passages supports it; the best window counts.

    A sentence is read without its neighbours, so the model cannot know what "it" or "they" means.

    Attributes:
        reader: asks the model.
    """

    reader: PairReader

    def read(
        self, inputs: GroundingInput, *, max_passes: int | None = None, pause: Callable[[], None] = lambda: None
    ) -> Reading:
        """Judge the sentences; see :class:`GroundingModel`."""
        reader = self.reader
        room = reader.limit - reader.overhead()
        if room < _LEAST_ROOM:
            raise InputTooLargeError(f"{self.name} reads {reader.limit} tokens: too few for a source and a sentence")
        claims = [pieces(inputs.response, [span], room // 2, reader.measure) for span in inputs.sentences]
        texts = [[" ".join(inputs.response[start:end].split()) for start, end in spans] for spans in claims]
        longest = max((reader.measure.count(text) for parts in texts for text in parts), default=0)
        windows = pack(inputs.sources, min(reader.window, room - longest), reader.measure)
        passes = len(windows) * sum(map(len, texts))
        if max_passes is not None and passes > max_passes:
            raise InputTooLargeError(
                f"{len(windows)} windows of the passages for each of {len(texts)} sentences are more than "
                f"max_passes={max_passes} passes of the model"
            )
        tokens = 0
        found = []
        for span, parts in zip(inputs.sentences, texts, strict=True):
            result, read = self._sentence(span, parts, windows, pause)
            found.append(result)
            tokens += read
        return Reading(sentences=tuple(found), windows=len(windows), passes=passes, tokens=tokens)

    def _sentence(
        self, span: Span, parts: Sequence[str], windows: Sequence[Window], pause: Callable[[], None]
    ) -> tuple[SentenceSupport, int]:
        """Return the support of a sentence by its best window, and the number of tokens that were read."""
        best: list[tuple[float, Window]] = []
        tokens = 0
        for part in parts:
            answers = []
            for window in windows:
                pause()
                support, read = self.reader.support("\n".join(window.texts), part)
                answers.append((support, window))
                tokens += read
            best.append(max(answers, key=lambda answer: answer[0]))
        # A very long sentence is read in pieces, of which each must be supported.
        support, window = min(best, key=lambda answer: answer[0])
        return SentenceSupport(span=span, support=support, positions=window.positions), tokens
