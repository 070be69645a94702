"""``rageval-hooks score``: score the turns of a file."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rageval_hooks.cli import options
from rageval_hooks.cli.output import resumable, say
from rageval_hooks.errors import ConfigurationError

if TYPE_CHECKING:
    from rageval_hooks.offline.scoring.score_file import Scored


def score(
    inputs: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Turns (JSONL, JSON, CSV, Parquet) or traces (OTLP-JSON, Phoenix); with --engine ray a folder, too.",
        ),
    ],
    outputs: Annotated[
        list[str],
        typer.Option(
            "--output",
            "-o",
            metavar="PATH",
            help="The file for the scores: .jsonl or .csv. Repeatable. With --engine ray a folder or a URL.",
        ),
    ],
    metrics: options.ComputedMetrics = None,
    models: options.ModelNames = None,
    judge: options.JudgeName = None,
    judge_options: options.JudgeOptionTexts = None,
    threshold: options.Thresholds = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="The retrieved passages of FILE, if FILE is a conversation.")
    ] = None,
    mapping: options.ColumnNames = None,
    ignore: options.IgnoredColumns = None,
    map_file: options.MapFile = None,
    sheet: options.Sheet = None,
    encoding: options.Encoding = None,
    errors: options.BadRowsFile = None,
    columns: Annotated[
        Literal["native", "open-rag-eval"], typer.Option("--columns", help="The names of the columns of a CSV output.")
    ] = "native",
    k_values: Annotated[
        str | None, typer.Option("--k-values", metavar="K,K", help="Ranks of precision@k and ap@k. Default: 1,3,5.")
    ] = None,
    formulas: Annotated[
        str | None, typer.Option("--formulas", metavar="ragbench|fixed20", help="Formulas of trace. Default: ragbench.")
    ] = None,
    cost_rate: Annotated[
        float | None,
        typer.Option("--cost-rate", min=0, metavar="USD", help="Price of 1,000 tokens. Default: that of each model."),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, help="Turns at a time.")] = 8,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            help="Processes for local metrics. Default: one per core for 500 rows or more, else 1. With --engine ray "
            "actors; default: one per CPU.",
        ),
    ] = None,
    engine: options.Engine = "local",
    details: Annotated[
        Literal["none", "failed", "all"],
        typer.Option("--details", help="Scores that keep their explanation and evidence: none, failed or all."),
    ] = "all",
    max_calls: options.MaxCalls = None,
    max_cost: options.MaxCost = None,
    dry_run: options.DryRun = False,
    restart: options.Restart = False,
) -> None:
    """Score the turns of a file. After an interruption, the same command resumes.

    A finished output is not replaced: the same command does nothing, and of a longer FILE only the new rows are scored.

    Exit status: 0 if all rows were scored, 1 if some could not be used or not one turn could be evaluated, 2 if nothing
    could be scored or the judge does not work.
    """
    from rageval_hooks.offline.records import Record
    from rageval_hooks.offline.records.reading import columns_in, count_rows, read_items
    from rageval_hooks.offline.records.writing import has_place
    from rageval_hooks.offline.running import progress_bar
    from rageval_hooks.offline.scoring import score_file as scoring

    file = Path(inputs)
    with resumable(Path(outputs[0]), has_journal=engine == "local"):
        # Errors in options are reported before the rows are counted, which takes a moment for a large file.
        settings: dict[str, Any] = {
            "metrics": metrics,
            "models": models,
            "judge": judge,
            "judge_options": judge_options,
            "thresholds": ", ".join(threshold or []) or None,
            "concurrency": concurrency,
            "k_values": k_values,
            "trace_formulas": formulas,
            "cost_rate": cost_rate,
        }
        pipeline = scoring.build_pipeline(**settings, load=engine == "local")
        gc.freeze()  # the collector would look at every module again and again: 3 to 8 % of the CPU
        required = scoring.required_fields(pipeline, named=metrics is not None)
        reading = options.read_options(
            file, required, mapping=mapping, ignore=ignore, map_file=map_file, sheet=sheet, encoding=encoding
        )
        if engine == "ray":
            given: dict[str, object] = {"--columns": columns != "native", "--context": context, "--dry-run": dry_run}
            given |= {"--errors": errors, "--max-calls": max_calls, "--max-cost": max_cost}
            if wrong := [name for name, value in given.items() if value is not None and value is not False]:
                more = ". judge_budget limits all actors together" if {"--max-calls", "--max-cost"} & set(wrong) else ""
                raise ConfigurationError(f"--engine ray does not have {', '.join(wrong)}{more}")
            if len(outputs) > 1 or Path(outputs[0]).suffix in (".jsonl", ".csv"):
                raise ConfigurationError(f"--engine ray writes one folder, such as scores/, not {outputs[-1]}")
            from rageval_hooks.offline.ray_engine import RayScoring, score_on_ray

            how = RayScoring(options=settings, details=details, required=required, reading=reading)
            with progress_bar("scoring", None) as advance:
                scored = score_on_ray(
                    inputs, outputs[0], pipeline, how, workers=workers, restart=restart, advance=advance
                )
        elif dry_run:
            items = read_items(file, required, context=context, options=reading)
            typer.echo(scoring.estimate((item for _, item in items if isinstance(item, Record)), pipeline))
            typer.echo("dry run: nothing was asked, and nothing was written")
            return
        else:
            with progress_bar("scoring", count_rows(file)) as advance:
                scored = scoring.score_file(
                    file,
                    list(map(Path, outputs)),
                    pipeline,
                    errors=errors,
                    columns=columns,
                    concurrency=concurrency,
                    workers=workers,
                    details=details,
                    max_calls=max_calls,
                    max_cost=max_cost,
                    required=required,
                    restart=restart,
                    context=context,
                    note=say,
                    advance=advance,
                    reading=reading,
                )
    for line in _summary(inputs, outputs, scored):
        typer.echo(line)
    missing = sorted(name for name in scored.counts.names if not has_place(name))
    if missing and columns == "open-rag-eval":
        typer.echo(f"not in the columns of open-rag-eval, only in .jsonl or native columns: {', '.join(missing)}")
    # Without a single score the output is of no use; the reason of the first result explains it. A verdict without a
    # number, such as "declined", is a result.
    if not scored.counts.results["scored"] and not scored.counts.verdicts:
        say(f"no scores were produced; the first result: {scored.counts.why_not}")
        raise typer.Exit(2)
    # Continuous integration must not take a file without judgements for a finished one.
    if scored.broken:
        say(f"{scored.broken}. The other scores are written")
        raise typer.Exit(2)
    if set(scored.counts.verdicts) == {"not_evaluable"}:
        causes = ", ".join(f"{count} {cause}" for cause, count in scored.counts.causes.most_common())
        names = columns_in(file, reading) if engine == "local" else []
        found = f". Columns of {file}: {', '.join(names)}" if names else ""
        say(f"not one turn could be evaluated: {causes}{found}")
        raise typer.Exit(1)
    raise typer.Exit(1 if scored.bad else 0)


def _summary(file: str, outputs: Sequence[str], scored: Scored) -> Iterator[str]:
    """Yield what was done, line by line."""
    from rageval_hooks.text.wording import counted

    counts = scored.counts
    if counts.verdicts:
        yield counts.verdict_line()
    turns = counted(counts.turns, "turn")
    if scored.finished:
        yield f"{outputs[0]} is finished: {turns}, nothing to do. To score again: --restart"
        return
    # The user paid for these in an earlier call.
    before = f" ({scored.resumed} of them before an interruption)" if scored.resumed else ""
    before += f" ({scored.reused} of them reused)" if scored.reused else ""
    yield f"scored {turns} of {file}{before}: {', '.join(outputs)}"
    results = counts.results
    yield f"{counted(results['scored'], 'score')}, {results['skipped']} skipped, {results['failed']} failed"
    spent = scored.budget.spent
    if spent.calls:
        # Without a known price there is no cost.
        cost = f", {spent.cost:.4f} USD" if spent.cost else ""
        yield f"the judge took {counted(spent.calls, 'request')}{cost}"
    if scored.budget.refused:
        left_out = counted(scored.budget.refused, "question")
        yield f"{scored.budget.reason}: {left_out} to the judge not asked, their scores are skipped"
    if scored.first_bad is not None:
        first = scored.first_bad
        yield f"{counted(scored.bad, 'row')} could not be used: {scored.errors} (line {first.line}: {first.reason})"
