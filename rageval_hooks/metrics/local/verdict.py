"""``verdict``: is the answer good, doubtful or bad? One label per turn, made from the turn's other scores."""

from __future__ import annotations

from rageval_hooks.metrics.base import GroundingMetric, Metric, ScoreDefinition
from rageval_hooks.metrics.local.faithfulness import Faithfulness
from rageval_hooks.metrics.local.groundedness import Groundedness
from rageval_hooks.metrics.local.unsupported_facts import UnsupportedFacts
from rageval_hooks.metrics.support.running import compute
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.metrics.verdict import DECLINES, VALUES, VerdictLabel, grounded_verdict, local_verdict
from rageval_hooks.models.grounding import GroundingModel
from rageval_hooks.score import VERDICT, Result, Score, Skipped


class Verdict(GroundingMetric):
    """Good, doubtful or bad: the one result of a turn that is worth an alarm.

    It follows ``faithfulness``, or ``groundedness`` where a grounding model is installed. ``bad`` is chosen so that few
    supported answers get it; docs/metrics.md says how many. A turn whose answer declines, or that cannot be evaluated,
    has a skipped result with the label ``declined`` or ``not_evaluable``. When the judge's ``trace`` arrives, its
    verdict replaces this one.
    """

    name = VERDICT
    scores = (
        ScoreDefinition(
            name=VERDICT,
            headline=7,
            description="do the passages support the response? 1 good, 0.5 doubtful, 0 bad",
            labels=tuple(VALUES),
        ),
    )
    about_claims = False
    models = ("grounding", "embedder")

    def evaluate(self, analysis: TurnAnalysis) -> Result:
        """Return the verdict; skipped if the response declines or cannot be evaluated."""
        if analysis.response.declines and analysis.claims_nothing:
            return self.skip(DECLINES).model_copy(update={"label": "declined"})
        if isinstance(analysis.models.grounding(wait=analysis.wait), GroundingModel):
            grounded = _result_of(Groundedness(), analysis)
            # A grounding model cannot read every turn. The formula can.
            if isinstance(grounded, Score):
                return self._verdict(grounded, *grounded_verdict(grounded))
        found = _result_of(Faithfulness(), analysis)
        if isinstance(found, Score):
            return self._verdict(found, *local_verdict(found, _result_of(UnsupportedFacts(), analysis)))
        if isinstance(found, Skipped):
            return found.model_copy(update={"name": VERDICT, "metric": VERDICT, "label": "not_evaluable"})
        # Its message may quote the turn, and a reason must not.
        return self.skip(f"{found.name} failed: {found.error_type}")

    def _verdict(self, source: Score, label: VerdictLabel, reason: str) -> Score:
        return self.score(VALUES[label], label=label, explanation=reason, model=source.model)

    def skip(self, reason: str, name: str | None = None) -> Skipped:
        """Return the verdict of a turn that cannot be evaluated."""
        return super().skip(reason, name).model_copy(update={"label": "not_evaluable"})


def _result_of(metric: Metric, analysis: TurnAnalysis) -> Result:
    """Return the turn's result of a metric: the one that is known, else a new one."""
    return (analysis.results.get(metric.name) or compute(metric, analysis))[0]
