"""Write docs/agreement.md: how well each local score agrees with people, in words and figures.

    python benchmarks/agreement_page.py > docs/agreement.md

The figures are in agreement.json, from validity.py --json and fit_faithfulness.py; RESULTS.md says how they were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rageval_hooks.offline.agreement.render import strength

FIGURES: Final = Path(__file__).with_name("agreement.json")

INTRODUCTION: Final = """\
# Agreement with people

This page is generated (`python benchmarks/agreement_page.py > docs/agreement.md`).

How well does each local score sort answers as people do? AUROC is the probability that an answer that people found
good scores better than one that they found bad: 0.5 is chance, 1 is perfect. Brackets have the 95 %
interval (bootstrap
over documents). The first figure is with the embedder all-MiniLM-L6-v2, the second in the lexical tier
(`models="lexical"`). The data, the method and all other figures: [benchmarks/RESULTS.md](../benchmarks/RESULTS.md).

Your texts differ from these. Label about two hundred of your own answers, and measure:

```
rageval-hooks agreement labelled.csv                    # a column "label" with 1 (good) or 0 (bad)
rageval-hooks agreement scored.jsonl --label verdict    # the output of `rageval-hooks score`, and its labels
```

It prints the AUROC, Cohen's kappa of the labels pass and fail with those of people, the balanced accuracy, the
calibration error, and their intervals. `--group COLUMN` names the document of a row: rows of one document are not
independent.
"""

SCORES: Final = {
    "faithfulness": (
        "Look at this one first. It sees unsupported statements as `groundedness` does, and small edits besides.",
        (
            "Edits that people make on purpose, with the words of the text (BUMP): hardly better than chance. Roles "
            "that are swapped and told with another verb. Common knowledge, which experts accept without a source."
        ),
    ),
    "groundedness": (
        "Single statements against a passage, and dialogue.",
        "Small edits: one word swapped, a number changed, a negation. Long expert answers.",
    ),
    "unsupported_facts": (
        "Claims with many names and numbers. What it lists is easy to check.",
        "Most wrong statements without names and numbers; a right number in a wrong place.",
    ),
    "semantic_grounding": (
        "Whether answer and context have the same topic.",
        "Whether the context supports the answer.",
    ),
    "entity_consistency": ("Names and numbers, as a share.", "Answers without entities: it is skipped there."),
    "factual_accuracy": (
        "Comparison with other tools that define it so. `hallucination` is 1 minus it and agrees as well.",
        "On most sets `faithfulness` agrees better.",
    ),
    "context_relevance": ("Whether a passage answers the question.", "Whether the answer is right."),
}

SETS: Final = {
    "begin_wow_test": "dialogue, short replies",
    "faithdial_gold": "dialogue",
    "wice_test": "Wikipedia claims, long sources",
    "expertqa_test": "experts' questions, long answers",
    "summedits": "summaries with small edits",
    "bump_test": "summaries that people made wrong on purpose",
    "copies_test": "copied sentences, edited by rules",
    "edits_test": "supported answers, edited by rules",
    "clapnq_dev": "passage answers the question",
}


def page(figures: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    for score, (good, poor) in SCORES.items():
        yield f"## {score}\n"
        yield f"**Agrees on**: {good}\n"
        yield f"**Does not see**: {poor}\n"
        yield "| labelled answers | in words | MiniLM | lexical | rows |"
        yield "|---|---|---|---|---|"
        yield from _rows([figure for figure in figures if figure["score"] == score])
        yield ""
    yield "`answer_relevance` and `concept_completeness` were not measured, for lack of a labelled set.\n"
    yield (
        "† Measured with an earlier version of this score: embedding all sets again takes hours. Since then, citation "
        "markers are removed before embedding, and `factual_accuracy` compares units. The lexical figures are those of "
        "this version.\n"
    )
    yield "Half of faithdial_gold and of summedits was used to fit `faithfulness`; its figures are from the other half."


def _rows(figures: list[dict[str, Any]]) -> Iterator[str]:
    for name, what in SETS.items():
        tiers = {figure["tier"]: figure for figure in figures if figure["set"] == name}
        if tiers:
            shown = tiers.get("minilm") or tiers["lexical"]
            words = strength(shown["auroc"], shown["low"], shown["high"])
            cells = [_figure(tiers.get(tier)) for tier in ("minilm", "lexical")]
            yield f"| {what} ({name}) | {words} | {' | '.join(cells)} | {shown['rows']} |"


def _figure(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    mark = " †" if figure.get("earlier") else ""
    return f"{figure['auroc']:.2f} ({figure['low']:.2f} to {figure['high']:.2f}){mark}"


if __name__ == "__main__":
    print("\n".join(page(json.loads(FIGURES.read_text(encoding="utf-8")))))
