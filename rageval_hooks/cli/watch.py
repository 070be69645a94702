"""``rageval-hooks watch``: score the traces of a backend as they come."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rageval_hooks.cli import options
from rageval_hooks.cli.options import seconds
from rageval_hooks.cli.output import say
from rageval_hooks.errors import ConfigurationError, ExportError, JudgeUnavailableError, UnknownNameError

if TYPE_CHECKING:
    from rageval_hooks.offline.watch import Watch

_FIRST_SECONDS = 3600.0
"""How far the first look goes back by default."""


def watch(
    backend: Annotated[str, typer.Argument(metavar="BACKEND", help="phoenix, mlflow or langfuse.")],
    url: options.BackendUrl = None,
    project: options.BackendProject = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="7d", help="How far to go back. Default: to the last look, at first an hour."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Score what there is, and stop: for cron.")] = False,
    every: Annotated[str, typer.Option("--every", help="The pause between two looks.")] = "10s",
    settle: Annotated[
        str, typer.Option("--settle", help="A trace is scored when no span of it has ended for so long.")
    ] = "30s",
    late: Annotated[
        str, typer.Option("--late", help="How late traces may arrive. Once an hour, a look goes back so far.")
    ] = "1d",
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="FILE", help="What was scored. Default: rageval-watch-BACKEND-PROJECT.db"),
    ] = None,
    rescore: Annotated[
        str | None,
        typer.Option("--rescore", metavar="METRIC", help="Score turns without this metric's current version, once."),
    ] = None,
    alarm_webhook: Annotated[
        str | None,
        typer.Option(
            "--alarm-webhook",
            metavar="URL",
            envvar="WATCH_ALARM_WEBHOOK",
            help="Post alarms there, as to Slack. The URL is a secret: prefer the variable.",
        ),
    ] = None,
    bad_budget: Annotated[
        float, typer.Option("--bad-budget", min=0.001, max=0.5, help="The share of bad answers that is usual.")
    ] = 0.05,
    metrics: options.ComputedMetrics = None,
    models: options.ModelNames = None,
    judge: options.JudgeName = None,
    judge_options: options.JudgeOptionTexts = None,
    threshold: options.Thresholds = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Turns at a time.")] = 8,
    max_calls: options.MaxCalls = None,
    max_cost: options.MaxCost = None,
    dry_run: options.DryRun = False,
) -> None:
    """Score the traces of a backend as they come, and write the scores back as the backend's own.

    A restart goes on where it stopped. Exit status with --once: 0, or 1 if some scores could not be delivered.
    """
    from rageval_hooks.offline.alarm import Webhook
    from rageval_hooks.offline.backends import BACKENDS
    from rageval_hooks.offline.command_judge import Budget
    from rageval_hooks.offline.scoring.score_file import build_pipeline, estimate
    from rageval_hooks.offline.watch import Checkpoint, Watch

    if backend not in BACKENDS:
        raise UnknownNameError("backend", backend, BACKENDS)
    if rescore and metrics:
        raise ConfigurationError("--rescore names the metric: omit --metrics")
    webhook = Webhook(alarm_webhook) if alarm_webhook else None
    found = BACKENDS[backend](url, project)
    settings: dict[str, Any] = {"models": models, "judge": judge, "judge_options": judge_options}
    pipeline = build_pipeline(
        metrics=rescore or metrics,
        thresholds=", ".join(threshold or []) or None,
        concurrency=concurrency,
        exporters=[found.exporter],
        load=not dry_run,
        **settings,
    )
    back = None if since is None else seconds(since)
    pause = 0.0 if once or rescore else seconds(every)
    metric = pipeline.metrics[0] if rescore else None
    with ExitStack() as opened:
        opened.enter_context(closing(found))
        # Langfuse is asked for it.
        name = _tried(lambda: found.project, 0.0 if dry_run else pause)
        task = " ".join((repr(found.server), name, f"{metric.name}@{metric.version}" if metric else ""))
        names = ["rageval-watch", backend, name, *([metric.name] if metric else ())]
        path = checkpoint or Path(re.sub(r"[^\w-]+", "_", "-".join(names)) + ".db")
        known = opened.enter_context(Checkpoint(None if dry_run and not path.exists() else path, task))
        if back is None and known.position is None:
            back = _FIRST_SECONDS
        start = None if back is None else time.time() - back
        watched = Watch(
            found,
            pipeline,
            known,
            late=seconds(late),
            settle=seconds(settle),
            rescore=metric,
            budget=Budget(max_calls, max_cost),
            concurrency=concurrency,
        )
        if dry_run:
            typer.echo(estimate(watched.waiting(start), pipeline))
            for line in _about_traces(watched):
                typer.echo(line)
            typer.echo("dry run: nothing was asked, and nothing was written")
            return
        try:
            _run(watched, start, pause, lambda: watched.alarm(webhook, bad_budget) if webhook else None)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
        finally:
            pipeline.shutdown()
    raise typer.Exit(1 if watched.traces["given_up"] or watched.undelivered else 0)


def _run(watched: Watch, start: float | None, pause: float, alarm: Callable[[], str | None]) -> None:
    """Look once, or again and again with pauses; ask for alarms each time, also where the backend is down."""
    said = ""
    problem: str | None = None

    def ask() -> None:
        nonlocal problem
        before, problem = problem, alarm()
        if problem and problem != before:
            say(f"{problem}. It is tried again")

    while True:
        _tried(partial(watched.look, start), pause, ask)
        start = None
        ask()
        lines = [watched.counts.verdict_line()] if watched.counts.verdicts else []
        lines.append(f"scored {watched.counts.turns} turns")
        lines += _about_traces(watched)
        # Quiet while nothing happens.
        if "\n".join(lines) != said:
            said = "\n".join(lines)
            typer.echo(said)
        if not pause:
            return
        time.sleep(pause)


def _tried(action: Callable[[], Any], pause: float, meanwhile: Callable[[], None] = lambda: None) -> Any:
    """Return what an action returns. With a pause, a fault of backend or judge is said, and it is tried again."""
    fault = ""
    while True:
        try:
            return action()
        except (ExportError, JudgeUnavailableError) as error:
            meanwhile()
            if not pause:
                raise
            if str(error) != fault:
                say(f"{error}. It is tried again every {pause:.0f} seconds")
            fault = str(error)
            time.sleep(pause)


def _about_traces(watched: Watch) -> list[str]:
    """Return what became of traces that were not scored, and how to record what their spans lack."""
    what = {
        "known": "had scores already",
        "open": "are not complete yet",
        "no_answer": "have no answer",
        "search_only": "are searches without an answer",
        "no_content": "have no texts",
        "without_retrieval": "retrieved nothing",
        "given_up": "were not accepted by the backend",
        "unreadable": "could not be read",
    }
    parts = [f"{watched.traces[name]} {text}" for name, text in what.items() if watched.traces[name]]
    return [*([f"of other turns, {', '.join(parts)}"] if parts else []), *watched.reasons]
