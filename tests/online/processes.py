"""Runs scripts that use the package as applications do, and reads the evaluations that they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.warm import run_warm_script

__all__ = ["FORKED_QUESTIONS", "FORKED_WORKERS", "PRELUDE", "questions", "run", "run_fresh"]

PRELUDE = """
import asyncio, json, logging, os, sys, threading, time
logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
import rageval_hooks
from tests.integrations.langchain.fakes import lcel, FACTS
out = sys.argv[1]
"""

# A pre-fork server such as gunicorn, with an application that was loaded and used before: all processes answer.
FORKED_WORKERS = """
children = []
for child in range(3):
    pid = os.fork()
    if pid == 0:
        for number in range(5):
            lcel().invoke(f"child {child} {number}")
        sys.exit(0)
    children.append(pid)
for pid in children:
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
lcel().invoke("parent after")
"""
FORKED_QUESTIONS = ["parent before", "parent after"] + [f"child {c} {n}" for c in range(3) for n in range(5)]


def run(script: str, tmp_path: Path, **environment: str) -> tuple[list[dict[str, Any]], str]:
    """Run a script in a fork that has the imports; return the evaluations that it wrote, and its standard error."""
    out = tmp_path / "out.jsonl"
    result = run_warm_script(PRELUDE + script, out, environment=_environment(out, environment))
    return _written(out), result.stderr


def run_fresh(
    script: str, tmp_path: Path, timeout: float = 240, **environment: str
) -> tuple[list[dict[str, Any]], str]:
    """Run a script in a fresh interpreter, for tests of imports and of how an interpreter ends."""
    out = tmp_path / "out.jsonl"
    command = [sys.executable, "-c", PRELUDE + script, str(out)]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, env=_environment(out, environment), check=False
    )
    assert result.returncode == 0, result.stderr
    return _written(out), result.stderr


def questions(evaluations: list[dict[str, Any]], stage: str = "inline") -> list[str]:
    """Return the questions of the turns that were exported at a stage."""
    return [evaluation["turn"]["query"] for evaluation in evaluations if evaluation["stage"] == stage]


def _environment(out: Path, further: dict[str, str]) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "RAGEVAL_"))}
    return {
        **clean,
        "RAGEVAL_JSONL_PATH": str(out),
        "RAGEVAL_EXPORTERS": "jsonl",
        "RAGEVAL_INLINE_BUDGET_MS": "20000",
        **further,
    }


def _written(out: Path) -> list[dict[str, Any]]:
    lines = out.read_text().splitlines() if out.exists() else []
    return [json.loads(line) for line in lines]
