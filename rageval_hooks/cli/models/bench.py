"""How long local models take to score one answer: the same metrics as in an application, on texts made for this."""

from __future__ import annotations

import itertools
import logging
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rageval_hooks.demo.handbook import load_handbook
from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.metrics.base import REGISTRY, Metric
from rageval_hooks.metrics.support.running import compute
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models, Role
from rageval_hooks.score import Failed, Skipped
from rageval_hooks.settings import FORMULA, LEXICAL, ModelSettings
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.tokens import count_tokens
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Passage, Turn

__all__ = ["HEAD", "Case", "Measured", "Result", "measure_models"]

HEAD: Final = (
    "role", "model", "metric", "passages", "words each", "answers", "p50 ms", "p95 ms", "tokens/s"
)  # fmt: skip

_LEAST_ANSWERS: Final = 3
_QUERY: Final = "How long does the crossing take, and what does it cost?"
_METRICS: Final[dict[Role, str]] = {
    "embedder": "groundedness",
    "grounding": "groundedness",
    "cross_encoder": "answer_relevance",
    "nlp": "entity_consistency",
    "hhem": "hhem",
}
"""The metric by which a model is measured."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """The size of the turns.

    Attributes:
        passages: how many passages.
        words: words of each passage.
        answer_words: words of the answer.
    """

    passages: int
    words: int
    answer_words: int


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The times of one model for one size.

    Attributes:
        role: the model's role.
        model: its name.
        metric: the metric that was computed.
        passages: passages per answer.
        words: words of each passage.
        answers: how many answers were scored.
        p50_ms: the median of the milliseconds per answer.
        p95_ms: the 95th percentile.
        tokens_per_second: tokens of question, passages and answer per second, at the median.
    """

    role: Role
    model: str
    metric: str
    passages: int
    words: int
    answers: int
    p50_ms: float
    p95_ms: float
    tokens_per_second: float

    def cells(self) -> tuple[str, ...]:
        """Return a row of the table."""
        sizes = (str(self.passages), str(self.words), str(self.answers))
        times = (f"{self.p50_ms:.0f}", f"{self.p95_ms:.0f}", f"{self.tokens_per_second:.0f}")
        return (self.role, self.model, self.metric, *sizes, *times)


@dataclass(kw_only=True)
class Result:
    """The measurements of one model.

    Attributes:
        role: its role.
        model: its name.
        load_seconds: how long loading took; None if it could not be loaded.
        rows: the times.
        problem: why it could not be measured; empty if it could.
    """

    role: Role
    model: str
    load_seconds: float | None = None
    rows: list[Measured] = field(default_factory=list)
    problem: str = ""

    def as_data(self) -> dict[str, Any]:
        """Return the result as JSON-able data."""
        return asdict(self)


def measure_models(
    settings: ModelSettings,
    grounding: Sequence[str],
    cases: Sequence[Case],
    *,
    answers: int,
    seconds: float,
    tell: Callable[[str], None],
) -> Iterator[Result]:
    """Measure one model after the other.

    Args:
        settings: the configured models.
        grounding: grounding models to measure in place of all that are configured.
        cases: the sizes of turns.
        answers: the most answers per case.
        seconds: the time after which a case ends, with at least three answers.
        tell: receives messages about the progress.
    """
    # A measurement must not begin with a download of a gigabyte.
    settings = settings.model_copy(update={"download": False})
    for role, chosen in _chosen(settings, grounding):
        result = Result(role=role, model=getattr(chosen, role))
        if not _can_load(result, chosen, tell):
            yield result
            continue
        for case in cases:
            tell(f"{result.model}: {counted(case.passages, 'passage')} of {case.words} words")
            _measure(result, Models(chosen), case, answers=answers, seconds=seconds)
        yield result


def _chosen(settings: ModelSettings, grounding: Sequence[str]) -> Iterator[tuple[Role, ModelSettings]]:
    """Yield each role to measure, with settings that have its model."""
    if not grounding:
        for role in _METRICS:
            # The formula is measured as the embedder, and what is lexical needs no model.
            if getattr(settings, role) not in (FORMULA, LEXICAL):
                yield role, _for_role(settings, role)
        return
    for name in grounding:
        # Validated again, so that a folder that does not exist is an error.
        changed = ModelSettings.model_validate({**settings.model_dump(), "grounding": name})
        yield ("embedder" if name == FORMULA else "grounding"), changed


def _for_role(settings: ModelSettings, role: Role) -> ModelSettings:
    """Return settings in which `groundedness` uses the embedder if that is to be measured."""
    return settings.model_copy(update={"grounding": FORMULA}) if role == "embedder" else settings


def _can_load(result: Result, settings: ModelSettings, tell: Callable[[str], None]) -> bool:
    """Load the model; note the time, or why it cannot be loaded."""
    tell(f"loading {result.model}")
    logger = logging.getLogger("rageval_hooks")
    level = logger.level
    # The result says why a model cannot be loaded; the log would repeat it.
    logger.setLevel(logging.ERROR)
    started = time.perf_counter()
    try:
        getattr(Models(settings), result.role)(wait=True)
    except ModelUnavailableError as error:
        result.problem = error.reason
        return False
    finally:
        logger.setLevel(level)
    result.load_seconds = round(time.perf_counter() - started, 3)
    return True


def _measure(result: Result, models: Models, case: Case, *, answers: int, seconds: float) -> None:
    """Score answers one after the other, and add the times to the result."""
    metric = REGISTRY.create(_METRICS[result.role])
    turns = _turns(case)
    # The first pass allocates memory and would count for all.
    problem = _score(metric, next(turns), models)
    times: list[float] = []
    tokens = 0
    started = time.perf_counter()
    while not problem and len(times) < answers:
        if len(times) >= _LEAST_ANSWERS and time.perf_counter() - started > seconds:
            break
        turn = next(turns)
        began = time.perf_counter()
        problem = _score(metric, turn, models)
        times.append(time.perf_counter() - began)
        tokens += count_tokens(turn.texts())[0]
    if problem:
        result.problem = f"{counted(case.passages, 'passage')} of {case.words} words: {problem}"
        return
    result.rows.append(_summary(result, metric.name, case, times, tokens / len(times)))


def _score(metric: Metric, turn: Turn, models: Models) -> str:
    """Compute a metric; return why it has no score, or an empty text."""
    for found in compute(metric, TurnAnalysis(turn, models, wait=True)):
        if isinstance(found, Skipped):
            return found.reason
        if isinstance(found, Failed):
            return found.message
    return ""


def _summary(result: Result, metric: str, case: Case, times: Sequence[float], tokens: float) -> Measured:
    import numpy as np

    p50, p95 = np.percentile(times, [50, 95])
    return Measured(
        role=result.role,
        model=result.model,
        metric=metric,
        passages=case.passages,
        words=case.words,
        answers=len(times),
        p50_ms=round(float(p50) * 1000, 2),
        p95_ms=round(float(p95) * 1000, 2),
        tokens_per_second=round(tokens / float(p50), 1),
    )


def _turns(case: Case) -> Iterator[Turn]:
    """Yield turns of a size without end, the same in every run, each with new passages."""
    generator = random.Random(0)  # noqa: S311 - the same texts in every run
    sentences = [section.text[start:end] for section in load_handbook() for start, end in sentence_spans(section.text)]
    for number in itertools.count(1):
        # The number makes the passages of each turn new to every cache.
        passages = [
            f"{number}.{position}. {_text(sentences, case.words, generator)}" for position in range(case.passages)
        ]
        answer = _text(sentences, case.answer_words, generator)
        yield Turn(query=_QUERY, passages=tuple(Passage(text=text) for text in passages), response=answer)


def _text(sentences: Sequence[str], words: int, generator: random.Random) -> str:
    """Return so many words of sentences in random order."""
    found: list[str] = []
    while len(found) < words:
        found += generator.choice(sentences).split()
    return " ".join(found[:words])
