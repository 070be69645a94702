"""Fill the table of docs/traced-applications.md from recordings: what the spans of each pair have, and what is read.

    python scripts/traced_tables.py RECORDINGS...

A recording is a JSON file with ``framework``, ``instrumentor``, ``versions``, ``recorded``, ``truth`` and ``spans``
(as the SDK's ``to_json`` writes them), as ``scripts/record_traces.py`` makes it.
"""

from __future__ import annotations

import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from rageval_hooks.integrations.opentelemetry import TracedSpan, turns_from_spans
from rageval_hooks.turn import Turn

PAGE = Path(__file__).resolve().parents[1] / "docs" / "traced-applications.md"
BEGIN, END = "<!-- begin of the table -->", "<!-- end of the table -->"
HEAD = """| framework | instrumentor | lacks | turns read right |
|---|---|---|---|"""


def row(pair: tuple[str, str], recordings: list[dict[str, Any]]) -> str:
    """Return the row of a pair of framework and instrumentor."""
    right = recorded = total = 0
    has: dict[str, int] = defaultdict(int)
    for recording in recordings:
        found = list(turns_from_spans(map(TracedSpan.of, recording["spans"])))
        turns = [one for one in found if isinstance(one, Turn)]
        if not recording["recorded"] and any(not turn.missing for turn in turns):
            raise SystemExit(f"{pair}: a whole turn was read from spans without texts")
        expected = recording["truth"].get("turns") or [recording["truth"]]
        # Spans that lack the answer are of an application whose switches are off: other rows say what they have.
        if not recording["recorded"] and not turns:
            continue
        total += len(expected)
        recorded += len(expected) if recording["recorded"] else 0
        known = {turn.response: turn for turn in turns} | {turn.query: turn for turn in turns}
        for one in expected:
            turn = known.get(one["question"]) or known.get(one["answer"])
            if turn is None:
                continue
            is_right = {
                "question": turn.query == one["question"],
                "passages": [passage.text for passage in turn.prompt_passages] == one["passages"],
                "answer": turn.response == one["answer"],
                "tokens": turn.usage is not None,
            }
            for name, is_there in is_right.items():
                has[name] += is_there
            right += recording["recorded"] and all(is_right[name] for name in ("question", "passages", "answer"))
    lacks = {name: total - has[name] for name in ("question", "passages", "answer", "tokens")}
    missing = [name if count == total else f"{name} of {count} in {total}" for name, count in lacks.items() if count]
    versions = {name: text for one in recordings for name, text in one["versions"].items()}
    framework, instrumentor = pair
    newest = next((text for name, text in versions.items() if name.startswith(framework.split()[0])), "")
    read = f"{right} of {recorded}" if recorded else ""
    return f"| {framework} {newest} | {instrumentor} | {', '.join(missing)} | {read} |"


def main() -> None:
    """Read the recordings, and write the table into the page."""
    pairs: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for given in map(Path, sys.argv[1:]):
        for path in sorted(given.glob("*.json")) if given.is_dir() else [given]:
            recording = json.loads(path.read_text())
            pairs[recording["framework"], recording["instrumentor"]].append(recording)
    rows = [HEAD, *(row(pair, found) for pair, found in sorted(pairs.items()))]
    text = PAGE.read_text()
    table = f"{BEGIN}\n" + "\n".join(rows) + f"\n{END}"
    PAGE.write_text(re.sub(rf"{BEGIN}.*?{END}", lambda _: table, text, flags=re.DOTALL))


if __name__ == "__main__":
    main()
