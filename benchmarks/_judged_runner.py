"""Scores rows with one library, in that library's environment.

    python _judged_runner.py CASE OUT < order.json

The order has the rows, the judge's URL and the concurrency. Times, scores and versions are written to the file OUT, as
libraries print what they like. Only the library under test is imported.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

MODEL = "gpt-4o-mini"  # of which DeepEval and Ragas know that it has structured output
Scores = dict[str, list[Any]]
"""Score → a value per row."""


def ours(order: dict[str, Any], metrics: list[str]) -> Callable[[], Scores]:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    import pandas  # noqa: F401  # loaded on first use, and this is no part of the scoring

    import rageval_hooks
    from rageval_hooks.judges.openai import OpenAIJudge

    judge = OpenAIJudge(MODEL, base_url=order["url"], api_key="none", max_concurrency=order["concurrency"])
    data = [
        {"question": row["question"], "answer": row["answer"], "contexts": row["passages"]} for row in order["rows"]
    ]
    names = {
        "trace": ("trace.supported_share", "trace.context_relevance", "trace.completeness"),
        "ranking": ("ap@5",),
        "no_answer": ("no_answer",),
    }

    def score() -> Scores:
        frame = rageval_hooks.score_dataset(
            data, metrics=metrics, models="lexical", judge=judge, concurrency=order["concurrency"], progress=False
        )
        return {name: frame[name].tolist() for metric in metrics for name in names[metric]}

    return score


def ragas(order: dict[str, Any]) -> Callable[[], Scores]:
    from langchain_core.embeddings import DeterministicFakeEmbedding
    from openai import AsyncOpenAI
    from ragas import EvaluationDataset, evaluate
    from ragas.llms import llm_factory
    from ragas.metrics import Faithfulness, LLMContextPrecisionWithReference, ResponseRelevancy
    from ragas.run_config import RunConfig

    llm = llm_factory(MODEL, client=AsyncOpenAI(base_url=order["url"], api_key="none"))
    metrics = [Faithfulness(), ResponseRelevancy(), LLMContextPrecisionWithReference()]
    dataset = EvaluationDataset.from_list(
        [
            {
                "user_input": row["question"],
                "response": row["answer"],
                "retrieved_contexts": row["passages"],
                "reference": row["reference"],
            }
            for row in order["rows"]
        ]
    )

    def score() -> Scores:
        result = evaluate(
            dataset,
            metrics=metrics,
            llm=llm,
            # Vectors that cost nothing: only the judge is compared.
            embeddings=DeterministicFakeEmbedding(size=32),
            run_config=RunConfig(max_workers=order["concurrency"]),
            show_progress=False,
        )
        return {metric.name: [row[metric.name] for row in result.scores] for metric in metrics}

    return score


def deepeval(order: dict[str, Any], *, shared_client: bool = False, reasons: bool = True) -> Callable[[], Scores]:
    from deepeval import evaluate
    from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig, ErrorConfig
    from deepeval.metrics import AnswerRelevancyMetric, ContextualRelevancyMetric, FaithfulnessMetric
    from deepeval.models import OpenAIModel
    from deepeval.test_case import LLMTestCase
    from openai import DefaultAsyncHttpxClient

    # By default it makes a client for each call, and loads the TLS certificates each time.
    options = {"async_http_client": DefaultAsyncHttpxClient()} if shared_client else {}
    model = OpenAIModel(MODEL, base_url=order["url"], api_key="none", **options)
    kinds = (FaithfulnessMetric, AnswerRelevancyMetric, ContextualRelevancyMetric)
    metrics = [kind(model=model, include_reason=reasons) for kind in kinds]
    cases = [
        LLMTestCase(
            input=row["question"],
            actual_output=row["answer"],
            retrieval_context=row["passages"],
            expected_output=row["reference"],
        )
        for row in order["rows"]
    ]

    def score() -> Scores:
        result = evaluate(
            cases,
            metrics,
            async_config=AsyncConfig(max_concurrent=order["concurrency"]),
            display_config=DisplayConfig(show_indicator=False, print_results=False, inspect_after_run=False),
            cache_config=CacheConfig(write_cache=False),
            error_config=ErrorConfig(ignore_errors=True),
        )
        found: Scores = {}
        for case in result.test_results:
            for entry in case.metrics_data or []:
                found.setdefault(entry.name, []).append(entry.score)
        return found

    return score


CASES: dict[str, tuple[Callable[[dict[str, Any]], Callable[[], Scores]], tuple[str, ...]]] = {
    "rageval-hooks: trace": (lambda order: ours(order, ["trace"]), ("rageval-hooks", "openai")),
    "rageval-hooks: trace, ranking, no_answer": (
        lambda order: ours(order, ["trace", "ranking", "no_answer"]),
        ("rageval-hooks", "openai"),
    ),
    "Ragas": (ragas, ("ragas", "instructor", "langchain-core", "openai")),
    "DeepEval": (deepeval, ("deepeval", "openai")),
    "DeepEval, shared HTTP client": (lambda order: deepeval(order, shared_client=True), ("deepeval", "openai")),
    "DeepEval, shared HTTP client, no reasons": (
        lambda order: deepeval(order, shared_client=True, reasons=False),
        ("deepeval", "openai"),
    ),
}
"""Case → what prepares it, and the packages whose versions count."""


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    case, out = sys.argv[1:]
    prepare, packages = CASES[case]
    score = prepare(json.load(sys.stdin))
    wall, cpu = time.perf_counter(), time.process_time()
    scores = score()
    found = {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "cpu_with_start": time.process_time(),
        "scores": scores,
        "versions": {name: version(name) for name in packages},
    }
    Path(out).write_text(json.dumps(found))
    # Telemetry and tracing threads of libraries would delay the exit.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
