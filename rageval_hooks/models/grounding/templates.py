"""How models want their input written. A model gives meaningless numbers for any other form.

Sources, read in November 2026:

==============  =====================================================================================
``lettucedetect``  the package lettucedetect 0.2.3: ``prompts/qa_prompt_en.txt``, ``summary_prompt_en.txt``,
                ``detectors/transformer.py`` (at most 4,096 tokens)
``minicheck``   github.com/Liyan06/MiniCheck, ``minicheck/inference.py``: source and claim joined by the end token;
                sources in chunks of 400 tokens (500 words for Flan-T5), at most 2,048 tokens (512 for RoBERTa)
``factcg``      github.com/derenlei/FactCG, ``factcg/utils.py`` and ``inference.py``: one text, in chunks of 550
                words, at most 2,048 tokens
``pair``        the model cards of ``cross-encoder/nli-*``: premise and hypothesis as a pair of at most 512 tokens
==============  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

__all__ = ["FACTCG", "HHEM", "LETTUCEDETECT", "MINICHECK", "PAIR", "PairTemplate", "lettucedetect_prompt"]

LETTUCEDETECT: Final = "lettucedetect"
MINICHECK: Final = "minicheck"
FACTCG: Final = "factcg"
PAIR: Final = "pair"
HHEM: Final = "hhem"


def lettucedetect_prompt(query: str, texts: Sequence[str]) -> str:
    """Return the prompt that LettuceDetect's models were trained with; the answer is the second text of the pair."""
    context = "\n".join(f"passage {number}: {text}" for number, text in enumerate(texts, 1))
    # Their training data has questions and summaries; a turn without a question is read as a summary.
    if not query:
        return f"Summarize the following text:\n{context}\noutput:"
    return (
        f"Briefly answer the following question:\n{query}\n"
        f"Bear in mind that your response should be strictly based on the following {len(texts)} passages:\n{context}\n"
        "In case the passages do not contain the necessary information to answer the question, "
        'please reply with: "Unable to answer based on given passages."\noutput:'
    )


@dataclass(frozen=True, kw_only=True)
class PairTemplate:
    """How a source and a claim become the input of a sequence-pair model.

    Attributes:
        name: the template's name.
        join: makes one text of source, claim and the tokenizer's end token; None for a pair of texts.
        limit: the most tokens of one input.
        window: the most tokens of a source in one input.
    """

    name: str
    join: Callable[[str, str, str], str] | None
    limit: int
    window: int


def _minicheck(source: str, claim: str, end: str) -> str:
    return f"{source}{end}{claim}"


def _minicheck_t5(source: str, claim: str, end: str) -> str:
    return f"predict: {source}{end}{claim}"


def _factcg(source: str, claim: str, _: str) -> str:
    question = f'Choose your answer: based on the paragraph above can we conclude that "{claim}"?'
    return f"{source}\n\n{question}\n\nOPTIONS:\n- Yes\n- No\nI think the answer is "


PAIR_TEMPLATES: Final = {
    PAIR: PairTemplate(name=PAIR, join=None, limit=512, window=400),
    MINICHECK: PairTemplate(name=MINICHECK, join=_minicheck, limit=2048, window=400),
    # 500 words and 550 words of English are about 650 and 700 tokens.
    f"{MINICHECK}-t5": PairTemplate(name=MINICHECK, join=_minicheck_t5, limit=2048, window=650),
    FACTCG: PairTemplate(name=FACTCG, join=_factcg, limit=2048, window=700),
}
