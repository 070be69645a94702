"""The time of a forward pass of the embedder: PyTorch, ONNX Runtime in fp32 and in int8; alone and in batches.

    .venv/bin/python benchmarks/backends.py                # the packaged all-MiniLM-L6-v2, one thread
    .venv/bin/python benchmarks/backends.py --busy 1       # while a thread computes in Python
    .venv/bin/python benchmarks/backends.py --turns 8      # CPU time of whole turns, memory and load time as well

The backends take turns, so that a ratio does not depend on other work of the machine. Times are CPU time of the thread.
How int8 changes scores and labels: benchmarks/validity.py, tiers minilm and fp32.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from typing import Any

from _environments import ROOT, describe_machine, table

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(ROOT))

SHAPES = ((1, 12), (8, 12), (1, 48), (4, 48), (1, 172), (5, 172), (1, 256))
"""Texts at once, tokens in each: concepts, sentences, passages, a full window."""

WAYS: dict[str, dict[str, str]] = {
    "PyTorch": {"backend": "torch"},
    "ONNX Runtime fp32": {"precision": "fp32"},
    "ONNX Runtime int8": {"precision": "int8"},
}

_TURNS = """
import json, resource, sys, time
started = time.perf_counter()
import random, rageval_hooks
from rageval_hooks import Passage, Turn
from rageval_hooks.models import Models
from rageval_hooks.settings import ModelSettings
settings = ModelSettings(cross_encoder="lexical", nlp="lexical", **json.loads(sys.argv[1]))
Models(settings).embedder(wait=True)
loaded, cpu = time.perf_counter() - started, time.process_time()
memory = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
chance = random.Random(0)
words = [line.strip() for line in open(sys.argv[3])]
def text(characters):
    found = ""
    while len(found) < characters:
        found += chance.choice(words) + " "
    return found
def score(number):
    turn = Turn(query="How long does the crossing take?", response=text(300),
                passages=tuple(Passage(text=text(1150)) for _ in range(5)))
    rageval_hooks.evaluate(turn, metrics=["groundedness", "faithfulness", "context_relevance", "semantic_grounding"],
                           models=settings)
score(0)
cpu = time.process_time()
for number in range(int(sys.argv[2])):
    score(number + 1)
cpu = (time.process_time() - cpu) / int(sys.argv[2])
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps([loaded, cpu * 1e3, memory, peak, "torch" in sys.modules]))
"""


def _time(ways: Mapping[str, Callable[[Any], Any]], texts: int, tokens: int, rounds: int) -> list[str]:
    """Return a line of the table: for each backend, CPU milliseconds of a batch, and of its texts one by one."""
    import numpy as np

    chance = random.Random(0)
    ids = np.asarray([[101, *(chance.randrange(2000, 20000) for _ in range(tokens - 2)), 102] for _ in range(texts)])

    def inputs(rows: Any) -> Any:
        return {"input_ids": rows, "attention_mask": np.ones_like(rows), "token_type_ids": np.zeros_like(rows)}

    took: dict[tuple[str, bool], list[float]] = {(name, joined): [] for name in ways for joined in (True, False)}
    for _ in range(rounds):
        for name, way in ways.items():
            for joined in (True, False):
                batches = [inputs(ids)] if joined else [inputs(ids[row : row + 1]) for row in range(texts)]
                way(batches[0])
                started = time.thread_time()
                for batch in batches:
                    way(batch)
                took[name, joined].append(time.thread_time() - started)
    cells = [f"{texts} x {tokens}"]
    for name in ways:
        batch, single = (statistics.median(took[name, joined]) * 1e3 for joined in (True, False))
        cells.append(f"{batch:.1f}" if texts == 1 else f"{batch:.1f} ({single:.1f})")
    return cells


def _turns(turns: int) -> list[list[str]]:
    """Return a line per backend, each measured in a process of its own."""
    lines = []
    for name, fields in WAYS.items():
        command = [sys.executable, "-c", _TURNS, json.dumps(fields), str(turns), str(ROOT / "README.md")]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        loaded, cpu, memory, peak, has_torch = json.loads(done.stdout)
        lines.append([name, f"{cpu:.0f}", f"{loaded:.1f}", f"{memory:.0f}", f"{peak:.0f}", str(has_torch)])
    return lines


def _compute_in_python() -> None:
    number = 0
    while True:
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--busy", type=int, default=0, help="threads that compute in Python meanwhile")
    parser.add_argument("--turns", type=int, default=0, help="also score so many turns of five new passages")
    given = parser.parse_args()
    from rageval_hooks.models.embedder import load_embedder
    from rageval_hooks.models.pytorch import limit_threads
    from rageval_hooks.settings import ModelSettings

    print(describe_machine())
    print(", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "onnxruntime", "onnx")), end="\n\n")
    ways = {name: load_embedder(ModelSettings(**fields))._forward for name, fields in WAYS.items()}
    limit_threads()
    for _ in range(given.busy):
        threading.Thread(target=_compute_in_python, daemon=True).start()
    lines = [_time(ways, texts, tokens, given.rounds) for texts, tokens in SHAPES]
    print("CPU ms of a pass; in brackets, of the same texts one by one\n")
    print(table(["texts x tokens", *WAYS], lines))
    if given.turns:
        print("\nfive new passages of 1,150 characters per turn\n")
        print(
            table(
                ["backend", "CPU ms per turn", "import and load s", "MiB loaded", "MiB most", "torch"],
                _turns(given.turns),
            )
        )


if __name__ == "__main__":
    main()
