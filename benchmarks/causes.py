"""Is the cause of a verdict right? Injects faults into questions and answers of public data, and counts the causes.

    python benchmarks/causes.py CLAPNQ.jsonl XQUAD.json                 # lexical tier
    python benchmarks/causes.py CLAPNQ.jsonl XQUAD.json --tier minilm

CLAPNQ is ``annotated_data/dev/clapnq_dev_answerable.jsonl`` of primeqa/clapnq, XQUAD is ``xquad.en.json`` of
google-deepmind/xquad. Each fault is made as often as the data allows, at most ``--most`` times per kind. The confusion
matrix counts the turns whose verdict is not good; the last column is the share of all turns that get such a verdict.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import rageval_hooks
from rageval_hooks import Passage, Turn
from rageval_hooks.score import CAUSES
from rageval_hooks.settings import LEXICAL
from rageval_hooks.text.sentences import sentence_spans

REFUSALS = (
    "I don't know.",
    "The passages do not mention this.",
    "I could not find this in the documents.",
    "Sorry, I cannot answer this question with the given context.",
)
QUESTIONS_BACK = (
    "Could you tell me which one you mean?",
    "Which of them are you interested in?",
    "Could you please clarify your question?",
)
TALK = ("Sure! Here is what I found:", "You're welcome! I hope this helps.", "Great question!")


@dataclass(frozen=True)
class Example:
    """A question with the passage and the sentences that answer it."""

    question: str
    passage: str
    answer: str
    source: int


def examples(clapnq: Path, xquad: Path) -> Iterator[Example]:
    """Yield the questions of both sets."""
    for number, line in enumerate(clapnq.read_text(encoding="utf-8").splitlines()):
        row = json.loads(line)
        found = row["output"][0]["selected_sentences"]
        if found:
            yield Example(row["input"], row["passages"][0]["text"], " ".join(found), number)
    for number, article in enumerate(json.loads(xquad.read_text(encoding="utf-8"))["data"], 10_000):
        for paragraph in article["paragraphs"]:
            text = paragraph["context"]
            for question in paragraph["qas"]:
                start = question["answers"][0]["answer_start"]
                spans = [text[a:b] for a, b in sentence_spans(text) if a <= start < b]
                if spans:
                    yield Example(question["question"], text, spans[0].strip(), number)


def faults(all_of_them: list[Example], most: int, chance: random.Random) -> Iterator[tuple[str, Turn]]:
    """Yield turns with the cause that each should have."""
    for number, one in enumerate(chance.sample(all_of_them, min(most, len(all_of_them)))):
        other, third = chance.sample([found for found in all_of_them if found.source != one.source], 2)
        right, wrong, more = (Passage(text=text.passage) for text in (one, other, third))
        unseen = right.model_copy(update={"in_prompt": False})
        wrong, more = (passage.model_copy(update={"in_prompt": True}) for passage in (wrong, more))
        refusal = REFUSALS[number % len(REFUSALS)]
        first, second = chance.sample(range(20, 400), 2)
        figures = f"The first part took {first} days and the second part took {second} days."
        made = {
            # Every other time the answer adds a sentence, or is another answer.
            "unsupported": ((right, more), f"{one.answer} {other.answer}" if number % 2 else other.answer),
            "not_retrieved": ((wrong, more), one.answer),
            "not_shown": ((wrong, more, unseen), refusal if number % 2 else one.answer),
            "off_topic": ((right, wrong), other.answer),
            "refused": ((right, wrong), refusal),
            "nothing_found": ((wrong, more), refusal),
            "computed": ((right, Passage(text=figures)), f"{one.answer} The total was {first + second} days."),
            "no_claims": ((right,), TALK[number % len(TALK)]),
            "no_passages": ((), one.answer),
            "asks_back": ((right, wrong), QUESTIONS_BACK[number % len(QUESTIONS_BACK)]),
        }
        for cause, (passages, answer) in made.items():
            yield cause, Turn(query=one.question, passages=passages, response=answer)


def main() -> None:
    """Print the matrix in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("clapnq", type=Path)
    parser.add_argument("xquad", type=Path)
    parser.add_argument("--tier", choices=(LEXICAL, "minilm"), default=LEXICAL)
    parser.add_argument("--most", type=int, default=150)
    given = parser.parse_args()
    models = {"download": False, "load_timeout": 600, "cross_encoder": LEXICAL, "nlp": LEXICAL}
    if given.tier == LEXICAL:
        models["embedder"] = LEXICAL
    found: dict[str, Counter[str]] = {}
    made = faults(list(examples(given.clapnq, given.xquad)), given.most, random.Random(1))
    for cause, turn in made:
        verdict = rageval_hooks.evaluate(turn, metrics=["verdict"], models=models).results[0]
        found.setdefault(cause, Counter())[verdict.cause or "none"] += 1
    columns = [cause for cause in CAUSES if any(counts[cause] for counts in found.values())]
    print(f"| fault | {' | '.join(columns)} | right | not good |\n|{'---|' * (len(columns) + 3)}")
    for cause, counts in found.items():
        told = counts.total() - counts["none"]
        cells = [str(counts[column] or "") for column in columns]
        right = f"{counts[cause] / told:.0%}" if told else "-"
        print(f"| {cause} | {' | '.join(cells)} | {right} | {told / counts.total():.0%} of {counts.total()} |")


if __name__ == "__main__":
    main()
