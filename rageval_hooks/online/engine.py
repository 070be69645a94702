"""The engine: runs the metrics of a job. The online path, ``evaluate()`` and the offline commands all use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress as suppress_errors
from copy import copy
from functools import partial
from time import perf_counter
from typing import Final

from rageval_hooks.errors import ModelNotReadyError, OverBudgetError
from rageval_hooks.judges.base import BudgetUsedUpError, Judge
from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.running import compute, compute_judged
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models, Role
from rageval_hooks.online.catalog import Cost, MetricCatalog
from rageval_hooks.online.job import Job, MetricSpec
from rageval_hooks.online.results import ResultFinisher, Thresholds
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.pool import DaemonPool, Priority, Steps, run_steps
from rageval_hooks.runtime.suppression import suppress, suppressed
from rageval_hooks.runtime.worker import Worker
from rageval_hooks.score import (
    Evaluation,
    Failed,
    Result,
    Skipped,
    Stage,
    is_judged_verdict,
    metric_of,
    verdict_first,
    verdict_of,
)
from rageval_hooks.settings import ModelSettings
from rageval_hooks.turn import Turn

PASSING_FAILURES: Final = frozenset({"unavailable", "rate_limited", "budget_unavailable"})
"""Kinds of a judge's failure that will pass: a job that can wait is tried again."""

OnPart = Callable[[Evaluation], Awaitable[None]]
"""Receives results as they arrive: once for the local metrics that wait for the same models, once per judge metric."""

_Computed = dict[str, tuple[Sequence[Result], float]]
"""By metric, its results and the seconds that it took."""


class LocalMetrics:
    """Computes the local metrics of jobs in steps, the cheapest first, as far as the analysis of the turn has time.

    Args:
        catalog: finds the metrics.
        finisher: completes their results.
        models: the local models.
    """

    def __init__(self, catalog: MetricCatalog, finisher: ResultFinisher, models: Models) -> None:
        self._catalog = catalog
        self._finisher = finisher
        self._models = models

    def steps(self, job: Job, analysis: TurnAnalysis) -> Steps[tuple[Evaluation, Job | None]]:
        """Compute rules first, which cost little, then what models compute.

        Returns:
            The results, and the job with the metrics that remain; None if none remain.
        """
        started, computed = perf_counter(), _Computed()
        specs = sorted(job.metrics, key=lambda spec: self._catalog.find(spec).cost)
        models = [spec for spec in specs if self._catalog.find(spec).cost > Cost.RULES]
        self._compute(specs[: len(specs) - len(models)], analysis, computed)
        if models:
            yield Priority.MODELS
            self._compute(models, analysis, computed)
        remaining = [name for name in job.names if name not in computed]
        return _evaluation(job, "inline", started, computed), job.only(remaining) if remaining else None

    def late_steps(self, job: Job, analysis: TurnAnalysis, stage: Stage) -> Steps[Evaluation]:
        """Compute metrics in short steps, since other turns' evaluations come between them."""
        started, computed = perf_counter(), _Computed()
        if any("embedder" in self._catalog.find(spec).models for spec in job.metrics):
            for passage in analysis.turn.passages:
                # The metrics that need what cannot be computed will say why they are skipped or failed.
                with suppress_errors(Exception):
                    analysis.embed_passage(passage)
                yield Priority.LATE
        # At last what waits for anything else that is loading, such as prices: it must not hold up the others.
        for waits in (False, True):
            for spec in [spec for spec in job.metrics if spec.name not in computed]:
                self._compute([spec], analysis.patient() if waits else analysis, computed)
                yield Priority.LATE
        return _evaluation(job, stage, started, computed)

    def batch(
        self, analyses: Sequence[TurnAnalysis], known: Sequence[Mapping[str, Sequence[Result]]]
    ) -> list[list[Result]]:
        """Compute the metrics of this process for several turns; see :meth:`Engine.evaluate_batch`."""
        found = [{name: (results, 0.0) for name, results in one.items()} for one in known]
        for spec in self._catalog.specs:
            for analysis, computed in zip(analyses, found, strict=True):
                if spec.name not in computed:
                    self._compute([spec], analysis, computed)
        names = [spec.name for spec in self._catalog.specs]
        return [
            [*verdict_first(result for name in names if name in computed for result in computed[name][0])]
            for computed in found
        ]

    def _compute(self, specs: Iterable[MetricSpec], analysis: TurnAnalysis, computed: _Computed) -> None:
        """Compute the metrics that need not wait, and add what they found and how long each took."""
        # A metric of the user may call a chain; that is not a turn of the application.
        with suppressed():
            for spec in specs:
                known, began = self._catalog.find(spec), perf_counter()
                results: Sequence[Result]
                if known.metric is None:
                    results = [Skipped(name=spec.name, reason=known.problem, metric=spec.name)]
                elif self._waits(known.metric, known.cost, analysis):
                    continue
                else:
                    try:
                        results = compute(known.metric, analysis)
                        results = self._finisher.without_secrets(results, known.metric, analysis)
                    except (ModelNotReadyError, OverBudgetError):
                        continue
                    results = [self._finisher.finish(result, spec, known.metric) for result in results]
                computed[spec.name] = results, perf_counter() - began

    def _waits(self, metric: Metric, cost: Cost, analysis: TurnAnalysis) -> bool:
        """Return True if a metric has to wait: for the judge, for time, or for a model."""
        # A judge takes seconds: its metrics always become a job.
        if metric.asks_judge:
            return True
        deadline = analysis.deadline
        if deadline is not None and (perf_counter() >= deadline or cost is Cost.PAIR_MODEL):
            return True
        return not analysis.wait and any(self._models.state(role) in ("idle", "loading") for role in metric.models)


class Engine:
    """Runs the metrics of jobs. Safe to use from several threads and event loops.

    Args:
        metrics: the metrics of this process. Jobs name them; a job from another process may name others, which are
            created on demand.
        models: the local models.
        judge: for judge metrics; without one they are skipped.
        thresholds: give scores their labels; None for no labels.
        probabilities: by metric name, with which probability turns are selected; 1.0 for metrics that are not named.
        privacy: what a judge may see, and what may be in the texts of results; None for everything. The turn of an
            evaluation is that of the job.
        judge_worker: the thread on which the judge is asked; None for the event loop of the caller.
    """

    def __init__(
        self,
        metrics: Iterable[Metric] = (),
        models: Models | None = None,
        judge: Judge | None = None,
        *,
        thresholds: Thresholds | None = None,
        probabilities: Mapping[str, float] | None = None,
        privacy: PrivacyPolicy | None = None,
        judge_worker: Worker | None = None,
    ) -> None:
        self.metrics = tuple(metrics)
        self.models = models or Models(ModelSettings())
        self.judge = judge
        self._judge_worker = judge_worker
        self._privacy = privacy or PrivacyPolicy()
        self._catalog = MetricCatalog(self.metrics, self.models, probabilities or {})
        self._finisher = ResultFinisher(thresholds or Thresholds(), self._privacy)
        self._local = LocalMetrics(self._catalog, self._finisher, self.models)
        self.split = self._catalog.split
        self.local_steps = self._local.steps

    def with_judge(self, judge: Judge | None) -> Engine:
        """Return an engine that asks another judge, on the event loop of the caller, who closes its connections."""
        engine = copy(self)
        engine.judge, engine._judge_worker = judge, None
        return engine

    def job(self, turn: Turn, names: Iterable[str] | None = None) -> Job:
        """Return the job that computes this engine's metrics for a turn.

        Args:
            turn: the turn.
            names: some of the metrics; None for all.
        """
        job = Job(turn=turn, metrics=self._catalog.specs)
        return job if names is None else job.only(names)

    def analyze(self, turn: Turn, deadline: float | None = None) -> TurnAnalysis:
        """Return a new analysis of a turn, for the local metrics.

        Args:
            turn: the turn.
            deadline: value of ``time.perf_counter()`` at which unfinished work stops; None for no deadline.
        """
        return TurnAnalysis(turn.evaluated, self.models, deadline=deadline)

    def evaluate_local(self, job: Job, analysis: TurnAnalysis) -> tuple[Evaluation, Job | None]:
        """Run the local metrics of a job on this thread.

        An analysis with a deadline stops the work there: metrics that have no result by then, or whose model is still
        loading, are left to the returned job.

        Args:
            job: the turn and its metrics.
            analysis: the turn's analysis; it says how long to work and whether to wait for models.

        Returns:
            The results, and the job with the metrics that remain; None if none remain.
        """
        return run_steps(self.local_steps(job, analysis))

    def evaluate_batch(
        self, turns: Sequence[Turn], known: Sequence[Mapping[str, Sequence[Result]]]
    ) -> list[list[Result]]:
        """Run this engine's local metrics for several turns on this thread, and wait for models.

        One metric after the other: while the processor has its code and tables at hand, rules take an eighth less time
        than turn by turn.

        Args:
            turns: the turns.
            known: for each turn, results by metric that need not be computed.

        Returns:
            For each turn its results, in the order of the metrics.
        """
        return self._local.batch([self.analyze(turn).patient() for turn in turns], known)

    async def evaluate(
        self,
        job: Job,
        *,
        analysis: TurnAnalysis | None = None,
        executor: Executor | None = None,
        on_part: OnPart | None = None,
        stage: Stage = "inline",
    ) -> Evaluation:
        """Run local metrics and judge metrics of a job, at the same time; wait for models that are loading.

        A judge metric that is sampled by the local verdict waits for it.

        Args:
            job: the turn and its metrics.
            analysis: what this process has already computed for the turn.
            executor: runs the local metrics; None for the event loop's own executor. A pool runs them in steps, as late
                work.
            on_part: receives results as they arrive. What it raises is raised.
            stage: the stage of the evaluations.

        Returns:
            All results, in the order of the job's metrics.
        """
        started = perf_counter()
        analysis = self.analyze(job.turn) if analysis is None else analysis
        # No caller waits here, so models may take their time to load. Late work does not wait for anything else.
        analysis.patient(wait=stage != "background")
        local, judged = self.split(job)
        one_at_a_time = asyncio.Lock()  # an analysis is used by one thread at a time
        on_part = on_part and _one_verdict(on_part)
        work: list[Coroutine[None, None, Evaluation]] = [
            self._run_local(part, roles, analysis, one_at_a_time, stage, executor, on_part)
            for roles, part in self._catalog.by_models(local)
        ]
        # All judge metrics of a turn share one prompt prefix, which the provider can then cache.
        case = None
        if self.judge is not None:
            turn = self._privacy.turn(job.turn).evaluated
            case = JudgedTurn(turn, self.judge, map(self._catalog.metric, judged.metrics))
        ask = partial(self._run_judged, job.turn, case=case, stage=stage, on_part=on_part)
        work += [ask(spec) for spec in judged.metrics if not spec.rates]
        # Local and judge metrics overlap: a judge mostly waits for the network.
        parts = await asyncio.gather(*work)
        waiting = judged.only(spec.name for spec in judged.metrics if spec.rates)
        chosen = waiting.decided((result for part in parts for result in part.results), is_last=True)
        parts += await asyncio.gather(*map(ask, chosen.metrics))
        places = {name: place for place, name in enumerate(job.names)}
        results = [result for part in parts for result in part.results]
        results.sort(key=lambda result: places[metric_of(result)])
        durations = {name: seconds for part in parts for name, seconds in part.durations.items()}
        return Evaluation(
            turn=job.turn,
            results=verdict_first(results),
            stage=stage,
            duration=perf_counter() - started,
            durations=durations,
        )

    async def _run_local(
        self,
        job: Job,
        roles: frozenset[Role],
        analysis: TurnAnalysis,
        one_at_a_time: asyncio.Lock,
        stage: Stage,
        executor: Executor | None,
        on_part: OnPart | None,
    ) -> Evaluation:
        """Compute the local metrics that wait for some models, on a thread of an executor."""
        # Here and not on a thread, which other turns need: a model that cannot be loaded delays its own metrics only.
        await self.models.ready(roles)
        steps = self._local.late_steps(job, analysis, stage)
        async with one_at_a_time:
            if isinstance(executor, DaemonPool):
                part = await asyncio.wrap_future(executor.run(steps, Priority.LATE))
            else:
                part = await asyncio.get_running_loop().run_in_executor(executor, run_steps, steps)
        part = part.model_copy(update={"id": job.key})
        if on_part is not None:
            await on_part(part)
        return part

    async def _run_judged(
        self, turn: Turn, spec: MetricSpec, case: JudgedTurn | None, stage: Stage, on_part: OnPart | None
    ) -> Evaluation:
        """Compute one judge metric. `gather` runs it as a separate task, so suppression does not leak."""
        suppress()
        started, job = perf_counter(), Job(turn=turn, metrics=(spec,))
        computed = {spec.name: (await self._ask(spec, case), perf_counter() - started)}
        part = _evaluation(job, stage, started, computed).model_copy(update={"id": job.key})
        if on_part is not None:
            await on_part(part)
        return part

    async def _ask(self, spec: MetricSpec, case: JudgedTurn | None) -> Sequence[Result]:
        metric = self._catalog.metric(spec)
        if case is None:
            found: Sequence[Result] = [metric.skip("no judge is configured in this process")]
        else:
            ask = partial(compute_judged, metric, case)
            # A judge of the application may block its event loop, which must not hold back anything else.
            asked = await (ask() if self._judge_worker is None else asyncio.wrap_future(self._judge_worker.call(ask)))
            found = [*map(case.with_notice, asked)] if case.cut_notice else asked
        return [_over_budget(self._finisher.finish(result, spec, metric)) for result in found]


def _over_budget(result: Result) -> Result:
    """Return a result that failed because the budget is used up as one that is missing for a known reason."""
    if not isinstance(result, Failed) or result.error_type != BudgetUsedUpError.kind:
        return result
    return Skipped(name=result.name, reason=result.message, metric=result.metric, over_budget=True)


def _evaluation(job: Job, stage: Stage, started: float, computed: _Computed) -> Evaluation:
    results = verdict_first(result for name in job.names if name in computed for result in computed[name][0])
    durations = {name: seconds for name, (_, seconds) in computed.items()}
    return Evaluation(
        turn=job.turn, results=results, stage=stage, duration=perf_counter() - started, durations=durations
    )


def _one_verdict(on_part: OnPart) -> OnPart:
    """Hand results on, but no local verdict after the judge's, which it would replace: a grounding model is slow."""
    is_judged = False

    async def hand_on(part: Evaluation) -> None:
        nonlocal is_judged
        verdict = verdict_of(part.results)
        if verdict is not None and is_judged_verdict(verdict):
            is_judged = True
        elif verdict is not None and is_judged:
            part = part.model_copy(update={"results": tuple(other for other in part.results if other is not verdict)})
        await on_part(part)

    return hand_on
