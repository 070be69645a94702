"""What a result gets before it leaves the engine: its metric's name, its probability, its label; and no secrets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.running import compute
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.online.job import MetricSpec
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.score import Result, Score, Skipped
from rageval_hooks.settings import EVERY


class Thresholds:
    """Give scores their labels.

    Args:
        given: threshold by score name, None for no label; :data:`rageval_hooks.settings.EVERY` means every score that
            is not named. A score without an entry gets the threshold that was measured for it, if there is one.
    """

    def __init__(self, given: Mapping[str, float | None] | None = None) -> None:
        self._given = given or {}

    def label(self, score: Score, metric: Metric) -> Score:
        """Return a score with its label; unchanged if the score has no threshold.

        Args:
            score: the score.
            metric: the metric that computed it and defines it.
        """
        definition = metric.definitions.get(score.name)
        # A metric may return a score without a definition; nothing is known about its range then.
        if definition is None:
            return score
        if score.name in self._given:
            threshold = self._given[score.name]
        else:
            threshold = None if EVERY in self._given else definition.default_threshold(score)
        return score if threshold is None else definition.label(score, threshold)


class ResultFinisher:
    """Completes the results of metrics.

    Args:
        thresholds: give scores their labels.
        privacy: what may be in the texts of results.
    """

    def __init__(self, thresholds: Thresholds, privacy: PrivacyPolicy) -> None:
        self._thresholds = thresholds
        self._privacy = privacy
        # The analyses of the same turns with redacted texts.
        self._redacted: WeakKeyDictionary[TurnAnalysis, TurnAnalysis] = WeakKeyDictionary()

    def finish(self, result: Result, spec: MetricSpec, metric: Metric) -> Result:
        """Return a result with the metric's name, and a score with its probability and its label."""
        if result.metric != spec.name:
            result = result.model_copy(update={"metric": spec.name})
        result = self._privacy.result(result)
        if not isinstance(result, Score):
            return result
        # A metric that samples by itself has already set a lower probability, which stays.
        if spec.probability < result.probability:
            result = result.model_copy(update={"probability": spec.probability})
        return self._thresholds.label(result, metric)

    def without_secrets(self, found: Sequence[Result], metric: Metric, analysis: TurnAnalysis) -> Sequence[Result]:
        """Return results whose texts are those that the metric gives for the redacted turn, if anything is redacted.

        An explanation that was made from the original lists a card number in pieces, which no redactor recognises.
        """
        if not self._privacy.redacts or all(isinstance(result, Skipped) for result in found):
            return found
        redacted = self._redacted.get(analysis)
        if redacted is None:
            turn = self._privacy.with_redacted_texts(analysis.turn)
            redacted = self._redacted[analysis] = TurnAnalysis(turn.evaluated, analysis.models)
        if redacted.turn is analysis.turn:
            return found
        redacted.deadline, redacted.wait = analysis.deadline, analysis.wait
        return self._privacy.results(found, compute(metric, redacted))
