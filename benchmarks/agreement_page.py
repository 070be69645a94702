"""Write docs/agreement.md: how well each local score agrees with people, in words and figures.

    python benchmarks/agreement_page.py > docs/agreement.md

The figures are in agreement.json, from validity.py --json and ragtruth.py; RESULTS.md says how they were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

FIGURES: Final = Path(__file__).with_name("agreement.json")

INTRODUCTION: Final = """\
# Agreement with people

This page is generated (`python benchmarks/agreement_page.py > docs/agreement.md`).

How well does each local score sort answers as people do? AUROC is the probability that an answer that people found
good scores better than one that they found bad: 0.5 is chance, 1 is perfect. The data, the method and all other
figures: [benchmarks/RESULTS.md](../benchmarks/RESULTS.md).

Your texts differ from these. Label about two hundred of your own answers, and measure:

```
rageval-hooks agreement labelled.csv                    # a column "label" with 1 (good) or 0 (bad)
rageval-hooks agreement scored.jsonl --label correct    # the output of `rageval-hooks score`, and its labels
```

It prints the AUROC, Cohen's kappa of the labels pass and fail with those of people, the balanced accuracy, the
calibration error, and their intervals; and what `fail` is worth as an alarm: the share of the alarms that are right
(precision), the share of the bad answers that raise one (recall), and F1. The `verdict` comes first; its alarm is
`bad`.
`--group COLUMN` names the document of a row: rows of one document are not independent.

Files of the exporter `jsonl` and of `rageval-hooks collect` have what people say with
[`feedback`](guides/feedback.md): the first annotation is the label, and `--label` names another one. Of several
people, more than half decide; rows on which they disagree evenly are named and left out. Then there is Krippendorff's
alpha, too: of people among themselves, and of people and the score as one more of them. A score cannot agree better
with people than they do with each other. The judge's verdict is `verdict.trace`, next to the local one.

The last line of each score is the number of labels, of answers drawn at random, that give the share of bad answers
within 3 points: with this score, known for all answers, and without it.
"""

SCORES: Final = {
    "faithfulness": (
        "Look at this one first. It sees unsupported statements as `groundedness` does, and single ones among many.",
        (
            'Opposites ("rose" for "fell"), swapped roles, a right name or number in a wrong place. Edits that people '
            "make on purpose, with the words of the text. Short summaries. Common knowledge, which experts accept "
            "without a source. It is no check of a claim against single pieces of evidence."
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
    "ragtruth_qa": "answers of RAG systems",
    "begin_wow_test": "dialogue, short replies",
    "faithdial_gold": "dialogue",
    "wice_test": "Wikipedia claims, long sources",
    "expertqa_test": "experts' questions, long answers",
    "summedits": "summaries with small edits",
}


FIGURES_HEAD: Final = """
## The figures

AUROC with its 95 % interval (bootstrap over documents). From .9 a score sorts answers nearly as people do, from .8
well, from .7 fairly, from .6 a little better than chance. Scores without a model are in the second table only."""

RAGTRUTH: Final = """\
## As an alarm, on answers of RAG systems

RAGTruth QA test: 829 answers of six models to 148 questions, 160 of them with a span that people marked. An answer with
`faithfulness` *fail* is an alarm. The thresholds were chosen on the first half of the questions.

| detector | precision | recall | F1 |
|---|---|---|---|
| `faithfulness` here, MiniLM, second half | 59% | 55% | 57.1 |
| `faithfulness` here, lexical tier, second half | 54% | 62% | 57.7 |
| `faithfulness` here, MiniLM, all questions | 59% | 46% | 51.7 |
| `faithfulness` here, lexical tier, all questions | 54% | 54% | 53.7 |
| TruLens | | | 36.6 |
| RAGAS | | | 35.7 |
| GPT-4-turbo as a judge | | | 45.6 |
| LettuceDetect-base | | | 65.5 |
| LettuceDetect-large | | | 70.2 |

The other figures are those that the authors of RAGTruth, LettuceDetect and others published for the whole test part.
Of the supported answers 12% have this alarm or *fail* on any score by default (with MiniLM 9%; the same in the second
half). [`verdict`](metrics.md#local) is stricter about what it calls bad: there are its figures.
On HAGRID (1,008 answers of a model, half of them supported) `faithfulness` has an AUROC of .85 in both tiers.
Where a [grounding model](guides/grounding-models.md) can be installed, it finds more.

**Where not to use it**: to check claims against evidence (on experts' long answers a third of the supported ones fail,
on HealthVer and Climate-FEVER more than three quarters), for short summaries with small edits (.60), and for Japanese,
where nothing was measured.
"""


def page(figures: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the page."""
    yield INTRODUCTION
    yield "| score | agrees on | does not see |"
    yield "|---|---|---|"
    for score, (good, poor) in SCORES.items():
        yield f"| `{score}` | {good} | {poor} |"
    yield FIGURES_HEAD
    for tier, title in (("minilm", "all-MiniLM-L6-v2"), ("lexical", "lexical tier")):
        measured = {figure["score"] for figure in figures if figure["tier"] == tier} - {"context_relevance"}
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
        "`concept_completeness` were not measured, for lack of a labelled set.\n"
    )
    yield RAGTRUTH.strip()


def _figure(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    return f"{figure['auroc']:.2f} ({figure['low']:.2f} to {figure['high']:.2f})"


if __name__ == "__main__":
    print("\n".join(page(json.loads(FIGURES.read_text(encoding="utf-8")))))
