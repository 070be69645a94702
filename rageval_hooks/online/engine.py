"""The engine: runs the metrics of a job. The online path, ``evaluate()`` and the offline commands all use it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress as suppress_errors
from contextvars import Context
from copy import copy
from enum import IntEnum
from functools import partial
from operator import itemgetter
from time import perf_counter
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from rageval_hooks.errors import (
    ConfigurationError,
    InputTooLargeError,
    ModelNotReadyError,
    ModelUnavailableError,
    OverBudgetError,
)
from rageval_hooks.judges.base import BudgetUsedUpError, Judge
from rageval_hooks.metrics.base import Metric
from rageval_hooks.metrics.support.judged_turn import JudgedTurn
from rageval_hooks.metrics.support.running import compute, compute_judged
from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
from rageval_hooks.models import Models, Role
from rageval_hooks.online.job import Job, MetricSpec, create_metric, describe_metric
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.fork import run_in_child
from rageval_hooks.runtime.pool import DaemonPool, Priority, Steps, local_pool, run_steps
from rageval_hooks.runtime.suppression import suppress, suppressed
from rageval_hooks.runtime.worker import Worker
from rageval_hooks.score import VERDICT, Evaluation, Failed, Result, Score, Skipped, Stage, metric_of, verdict_first
from rageval_hooks.settings import EVERY, LEXICAL, ModelSettings
from rageval_hooks.turn import Passage, Turn

_PAIR_MODELS: Final[frozenset[Role]] = frozenset(("cross_encoder", "hhem", "grounding"))
"""Models that read two texts together. Their metrics are always late on a request path, except in the lexical tier."""


class _Cost(IntEnum):
    """How expensive a local metric is."""

    FREE = 0  # it reads no passages: times, tokens
    RULES = 1
    MODEL = 2
    PAIR_MODEL = 3  # passes for this metric alone


PASSING_FAILURES: Final = frozenset({"unavailable", "rate_limited", "budget_unavailable"})
"""Kinds of a judge's failure that will pass: a job that can wait is tried again."""

OnPart = Callable[[Evaluation], Awaitable[None]]
"""Receives results as they arrive: once for the local metrics that wait for the same models, once per judge metric."""


_Computed = dict[str, tuple[Sequence[Result], float]]
"""By metric, its results and the seconds that it took."""


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
        self.judge_worker = judge_worker
        self.models = models or Models(ModelSettings())
        self.judge = judge
        self._thresholds = thresholds or Thresholds()
        self._privacy = privacy or PrivacyPolicy()
        rates = probabilities or {}
        # The live metrics, next to the jobs that name them: some have no name in another process.
        self._own = {
            metric.name: _OwnMetric(metric, describe_metric(metric, rates.get(metric.name, 1.0)))
            for metric in self.metrics
        }
        self._created: dict[str, Metric] = {}
        # The analyses of the same turns with redacted texts.
        self._redacted: WeakKeyDictionary[TurnAnalysis, TurnAnalysis] = WeakKeyDictionary()
        self._costs: dict[int, _Cost] = {}

    def with_judge(self, judge: Judge | None) -> Engine:
        """Return an engine that asks another judge, on the event loop of the caller, who closes its connections."""
        engine = copy(self)
        engine.judge, engine.judge_worker = judge, None
        return engine

    def job(self, turn: Turn, names: Iterable[str] | None = None) -> Job:
        """Return the job that computes this engine's metrics for a turn.

        Args:
            turn: the turn.
            names: some of the metrics; None for all.
        """
        job = Job(turn=turn, metrics=tuple(own.spec for own in self._own.values()))
        return job if names is None else job.only(names)

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
            for roles, part in self._by_models(local)
        ]
        # All judge metrics of a turn share one prompt prefix, which the provider can then cache.
        case = None
        if self.judge is not None:
            turn = self._privacy.turn(job.turn).evaluated
            case = JudgedTurn(turn, self.judge, map(self._metric, judged.metrics))
        work += [self._ask(job.turn, spec, case, stage, on_part) for spec in judged.metrics]
        # Local and judge metrics overlap: a judge mostly waits for the network.
        parts = await asyncio.gather(*work)
        places = {name: place for place, name in enumerate(job.names)}
        results = sorted(
            (result for part in parts for result in part.results), key=lambda result: places[metric_of(result)]
        )
        durations = {name: seconds for part in parts for name, seconds in part.durations.items()}
        return self._evaluation(job.turn, results, stage, started, durations)

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
        analyses = [self.analyze(turn).patient() for turn in turns]
        computed = [dict(results) for results in known]
        with suppressed():
            for name, own in self._own.items():
                for analysis, results in zip(analyses, computed, strict=True):
                    if name not in results:
                        results[name] = self._compute(own.spec, analysis) or ()
        return [[*verdict_first(result for name in self._own for result in results[name])] for results in computed]

    def local_steps(self, job: Job, analysis: TurnAnalysis) -> Steps[tuple[Evaluation, Job | None]]:
        """Do what :meth:`evaluate_local` does, in steps: rules first, which cost little, then models."""
        started, computed = perf_counter(), _Computed()
        costs = sorted(((self._cost(spec), spec) for spec in job.metrics), key=itemgetter(0))
        self._compute_all((spec for cost, spec in costs if cost <= _Cost.RULES), analysis, computed)
        models = [spec for cost, spec in costs if cost > _Cost.RULES]
        if models:
            yield Priority.MODELS
            self._compute_all(models, analysis, computed)
        remaining = [name for name in job.names if name not in computed]
        return self._part(job, "inline", started, computed), job.only(remaining) if remaining else None

    def _late_steps(self, job: Job, analysis: TurnAnalysis, stage: Stage) -> Steps[Evaluation]:
        """Compute local metrics in short steps, since other turns' evaluations come between them."""
        started, computed = perf_counter(), _Computed()
        if any("embedder" in self._models_of(spec) for spec in job.metrics):
            for passage in analysis.turn.passages:
                # The metrics that need what cannot be computed will say why they are skipped or failed.
                with suppress_errors(Exception):
                    analysis.embed_passage(passage)
                yield Priority.LATE
        # At last what waits for anything else that is loading, such as prices: it must not hold up the others.
        for waits in (False, True):
            for spec in [spec for spec in job.metrics if spec.name not in computed]:
                self._compute_all([spec], analysis.patient() if waits else analysis, computed)
                yield Priority.LATE
        return self._part(job, stage, started, computed)

    def _by_models(self, job: Job) -> list[tuple[frozenset[Role], Job]]:
        """Return the job in parts: first the metrics whose models are here, then those that wait for the same ones."""
        names: dict[frozenset[Role], list[str]] = {}
        for spec in job.metrics:
            roles = frozenset(role for role in self._models_of(spec) if self.models.state(role) in ("idle", "loading"))
            names.setdefault(roles, []).append(spec.name)
        return [(roles, job.only(names[roles])) for roles in sorted(names, key=len)]

    def _models_of(self, spec: MetricSpec) -> frozenset[Role]:
        metric = self._metric_or_none(spec)
        return frozenset() if metric is None else self.models.needed(metric.models)

    def _compute_all(self, specs: Iterable[MetricSpec], analysis: TurnAnalysis, computed: _Computed) -> None:
        """Compute local metrics, and add what they found and how long each took."""
        # A metric of the user may call a chain; that is not a turn of the application.
        with suppressed():
            for spec in specs:
                began = perf_counter()
                results = self._compute(spec, analysis)
                if results is not None:
                    computed[spec.name] = results, perf_counter() - began

    def _part(self, job: Job, stage: Stage, started: float, computed: _Computed) -> Evaluation:
        results = [result for name in job.names if name in computed for result in computed[name][0]]
        durations = {name: seconds for name, (_, seconds) in computed.items()}
        return self._evaluation(job.turn, results, stage, started, durations)

    def split(self, job: Job) -> tuple[Job, Job]:
        """Return the job's local metrics and its judge metrics. Metrics that cannot be created count as local."""
        judged = {spec.name for spec in job.metrics if (metric := self._metric_or_none(spec)) and metric.asks_judge}
        return job.only(set(job.names) - judged), job.only(judged)

    # -- one metric

    def _cost(self, spec: MetricSpec) -> _Cost:
        """Return how expensive a metric is, to run it in that order."""
        metric = self._metric_or_none(spec)
        if metric is None:
            return _Cost.FREE
        # Asked for each turn. The engine keeps its metrics, so that an id is that of one metric.
        cost = self._costs.get(id(metric))
        if cost is None:
            # Without the models that rules replace.
            needed = self.models.needed(metric.models)
            models = {role for role in needed if getattr(self.models.settings, role) != LEXICAL}
            cost = _Cost.RULES if "passages" in metric.requires else _Cost.FREE
            # Nothing of a pair can be prepared before the answer exists, and it takes longer than all other metrics.
            if models:
                cost = _Cost.PAIR_MODEL if _PAIR_MODELS & models else _Cost.MODEL
            self._costs[id(metric)] = cost
        return cost

    def _compute(self, spec: MetricSpec, analysis: TurnAnalysis) -> Sequence[Result] | None:
        """Compute one local metric; None if it has to wait."""
        try:
            metric = self._metric(spec)
        except ConfigurationError as error:
            return [Skipped(name=spec.name, reason=str(error), metric=spec.name)]
        # A judge takes seconds: its metrics always become a job.
        if metric.asks_judge:
            return None
        deadline = analysis.deadline
        if deadline is not None and (perf_counter() >= deadline or self._cost(spec) is _Cost.PAIR_MODEL):
            return None
        if not analysis.wait and any(self.models.state(role) in ("idle", "loading") for role in metric.models):
            return None
        try:
            results = self._without_secrets(compute(metric, analysis), metric, analysis)
        except (ModelNotReadyError, OverBudgetError):
            return None
        return [self._finish(result, spec, metric) for result in results]

    def _without_secrets(self, found: Sequence[Result], metric: Metric, analysis: TurnAnalysis) -> Sequence[Result]:
        """Return results whose texts are those that the metric gives for the redacted turn, if anything is redacted.

        An explanation that was made from the original lists a card number in pieces, which no redactor recognises.
        """
        if not self._privacy.redacts or all(isinstance(result, Skipped) for result in found):
            return found
        redacted = self._redacted.get(analysis)
        if redacted is None:
            redacted = self._redacted[analysis] = self.analyze(self._privacy.with_redacted_texts(analysis.turn))
        if redacted.turn is analysis.turn:
            return found
        redacted.deadline, redacted.wait = analysis.deadline, analysis.wait
        return self._privacy.results(found, compute(metric, redacted))

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
        steps = self._late_steps(job, analysis, stage)
        async with one_at_a_time:
            if isinstance(executor, DaemonPool):
                part = await asyncio.wrap_future(executor.run(steps, Priority.LATE))
            else:
                part = await asyncio.get_running_loop().run_in_executor(executor, run_steps, steps)
        part = part.model_copy(update={"id": job.key})
        if on_part is not None:
            await on_part(part)
        return part

    async def _ask(
        self, turn: Turn, spec: MetricSpec, case: JudgedTurn | None, stage: Stage, on_part: OnPart | None
    ) -> Evaluation:
        """Compute one judge metric. `gather` runs it as a separate task, so suppression does not leak."""
        suppress()
        started = perf_counter()
        metric = self._metric(spec)
        if case is None:
            found: Sequence[Result] = [metric.skip("no judge is configured in this process")]
        else:
            ask = partial(compute_judged, metric, case)
            # A judge of the application may block its event loop, which must not hold back anything else.
            asked = await (ask() if self.judge_worker is None else asyncio.wrap_future(self.judge_worker.call(ask)))
            found = [case.with_notice(result) for result in asked]
        results = [self._finish(result, spec, metric) for result in found]
        for place, result in enumerate(results):
            # A score without an answer is missing for a known reason: nothing failed.
            if isinstance(result, Failed) and result.error_type == BudgetUsedUpError.kind:
                results[place] = Skipped(
                    name=result.name, reason=result.message, metric=result.metric, over_budget=True
                )
        part = self._evaluation(turn, results, stage, started, {spec.name: perf_counter() - started})
        part = part.model_copy(update={"id": Job(turn=turn, metrics=(spec,)).key})
        if on_part is not None:
            await on_part(part)
        return part

    def _metric_or_none(self, spec: MetricSpec) -> Metric | None:
        """Return the metric that a spec describes; None if this process cannot create it."""
        with suppress_errors(ConfigurationError):
            return self._metric(spec)
        return None

    def _metric(self, spec: MetricSpec) -> Metric:
        """Return the metric that a spec describes: this process's own, or a new one.

        Raises:
            ConfigurationError: this process cannot create it.
        """
        own = self._own.get(spec.name)
        # A job of this process has the engine's own specs. One of another process may differ in its options, and in
        # its probability, which changes nothing here.
        if own is not None and (
            own.spec is spec or own.spec == spec.model_copy(update={"probability": own.spec.probability})
        ):
            return own.metric
        key = spec.model_dump_json(exclude={"probability"})
        if key not in self._created:
            self._created[key] = create_metric(spec)
        return self._created[key]

    def _finish(self, result: Result, spec: MetricSpec, metric: Metric) -> Result:
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

    def _evaluation(
        self, turn: Turn, results: Iterable[Result], stage: Stage, started: float, durations: dict[str, float]
    ) -> Evaluation:
        duration = perf_counter() - started
        return Evaluation(
            turn=turn, results=verdict_first(results), stage=stage, duration=duration, durations=durations
        )


class _OwnMetric(NamedTuple):
    metric: Metric
    spec: MetricSpec


def _one_verdict(on_part: OnPart) -> OnPart:
    """Hand results on, but no local verdict after the judge's, which it would replace: a grounding model is slow."""
    is_judged = False

    async def hand_on(part: Evaluation) -> None:
        nonlocal is_judged
        verdict = next((result for result in part.results if result.name == VERDICT), None)
        if verdict is not None and verdict.metric != VERDICT:
            is_judged = True
        elif verdict is not None and is_judged:
            part = part.model_copy(update={"results": tuple(other for other in part.results if other is not verdict)})
        await on_part(part)

    return hand_on


# --------------------------------------------------------------------------- preparation: while the model writes

_MAX_OPEN = 32
"""Preparations of this process that may wait or run. Beyond it turns are not prepared, which costs them time only."""

_Step = Callable[[TurnAnalysis], object]

_open_preparations: set[Preparation] = set()
"""The preparations of turns in progress."""

run_in_child(_open_preparations.clear)


class Preparation:
    """The analysis of a turn's passages, in progress or done: only the answer is left at the end.

    Args:
        analysis: an analysis of the query and the passages, without an answer.
        first: steps that take some milliseconds, and passes of a model over short texts.
        embeds: True if every passage is embedded.
        last: steps that need the embedded passages.
    """

    def __init__(self, analysis: TurnAnalysis, first: Sequence[_Step], embeds: bool, last: Sequence[_Step]) -> None:
        self.analysis = analysis
        self._first, self._last = first, last
        self._to_embed = deque(analysis.turn.passages if embeds else ())
        _open_preparations.add(self)
        # The second thread helps with the passages: each takes a pass of its own.
        for steps in (self._all(), self._embed()) if embeds else (self._all(),):
            local_pool().run(steps, Priority.PREPARE, Context())

    def cancel(self) -> None:
        """Stop at the next step: the turn has ended, and its own evaluation takes over."""
        self.analysis.deadline = float("-inf")
        self._to_embed.clear()
        _open_preparations.discard(self)

    def _all(self) -> Steps[None]:
        try:
            for step in self._first:
                self._do(step)
                yield Priority.PREPARE
            yield from self._embed()
            for step in self._last:
                self._do(step)
                yield Priority.PREPARE
        finally:
            _open_preparations.discard(self)

    def _embed(self) -> Steps[None]:
        """Embed the passages that are left. Several threads may do this."""
        with suppress_errors(IndexError):  # another thread took the last one
            while True:
                passage = self._to_embed.popleft()
                self._do(partial(TurnAnalysis.embed_passage, passage=passage))
                yield Priority.PREPARE

    def _do(self, step: _Step) -> None:
        # The metric that needs what cannot be computed will say why it is skipped.
        with suppress_errors(InputTooLargeError, ModelUnavailableError, OverBudgetError):
            self.analysis.pause()
            step(self.analysis)


class Preparer:
    """Starts preparations for the turns of one pipeline.

    Args:
        metrics: the metrics that run; their models decide what is prepared.
        models: the local models.
    """

    def __init__(self, metrics: Iterable[Metric], models: Models) -> None:
        self._models = models
        self._first, self._last = list[_Step](), list[_Step]()
        self._embeds = False
        local = [metric for metric in metrics if not metric.asks_judge]
        if not any("passages" in metric.requires for metric in local):
            return
        roles = models.needed(role for metric in local for role in metric.models)
        has_concepts, has_embeddings = "nlp" in roles, "embedder" in roles
        self._first += [lambda analysis: analysis.passage_indexes, lambda analysis: analysis.prompt_statements]
        if has_concepts:
            self._first.append(lambda analysis: analysis.concepts)
        if has_embeddings:
            self._embeds = models.settings.embedder != LEXICAL
            self._first.append(lambda analysis: analysis.embed(analysis.turn.query))
            self._last += [lambda analysis: analysis.passage_embeddings, lambda analysis: analysis.context_embedding]
        if has_concepts and has_embeddings:
            self._first.append(lambda analysis: [*map(analysis.embed, analysis.concepts)])

    def start(self, query: str, texts: Iterable[str]) -> Preparation | None:
        """Analyse passages in the background. Returns None if there is nothing to prepare, or too much is waiting.

        Args:
            query: the retriever's query, which usually is the user's question.
            texts: the passages' texts.
        """
        # Preparation saves time but is never needed, so it is the first thing to give up under load.
        if not self._first or len(_open_preparations) >= _MAX_OPEN:
            return None
        passages = tuple(Passage(text=text) for text in texts)
        if not passages:
            return None
        analysis = TurnAnalysis(Turn(query=query, passages=passages), self._models)
        return Preparation(analysis, self._first, self._embeds, self._last)
