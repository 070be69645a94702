"""How well do the local scores agree with people? Runs them over labelled sets and prints AUROC per set and score.

    python benchmarks/validity.py DIR                      # every *.jsonl in DIR, MiniLM and lexical tier
    python benchmarks/validity.py DIR --tiers minilm,fp32  # what int8 changes: AUROC and labels, next to fp32
    python benchmarks/validity.py DIR --cache /tmp/cache   # an interrupted run goes on where it stopped
    python benchmarks/validity.py DIR --limit 100 --scores groundedness,unsupported_facts --tiers lexical --json

A set is a file of JSON Lines: ``id``, ``query`` or null, ``passages`` (strings), ``response`` or null, ``label`` (1 is
supported, or relevant), ``task``, ``extra.group``. Sets named ``*_dev`` are for tuning: thresholds are
fitted on those of task ``faithfulness`` (or, for context_relevance, of task ``context_relevance``) and reported on all
others. The data is used where it is; nothing of it is copied, and the cache has scores only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rageval_hooks
from rageval_hooks import Passage, Skipped, Turn
from rageval_hooks.metrics.base import REGISTRY, Metric, ScoreDefinition
from rageval_hooks.models.sources import on_this_machine
from rageval_hooks.offline.agreement import (
    Labelled,
    auroc,
    balanced_accuracy,
    best_threshold,
    calibration_error,
    interval,
)
from rageval_hooks.settings import LEXICAL, ModelSettings

SCORES = (
    "groundedness",
    "faithfulness",
    "unsupported_facts",
    "semantic_grounding",
    "entity_consistency",
    "factual_accuracy",
    "hallucination",
    "context_relevance",
    "answer_relevance",
)


@dataclass(frozen=True)
class Row:
    """One labelled row."""

    id: str
    turn: Turn
    label: int
    task: str
    group: str


Agreement = dict[str, Any]
"""How well one score agrees with the labels of one set; the keys are in ``agreements``."""


def read_set(path: Path, limit: int | None) -> list[Row]:
    """Read a labelled set; a line that cannot be read ends the program with its number."""
    rows = []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if limit is not None and len(rows) >= limit:
                break
            try:
                data = json.loads(line)
                turn = Turn(
                    query=data["query"] or "",
                    passages=tuple(Passage(text=text) for text in data["passages"]),
                    response=data["response"] or "",
                )
                group = (data.get("extra") or {}).get("group", data["id"])
                rows.append(Row(str(data["id"]), turn, int(data["label"]), data["task"], str(group)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                sys.exit(f"{path}, line {number}: not a labelled row ({type(error).__name__}: {error})")
    if not rows:
        sys.exit(f"{path} has no rows")
    return rows


def tier_models(tier: str) -> ModelSettings:
    """The models of a tier; of the default ones, those that are not on this machine have their lexical stand-in."""
    settings = ModelSettings(download=False, load_timeout=600)
    roles = ("embedder", "cross_encoder", "nlp")
    if tier == "fp32":
        settings = settings.model_copy(update={"precision": "fp32"})
    if tier == LEXICAL:
        return settings.model_copy(update=dict.fromkeys(roles, LEXICAL))
    if not on_this_machine("embedder", settings.embedder):
        sys.exit(f'{settings.embedder} is not on this machine: pip install "rageval-hooks[minilm]", or --tiers lexical')
    absent = [role for role in roles if not on_this_machine(role, getattr(settings, role))]
    return settings.model_copy(update=dict.fromkeys(absent, LEXICAL))


class Cache:
    """Scores that were computed before, as lines of JSON; without a folder, nothing is kept."""

    def __init__(self, folder: Path | None, name: str) -> None:
        self._known: dict[str, Any] = {}
        self._path: Path | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"{name}.jsonl"
            for line in path.read_text().splitlines() if path.exists() else ():
                try:
                    self._known.update(json.loads(line))
                except ValueError:
                    continue  # the line that an interrupted run had begun
            self._path = path
            self._append("")  # ends the line that an interrupted run had begun

    def get(self, key: str) -> Any:
        return self._known.get(key)

    def put(self, found: Mapping[str, Any]) -> None:
        self._known.update(found)
        self._append(json.dumps(found))

    def _append(self, line: str) -> None:
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(f"{line}\n")


def compute(rows: Sequence[Row], metrics: Sequence[Metric], models: ModelSettings, cache: Cache, what: str) -> Any:
    """Return, per row, the main score of each metric: ``[value, model]``, or the reason for its absence."""
    table: list[dict[str, Any]] = []
    started = said = time.monotonic()
    for number, row in enumerate(rows, start=1):
        keys = {metric.name: _key(row, metric, models) for metric in metrics}
        missing = [metric for metric in metrics if cache.get(keys[metric.name]) is None]
        if missing:
            evaluation = rageval_hooks.evaluate(row.turn, metrics=missing, models=models.model_dump())
            cache.put({keys[metric.name]: _outcome(evaluation, metric.name) for metric in missing})
        table.append({name: cache.get(key) for name, key in keys.items()})
        if time.monotonic() - said > 2 or number == len(rows):
            said = time.monotonic()
            print(f"\r{what}: {number}/{len(rows)} rows, {said - started:.0f} s", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return table


def _outcome(evaluation: Any, name: str) -> Any:
    score = evaluation.score(name)
    if score is not None:
        return [score.value, score.model, score.label]
    reasons = [
        result.reason if isinstance(result, Skipped) else f"{result.error_type}: {result.message}"
        for result in (*evaluation.skipped, *evaluation.failed)
        if result.name == name
    ]
    return "; ".join(reasons) or "no score"


def _key(row: Row, metric: Metric, models: ModelSettings) -> str:
    names = [*(getattr(models, role) for role in metric.models), models.precision]
    text = json.dumps([metric.name, metric.version, names, row.turn.query, row.turn.response, *row.turn.texts()])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Scored:
    """A set, and the scores of its rows."""

    name: str
    rows: list[Row]
    table: list[dict[str, Any]]

    @property
    def task(self) -> str:
        return self.rows[0].task

    @property
    def is_dev(self) -> bool:
        return self.name.endswith("_dev")

    def labelled(self, score: ScoreDefinition) -> Labelled | None:
        """The rows that have the score, higher meaning better; None where the labels are not both there."""
        found = [
            (_oriented(values[score.name][0], score), row.label, row.group)
            for row, values in zip(self.rows, self.table, strict=True)
            if isinstance(values[score.name], list)
        ]
        data = Labelled.of(found)
        return data if data.has_both else None

    def models(self, score: str) -> str:
        return ", ".join(
            sorted({str(v[score][1]) for v in self.table if isinstance(v[score], list) and v[score][1]} - {""})
        )


def _oriented(value: float, score: ScoreDefinition) -> float:
    if score.direction == "higher":
        return value
    return -value if score.high is None else score.high - value


def agreements(
    tier: str, sets: Sequence[Scored], score: ScoreDefinition, args: argparse.Namespace
) -> Iterator[Agreement]:
    """Measure one score on every set that has its inputs."""
    bounded = score.high is not None
    step = 0.01 if bounded else 1.0
    task = "context_relevance" if score.name == "context_relevance" else "faithfulness"
    tuned = [data for s in sets if s.is_dev and s.task == task and (data := s.labelled(score)) is not None]
    dev = best_threshold(tuned, step)[0] if tuned else None
    for scored in sets:
        data = scored.labelled(score)
        if data is None:
            continue
        low, high = interval(auroc, data, 0, args.bootstrap)
        threshold, accuracy = best_threshold([data], step)
        yield {
            "set": scored.name,
            "tier": tier,
            "score": score.name,
            "models": scored.models(score.name),
            "rows": len(data.values),
            "skipped": len(scored.rows) - len(data.values),
            "auroc": auroc(data),
            "low": low,
            "high": high,
            "calibration_error": calibration_error(data) if bounded else None,
            "threshold": threshold,
            "balanced_accuracy": accuracy,
            "dev_threshold": dev,
            "at_dev_threshold": None if dev is None else balanced_accuracy(data, dev),
            "labels_changed": None,
        }


def add_label_changes(found: Sequence[Agreement], sets: Mapping[str, Sequence[Scored]]) -> None:
    """Add to the results of the tier minilm the share of the labels pass and fail that are others in fp32."""
    exact = {scored.name: scored.table for scored in sets.get("fp32", ())}
    small = {scored.name: scored.table for scored in sets.get("minilm", ())}
    for one in found:
        if one["tier"] == "minilm" and one["set"] in exact:
            name = one["score"]
            rows = zip(small[one["set"]], exact[one["set"]], strict=True)
            pairs = [
                (a[name][2], b[name][2]) for a, b in rows if isinstance(a[name], list) and isinstance(b[name], list)
            ]
            labels = [a != b for a, b in pairs if a or b]
            one["labels_changed"] = sum(labels) / len(labels) if labels else None


def table_lines(found: Sequence[Agreement]) -> Iterator[str]:
    """The table in Markdown."""
    yield "| set | score | tier | AUROC | 95 % | calibration error | best threshold | balanced accuracy | at the dev threshold | labels changed | rows | skipped |"  # noqa: E501
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for a in found:
        error = "" if a["calibration_error"] is None else f"{a['calibration_error']:.3f}"
        dev = "" if a["at_dev_threshold"] is None else f"{a['at_dev_threshold']:.3f} ({_shown(a, a['dev_threshold'])})"
        changed = "" if a["labels_changed"] is None else f"{a['labels_changed']:.1%}"
        yield (
            f"| {a['set']} | {a['score']} | {a['tier']} | {a['auroc']:.3f} | {a['low']:.3f}–{a['high']:.3f} | {error} "
            f"| {_shown(a, a['threshold'])} | {a['balanced_accuracy']:.3f} | {dev} | {changed} "
            f"| {a['rows']} | {a['skipped']} |"
        )


def _shown(a: Agreement, threshold: float) -> str:
    """A threshold as users set it: in the score's own direction."""
    if a["calibration_error"] is None:
        return f"≤ {abs(threshold):.0f}"
    return f"≤ {1 - threshold:.2f}" if a["score"] == "hallucination" else f"≥ {threshold:.2f}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dir", type=Path, help="folder with labelled sets, *.jsonl")
    parser.add_argument("--limit", type=int, help="only the first rows of each set")
    parser.add_argument("--scores", default=",".join(SCORES), help="names of local metrics, with commas between them")
    parser.add_argument("--tiers", default=f"minilm,{LEXICAL}", help="any of minilm (int8), fp32 and lexical")
    parser.add_argument("--cache", type=Path, help="folder that keeps scores, so that an interrupted run goes on")
    parser.add_argument("--bootstrap", type=int, default=1000, help="samples of the bootstrap")
    parser.add_argument("--json", action="store_true", help="JSON instead of tables")
    args = parser.parse_args(arguments)
    tiers = args.tiers.split(",")
    metrics = [REGISTRY.create(name) for name in args.scores.split(",")]
    found: list[Agreement] = []
    data = [(path.stem, read_set(path, args.limit)) for path in sorted(args.dir.glob("*.jsonl"))]
    of_tier: dict[str, list[Scored]] = {}
    for tier in tiers:
        models = tier_models(tier)
        sets = of_tier[tier] = []
        for name, rows in data:
            cache = Cache(args.cache, f"{name}.{tier}")
            sets.append(Scored(name, rows, compute(rows, metrics, models, cache, f"{name}, {tier}")))
        for metric in metrics:
            for score in metric.scores:
                if score.name == metric.name:
                    found += agreements(tier, sets, score, args)
    for name in [name for name, _ in data if name not in {a["set"] for a in found}]:
        print(f"{name} is omitted: no score has rows of both labels there", file=sys.stderr)
    add_label_changes(found, of_tier)
    found.sort(key=lambda a: (a["set"], tiers.index(a["tier"])))
    if args.json:
        print(json.dumps(found, indent=1))
        return
    print(*table_lines(found), sep="\n")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("\ninterrupted; with --cache, the next run goes on from here")
