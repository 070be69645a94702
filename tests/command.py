"""Runs a command of ``rageval-hooks`` in this process."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner, Result

from rageval_hooks.cli import app


def invoke(*arguments: object, **options: Any) -> Result:
    """Run a command, and raise what it raises.

    Args:
        arguments: the command and its arguments.
        options: by their long names; True for a flag, a tuple for an option that is given several times.
    """
    line = list(map(str, arguments))
    for name, value in options.items():
        values = value if isinstance(value, tuple) else (value,)
        flag = f"--{name.replace('_', '-')}"
        for one in values:
            if one is True:
                line.append(flag)
            elif one is not None and one is not False:
                line += [flag, str(one)]
    done = CliRunner().invoke(app, line)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done
