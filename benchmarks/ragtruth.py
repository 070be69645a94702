"""How well do the local scores find the answers of RAG systems that people marked? On RAGTruth's questions and answers.

    python benchmarks/ragtruth.py ragtruth_test.json
    python benchmarks/ragtruth.py ragtruth_test.json --tier minilm --json

The file is data/ragtruth_test.json of amazon-science/Query-Conditioned-NLI. An answer is bad if people marked any span
of it. The questions are divided by hash into two halves: defaults were chosen on "choose", and "report" shows them on
questions that no choice used.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from validity import tier_models

import rageval_hooks
from rageval_hooks import Passage, Turn
from rageval_hooks.offline.agreement import Labelled, auroc, interval
from rageval_hooks.score import label_of

SCORES: Final = ("faithfulness", "groundedness", "unsupported_facts")
_PASSAGE: Final = re.compile(r"(?m)^\s*passage \d+:")


def read(path: Path) -> Iterator[tuple[Turn, int, str]]:
    """Yield the turns of the file with their label (1 is supported) and the question's id."""
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        texts = filter(None, map(str.strip, _PASSAGE.split(row["d1"])))
        passages = tuple(Passage(text=text) for text in texts)
        yield Turn(query=row["query"], passages=passages, response=row["d2"]), int(not row["labels"]), row["source_id"]


def half_of(question: str) -> str:
    """Return the half of a question."""
    return "report" if int(hashlib.sha256(f"split1{question}".encode()).hexdigest(), 16) % 2 else "choose"


def measure(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the figures of each score."""
    for score in SCORES:
        found = [(row, row["scores"][score]) for row in rows if score in row["scores"]]
        sign = -1 if score == "unsupported_facts" else 1
        data = Labelled.of([(sign * value, row["label"], row["group"]) for row, (value, _) in found])
        low, high = interval(auroc, data, 0, 1000)
        failing = [row["label"] for row, (_, label) in found if label == "fail"]
        caught, bad = failing.count(0), sum(row["label"] == 0 for row, _ in found)
        precision, recall = caught / max(1, len(failing)), caught / bad
        yield {
            "score": score,
            "rows": len(found),
            "auroc": round(auroc(data), 3),
            "low": round(low, 3),
            "high": round(high, 3),
            "precision": round(precision, 3),
            "recall": round(recall, 3),
            "f1": round(2 * precision * recall / max(1e-9, precision + recall), 3),
            "false_alarms": round(failing.count(1) / (len(found) - bad), 3),
        }


def main() -> None:
    """Score the answers and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--tier", choices=("lexical", "minilm"), default="lexical")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    models = tier_models(args.tier).model_dump()
    rows: list[dict[str, Any]] = []
    for turn, label, question in read(args.file):
        evaluation = rageval_hooks.evaluate(turn, metrics=[*SCORES, "verdict"], models=models)
        scores = {score.name: (score.value, score.label) for score in evaluation.scores if score.name in SCORES}
        verdict = next(label_of(result) for result in evaluation.results if result.name == "verdict")
        rows.append({"label": label, "group": question, "scores": scores, "verdict": verdict})
    for half in ("choose", "report", "both"):
        chosen = [row for row in rows if half in ("both", half_of(row["group"]))]
        supported = [row for row in chosen if row["label"]]
        alarms = sum(any(label == "fail" for _, label in row["scores"].values()) for row in supported)
        for figures in measure(chosen):
            figures = {"half": half, "tier": args.tier, **figures, "any_fail": round(alarms / len(supported), 3)}
            print(json.dumps(figures) if args.json else "  ".join(f"{key}={value}" for key, value in figures.items()))
        verdicts = {f"supported_{label}": share(supported, label) for label in ("bad", "doubtful")}
        unsupported = [row for row in chosen if not row["label"]]
        verdicts |= {f"unsupported_{label}": share(unsupported, label) for label in ("bad", "doubtful")}
        print(json.dumps({"half": half, "tier": args.tier, "score": "verdict", **verdicts}))


def share(rows: list[dict[str, Any]], label: str) -> float:
    """Return the share of answers with a verdict."""
    return round(sum(row["verdict"] == label for row in rows) / len(rows), 3)


if __name__ == "__main__":
    main()
