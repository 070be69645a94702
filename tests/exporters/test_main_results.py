"""The few scores that come first everywhere."""

from __future__ import annotations

from rageval_hooks import Failed, Score, Skipped
from rageval_hooks.exporters.main_results import MAIN_SCORES, main_results
from rageval_hooks.metrics.base import REGISTRY


def test_only_the_chosen_scores_of_the_packages_own_metrics_are_main() -> None:
    """A metric that is added to the package must be named in ``main_results``, or it would count as a user's own."""
    names = {definition.name: metric for metric in REGISTRY.builtin().values() for definition in metric.scores}
    results = [Score(name=name, value=0, high=None, metric=metric.name) for name, metric in names.items()]

    assert {result.name for result in main_results(results)} <= set(MAIN_SCORES)


def test_a_main_metric_that_failed_is_shown_in_its_place() -> None:
    """A judge that does not answer must not look like one that was not asked: it stands where its verdict would."""
    results = [
        Failed(name="trace", error_type="timeout", annotator="LLM", metric="trace"),
        Skipped(name="unsupported_facts", reason="no response"),
        Score(name="faithfulness", value=0.5),
    ]

    assert [result.name for result in main_results(results)] == ["trace", "faithfulness"]
