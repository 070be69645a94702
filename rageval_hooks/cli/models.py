"""The commands ``models list`` and ``models bench``."""

from __future__ import annotations

import itertools
import json
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, get_args

import typer

from rageval_hooks.cli.options import AsJson, ModelNames, split_names
from rageval_hooks.cli.output import print_columns, say
from rageval_hooks.errors import ConfigurationError, ModelUnavailableError
from rageval_hooks.metrics.base import REGISTRY, Metric
from rageval_hooks.score import Score
from rageval_hooks.settings import FORMULA, LEXICAL, ModelSettings, Settings
from rageval_hooks.text.wording import counted
from rageval_hooks.turn import Passage, Turn

if TYPE_CHECKING:
    from rageval_hooks.models import Models, Role


models = typer.Typer(no_args_is_help=True, help="List the local models, or measure how fast they are on this machine.")

_METRICS: Final[dict[Role, str]] = {
    "embedder": "groundedness",
    "grounding": "groundedness",
    "cross_encoder": "answer_relevance",
    "nlp": "entity_consistency",
    "hhem": "hhem",
}
"""The metric by which a model is measured."""

_MIN_ANSWERS: Final = 3
_SECONDS: Final = 20.0
"""After this time a case ends, with at least three answers."""

_ANSWER_WORDS: Final = 60
_QUERY: Final = "How long does the crossing take, and what does it cost?"


@models.command("list")
def list_models(given: ModelNames = None, as_json: AsJson = False) -> None:
    """List the configured models: their roles, whether they are on this machine, and the metrics that use them."""
    from rageval_hooks.models import Models, Role
    from rageval_hooks.models.sources import on_this_machine

    settings = Settings.build(models=given).models
    users: dict[Role, list[str]] = {}
    for metric in REGISTRY.builtin():
        for role in Models(settings).needed(REGISTRY.create(metric).models):
            users.setdefault(role, []).append(metric)
    found: list[dict[str, Any]] = []
    for role in get_args(Role):
        name = getattr(settings, role)
        # The formula and the lexical tier need no files.
        needs_files = name != LEXICAL and (role, name) != ("grounding", FORMULA)
        here = on_this_machine(role, name) if needs_files else None
        found.append({"role": role, "name": name, "here": here, "metrics": users.get(role, [])})
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    words = {True: "yes", False: "no", None: "-"}
    rows = [(row["role"], row["name"], words[row["here"]], ", ".join(row["metrics"]) or "-") for row in found]
    print_columns([("role", "model", "on this machine", "metrics"), *rows])


@models.command()
def bench(
    grounding: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MODEL", help="Grounding models to compare: names, folders, minilm. Default: all configured models."
        ),
    ] = None,
    given: ModelNames = None,
    passages: Annotated[str, typer.Option("--passages", help="Numbers of passages per answer.")] = "1,5,10",
    words: Annotated[str, typer.Option("--words", help="Words of each passage.")] = "120",
    answers: Annotated[int, typer.Option("--answers", min=3, help="Answers to score in each case.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Measure how long the models take to score one answer on this machine.

    Every answer has other passages, so nothing is read from a cache. Nothing is downloaded: a model that is not on this
    machine is named with what to do. Exit status 2 if no model could be measured.
    """
    from rageval_hooks.models import Models

    sizes = list(itertools.product(_numbers("--words", words), _numbers("--passages", passages)))
    results: list[dict[str, Any]] = []
    for role, settings in _chosen(Settings.build(models=given).models, grounding or []):
        name = getattr(settings, role)
        say(f"loading {name}")
        result: dict[str, Any] = {"role": role, "model": name, "load_seconds": None, "rows": [], "problem": ""}
        results.append(result)
        metric, loaded = REGISTRY.create(_METRICS[role]), Models(settings)
        started = time.perf_counter()
        try:
            getattr(loaded, role)(wait=True)
            result["load_seconds"] = round(time.perf_counter() - started, 3)
            for length, count in sizes:
                say(f"{name}: {counted(count, 'passage')} of {length} words")
                about = {"role": role, "model": name, "metric": metric.name, "passages": count, "words": length}
                result["rows"].append({**about, **_measure(metric, loaded, _turns(count, length), answers)})
        except ModelUnavailableError as error:
            result["problem"] = error.reason
    measured = [row for result in results for row in result["rows"]]
    if as_json:
        typer.echo(json.dumps(results, indent=2, ensure_ascii=False))
    elif measured:
        head = ("role", "model", "metric", "passages", "words each", "answers", "p50 ms", "p95 ms", "tokens/s")
        rows = [row.values() for row in measured]
        cells = [[f"{cell:.0f}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows]
        print_columns([head, *cells])
    for result in results:
        if result["problem"]:
            say(f"{result['role']}: {result['problem']}")
    if not measured:
        raise typer.Exit(2)


def _numbers(option: str, given: str) -> list[int]:
    names = split_names(given)
    # isdecimal() alone accepts digits of every script, which int() reads, too.
    if not names or not all(name.isdecimal() and int(name) > 0 for name in names):
        raise ConfigurationError(f"{option} is {given!r}: give whole numbers from 1, such as 1,5,10")
    return [int(name) for name in names]


def _chosen(settings: ModelSettings, grounding: list[str]) -> Iterator[tuple[Role, ModelSettings]]:
    """Yield each role to measure, with settings that have its model."""
    # A measurement must not begin with a download of a gigabyte. The formula is measured as the embedder.
    fields = {**settings.model_dump(), "download": False}
    for name in grounding:
        measured = ModelSettings.model_validate({**fields, "grounding": name})
        yield ("embedder" if name == FORMULA else "grounding"), measured
    for role in _METRICS if not grounding else ():
        # What is lexical needs no model.
        if fields[role] not in (FORMULA, LEXICAL):
            formula = {"grounding": FORMULA} if role == "embedder" else {}
            yield role, ModelSettings.model_validate({**fields, **formula})


def _measure(metric: Metric, models: Models, turns: Iterator[Turn], answers: int) -> dict[str, float]:
    """Score answers one after the other; return how many, the time for each in percentiles, and tokens per second.

    Raises:
        ModelUnavailableError: the metric makes no score.
    """
    import numpy as np

    from rageval_hooks.metrics.running import compute
    from rageval_hooks.metrics.support.turn_analysis import TurnAnalysis
    from rageval_hooks.text.tokens import count_tokens

    times: list[float] = []
    tokens = 0
    started = time.perf_counter()
    # The first pass allocates memory and would count for all.
    for number, turn in enumerate(itertools.islice(turns, answers + 1)):
        began = time.perf_counter()
        for found in compute(metric, TurnAnalysis(turn, models, wait=True)):
            if not isinstance(found, Score):
                raise ModelUnavailableError(metric.name, found.reason)
        if number:
            times.append(time.perf_counter() - began)
            tokens += count_tokens(turn.texts())[0]
        if len(times) >= _MIN_ANSWERS and time.perf_counter() - started > _SECONDS:
            break
    p50, p95 = np.percentile(times, [50, 95])
    return {
        "answers": len(times),
        "p50_ms": round(float(p50) * 1000, 2),
        "p95_ms": round(float(p95) * 1000, 2),
        "tokens_per_second": round(tokens / len(times) / float(p50), 1),
    }


def _turns(passages: int, words: int) -> Iterator[Turn]:
    """Yield turns of a size without end, the same in every run, each with new passages."""
    from rageval_hooks.demo.handbook import load_handbook

    generator = random.Random(0)  # noqa: S311 - the same texts in every run
    sentences = [sentence for section in load_handbook() for sentence in section.text.split(". ")]

    def text(length: int) -> str:
        found: list[str] = []
        while len(found) < length:
            found += generator.choice(sentences).split()
        return " ".join(found[:length])

    for number in itertools.count(1):
        # The number makes the passages of each turn new to every cache.
        texts = [f"{number}.{position}. {text(words)}" for position in range(passages)]
        yield Turn(query=_QUERY, passages=tuple(Passage(text=item) for item in texts), response=text(_ANSWER_WORDS))
