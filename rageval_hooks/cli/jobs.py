"""``rageval-hooks jobs``: what waits at the broker, which jobs failed there and why, and send them again."""

from __future__ import annotations

from typing import Annotated

import typer

from rageval_hooks.errors import ExportError


def jobs(
    resend: Annotated[bool, typer.Option("--resend", help="Give the failed jobs back to the workers.")] = False,
) -> None:
    """Show the jobs that wait at the Celery broker of RAGEVAL_BROKER, and those that failed three times.

    Exit status 1 if some failed.
    """
    from rageval_hooks.online.celery import QUEUE, celery_app, failed_reasons, message_count, resend_failed
    from rageval_hooks.settings import Settings

    app = celery_app(Settings.build())
    from kombu.exceptions import OperationalError  # comes with Celery, which is an extra

    try:
        if resend:
            typer.echo(f"{resend_failed(app)} failed jobs were given back to the workers")
            return
        waiting, reasons = message_count(app, QUEUE), failed_reasons(app)
    except OperationalError as error:
        raise ExportError(f"the broker cannot be reached: {error}") from error
    typer.echo(f"{waiting} jobs wait for a worker")
    typer.echo(f"{reasons.total()} jobs failed{':' if reasons else ''}")
    for reason, count in reasons.most_common():
        typer.echo(f"  {count} x {reason}")
    if reasons:
        raise typer.Exit(1)
