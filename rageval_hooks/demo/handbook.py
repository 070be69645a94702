"""The documents and questions of the demo."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class HandbookSection:
    """One passage of the handbook."""

    id: str
    text: str


@dataclass(frozen=True)
class DemoQuestion:
    """A question of the demo.

    Attributes:
        text: the question.
        slip: a number in the answer and the wrong one that the demo puts in its place.
        note: what the scores of the answer show; empty for an ordinary question.
    """

    text: str
    slip: tuple[str, str] | None = None
    note: str = ""


QUESTIONS: tuple[DemoQuestion, ...] = (
    DemoQuestion("How long does the crossing from Ardwell to Hallay take?"),
    DemoQuestion("When was the Skerrin Isles Ferry company founded, and by whom?"),
    DemoQuestion("How much does it cost to charge an electric car on the Aurora of Vaila?"),
    DemoQuestion("Can I take my dog on the night boat?"),
    DemoQuestion(
        "How long is the new pier on Hallay and what did it cost?",
        slip=("14.2 million", "41.2 million"),
        note="the demo puts a wrong number into this answer, and the verdict names it",
    ),
    DemoQuestion(
        "Which hotels on Vaila have a swimming pool?",
        note="the handbook has no answer: the passages are about other topics",
    ),
)


def load_handbook() -> list[HandbookSection]:
    """Return the sections of the handbook, from the repository or from the installed package."""
    package = Path(__file__).resolve().parent
    path = package.parents[1] / "examples" / "handbook" / "passages.md"
    text = (path if path.is_file() else package / "passages.md").read_text(encoding="utf-8")
    # A heading such as "## ferries-3" names the section that follows.
    parts = re.split(r"^## (\S+)\n", text, flags=re.MULTILINE)[1:]
    return [HandbookSection(id=name, text=body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)]
