"""Starts an application so that it is instrumented from its first import on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from rageval_hooks.errors import ConfigurationError

_STARTUP = Path(__file__).resolve().parent / "startup"
"""The folder with our ``sitecustomize``, which Python imports when it starts."""

_LAUNCHED = "_RAGEVAL_LAUNCHED"
"""Holds the id of the process that is started. The ``sitecustomize`` of that one says if something is missing."""


def launch(command: Sequence[str]) -> NoReturn:
    """Replace this process by a command whose Python processes are instrumented.

    Raises:
        ConfigurationError: there is no such program.
        OSError: the program cannot be started.
    """
    program = shutil.which(command[0])
    if program is None:
        hint = f": run it with Python, as in `python {command[0]}`" if command[0].endswith(".py") else ""
        raise ConfigurationError(f"there is no program {command[0]!r}{hint}")
    environment = environment_with_startup(os.environ)
    if sys.platform == "win32":  # Windows cannot replace a process: the shell would not wait for the new one
        done = subprocess.run([program, *command[1:]], env=environment, check=False)  # noqa: S603 - the user's own command
        sys.exit(done.returncode)
    os.execve(program, list(command), environment)  # noqa: S606 - the user's own command


def environment_with_startup(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which Python starts with our ``sitecustomize``."""
    startup = str(_STARTUP)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path and path != startup]
    return {**environment, "PYTHONPATH": os.pathsep.join([startup, *paths]), _LAUNCHED: str(os.getpid())}
