"""The commands ``models list`` and ``models bench``."""

from __future__ import annotations

import json
from itertools import chain, product
from typing import TYPE_CHECKING, Annotated

import typer

from rageval_hooks.cli.options import split_names

if TYPE_CHECKING:
    from rageval_hooks.settings import ModelSettings

__all__ = ["models"]

models = typer.Typer(no_args_is_help=True, help="List the local models, or measure how fast they are on this machine.")

Models = Annotated[
    str | None, typer.Option("--models", help="'default', 'lexical', or a JSON object with model names.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@models.command("list")
def list_models(given: Models = None, as_json: Json = False) -> None:
    """List the configured models: their roles, whether they are on this machine, and the metrics that use them."""
    from rageval_hooks.cli.models.listing import ROW, configured_models
    from rageval_hooks.cli.output import print_columns

    found = configured_models(_settings(given))
    if as_json:
        typer.echo(json.dumps([model.as_data() for model in found], indent=2, ensure_ascii=False))
        return
    print_columns([ROW, *(model.cells() for model in found)])


@models.command()
def bench(
    grounding: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL", help="Grounding models to compare: names, folders, minilm. Default: all configured models."
        ),
    ] = None,
    given: Models = None,
    passages: Annotated[str, typer.Option("--passages", help="Numbers of passages per answer.")] = "1,5,10",
    words: Annotated[str, typer.Option("--words", help="Words of each passage.")] = "120",
    answer_words: Annotated[int, typer.Option("--answer-words", min=1, help="Words of each answer.")] = 60,
    answers: Annotated[int, typer.Option("--answers", min=3, help="Answers to score in each case.")] = 20,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0, help="After this time a case ends, with at least three answers.")
    ] = 20.0,
    as_json: Json = False,
) -> None:
    """Measure how long the models take to score one answer on this machine.

    Every answer has other passages, so nothing is read from a cache. Nothing is downloaded: a model that is not on this
    machine is named with what to do. Exit status 2 if no model could be measured.
    """
    from rageval_hooks.cli.models.bench import HEAD, Case, measure_models
    from rageval_hooks.cli.output import print_columns, say

    sizes = product(_numbers("--words", words), _numbers("--passages", passages))
    cases = [Case(passages=count, words=length, answer_words=answer_words) for length, count in sizes]
    results = list(measure_models(_settings(given), grounding or [], cases, answers=answers, seconds=seconds, tell=say))
    measured = list(chain.from_iterable(result.rows for result in results))
    if as_json:
        typer.echo(json.dumps([result.as_data() for result in results], indent=2, ensure_ascii=False))
    elif measured:
        print_columns([HEAD, *(row.cells() for row in measured)])
    for result in results:
        if result.problem:
            say(f"{result.role}: {result.problem}")
    if not measured:
        raise typer.Exit(2)


def _settings(given: str | None) -> ModelSettings:
    from rageval_hooks.settings import Settings

    return Settings.build(models=given).models


def _numbers(option: str, given: str) -> list[int]:
    from rageval_hooks.errors import ConfigurationError

    names = split_names(given)
    # isdecimal() alone accepts digits of every script, which int() reads, too.
    if not names or not all(name.isdecimal() and int(name) > 0 for name in names):
        raise ConfigurationError(f"{option} is {given!r}: give whole numbers from 1, such as 1,5,10")
    return [int(name) for name in names]
