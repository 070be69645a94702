"""Every log message has a code that is described in docs/troubleshooting.md."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
# A call that logs, for example `_logger.warning(…)` or `self._limited_log.warn(…)`.
_LOGS = re.compile(r"(_|\b)log(ger)?\.(info|warn|warning|error|exception|critical|log)$")
# A message's code, at the end of the text.
_CODE = re.compile(r"\[(RAGEVAL-\d{3})\]$")
# This class writes the lines of its callers and adds none.
_WRITER = ROOT / "rageval_hooks" / "runtime" / "logs.py"


def calls() -> Iterator[tuple[str, list[str]]]:
    """Yield the place of each call that logs at INFO or above, and the texts that it is given."""
    for path in sorted((ROOT / "rageval_hooks").rglob("*.py")):
        if path == _WRITER:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and _LOGS.search(ast.unparse(node.func)):
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
                yield f"{path.relative_to(ROOT)}:{node.lineno}", texts


@cache
def codes() -> dict[str, list[str]]:
    """Return the codes of each call."""
    return {place: [found[1] for text in texts if (found := _CODE.search(text))] for place, texts in calls()}


def test_every_message_ends_with_a_code() -> None:
    """The code is a part of the message where it is written: `"… failed [RAGEVAL-204]"`."""
    assert len(codes()) > 50
    assert [place for place, found in codes().items() if len(found) != 1] == []


def test_a_code_belongs_to_one_message() -> None:
    counted = Counter(code for found in codes().values() for code in found)

    assert [code for code, amount in counted.items() if amount > 1] == []


def test_every_code_has_a_section_and_every_section_a_message() -> None:
    sections = re.findall(r"^#### (RAGEVAL-\d{3})$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(sections) == sorted(code for found in codes().values() for code in found)
