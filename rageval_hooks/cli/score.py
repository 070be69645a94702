"""``rageval-hooks score``: score the turns of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rageval_hooks.cli.options import (
    BadRowsFile,
    BertScoreLanguage,
    BertScoreLayer,
    BertScoreModel,
    BertScoreRescale,
    ColumnNames,
    DryRun,
    Encoding,
    Engine,
    EngineName,
    JudgeName,
    JudgeOptionTexts,
    MaxCalls,
    MaxCost,
    ModelNames,
    Restart,
)
from rageval_hooks.cli.output import load_encoder, resumable
from rageval_hooks.errors import ConfigurationError

if TYPE_CHECKING:
    from rageval_hooks.offline.scoring import Scored


class Columns(StrEnum):
    """The names of the columns of a CSV output."""

    native = "native"
    open_rag_eval = "open-rag-eval"


class Formulas(StrEnum):
    """The formulas of TRACe."""

    ragbench = "ragbench"
    fixed20 = "fixed20"


class DetailLevel(StrEnum):
    """Which scores keep their explanation and metadata."""

    none = "none"
    failed = "failed"
    all = "all"


def score(
    inputs: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Turns (JSONL, JSON, CSV, Parquet) or traces (OTLP-JSON, Phoenix). With --engine ray also a folder, a "
            "glob or a URL.",
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
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics", metavar="NAME,NAME", help="The metrics to compute. Default: the local default metrics."
        ),
    ] = None,
    models: ModelNames = None,
    judge: JudgeName = None,
    judge_options: JudgeOptionTexts = None,
    threshold: Annotated[
        list[str] | None,
        typer.Option(
            "--threshold",
            metavar="NAME=NUMBER",
            help="The bound at which a score passes. NAME=none or none: no label.",
        ),
    ] = None,
    context: Annotated[
        Path | None, typer.Option("--context", help="The retrieved passages of FILE, if FILE is a conversation.")
    ] = None,
    mapping: ColumnNames = None,
    encoding: Encoding = None,
    errors: BadRowsFile = None,
    columns: Annotated[
        Columns, typer.Option("--columns", help="The names of the columns of a CSV output.")
    ] = Columns.native,
    k_values: Annotated[
        str | None, typer.Option("--k-values", metavar="K,K", help="Ranks of precision@k and ap@k. Default: 1,3,5.")
    ] = None,
    formulas: Annotated[
        Formulas | None, typer.Option("--formulas", help="Formulas of trace. Default: ragbench.")
    ] = None,
    cost_rate: Annotated[
        float | None,
        typer.Option(
            "--cost-rate", min=0, metavar="USD", help="Price of 1,000 tokens. Default: the price of each model."
        ),
    ] = None,
    bertscore: BertScoreModel = None,
    bertscore_layer: BertScoreLayer = None,
    bertscore_language: BertScoreLanguage = "en",
    bertscore_rescale: BertScoreRescale = True,
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
    engine: EngineName = Engine.local,
    details: Annotated[
        DetailLevel,
        typer.Option("--details", help="Scores that keep their explanation and evidence: none, failed or all."),
    ] = DetailLevel.all,
    max_calls: MaxCalls = None,
    max_cost: MaxCost = None,
    dry_run: DryRun = False,
    restart: Restart = False,
) -> None:
    """Score the turns of a file. After an interruption, the same command resumes.

    A finished output is not replaced: the same command does nothing, and of a longer FILE only the new rows are scored.

    Exit status: 0 if all rows were scored, 1 if some could not be used, 2 if nothing could be scored or the judge
    does not work.
    """
    from rageval_hooks.offline.jobs.running import progress_bar, rare_collection
    from rageval_hooks.offline.records.columns import ColumnMap
    from rageval_hooks.offline.records.reading import count_rows
    from rageval_hooks.offline.records.record import Record
    from rageval_hooks.offline.scoring import build_pipeline, estimate, read_input, required_fields, score_file

    file, output = Path(inputs), list(map(Path, outputs))
    with resumable(output[0], has_journal=engine is Engine.local):
        # Errors in options are reported before the rows are counted, which takes a moment for a large file.
        options: dict[str, Any] = {
            "metrics": metrics,
            "models": models,
            "judge": judge,
            "judge_options": judge_options,
            "thresholds": threshold or [],
            "concurrency": concurrency,
            "k_values": k_values,
            "trace_formulas": None if formulas is None else formulas.value,
            "cost_rate": cost_rate,
        }
        pipeline = build_pipeline(**options, load=engine is Engine.local)
        if bertscore is not None and columns is not Columns.open_rag_eval:
            raise ConfigurationError("--bertscore needs --columns open-rag-eval; `report` has it for other outputs")
        required = required_fields(pipeline, named=metrics is not None)
        if engine is Engine.ray:
            _check_for_ray(
                outputs,
                {
                    "--bertscore": bertscore,
                    "--columns": None if columns is Columns.native else columns,
                    "--context": context,
                    "--dry-run": dry_run or None,
                    "--errors": errors,
                    "--max-calls": max_calls,
                    "--max-cost": max_cost,
                },
            )
            from rageval_hooks.offline.ray_engine import RayScoring, score_on_ray

            scoring = RayScoring(
                options=options,
                details=details.value,
                required=required,
                mapping=ColumnMap.parse(mapping or ()),
                encoding=encoding,
            )
            with progress_bar("scoring", None) as advance:
                scored = score_on_ray(
                    inputs, outputs[0], pipeline, scoring, workers=workers, restart=restart, advance=advance
                )
        elif dry_run:
            items = read_input(file, context, required, ColumnMap.parse(mapping or ()), encoding)
            typer.echo(estimate((item for _, item in items if isinstance(item, Record)), pipeline))
            typer.echo("dry run: nothing was asked, and nothing was written")
            raise typer.Exit(0)
        else:
            encoder = load_encoder(bertscore, bertscore_layer, bertscore_language, bertscore_rescale)
            with progress_bar("scoring", count_rows(file)) as advance, rare_collection():
                scored = score_file(
                    file,
                    output,
                    pipeline,
                    errors=errors,
                    columns=columns.value,
                    closeness=None if encoder is None else encoder.pairs,
                    concurrency=concurrency,
                    workers=workers,
                    details=details.value,
                    max_calls=max_calls,
                    max_cost=max_cost,
                    required=required,
                    restart=restart,
                    context=context,
                    mapping=ColumnMap.parse(mapping or ()),
                    encoding=encoding,
                    note=lambda text: typer.echo(f"rageval-hooks: {text}", err=True),
                    advance=advance,
                )
    for line in _summary(inputs, outputs, scored):
        typer.echo(line)
    missing = _without_column(scored) if columns is Columns.open_rag_eval else []
    if missing:
        typer.echo(f"not in the columns of open-rag-eval, only in .jsonl or native columns: {', '.join(missing)}")
    # Without a single score the output is of no use; the reason of the first result explains it.
    if not scored.counts.results["scored"]:
        typer.echo(f"rageval-hooks: no scores were produced; the first result: {scored.counts.why_not}", err=True)
    elif scored.broken:
        typer.echo(f"rageval-hooks: {scored.broken}. The other scores are written", err=True)
    raise typer.Exit(_status(scored))


def _check_for_ray(outputs: Sequence[str], given: Mapping[str, object]) -> None:
    """Check that no option is given that ``--engine ray`` does not have.

    Raises:
        ConfigurationError: one is.
    """
    if wrong := [name for name, value in given.items() if value is not None]:
        more = ". judge_budget limits all actors together" if {"--max-calls", "--max-cost"} & set(wrong) else ""
        raise ConfigurationError(f"--engine ray does not have {', '.join(wrong)}{more}")
    if len(outputs) > 1 or Path(outputs[0]).suffix in (".jsonl", ".csv"):
        raise ConfigurationError(f"with --engine ray the output is one folder, such as scores/, not {outputs[-1]}")


def _status(scored: Scored) -> int:
    # Continuous integration must not take a file without judgements for a finished one.
    if scored.broken or not scored.counts.results["scored"]:
        return 2
    return 1 if scored.bad else 0


def _without_column(scored: Scored) -> list[str]:
    from rageval_hooks.offline.records.open_rag_eval import has_place

    return sorted(name for name in scored.counts.names if not has_place(name))


def _summary(file: str, outputs: list[str], scored: Scored) -> list[str]:
    from rageval_hooks.text.wording import counted

    lines = [scored.counts.verdict_line()] if scored.counts.verdicts else []
    if scored.finished:
        turns = counted(scored.counts.turns, "turn")
        return [*lines, f"{outputs[0]} is finished: {turns}, nothing to do. To score again: --restart"]
    before = ""
    # The user paid for these in an earlier call.
    if scored.resumed:
        before += f" ({scored.resumed} of them before an interruption)"
    if scored.reused:
        before += f" ({scored.reused} of them reused)"
    counts = scored.counts.results
    lines += [
        f"scored {counted(scored.counts.turns, 'turn')} of {file}{before}: {', '.join(map(str, outputs))}",
        f"{counted(counts['scored'], 'score')}, {counts['skipped']} skipped, {counts['failed']} failed",
    ]
    if scored.spent.calls:
        line = f"the judge took {counted(scored.spent.calls, 'request')}"
        # Without a known price there is no cost.
        if scored.spent.cost:
            line += f", {scored.spent.cost:.4f} USD"
        lines.append(line)
    if scored.budget:
        left_out = counted(scored.left_out, "question")
        lines.append(f"{scored.budget}: {left_out} to the judge not asked, their scores are skipped")
    if scored.first_bad is not None:
        first = scored.first_bad
        lines.append(
            f"{counted(scored.bad, 'row')} could not be used: {scored.errors} (line {first.line}: {first.reason})"
        )
    return lines
