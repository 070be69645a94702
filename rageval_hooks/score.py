"""The results of an evaluation: scores, and the reasons for scores that are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from rageval_hooks.runtime.jsonable import Data, Metadata, Text
from rageval_hooks.runtime.narrowing import mapping_or_empty
from rageval_hooks.turn import Passage, Turn
from rageval_hooks.turn_html import turn_html, unsupported_in

Annotator = Literal["CODE", "LLM", "HUMAN"]
Stage = Literal["inline", "background"]

VERDICT: Final = "verdict"
"""The name of the result that sums up a turn: a score with the label ``good``, ``doubtful`` or ``bad``, or a skipped
result with the label ``declined`` or ``not_evaluable``."""

CAUSES: Final = {
    "language": "the rules do not know the language of the answer, or its passages are in another one",
    "no_passages": "there is no passage to compare the answer with",
    "not_retrieved": "no retrieved passage is about the question",
    "not_shown": "a passage about the question was retrieved, and was not in the prompt",
    "refused": "the answer declines, although a passage of the prompt is about the question",
    "nothing_found": "the answer declines, and no passage is about the question",
    "asks_back": "the answer asks the user a question",
    "no_claims": "the answer claims nothing",
    "should_decline": "a test set says that the question has no answer, and the answer does not decline",
    "computed": "a figure of the answer follows from two figures of a passage, which does not state it",
    "unsupported": "the answer says more than its passages, which are about the question",
    "off_topic": "a passage is about the question, and the answer is not",
}
"""The causes of a verdict that is not good, with their meanings."""


_GOOD_WORDS: Final = frozenset(
    "1 1.0 true yes y up thumbs-up thumbs_up 👍 pass passed good right supported faithful correct "
    "relevant grounded".split()
)
_BAD_WORDS: Final = frozenset(
    "0 0.0 false no n down thumbs-down thumbs_down 👎 fail failed bad wrong unsupported unfaithful incorrect "
    "irrelevant ungrounded hallucinated".split()
)


def says_good(label: object) -> bool | None:
    """Return what a person's label says of an answer: True for good, False for bad; None if that is not known."""
    word = str(label).strip().casefold()
    return True if word in _GOOD_WORDS else False if word in _BAD_WORDS else None


class Target(Data):
    """The object of a score: the turn, a passage or a sentence.

    Attributes:
        kind: the whole turn, one of its passages, or a sentence of its response.
        index: position of that passage or sentence, from 0; None for the turn.
        id: the passage's own id, if it has one.
    """

    kind: Literal["turn", "passage", "sentence"] = "turn"
    index: int | None = Field(default=None, ge=0)
    id: Text | None = None


WHOLE_TURN = Target()


class Score(Data):
    """A number in its documented range.

    Attributes:
        name: the metric's name, dotted for one of several: ``groundedness``, ``trace.adherence``, ``precision@5``.
        value: the number; always finite.
        label: ``pass`` or ``fail`` where a threshold is set, or the metric's own label; else None.
        cause: of a ``verdict`` that is not good, one of :data:`CAUSES`; else None.
        explanation: why, in a sentence or a few lines. May quote the turn's texts.
        annotator: CODE for a formula or a small model, LLM for a judge, HUMAN for a person.
        model: the model that made it, or None for a formula alone.
        version: changes when the formula or the prompt does.
        target: what it is about.
        probability: with which probability the turn was selected for this score, 0 < p <= 1.
        metric: the metric that made it.
        unit: ``""`` for a share or a probability, else ``"s"``, ``"tokens"``, ``"USD"`` …
        direction: whether higher or lower is better.
        low: the least possible value.
        high: the greatest possible value; None if there is no bound.
        metadata: details, such as the sentences behind the number. May quote the turn's texts.
    """

    status: Literal["scored"] = "scored"
    name: Text = Field(min_length=1)
    value: float = Field(allow_inf_nan=False)
    label: Text | None = None
    cause: Text | None = None
    explanation: Text | None = None
    annotator: Annotator = "CODE"
    model: Text | None = None
    version: Text = "1"
    target: Target = WHOLE_TURN
    probability: float = Field(default=1.0, gt=0, le=1)
    metric: Text | None = None
    unit: Text = ""
    direction: Literal["higher", "lower"] = "higher"
    low: float = Field(default=0.0, allow_inf_nan=False)
    high: float | None = Field(default=1.0, allow_inf_nan=False)
    metadata: Metadata = Field(default_factory=dict)


class _WithoutNumber(Data):
    """What a result without a number has in place of a score's fields: code that shows results needs no cases."""

    value: ClassVar[None] = None
    model: ClassVar[None] = None
    version: ClassVar[None] = None
    probability: ClassVar[None] = None
    target: ClassVar[Target] = WHOLE_TURN


class Skipped(_WithoutNumber):
    """A metric that could not run: an input is missing, or its model is not available.

    Attributes:
        name: the metric's name, or that of one of its scores.
        reason: why. It never quotes the turn's texts, because it is shown where those are hidden.
        metric: the metric.
        label: of a skipped ``verdict``: ``declined`` or ``not_evaluable``; else None.
        cause: of a skipped ``verdict``: one of :data:`CAUSES` if it is known; else None.
        missing_model: the role of the local model that is not available, such as ``nlp``; None for other reasons. Such
            a metric is skipped for every turn.
        annotator: LLM for the judge's verdict that the answer declines.
        over_budget: True if the budget of the judge was used up, so that a larger one may give the score.
    """

    metadata: ClassVar[Mapping[str, Any]] = {}

    status: Literal["skipped"] = "skipped"
    name: Text = Field(min_length=1)
    reason: Text
    metric: Text | None = None
    label: Text | None = None
    cause: Text | None = None
    missing_model: Text | None = None
    over_budget: bool = False
    annotator: Annotator = "CODE"

    @property
    def explanation(self) -> str:
        """The reason."""
        return self.reason


class Failed(_WithoutNumber):
    """A metric that failed with an error.

    Attributes:
        name: the metric's name, or that of one of its scores.
        error_type: the exception's class name, or the judge's kind of failure.
        message: what happened.
        annotator: CODE for a formula or a small model, LLM for a judge.
        metric: the metric.
        metadata: details, for example a judge's token usage.
    """

    label: ClassVar[None] = None
    cause: ClassVar[None] = None

    status: Literal["failed"] = "failed"
    name: Text = Field(min_length=1)
    error_type: Text
    message: Text = ""
    annotator: Annotator = "CODE"
    metric: Text | None = None
    metadata: Metadata = Field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Type and message of the error. May quote the turn's texts, unlike the reason of a skipped metric."""
        return ": ".join(filter(None, (self.error_type, self.message)))

    @property
    def explanation(self) -> str:
        """The reason."""
        return self.reason


Result = Annotated[Score | Skipped | Failed, Field(discriminator="status")]


def verdict_first(results: Iterable[Result]) -> tuple[Result, ...]:
    """Return results with the verdict first; the judge's verdict, which ``trace`` makes, replaces the local one."""
    results = tuple(results)
    verdicts = [result for result in results if result.name == VERDICT]
    verdicts.sort(key=is_judged_verdict, reverse=True)
    return (*verdicts[:1], *(result for result in results if result.name != VERDICT))


def is_judged_verdict(result: Result) -> bool:
    """Return True for the judge's verdict, False for the local one and for any other result."""
    return result.name == VERDICT and metric_of(result) != VERDICT


def verdict_of(results: Iterable[Result]) -> Result | None:
    """Return the verdict among the results of a turn, the judge's if it is there; None without one."""
    return next((result for result in verdict_first(results)[:1] if result.name == VERDICT), None)


ANNOTATED_BY: Final = "annotated_by"
"""In the metadata of a person's score: who the person is."""


def annotator_of(result: Result) -> str:
    """Return who gave a person's score; empty if that is not known."""
    return str(result.metadata.get(ANNOTATED_BY, ""))


def is_about_turn(result: Result) -> bool:
    """Return True if a result is about the whole turn, not about one of its passages or sentences."""
    return result.target.kind == "turn"


def metric_of(result: Result) -> str:
    """Return the metric that made a result; a result without one, for example from a file, counts as its own."""
    return result.metric or result.name


def is_over_budget(result: Result) -> bool:
    """Return True if a result was skipped because the budget of the judge was used up."""
    return isinstance(result, Skipped) and result.over_budget


def label_of(result: Result) -> str | None:
    """Return the label of a result: its own, or ``skipped`` or ``failed`` if there is no score."""
    return result.label or (None if isinstance(result, Score) else result.status)


def shown_name(name: str) -> str:
    """Return the name of a score for people; ``no_answer`` says what a 1 means, which its name contradicts."""
    return "no_answer (1: answered)" if name == "no_answer" else name


def label_with_cause(result: Result) -> str | None:
    """Return the label of a result, with the cause of a verdict, such as ``bad: unsupported``."""
    label = label_of(result)
    return label if result.cause is None else f"{label}: {result.cause}"


def with_cause(result: Result) -> Result:
    """Return a result whose explanation begins with its cause, for places that have no field for it."""
    if result.cause is None:
        return result
    field = "explanation" if isinstance(result, Score) else "reason"
    return result.model_copy(update={field: ": ".join(filter(None, (result.cause, result.explanation)))})


def judge_details(result: Result) -> Mapping[str, Any]:
    """Return what is known of the judgement behind a result: model, tokens, cost; empty without a judgement."""
    return mapping_or_empty(result.metadata.get("judge"))


def missing_score(name: str, results: Iterable[Result]) -> Skipped | Failed | None:
    """Return the result that stands for a score; None if there is none.

    A metric as a whole may have been skipped: ``citation`` stands for ``citation.recall``.
    """
    absent = (result for result in results if not isinstance(result, Score))
    return next((result for result in absent if f"{name}.".startswith(f"{result.name}.")), None)


class Evaluation(Data):
    """The results of one stage for one turn.

    Attributes:
        turn: what was evaluated.
        results: one or several per metric, in the order of the metrics.
        stage: ``inline`` for the local metrics that ran when the turn ended (exactly one evaluation per turn, perhaps
            empty), ``background`` for all later results.
        duration: seconds that the stage took.
        durations: seconds per metric, by the metric's name.
        id: of late results: derived from the turn, the metrics, their options and versions. A repeated delivery, as
            after a crash, has the same id.
    """

    turn: Turn
    results: tuple[Result, ...] = ()
    stage: Stage = "inline"
    duration: float = Field(default=0.0, allow_inf_nan=False)
    durations: dict[Text, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)
    id: Text | None = None

    @property
    def scores(self) -> tuple[Score, ...]:
        """The results that are numbers."""
        return tuple(result for result in self.results if isinstance(result, Score))

    @property
    def skipped(self) -> tuple[Skipped, ...]:
        """The metrics that could not run."""
        return tuple(result for result in self.results if isinstance(result, Skipped))

    @property
    def failed(self) -> tuple[Failed, ...]:
        """The metrics that failed with an error."""
        return tuple(result for result in self.results if isinstance(result, Failed))

    def score(self, name: str) -> Score | None:
        """Return the score of the whole turn with this name, or None."""
        return next((s for s in self.scores if s.name == name and s.target.kind == "turn"), None)

    def __getitem__(self, name: str) -> float:
        """Return the value of the score with this name.

        Raises:
            KeyError: there is no such score; the message says why if the metric was skipped or failed.
        """
        score = self.score(name)
        if score is not None:
            return score.value
        raise KeyError(self.why_not(name))

    def why_not(self, name: str) -> str:
        """Return why there is no score of the whole turn with this name."""
        missing = missing_score(name, self.results)
        if missing is not None:
            about = "" if missing.cause is None else f" ({label_with_cause(missing)})"
            what = "was skipped" if isinstance(missing, Skipped) else "failed"
            return f"{shown_name(name)} {what}{about}: {missing.reason}"
        names = sorted({score.name for score in self.scores})
        return f"no score named {name!r}; there are: {', '.join(names) or '(none)'}"

    def __repr__(self) -> str:
        """Return one line: notebooks print a list of evaluations with it."""
        parts = [label_with_cause(result) for result in self.results if result.name == VERDICT and result.label]
        parts += [f"{shown_name(score.name)}={score.value:.3g}" for score in self.turn_scores()]
        scores = ", ".join(map(str, parts))
        return f"Evaluation({self.turn.query[:60]!r}: {scores or 'no scores'})"

    def _repr_html_(self) -> str:
        """Show the turn in a notebook, with the unsupported parts of its answer marked."""
        rows = [_html_row(result) for result in self.results if is_about_turn(result)]
        unsupported = [text for score in self.turn_scores() for text in unsupported_in(score.metadata)]
        return turn_html(self.turn, rows, unsupported)

    def turn_scores(self) -> Iterator[Score]:
        """Yield the scores of the whole turn."""
        return (score for score in self.scores if score.target.kind == "turn")


def _html_row(result: Result) -> tuple[str, str, str, str]:
    value = "" if result.value is None else f"{result.value:.4g}"
    label = (label_of(result) or "").replace("_", " ")  # "not_evaluable"
    return shown_name(result.name), value, label, with_cause(result).explanation or ""


# pydantic prepares its first validation and its first dump under locks. A child that is forked by another thread at
# that moment would wait for such a lock for ever, and lose its first turn.
Evaluation.model_validate_json(
    Evaluation(
        turn=Turn(query="", passages=(Passage(text=""),)),
        results=(Score(name="a", value=0.0), Skipped(name="b", reason=""), Failed(name="c", error_type="")),
        durations={"a": 0.0},
    ).model_dump_json()
)
