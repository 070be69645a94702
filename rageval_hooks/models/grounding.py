"""Grounding models: small classifiers that were trained to find what a source does not support.

Two families are told apart by the ``architectures`` of ``config.json``:

- **token classification** (LettuceDetect): the model reads passages and answer together and marks unsupported tokens;
- **sequence pair** (NLI cross-encoders, MiniCheck, FactCG, HHEM): it reads a source and one sentence, and gives the
  probability that the source supports the sentence.

No code of a model is run. A model gives meaningless numbers for input in any form but its own. Sources of the forms,
read in November 2026:

- ``lettucedetect``: the package lettucedetect 0.2.3, ``prompts/qa_prompt_en.txt``, ``summary_prompt_en.txt`` and
  ``detectors/transformer.py`` (at most 4,096 tokens);
- ``minicheck``: github.com/Liyan06/MiniCheck, ``minicheck/inference.py``: source and claim joined by the end token;
  sources in chunks of 400 tokens (500 words for Flan-T5), at most 2,048 tokens (512 for RoBERTa);
- ``factcg``: github.com/derenlei/FactCG, ``factcg/utils.py`` and ``inference.py``: one text, in chunks of 550 words, at
  most 2,048 tokens;
- ``pair``: the model cards of ``cross-encoder/nli-*``: premise and hypothesis as a pair of at most 512 tokens.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from rageval_hooks.errors import InputTooLargeError
from rageval_hooks.models.hhem import load_hhem
from rageval_hooks.models.onnx import load_logits, onnx_file_wanted, shown_name
from rageval_hooks.models.sources import find_model, read_config
from rageval_hooks.models.tokenizing import load_tokenizer, position_limit, word_start
from rageval_hooks.settings import ModelSettings
from rageval_hooks.text.limits import Span
from rageval_hooks.text.sentences import sentence_spans

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

    from rageval_hooks.models.tokenizing import FloatArray


Source = tuple[int, str]
"""A passage, or a part of it: the passage's position in the turn, and the text."""

Window = Sequence[Source]
"""Passages, or parts of them, that the model reads together."""

_SEAM: Final = 2
"""Tokens that joining two texts may add."""

_MIN_ROOM: Final = 64
"""Tokens for passages and answer without which a model cannot judge anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundingInput:
    """The input of a model for one turn.

    Attributes:
        query: the user's question; may be empty.
        sources: the passages of the prompt, in their order.
        response: the answer, without citation markers.
        sentences: the sentences of the answer that are judged, as (start, end), in their order.
        max_passes: the most forward passes; None for no limit.
        pause: called before each pass; what it raises stops the work.
    """

    query: str
    sources: Sequence[Source]
    response: str
    sentences: Sequence[Span]
    max_passes: int | None = None
    pause: Callable[[], None] = lambda: None


class UnsupportedSpan(NamedTuple):
    """A token of the answer, or several that the model calls unsupported.

    Attributes:
        start: the first character in the answer.
        end: the character after the last one.
        probability: the highest probability of a token to be unsupported, 0..1.
    """

    start: int
    end: int
    probability: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroundedSentence:
    """How far the model finds one sentence supported, by the window that supports it best.

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
class GroundingResult:
    """What the model says about a turn.

    Attributes:
        sentences: the sentences that it could judge.
        windows: the number of windows in which the passages were read.
        passes: the number of forward passes.
        tokens: the number of tokens in all passes.
    """

    sentences: tuple[GroundedSentence, ...]
    windows: int
    passes: int
    tokens: int


@dataclass(frozen=True, kw_only=True)
class GroundingModel(ABC):
    """A loaded model.

    Attributes:
        threshold: from which support on a sentence counts as supported: the limit that the models were trained with.
        name: the model's name, which is recorded with its scores.
        version: the version of the way in which it is asked; changes when its scores change.
        details: further facts for the metadata of scores: family, template, backend, revision.
        tokenizer: the model's, without padding and truncation.
        limit: the most tokens of one pass.
        window: the most tokens of passages in one pass.
    """

    threshold: ClassVar[float] = 0.5
    name: str
    version: str
    details: dict[str, str]
    tokenizer: Tokenizer
    limit: int
    window: int

    @abstractmethod
    def read(self, inputs: GroundingInput) -> GroundingResult:
        """Judge the sentences of an answer.

        Raises:
            InputTooLargeError: the turn needs more passes.
        """

    def _count(self, text: str) -> int:
        """Return the number of tokens of a text, without special tokens."""
        return len(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def _cut(self, text: str, size: int) -> list[Span]:
        """Cut a text into parts of at most ``size`` tokens, at the starts of words where a word is short enough."""
        offsets = self.tokenizer.encode(text, add_special_tokens=False).offsets
        parts: list[Span] = []
        start = token = 0
        while len(offsets) - token > size:
            token = word_start(text, offsets, token + size, token)
            parts.append((start, offsets[token][0]))
            start = offsets[token][0]
        return [*parts, (start, len(text))]

    def _parts(self, text: str, size: int) -> Iterator[str]:
        """Yield a passage that fits a window; of a longer one as many whole sentences as fit, again and again."""
        if self._count(text) <= size:
            yield text
            return
        begin = finish = used = 0
        for start, end in sentence_spans(text):
            # A sentence that is longer than a window is cut.
            for first, last in self._cut(text[start:end], size):
                tokens = self._count(text[start + first : start + last]) + _SEAM
                if used and used + tokens > size:
                    yield text[begin:finish].strip()
                    begin, used = start + first, 0
                finish = start + last
                used += tokens
        if used:
            yield text[begin:finish].strip()

    def _windows(
        self, inputs: GroundingInput, *, room: int, longest: int, overhead: int, passes: int
    ) -> Sequence[Window]:
        """Pack the passages into the windows in which they are read, in their order.

        A passage is cut only if it is longer than a window, between its sentences where that is possible.

        Args:
            inputs: the turn.
            room: tokens for passages and answer in one pass.
            longest: the most tokens that the answer, or a sentence of it, takes of them.
            overhead: tokens that the template adds to each passage.
            passes: the passes for each window.

        Raises:
            InputTooLargeError: the model reads too few tokens, or the turn needs too many passes.
        """
        if room < _MIN_ROOM:
            raise InputTooLargeError(f"{self.name} reads {self.limit} tokens: too few for passages and an answer")
        if longest > room // 2:
            raise InputTooLargeError(
                f"{longest} tokens of the answer, which {self.name} has to read at once, are more than half of its room"
            )
        size = min(self.window, room - longest)
        windows: list[list[Source]] = []
        left = 0
        for position, text in inputs.sources:
            for part in self._parts(text, size - overhead):
                needed = self._count(part) + overhead
                if needed > left or not windows:
                    windows.append([])
                    left = size
                windows[-1].append((position, part))
                left -= needed
        if inputs.max_passes is not None and passes * len(windows) > inputs.max_passes:
            raise InputTooLargeError(
                f"{len(windows)} windows of the passages, each read {passes} times, are more than "
                f"max_passes={inputs.max_passes} passes of the model"
            )
        return windows


@dataclass(frozen=True, kw_only=True)
class PairModel(GroundingModel):
    """Asks for each sentence whether a window of the passages supports it; the best window counts.

    A sentence is read without its neighbours, so the model cannot know what "it" or "they" means.

    Attributes:
        support: takes a source and a claim; returns the probability that the source supports the claim, 0..1, and the
            number of tokens that were read.
        overhead: tokens that the template and the tokenizer add to source and claim.
    """

    support: Callable[[str, str], tuple[float, int]]
    overhead: int

    def read(self, inputs: GroundingInput) -> GroundingResult:
        """Judge the sentences; see :class:`GroundingModel`."""
        claims = [" ".join(inputs.response[start:end].split()) for start, end in inputs.sentences]
        longest = max(map(self._count, claims), default=0)
        windows = self._windows(
            inputs, room=self.limit - self.overhead, longest=longest, overhead=_SEAM, passes=len(claims)
        )
        tokens = 0
        sentences = []
        for span, claim in zip(inputs.sentences, claims, strict=True):
            answers: list[tuple[float, Window]] = []
            for window in windows:
                inputs.pause()
                probability, read = self.support("\n".join(text for _, text in window), claim)
                answers.append((probability, window))
                tokens += read
            probability, window = max(answers, key=lambda answer: answer[0])
            sentences.append(GroundedSentence(span=span, support=probability, positions=_positions(window)))
        passes = len(windows) * len(claims)
        return GroundingResult(sentences=tuple(sentences), windows=len(windows), passes=passes, tokens=tokens)


def lettucedetect_prompt(query: str, texts: Sequence[str]) -> str:
    """Return the prompt that LettuceDetect's models were trained with; the answer is the second text of the pair."""
    context = "\n".join(f"passage {number}: {text}" for number, text in enumerate(texts, 1))
    # Their training data has questions and summaries; a turn without a question is read as a summary.
    if not query:
        return f"Summarize the following text:\n{context}\noutput:"
    return (
        f"Briefly answer the following question:\n{query}\n"
        f"Bear in mind that your response should be strictly based on the following {len(texts)} passages:\n{context}\n"
        "In case the passages do not contain the necessary information to answer the question, "
        'please reply with: "Unable to answer based on given passages."\noutput:'
    )


@dataclass(frozen=True, kw_only=True)
class TokenModel(GroundingModel):
    """Reads the prompt of LettuceDetect, with the answer as second text.

    The support of a sentence is 1 minus the highest probability of its tokens to be unsupported: one wrong number makes
    a sentence wrong. If the passages need several windows, the window that supports a sentence best counts for it.

    Attributes:
        logits: computes two logits per token of an input; shape (tokens, 2).
        index: the output that means *unsupported*.
    """

    logits: Callable[[Encoding], FloatArray]
    index: int

    def read(self, inputs: GroundingInput) -> GroundingResult:
        """Judge the sentences; see :class:`GroundingModel`."""
        # A question that fills the window would leave no room for passages.
        first, last = self._cut(inputs.query, self.limit // 8)[0]
        query, response = inputs.query[first:last], inputs.response
        seams = self.tokenizer.num_special_tokens_to_add(True) + 16
        room = self.limit - seams - self._count(lettucedetect_prompt(query, []))
        part = (inputs.sentences[0][0], inputs.sentences[-1][1]) if inputs.sentences else (0, 0)
        # "passage 12: " and the line break are at most 10 tokens.
        longest = self._count(response[slice(*part)])
        windows = self._windows(inputs, room=room, longest=longest, overhead=10, passes=1)
        best: dict[Span, GroundedSentence] = {}
        tokens = 0
        for window in windows:
            inputs.pause()
            found, read = self._pass(query, response, part, window)
            tokens += read
            for span in inputs.sentences:
                own = [token for token in found if span[0] <= token.start < span[1]]
                support = 1.0 - max((token.probability for token in own), default=1.0)
                if own and (span not in best or support > best[span].support):
                    marked = _runs(own, 1.0 - self.threshold)
                    best[span] = GroundedSentence(
                        span=span, support=support, positions=_positions(window), unsupported=marked
                    )
        sentences = tuple(best[span] for span in inputs.sentences if span in best)
        return GroundingResult(sentences=sentences, windows=len(windows), passes=len(windows), tokens=tokens)

    def _pass(self, query: str, response: str, part: Span, window: Window) -> tuple[list[UnsupportedSpan], int]:
        """Return the tokens of a part of the answer, with places in the whole, and the number of tokens of the pass."""
        begin, text = part[0], response[part[0] : part[1]]
        encoding = self.tokenizer.encode(lettucedetect_prompt(query, [text for _, text in window]), text)
        shares = probabilities(self.logits(encoding))[:, self.index]
        found = []
        for owner, (start, end), share in zip(encoding.sequence_ids, encoding.offsets, shares, strict=True):
            # 1 is the second text of the pair; special tokens belong to neither.
            if owner != 1:
                continue
            # Many tokenizers count the space before a word as part of it: " It" begins the next sentence all the same.
            start += len(text[start:end]) - len(text[start:end].lstrip())
            if end > start:
                found.append(UnsupportedSpan(begin + start, begin + end, float(share)))
        return found, len(encoding.ids)


def _positions(window: Window) -> tuple[int, ...]:
    """Return the positions of a window's passages, each once."""
    return tuple(dict.fromkeys(position for position, _ in window))


def _runs(tokens: Sequence[UnsupportedSpan], limit: float) -> tuple[UnsupportedSpan, ...]:
    """Return the runs of tokens whose probability to be unsupported exceeds the limit."""
    found = []
    for is_marked, group in groupby(tokens, key=lambda token: token.probability > limit):
        run = list(group)
        if is_marked:
            highest = max(token.probability for token in run)
            found.append(UnsupportedSpan(run[0].start, run[-1].end, highest))
    return tuple(found)


def probabilities(logits: FloatArray) -> FloatArray:
    """Return the softmax over the last axis."""
    import numpy as np

    # Without the largest value, exp would overflow.
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=-1, keepdims=True))
    found: FloatArray = powers / powers.sum(axis=-1, keepdims=True)
    return found


# --------------------------------------------------------------------------- loading

Family = Literal["tokens", "pair", "seq2seq", "hhem"]
_VERSION: Final = "1"
"""Changes when a model is asked in another way and its scores change: the template, the windows, the aggregation."""

_MAX_TOKENS: Final = 4096
"""Tokens that a token classifier reads at once, as in LettuceDetect's own package; reading more gains little."""

# The last part of a class name in `architectures`, such as "ModernBertForTokenClassification".
_FAMILIES: Final[dict[str, Family]] = {
    "HHEMv2ForSequenceClassification": "hhem",
    "ForTokenClassification": "tokens",
    "ForSequenceClassification": "pair",
    "ForConditionalGeneration": "seq2seq",
}
# Names of labels, in lower case. The first of each is the one that messages recommend.
_SUPPORTED: Final = (
    "entailment", "entail", "entails", "entailed", "supported", "support", "consistent", "grounded", "faithful"
)  # fmt: skip
_UNSUPPORTED: Final = ("hallucinated", "hallucination", "unsupported", "not_supported", "ungrounded")

# The commit of a snapshot in the hub's cache: ".../snapshots/0f1e2d…".
_SNAPSHOT: Final = re.compile(r"snapshots[/\\]([0-9a-f]{40})")


class _Template(NamedTuple):
    """How a source and a claim become the input of a sequence-pair model.

    Attributes:
        form: the text, with the fields ``source``, ``claim`` and ``end``, the tokenizer's end token. Empty if the
            tokenizer joins the two texts.
        limit: the most tokens of one input.
        window: the most tokens of a source in one input.
    """

    form: str
    limit: int
    window: int


_FACTCG: Final = (
    '{source}\n\nChoose your answer: based on the paragraph above can we conclude that "{claim}"?'
    "\n\nOPTIONS:\n- Yes\n- No\nI think the answer is "
)
_TEMPLATES: Final = {
    "pair": _Template("", limit=512, window=400),
    "minicheck": _Template("{source}{end}{claim}", limit=2048, window=400),
    # 500 words and 550 words of English are about 650 and 700 tokens.
    "minicheck-t5": _Template("predict: {source}{end}{claim}", limit=2048, window=650),
    "factcg": _Template(_FACTCG, limit=2048, window=700),
}


def load_grounding(settings: ModelSettings) -> GroundingModel:
    """Load the model that the settings name.

    Raises:
        ModelUnavailableError: it is not on this machine and cannot be downloaded.
        ValueError: it is of another kind; the message says what to do.
    """
    name = settings.grounding
    folder = find_model("grounding", name, download=settings.download, onnx_file=onnx_file_wanted(settings))
    config = read_config(folder)
    family = _family(config)
    template = _template(config, name, family, settings.grounding_template)
    details = {"family": "token classification" if family == "tokens" else "sequence pair", "template": template}
    details["backend"] = "torch"
    if snapshot := _SNAPSHOT.search(os.path.realpath(folder)):
        details["revision"] = snapshot.group(1)
    about: dict[str, Any] = {"name": name, "version": f"{template}-{_VERSION}", "details": details}
    if family == "hhem":
        return _load_hhem(settings, about)
    index = 1 if family == "seq2seq" else _index(config, family, template)
    logits, details["backend"] = load_logits("grounding", folder, settings, family)
    about["name"] = shown_name("grounding", settings, details["backend"])
    about["tokenizer"] = tokenizer = load_tokenizer(folder)
    positions = position_limit(config)
    if family == "tokens":
        limit = min(_MAX_TOKENS, positions or _MAX_TOKENS)
        return TokenModel(**about, limit=limit, window=limit, logits=logits, index=index)
    form, limit, window = _TEMPLATES["minicheck-t5" if family == "seq2seq" else template]
    end = "".join(tokenizer.encode("").tokens[-1:])

    def encode(source: str, claim: str) -> Encoding:
        if not form:
            return tokenizer.encode(source, claim)
        return tokenizer.encode(form.format(source=source, claim=claim, end=end))

    def support(source: str, claim: str) -> tuple[float, int]:
        encoding = encode(source, claim)
        return float(probabilities(logits(encoding))[index]), len(encoding.ids)

    overhead = len(encode("", "").ids) + 8  # joining source and claim may add some tokens
    limit = min(limit, positions or limit)
    return PairModel(**about, limit=limit, support=support, window=window, overhead=overhead)


def _family(config: Mapping[str, Any]) -> Family:
    classes = [str(item) for item in config.get("architectures") or ()]
    for ending, family in _FAMILIES.items():
        if any(item.endswith(ending) for item in classes):
            return family
    raise ValueError(
        f"it has the architecture {', '.join(classes) or 'unknown'}. A grounding model classifies tokens or pairs "
        "of texts: …ForTokenClassification or …ForSequenceClassification in config.json"
    )


def _template(config: Mapping[str, Any], name: str, family: Family, given: str) -> str:
    """Return the template that the settings give, or the one that the model's name tells.

    Raises:
        ValueError: the family cannot use it.
    """
    names = f"{name} {config.get('_name_or_path', '')}".lower()
    valid = {"tokens": ("lettucedetect",), "hhem": ("hhem",)}.get(family, ("minicheck", "factcg", "pair"))
    template = given
    if given == "auto":
        template = next((known for known in valid if known in names), valid[-1])
    # MiniCheck-Flan-T5 is the only model that writes text and can be used.
    if family == "seq2seq" and template != "minicheck":
        raise ValueError(
            "it writes text. The only such model that can be used is MiniCheck-Flan-T5: if it is one, set "
            "models={'grounding_template': 'minicheck'}"
        )
    if template not in valid:
        raise ValueError(f"grounding_template={template!r} does not fit its architecture: omit it")
    return template


def _index(config: Mapping[str, Any], family: Family, template: str) -> int:
    """Return the output that means *supported* (pairs) or *unsupported* (tokens).

    Raises:
        ValueError: the labels do not say which one it is.
    """
    # In lower case. Without names, transformers has LABEL_0 and LABEL_1.
    given = config.get("id2label") or {index: f"label_{index}" for index in range(int(config.get("num_labels") or 2))}
    labels = {int(key): re.sub("[- ]", "_", str(label).strip().lower()) for key, label in given.items()}
    wanted = _UNSUPPORTED if family == "tokens" else _SUPPORTED
    by_label = {label: index for index, label in labels.items()}
    known = [by_label[label] for label in wanted if label in by_label]
    if family == "tokens" and len(labels) == 2:
        # Of two outputs, the other one of *supported*.
        known += [1 - by_label[label] for label in _SUPPORTED if label in by_label]
    # LettuceDetect, MiniCheck and FactCG do not name their two labels: 1 is *unsupported* and *supported*.
    if template != "pair" and labels in ({0: "label_0", 1: "label_1"}, {0: "0", 1: "1"}):
        known.append(1)
    if known:
        return known[0]
    raise ValueError(
        f"it has the labels {', '.join(labels.values())}, of which none is known to mean {wanted[0]!r}: "
        f"write id2label in its config.json, with {wanted[0]!r} for that label"
    )


def _load_hhem(settings: ModelSettings, about: Mapping[str, Any]) -> PairModel:
    """Load HHEM, which has a prompt of its own."""
    model = load_hhem(settings.model_copy(update={"hhem": settings.grounding}))

    def support(source: str, claim: str) -> tuple[float, int]:
        tokens = sum(len(model.tokenizer.encode(text).ids) for text in (source, claim))
        return model.support(source, claim), tokens

    # The prompt takes less than 64 tokens.
    return PairModel(**about, tokenizer=model.tokenizer, limit=2048, support=support, window=1024, overhead=64)
