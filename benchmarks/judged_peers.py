"""One judged run of rageval-hooks, Ragas and DeepEval on the same scripted judge: time, calls, characters, CPU.

    python benchmarks/judged_peers.py --ragas-python PATH --deepeval-python PATH [--rows 40] [--rounds 3]

    python -m venv RAGAS && RAGAS/bin/pip install ragas 'langchain-community<0.4' 'instructor>=1.10' 'openai<3'
    python -m venv DEEPEVAL && DEEPEVAL/bin/pip install deepeval

A server on loopback speaks the OpenAI chat API. It answers each request after a fixed latency, some at the same time,
and applies the same rules to all libraries, so that comparable scores must come out alike. Every library scores the
same rows (a question, an answer of three sentences, five passages of about 800 characters, a reference) in a separate
process and environment. Each round runs every library once; figures are medians over the rounds. The time is that of
the scoring call, without the import.

What each computes, and the judge calls that it takes for a row:

    rageval-hooks: trace (1 call: faithfulness, context relevance, completeness); ranking (1: average precision of the
        passages); no_answer (1: whether the answer attempts one, which is less than its relevancy)
    Ragas: Faithfulness (2), ResponseRelevancy (1, as its OpenAI client takes one answer per request; embeddings are
        free here), LLMContextPrecisionWithReference (1 per passage)
    DeepEval: FaithfulnessMetric (4), AnswerRelevancyMetric (3), ContextualRelevancyMetric (1 per passage and 1); one
        call of each metric writes its reason, which include_reason=False omits. By default it makes an HTTP client
        for each call, so a run with a shared client is measured too

A real judge takes longer for longer answers and may cache prompts; neither is modelled.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _environments import HERE, describe_machine, table
from _scripted_judge import Counts, ScriptedJudge, rows

OURS = "rageval-hooks: trace"
OURS_THREE = "rageval-hooks: trace, ranking, no_answer"
RAGAS = ("Ragas",)
DEEPEVAL = ("DeepEval", "DeepEval, shared HTTP client", "DeepEval, shared HTTP client, no reasons")

Figures = dict[str, float]


def score_once(python: str, case: str, order: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Score the rows with one library in a new process, and return what it reports."""
    out = folder / "result.json"
    out.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "RAGAS_DO_NOT_TRACK": "true",
        "DEEPEVAL_TELEMETRY_OPT_OUT": "YES",
        "DEEPEVAL_DISABLE_DOTENV": "1",
        "DEEPEVAL_HOME": str(folder),
        "OPENAI_API_KEY": "none",
    }
    process = subprocess.run(
        [python, HERE / "_judged_runner.py", case, out],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        cwd=folder,  # libraries leave files where they run
        env=environment,
        check=False,
    )
    if not out.exists():
        raise SystemExit(f"{case} did not finish:\n{process.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(out.read_text())
    return found


def figures(result: dict[str, Any], counts: Counts, count: int) -> Figures:
    return {
        "wall": result["wall"],
        "calls": counts.calls / count,
        "prompt": counts.prompt / count,
        "answer": counts.answer / count,
        "cpu": result["cpu"],
        "cpu_with_start": result["cpu_with_start"],
    }


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def scores_line(case: str, scores: dict[str, list[Any]], count: int) -> str:
    """Return the mean of each score, and how many rows have no number."""
    parts = []
    for name, values in scores.items():
        numbers = [value for value in values if is_number(value)]
        mean = f"{statistics.fmean(numbers):.3f}" if numbers else "no number"
        # A row that a library does not report at all has no number either.
        parts.append(f"{name} {mean} ({count - len(numbers)} not numbers)")
    return f"- {case}: {', '.join(parts)}"


def lines(measured: dict[str, Figures], reference: str) -> list[list[str]]:
    """Return a row per case; in brackets, how many times as much as the reference."""
    formats = {"wall": ".2f", "calls": ".1f", "prompt": ",.0f", "answer": ",.0f", "cpu": ".2f", "cpu_with_start": ".2f"}
    base = measured[reference]
    return [
        [case, *(f"{found[name]:{form}} ({found[name] / base[name]:.1f})" for name, form in formats.items())]
        for case, found in measured.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ragas-python", metavar="PATH", help="the Python of an environment with Ragas")
    parser.add_argument("--deepeval-python", metavar="PATH", help="the Python of an environment with DeepEval")
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3, help="of which the median is taken")
    parser.add_argument("--latency", type=float, default=0.1, help="seconds that the judge takes for an answer")
    parser.add_argument("--concurrency", type=int, default=8, help="of each library, and of the judge")
    given = parser.parse_args()
    if min(given.rows, given.rounds, given.concurrency) < 1 or given.latency < 0:
        parser.error("--rows, --rounds and --concurrency must be at least 1, and --latency at least 0")
    pythons = dict.fromkeys((OURS, OURS_THREE), sys.executable)
    if given.ragas_python:
        pythons |= dict.fromkeys(RAGAS, given.ragas_python)
    if given.deepeval_python:
        pythons |= dict.fromkeys(DEEPEVAL, given.deepeval_python)

    data = rows(given.rows)
    by_round: dict[str, list[Figures]] = {case: [] for case in pythons}
    results: dict[str, dict[str, Any]] = {}
    machine = describe_machine()
    with ScriptedJudge(data, given.latency, given.concurrency) as judge, tempfile.TemporaryDirectory() as folder:
        order = {"rows": data, "url": judge.url, "concurrency": given.concurrency}
        for _ in range(given.rounds):
            for case, python in pythons.items():
                judge.counts = Counts()
                results[case] = score_once(os.path.abspath(python), case, order, Path(folder))
                by_round[case].append(figures(results[case], judge.counts, given.rows))
                print(f"{case} done", file=sys.stderr)
                if judge.counts.unknown:
                    print(f"{case}: {judge.counts.unknown} requests without a scripted answer", file=sys.stderr)

    measured = {
        case: {name: statistics.median(found[name] for found in rounds) for name in rounds[0]}
        for case, rounds in by_round.items()
    }
    print(
        f"{machine}; {given.rows} rows, {given.rounds} rounds, latency {given.latency:g} s, {given.concurrency} at once"
    )
    for case, result in results.items():
        print(f"- {case}: {', '.join(f'{name} {number}' for name, number in result['versions'].items())}")
    print("\nScores, as a mean over the rows of the last round:")
    for case, result in results.items():
        print(scores_line(case, result["scores"], given.rows))
    print(f"\nMedians; in brackets, times as much as {OURS_THREE}:\n")
    header = ["library", "seconds", "calls per row", "prompt characters per row", "answer characters per row"]
    print(table([*header, "CPU s", "CPU s with the start"], lines(measured, OURS_THREE)))


if __name__ == "__main__":
    main()
