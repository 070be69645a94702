"""Runs a script in a fresh interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

__all__ = ["run_script"]


def run_script(script: str, *arguments: object, timeout: float = 240, **environment: str | None) -> str:
    """Run a script; return its standard output.

    Args:
        script: the source.
        arguments: for ``sys.argv[1:]``.
        timeout: seconds after which it counts as hanging.
        environment: variables to set; None takes one away.

    Raises:
        AssertionError: it failed; the message is its standard error.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAGEVAL_")}
    variables["RAGEVAL_INLINE_BUDGET_MS"] = "20000"  # as in tests/conftest.py
    for name, value in environment.items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=variables,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
