"""For pytest: evaluate a turn in a test, and assert its scores. Nothing is loaded until a test asks for it.

    def test_the_answer(rageval, assert_scores):
        turn = ask("When was the pier opened?")  # a Turn, or rageval(query=…, response=…, passages=[…])
        assert_scores(turn, groundedness=0.7, unsupported_facts=0)

Models, judge and metrics are those of the environment (``RAGEVAL_MODELS``, ``RAGEVAL_JUDGE``, ``RAGEVAL_METRICS``),
else of the ini options ``rageval_models``, ``rageval_judge`` and ``rageval_metrics``. A judge that is an object is what
a session fixture ``rageval_judge`` of one's own returns.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pytest

from rageval_hooks.score import Evaluation, Failed, Score, Skipped
from rageval_hooks.text.formatting import shorten
from rageval_hooks.turn import Passage, Turn

if TYPE_CHECKING:
    from rageval_hooks.online.pipeline import Pipeline

__all__ = ["Evaluator", "assert_scores"]

_OPTIONS = {
    "models": "the local models: default, lexical, or a mapping as JSON",
    "judge": "who judges, such as openai:gpt-5-mini",
    "metrics": "names of the metrics, separated by commas",
}

_LONGEST = 200


class Evaluator:
    """Evaluates turns; what the fixture ``rageval`` is.

    Args:
        options: ``models``, ``judge`` and ``metrics``; see :func:`rageval_hooks.instrument`.
    """

    def __init__(self, **options: Any) -> None:
        self._options = options
        self._pipelines: dict[tuple[Any, ...] | None, Pipeline] = {}

    def __call__(
        self,
        turn: Turn | None = None,
        /,
        *,
        query: str = "",
        response: str = "",
        passages: Iterable[str | Passage] = (),
        metrics: Iterable[Any] | str | None = None,
        **fields: Any,
    ) -> Evaluation:
        """Evaluate a turn, or one that is made from the texts.

        Args:
            turn: the turn; without it, the other arguments are its fields.
            query: the question.
            response: the answer.
            passages: what was retrieved.
            metrics: names, classes or instances; by default those of the options.
            fields: more fields of the turn, such as ``reference``.

        Raises:
            ConfigurationError: a setting is wrong.
        """
        if turn is None:
            found = tuple(Passage(text=item) if isinstance(item, str) else item for item in passages)
            turn = Turn(query=query, response=response, passages=found, **fields)
        return self._pipeline(metrics).evaluate(turn)

    def assert_scores(
        self, subject: Turn | Evaluation, bounds: Mapping[str, float] | None = None, /, **more: float
    ) -> Evaluation:
        """Assert that scores reach their bounds: at least, or at most where lower is better.

        Args:
            subject: a turn, which is evaluated by the metrics of these scores alone; or an evaluation.
            bounds: by name, for names that are no keywords: ``{"trace.adherence": 1}``.
            more: by name: ``groundedness=0.7``.

        Returns:
            The evaluation.

        Raises:
            AssertionError: a score is worse than its bound, or there is none: it was skipped or failed.
            UnknownNameError: no metric makes a score of that name.
        """
        __tracebackhide__ = True
        wanted = {**(bounds or {}), **more}
        if not wanted:
            raise TypeError("assert_scores needs a score and its bound, such as groundedness=0.7")
        if isinstance(subject, Turn):
            subject = self(subject, metrics=list(dict.fromkeys(map(_metric_of, wanted))))
        wrong = [line for name, bound in wanted.items() if (line := _complaint(subject, name, bound))]
        if wrong:
            turn = subject.turn
            lines = [
                *wrong,
                f"question: {shorten(turn.query, _LONGEST)}",
                f"answer: {shorten(turn.response, _LONGEST)}",
            ]
            raise AssertionError("\n".join(lines))
        return subject

    def _pipeline(self, metrics: Iterable[Any] | str | None) -> Pipeline:
        from rageval_hooks.online.pipeline import Pipeline

        chosen = self._options.get("metrics") if metrics is None else metrics
        if chosen is not None and not isinstance(chosen, str):
            chosen = tuple(chosen)
        key = chosen if isinstance(chosen, tuple) else None if chosen is None else (chosen,)
        if key not in self._pipelines:
            options = {name: self._options.get(name) for name in ("models", "judge")}
            self._pipelines[key] = Pipeline.build(
                # Whatever the environment says of an application's turns: these were not drawn by chance.
                metrics=chosen,
                exporters=[],
                sample_rate=1.0,
                judge_sample_rate={},
                **options,
            )
            self._pipelines[key].load_models()
        return self._pipelines[key]


def assert_scores(
    subject: Turn | Evaluation, bounds: Mapping[str, float] | None = None, /, **more: float
) -> Evaluation:
    """Assert that scores reach their bounds, with the options of the running session; see :class:`Evaluator`.

    A judge from a fixture ``rageval_judge`` is known only to the fixture of the same name.
    """
    __tracebackhide__ = True
    return _session.assert_scores(subject, bounds, **more)


_session = Evaluator()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the ini options."""
    for name, text in _OPTIONS.items():
        parser.addini(f"rageval_{name}", f"rageval-hooks: {text}", default="")


def pytest_configure(config: pytest.Config) -> None:
    """Take the options of this session."""
    global _session
    _session = Evaluator(**_options(config))


@pytest.fixture(scope="session")
def rageval_judge() -> Any:
    """Override this to return a judge that is an object."""
    return None


@pytest.fixture(scope="session")
def rageval(pytestconfig: pytest.Config, rageval_judge: Any) -> Evaluator:
    """Evaluate a turn: ``rageval(turn)``, or ``rageval(query=…, response=…, passages=[…])``."""
    options = _options(pytestconfig)
    return Evaluator(**(options if rageval_judge is None else {**options, "judge": rageval_judge}))


@pytest.fixture(scope="session", name="assert_scores")
def _assert_scores(rageval: Evaluator) -> Callable[..., Evaluation]:
    """Assert scores: ``assert_scores(turn, groundedness=0.7, unsupported_facts=0)``."""
    return rageval.assert_scores


def _options(config: pytest.Config) -> dict[str, str]:
    """Return the ini options that are set, and not in the environment, which comes first."""
    given = {name: str(config.getini(f"rageval_{name}")).strip() for name in _OPTIONS}
    return {name: text for name, text in given.items() if text and not os.environ.get(f"RAGEVAL_{name.upper()}")}


def _metric_of(score: str) -> str:
    """Return the name of the metric that makes a score."""
    __tracebackhide__ = True
    from rageval_hooks.errors import UnknownNameError
    from rageval_hooks.metrics.base import REGISTRY
    from rageval_hooks.offline.report.definitions import metric_of

    for name in (metric_of(score), score, score.partition(".")[0]):
        if name is not None and name in REGISTRY.names():
            return name
    valid = [definition.name for metric in REGISTRY.builtin().values() for definition in metric.scores]
    hint = "A score of a metric of your own: assert_scores(rageval(turn, metrics=[…]), …)."
    raise UnknownNameError("score", score, valid, hint)


def _complaint(evaluation: Evaluation, name: str, bound: float) -> str | None:
    """Return what is wrong with a score, or None if nothing is."""
    from rageval_hooks.offline.report.definitions import direction_of

    score = evaluation.score(name)
    if score is None:
        return _why_none(evaluation, name)
    lower = direction_of(name, score.metric) == "lower"
    if (score.value <= bound) if lower else (score.value >= bound):
        return None
    line = f"{name} is {score.value:.4g}, and it should be at {'most' if lower else 'least'} {bound:g}"
    return line + "".join(f"\n    {part}" for part in (score.explanation or "").splitlines())


def _why_none(evaluation: Evaluation, name: str) -> str:
    results = [result for result in evaluation.results if not isinstance(result, Score)]
    exact = [result for result in results if result.name == name]
    metric = name.partition(".")[0]
    for result in [*exact, *(result for result in results if result.name == metric or result.metric == metric)]:
        if isinstance(result, Skipped):
            return f"{name} was skipped: {result.reason}"
        if isinstance(result, Failed):
            return f"{name} failed: {result.error_type}: {result.message}"
    there = ", ".join(sorted({score.name for score in evaluation.turn_scores()})) or "none"
    return f"there is no score {name}; there are: {there}"
