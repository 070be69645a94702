"""Write docs/agreement.md: how well each local score agrees with people, in words and figures.

    python benchmarks/agreement_page.py > docs/agreement.md

The figures are in agreement.json, from validity.py --json and fit_faithfulness.py, and in edits.json, from
edit_kinds.py; RESULTS.md says how they were made.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from rageval_hooks.offline.agreement.render import strength

FIGURES: Final = Path(__file__).with_name("agreement.json")
EDITS: Final = Path(__file__).with_name("edits.json")

INTRODUCTION: Final = """\
# Agreement with people

This page is generated (`python benchmarks/agreement_page.py > docs/agreement.md`).

How well does each local score sort answers as people do? AUROC is the probability that an answer that people found
good scores better than one that they found bad: 0.5 is chance, 1 is perfect. Brackets have the 95 % interval (bootstrap
over documents). The first figure is with the embedder all-MiniLM-L6-v2, the second in the lexical tier
(`models="lexical"`). The data, the method and all other figures: [benchmarks/RESULTS.md](../benchmarks/RESULTS.md).

Your texts differ from these. Label about two hundred of your own answers, and measure:

```
rageval-hooks agreement labelled.csv                    # a column "label" with 1 (good) or 0 (bad)
rageval-hooks agreement scored.jsonl --label verdict    # the output of `rageval-hooks score`, and its labels
```

It prints the AUROC, Cohen's kappa of the labels pass and fail with those of people, the balanced accuracy, the
calibration error, and their intervals; and what `fail` is worth as an alarm: the share of the alarms that are right
(precision), the share of the bad answers that raise one (recall), and F1. `--group COLUMN` names the document of a row:
rows of one document are not independent.
"""

SCORES: Final = {
    "faithfulness": (
        "Look at this one first. It sees unsupported statements as `groundedness` does, and small edits besides.",
        (
            "Edits that people make on purpose, with the words of the text (BUMP): little better than chance. Roles "
            "that are swapped and told in other words. Common knowledge, which experts accept without a source."
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


EDITED: Final = """\
### Which edits are seen

Supported answers of the sets above were changed by rules (`benchmarks/_edits.py`), and scored in the lexical tier.
*Seen* is the share of edits that score lower than their own original. The AUROC compares each edit with the originals
of all, which differ in wording more than an edit does: people call many of them supported although they say it in
other words than the passages. *Close* originals say it in nearly the same words (groundedness of .8 or more).

- **Seen**: a name, a number or a negation that the passages contradict, also where the new name or number is elsewhere
  in the passages; the opposite of a word that the passages have (97 % of 212). Sentences that are copied from the
  passages and then edited are told apart almost perfectly (copies_test above).
- **Not seen**: the opposite of a word that the passages do not have, because the original says it in other words (56 of
  72 are missed; the words of the passages do not tell which of the two is right); "not" in a sentence whose verb the
  passages do not have; names in swapped roles, unless the passages have the same verb between them, or the same words
  next to a name. Most swaps lower the score, but many by so little that it does not sort answers.
"""


def page(figures: list[dict[str, Any]], edits: list[dict[str, Any]]) -> Iterator[str]:
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
        if score == "faithfulness":
            yield EDITED
            yield from _edited(edits)
            yield ""
    yield "`answer_relevance` and `concept_completeness` were not measured, for lack of a labelled set.\n"
    yield "Half of faithdial_gold and of summedits was used to fit `faithfulness`; its figures are from the other half."


def _rows(figures: list[dict[str, Any]]) -> Iterator[str]:
    for name, what in SETS.items():
        tiers = {figure["tier"]: figure for figure in figures if figure["set"] == name}
        if tiers:
            shown = tiers.get("minilm") or tiers["lexical"]
            words = strength(shown["auroc"], shown["low"], shown["high"])
            cells = [_figure(tiers.get(tier)) for tier in ("minilm", "lexical")]
            yield f"| {what} ({name}) | {words} | {' | '.join(cells)} | {shown['rows']} |"


def _edited(edits: list[dict[str, Any]]) -> Iterator[str]:
    yield "| edits | number | seen | AUROC | of close originals | seen | AUROC |"
    yield "|---|---|---|---|---|---|---|"
    close = {edit["name"]: edit for edit in edits if edit["by"] == "kind, close originals"}
    for edit in edits:
        if edit["by"] == "kind":
            yield f"| {edit['name']} | {_counted(edit)} | {_counted(close[edit['name']])} |"
        elif edit["by"] == "set":
            yield f"| {edit['name']} | {_counted(edit)} | | | |"


def _counted(edit: dict[str, Any]) -> str:
    return f"{edit['edits']} | {edit['seen']:.0%} | {edit['auroc']:.2f}"


def _figure(figure: dict[str, Any] | None) -> str:
    if figure is None:
        return ""
    return f"{figure['auroc']:.2f} ({figure['low']:.2f} to {figure['high']:.2f})"


if __name__ == "__main__":
    figures, edits = (json.loads(path.read_text(encoding="utf-8")) for path in (FIGURES, EDITS))
    print("\n".join(page(figures, edits)))
