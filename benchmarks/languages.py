"""Do ``groundedness`` and ``faithfulness`` tell supported from unsupported answers in other languages?

    python benchmarks/languages.py

Ten pairs per language, written for this script, in languages.toml: a passage, a sentence that it supports in other
words, and the same sentence with one thing wrong. A pair is right if the supported sentence has the higher score, and
tied if both are equal. Lexical tier. Ten pairs show whether a score means anything in a language. They do not show how
well it agrees with people.

A second table says how well the language of these sentences is detected, and that of ninety short questions: by the
rules, and by the extra ``languages`` if it is installed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rageval_hooks import Passage, Score, Turn, evaluate
from rageval_hooks.text.language import language_by_rules, language_of, prepare_language_detection

TEXTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SCORES: Final = ("groundedness", "faithfulness")


def scores(response: str, passage: str) -> dict[str, float]:
    """Return the scores of a response; a skipped one is -1."""
    turn = Turn(query="", passages=(Passage(text=passage),), response=response)
    found = evaluate(turn, metrics=list(SCORES), models="lexical").results
    values = {result.name: result.value for result in found if isinstance(result, Score)}
    return {name: values.get(name, -1.0) for name in SCORES}


def main() -> None:
    """Print a table."""
    print("| language | score | right | tied | wrong | pairs |")
    print("|---|---|---|---|---|---|")
    for texts in TEXTS.values():
        if not (pairs := texts.get("pairs")):
            continue
        found = [[scores(one, texts["passage"]) for one in pair] for pair in pairs]
        for name in SCORES:
            differences = [one[name] - other[name] for one, other in found]
            right, tied = sum(value > 1e-9 for value in differences), sum(abs(value) <= 1e-9 for value in differences)
            print(f"| {texts['name']} | {name} | {right} | {tied} | {len(pairs) - right - tied} | {len(pairs)} |")
    print(*detection(), sep="\n")


def detection() -> Iterator[str]:
    """Yield a table: how often the language of a text is right, undecided and wrong."""
    sentences = [(code, one) for code, texts in TEXTS.items() for pair in texts.get("pairs", ()) for one in pair]
    questions = [(code, one) for code, texts in TEXTS.items() for one in texts["questions"]]
    prepare_language_detection(wait=True)
    yield "\n| texts | detector | right | undecided | wrong | of |\n|---|---|---|---|---|---|"
    for what, texts in (("sentences", sentences), ("short questions", questions)):
        for name, detect in (("rules", language_by_rules), ("installed", language_of)):
            found = [(code, detect(text)) for code, text in texts]
            right, undecided = sum(code == one for code, one in found), sum(one is None for _, one in found)
            yield f"| {what} | {name} | {right} | {undecided} | {len(texts) - right - undecided} | {len(texts)} |"


if __name__ == "__main__":
    main()
