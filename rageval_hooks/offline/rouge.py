"""ROUGE between pairs of answers, computed by the package rouge-score."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from rageval_hooks.errors import requires

ROUGE: Final = ("rouge1", "rouge2", "rougeL")


def rouge_pairs(answers: Sequence[str]) -> list[dict[str, float]]:
    """Return the F1 of the pairs (1, 2), (1, 3) … (2, 3) … of the answers that have words, by the names of ``ROUGE``.

    The package reads the letters a to z and digits only: an answer in another script has no words.

    Raises:
        MissingDependencyError: rouge-score is not installed.
    """
    with requires("rouge-score", "offline", "ROUGE"):
        from rouge_score import rouge_scorer, tokenizers  # type: ignore[import-untyped]
    tokenizer = tokenizers.DefaultTokenizer()
    usable = [answer for answer in answers if tokenizer.tokenize(answer)]
    scorer = rouge_scorer.RougeScorer(list(ROUGE), tokenizer=tokenizer)
    found = (scorer.score(earlier, later) for earlier, later in combinations(usable, 2))
    return [{name: score.fmeasure for name, score in pair.items()} for pair in found]
