"""The examples of extensions work: one new file, and nothing else changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from pytest_examples import CodeExample, find_examples

ROOT = Path(__file__).resolve().parents[3]


def examples() -> list[tuple[CodeExample, CodeExample]]:
    """Return the files to add, each with the check after it."""
    blocks = list(find_examples(ROOT / "examples" / "extending.md"))
    pairs = pairwise(block for block in blocks if block.prefix_settings().get("title"))
    return [(file, check) for file, check in pairs if check.prefix_settings()["title"] == "check"]


def title_of(block: CodeExample) -> str:
    """Return the path of the file that an example adds."""
    return block.prefix_settings()["title"]


def test_there_is_an_example_for_each_extension_point() -> None:
    """Metrics, judges, exporters, file formats and integrations."""
    folders = {str(Path(title_of(file)).parent) for file, _ in examples()}

    assert len(examples()) == 7
    assert folders == {
        "rageval_hooks/metrics/local",
        "rageval_hooks/metrics/judged",
        "rageval_hooks/judges",
        "rageval_hooks/exporters",
        "rageval_hooks/offline/records/formats",
        "rageval_hooks/integrations/tiny_rag",
        "rageval_hooks/integrations/tiny_flow",
    }


@pytest.mark.parametrize(("file", "check"), [pytest.param(*pair, id=title_of(pair[0])) for pair in examples()])
def test_the_example_works(file: CodeExample, check: CodeExample, tmp_path: Path) -> None:
    """A copy of the package with the one new file passes the check."""
    shutil.copytree(ROOT / "rageval_hooks", tmp_path / "rageval_hooks")
    new = tmp_path / title_of(file)
    assert not new.exists()
    new.parent.mkdir(parents=True, exist_ok=True)
    new.write_text(file.source, encoding="utf-8")

    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAGEVAL_")}
    done = subprocess.run(
        [sys.executable, "-c", check.source],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )

    assert done.returncode == 0, done.stderr
