"""``rageval-hooks collect``: a test set from answers that were bad."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rageval_hooks.cli import options
from rageval_hooks.cli.options import seconds
from rageval_hooks.errors import ConfigurationError, UnknownNameError


def collect(
    sources: Annotated[
        list[str], typer.Argument(metavar="phoenix|mlflow|langfuse|FILE...", help="A backend, or scored files.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the cases go: .jsonl, for run and score.")],
    verdicts: Annotated[
        list[str] | None, typer.Option("--verdict", help="A verdict of the cases. Repeatable. Default: bad.")
    ] = None,
    causes: Annotated[
        list[str] | None, typer.Option("--cause", help="A cause of the verdict, such as unsupported. Repeatable.")
    ] = None,
    since: Annotated[str, typer.Option("--since", help="How far to go back in a backend.")] = "7d",
    most: Annotated[
        int | None, typer.Option("--max-per-cause", min=1, metavar="N", help="Cases for each cause, at most.")
    ] = None,
    url: options.BackendUrl = None,
    project: options.BackendProject = None,
    models: options.ModelNames = None,
) -> None:
    """Collect the turns with a certain verdict: real questions with their passages, answers, verdicts and causes.

    Near duplicates are left out, texts are redacted as RAGEVAL_REDACT says, and what people have labelled comes along.
    The output is read by run, score, report and agreement.
    """
    from rageval_hooks.models import Models
    from rageval_hooks.offline.backends import BACKENDS
    from rageval_hooks.offline.collecting import Cases, stored_records
    from rageval_hooks.offline.records.reading import read_records
    from rageval_hooks.offline.records.writing import atomic_file
    from rageval_hooks.offline.score_definitions import VERDICTS
    from rageval_hooks.privacy import PrivacyPolicy
    from rageval_hooks.score import CAUSES
    from rageval_hooks.settings import Settings
    from rageval_hooks.text.wording import counted

    settings = Settings.build(models=models)
    wanted = verdicts or ["bad"]
    for what, given, valid in (("verdict", wanted, VERDICTS), ("cause", causes or [], CAUSES)):
        if wrong := [name for name in given if name not in valid]:
            raise UnknownNameError(what, wrong[0], valid)
    if output.exists():
        raise ConfigurationError(f"{output} exists already: name another output")
    back = seconds(since)
    cases = Cases(wanted, causes or (), most, Models(settings.models).embedder(wait=True))
    privacy = PrivacyPolicy.of(settings)
    with atomic_file(output) as file:
        for source in sources:
            if source in BACKENDS:
                records = stored_records(source, url, project, back, settings)
            else:
                rows = read_records(source, on_bad=lambda bad: cases.left_out.update([f"rows: {bad.reason}"]))
                records = (record.labelled for record in rows)
            file.writelines(record.redacted(privacy).to_json().encode() + b"\n" for record in cases.choose(records))
    causes_found = ", ".join(f"{count} {cause}" for cause, count in cases.chosen.most_common())
    typer.echo(f"collected {counted(cases.chosen.total(), 'case')} of {counted(cases.seen, 'turn')}: {output}")
    for line in filter(None, (causes_found, *(f"left out: {count} {why}" for why, count in cases.left_out.items()))):
        typer.echo(line)
