"""ROUGE between pairs of answers, computed by the package rouge-score."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final, NamedTuple

from rageval_hooks.errors import requires

ROUGE: Final = ("rouge1", "rouge2", "rougeL")


class RougePairs(NamedTuple):
    """ROUGE of the pairs (1, 2), (1, 3) … (2, 3) … of the answers that have words.

    Attributes:
        pairs: by the names of :data:`ROUGE`, each with ``precision``, ``recall`` and ``fmeasure``.
        usable: number of answers that have words.
    """

    pairs: tuple[Mapping[str, Any], ...]
    usable: int


def rouge_pairs(answers: Sequence[str]) -> RougePairs:
    """Compare all pairs of answers.

    The package reads the letters a to z and digits only: an answer in another script has no words.

    Args:
        answers: the answers.

    Raises:
        MissingDependencyError: rouge-score is not installed.
    """
    with requires("rouge-score", "offline", "ROUGE"):
        from rouge_score import rouge_scorer, tokenizers  # type: ignore[import-untyped]
    tokenizer = tokenizers.DefaultTokenizer()
    usable = [answer for answer in answers if tokenizer.tokenize(answer)]
    scorer = rouge_scorer.RougeScorer(list(ROUGE), tokenizer=tokenizer)
    pairs = tuple(scorer.score(earlier, later) for earlier, later in combinations(usable, 2))
    return RougePairs(pairs, len(usable))
