"""Write the figures of docs/agreement.md: how well each local score agrees with people.

    python benchmarks/agreement_page.py            # --check exits with 1 if they are out of date

The figures are in agreement.json, from validity.py --json and ragtruth.py; RESULTS.md says how they were made.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from _common import ROOT

FIGURES: Final = Path(__file__).with_name("agreement.json")
PAGE: Final = ROOT / "docs" / "agreement.md"
BEGIN, END = "<!-- figures:begin -->", "<!-- figures:end -->"
SCORES: Final = (
    "faithfulness",
    "groundedness",
    "unsupported_facts",
    "semantic_grounding",
    "entity_consistency",
    "factual_accuracy",
)
SETS: Final = {
    "ragtruth_qa": "answers of RAG systems",
    "begin_wow_test": "dialogue, short replies",
    "faithdial_gold": "dialogue",
    "wice_test": "Wikipedia claims, long sources",
    "expertqa_test": "experts' questions, long answers",
    "summedits": "summaries with small edits",
}


def lines(figures: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the tables."""
    for tier, title in (("minilm", "all-MiniLM-L6-v2"), ("lexical", "lexical tier")):
        measured = {figure["score"] for figure in figures if figure["tier"] == tier}
        scores = [score for score in SCORES if score in measured]
        yield f"\n| {title} | answers | {' | '.join(f'`{score}`' for score in scores)} |"
        yield f"|---|---|{'---|' * len(scores)}"
        for name, what in SETS.items():
            found = {figure["score"]: figure for figure in figures if (figure["set"], figure["tier"]) == (name, tier)}
            sizes = sorted({figure["rows"] for score, figure in found.items() if score in scores})
            if sizes:
                cells = [_figure(found.get(score)) for score in scores]
                rows = " to ".join(f"{size:,}" for size in dict.fromkeys((sizes[0], sizes[-1])))
                yield f"| {what} ({name}) | {rows} | {' | '.join(cells)} |"
    relevance = {figure["tier"]: figure for figure in figures if figure["score"] == "context_relevance"}
    yield (
        f"\n`context_relevance`, on {relevance['minilm']['rows']} passages of clapnq_dev: "
        f"{_figure(relevance['minilm'])}, in the lexical tier {_figure(relevance['lexical'])}. `answer_relevance` and "
        "`concept_completeness` were not measured, for lack of a labelled set."
    )


def _figure(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    return f"{figure['auroc']:.2f} ({figure['low']:.2f} to {figure['high']:.2f})"


if __name__ == "__main__":
    old = PAGE.read_text(encoding="utf-8")
    tables = "\n".join(lines(json.loads(FIGURES.read_text(encoding="utf-8"))))
    new = f"{old.split(BEGIN)[0]}{BEGIN}\n{tables}\n\n{END}{old.split(END)[1]}"
    if "--check" in sys.argv:
        sys.exit(new != old)
    PAGE.write_text(new, encoding="utf-8")
