"""Makes the pictures of reports and plots in docs/images: `make docs-images`.

The answers are invented, with a fixed seed; scores, report and plots are made by the commands themselves.

    python scripts/docs_images.py [--chromium /usr/bin/chromium]
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parent.parent / "docs" / "images"
COMMAND = str(Path(sys.executable).parent / "rageval-hooks")
TRACES = "http://localhost:6006/redirects/traces/{trace_id}"
SHOWN = "faithfulness,groundedness,answer_relevance,unsupported_facts,latency,hit@3,declined"
REPEATED = "faithfulness,groundedness,answer_relevance,unsupported_facts,latency"

THINGS = ("pier of Hallay", "ferry to Quern", "lighthouse on Vaila", "swing bridge", "fish market", "breakwater")
# Document, question, and the sentence that answers it.
TOPICS = (
    ("harbour-rules.md", "When was the {thing} opened?", "The {thing} was opened in {year} by the mayor."),
    ("timetable.md", "How long does the {thing} take?", "The {thing} takes {number} minutes from the northern quay."),
    ("fares.md", "What does the {thing} cost for an adult?", "The {thing} costs {number} crowns for an adult."),
    ("history.md", "When was the {thing} rebuilt?", "The {thing} is {number} metres long and was rebuilt in {year}."),
)
REFUSAL = "I cannot answer this question based on the provided documents."
PASSAGES = 4


def answers(seed: int, skill: float, count: int = 60) -> list[dict[str, Any]]:
    """Return the records of a system: with more skill it retrieves, answers and declines better."""
    # The questions are the same for every system.
    asked, system = random.Random(7), random.Random(seed)
    return [_record(number, asked, system, skill) for number in range(count)]


def _record(number: int, asked: random.Random, system: random.Random, skill: float) -> dict[str, Any]:
    document, question, sentence = asked.choice(TOPICS)
    thing = asked.choice(THINGS)
    numbers = {"thing": thing, "year": asked.randint(1890, 2020), "number": asked.randint(5, 59)}
    fact = sentence.format(**numbers)
    target = {"id": f"{document}#{number}", "text": f"{fact} The harbour office keeps the records."}
    others = [_other(asked) for _ in range(PASSAGES)]
    rank = system.choices([0, 1, 2, None], [0.5 + skill, 0.2, 0.15, 0.15])[0]
    found = others if rank is None else [*others[:rank], target, *others[rank:-1]]
    for place, passage in enumerate(found):
        passage |= {"score": round(0.9 - 0.12 * place, 2), "in_prompt": place < PASSAGES - 1}
    is_right = rank is not None and system.random() < 0.7 + skill
    wrong = sentence.format(**{**numbers, "year": numbers["year"] + 4, "number": numbers["number"] + 7})
    turn: dict[str, Any] = {
        "query": question.format(thing=thing),
        "response": fact if is_right else f"{wrong} It is popular with visitors from Skelby.",
        "reference": fact,
        "passages": found,
    }
    record: dict[str, Any] = {
        "rageval_record": 1,
        "id": f"q{number:02}",
        "document": document,
        "target": target["id"],
        "turn": turn,
    }
    if number % 12 == 5:
        is_declined = system.random() < 0.6 + skill
        turn |= {"query": f"How heavy is the {thing}?", "reference": None}
        turn["response"] = REFUSAL if is_declined else f"The {thing} weighs {numbers['number']} tonnes."
        record |= {"target": None, "answerable": False}
    if system.random() < 0.06 - skill / 3:
        error = {"type": "TimeoutError", "message": "no answer within 30 s"}
        turn |= {"response": "", "status": "error", "error": error}
    start, seconds = 1_790_000_000_000_000_000, 1.4 - skill + system.expovariate(1.2)
    turn["timing"] = {"started_at": start, "ended_at": start + int(seconds * 1e9)}
    turn["span"] = {"trace_id": f"{system.getrandbits(128):032x}", "span_id": f"{system.getrandbits(64):016x}"}
    return record


def _other(asked: random.Random) -> dict[str, Any]:
    document, _, sentence = asked.choice(TOPICS)
    text = sentence.format(thing=asked.choice(THINGS), year=asked.randint(1890, 2020), number=asked.randint(5, 59))
    return {"id": f"{document}#{asked.randint(100, 999)}", "text": text}


def scored(folder: Path, name: str, records: list[dict[str, Any]]) -> Path:
    """Score records with the lexical tier and return the file."""
    given, made = folder / f"{name}.answers.jsonl", folder / f"{name}.jsonl"
    given.write_text("".join(json.dumps(record) + "\n" for record in records))
    run("score", given, "--models", "lexical", "--workers", "1", "-o", made)
    return made


def run(*arguments: object) -> None:
    """Run the command of the package; a check of a report that fails is no error here."""
    done = subprocess.run([COMMAND, *map(str, arguments)], check=False, capture_output=True, text=True)
    if done.returncode > 1:
        raise SystemExit(done.stderr)


def take_pictures(browser: Browser, page_file: Path) -> None:
    """Take a picture of the top of a page, and one of an open question."""
    page = browser.new_page(viewport={"width": 1100, "height": 1000}, color_scheme="light")
    page.goto(page_file.as_uri())
    page.wait_for_selector("#questions .opener")
    page.screenshot(path=IMAGES / "report.png")
    page.locator("#questions .opener").first.click()
    page.wait_for_selector(".passages")
    page.locator("#questions").evaluate("element => element.scrollIntoView()")
    page.screenshot(path=IMAGES / "report-question.png")
    page.close()


def finish(path: Path) -> None:
    """Make a picture small and public."""
    # 128 colours are enough for text and flat shapes, and take a third of the space.
    Image.open(path).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    # Outputs of the commands are private by default; pictures of a documentation are not.
    path.chmod(0o644)


def main() -> None:
    """Make all pictures."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--chromium", help="the browser; that of Playwright by default")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = [
            scored(folder, "baseline", answers(seed=1, skill=0.0)),
            scored(folder, "candidate", answers(seed=2, skill=0.15)),
        ]
        page_file = folder / "report.html"
        run("report", *files, "--trace-url", TRACES, "--fail-under", "faithfulness=0.6", "-o", page_file)
        run("plot", *files, "--metrics", SHOWN, "-o", IMAGES / "plot.png")
        runs = [answers(seed=seed, skill=0.15) for seed in (2, 3, 4)]
        repeats = [record | {"run": number} for number, records in enumerate(runs, 1) for record in records]
        repeated = scored(folder, "repeats", repeats)
        run("plot", repeated, "--metrics", REPEATED, "--kind", "consistency", "-o", IMAGES / "consistency.png")
        with sync_playwright() as playwright:
            # A browser without a sandbox starts in containers, too; the page is our own.
            browser = playwright.chromium.launch(executable_path=given.chromium, args=["--no-sandbox"])
            take_pictures(browser, page_file)
            browser.close()
    for name in ("report.png", "report-question.png", "plot.png", "consistency.png"):
        finish(IMAGES / name)


if __name__ == "__main__":
    main()
