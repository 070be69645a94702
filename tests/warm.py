"""Runs commands and scripts in forks of a process that has imported what they need.

A fresh interpreter spends seconds of CPU on imports. A fork starts at once, and is a real process too: it has its own
environment, directory, standard streams, signals and exit status, and it can be interrupted and killed. Tests of what
happens during imports, or when an interpreter starts or ends, need a fresh one: ``tests.interpreter``.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["WarmProcess", "run_command", "run_warm_script", "start_command"]

_ROOT = Path(__file__).parents[1]
_LIMIT = 240
"""Seconds after which a process counts as hanging."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.preloaded"])


class WarmProcess:
    """A process that runs a function as its main program.

    Use it as a context manager: a process that is still running at the end is killed.

    Args:
        main: the function.
        arguments: its ``sys.argv``.
        folder: the working directory.
        environment: its variables.
    """

    def __init__(
        self,
        main: Callable[[], None],
        arguments: Sequence[str],
        *,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._arguments = list(arguments)
        self._environment = dict(os.environ if environment is None else environment)
        self._streams = TemporaryDirectory()
        self._out, self._err = Path(self._streams.name, "out"), Path(self._streams.name, "err")
        self._process = _CONTEXT.Process(
            target=_be, args=(main, self._arguments, folder or Path.cwd(), self._environment, self._out, self._err)
        )
        # The server that is forked finds tests.preloaded from its working directory, and a test may have changed ours.
        with contextlib.chdir(_ROOT):
            forkserver.ensure_running()
        self._process.start()

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.kill()
        self._process.join(10)
        self._process.close()
        self._streams.cleanup()

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def wait(self) -> int:
        """Return the exit status; negative if a signal ended the process.

        Raises:
            AssertionError: the process hangs.
        """
        self._process.join(_LIMIT)
        assert not self._process.is_alive(), f"{self._arguments} hangs"
        return self._process.exitcode or 0

    def output(self) -> str:
        """Return what the process wrote to its standard output."""
        return self._out.read_text(self._encoding)

    def errors(self) -> str:
        """Return what the process wrote to its standard error."""
        return self._err.read_text(self._encoding)

    @property
    def _encoding(self) -> str:
        return self._environment.get("PYTHONIOENCODING", "utf-8")


def start_command(
    *arguments: str, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> WarmProcess:
    """Start ``rageval-hooks`` with arguments."""
    from rageval_hooks.cli import main

    given = ["rageval-hooks", *arguments]
    return WarmProcess(main, given, folder=folder, environment=environment)


def run_command(
    *arguments: str, status: int = 0, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``rageval-hooks`` with arguments; return its exit status and what it printed.

    Raises:
        AssertionError: the exit status is another; the message is its standard error.
    """
    with start_command(*arguments, folder=folder, environment=environment) as process:
        return _completed(process, arguments, status)


def run_warm_script(
    script: str, *arguments: object, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script; return what it printed.

    Raises:
        AssertionError: it failed; the message is its standard error.
    """
    given = ["-c", script, *map(str, arguments)]
    with WarmProcess(_execute, given, folder=folder, environment=environment) as process:
        return _completed(process, given, 0)


def _completed(process: WarmProcess, arguments: Sequence[str], status: int) -> subprocess.CompletedProcess[str]:
    found = process.wait()
    assert found == status, process.errors()
    return subprocess.CompletedProcess(list(arguments), found, process.output(), process.errors())


def _execute() -> None:
    script = sys.argv.pop(1)
    exec(compile(script, "<script>", "exec"), vars(sys.modules["__main__"]))


def _be(
    main: Callable[[], None], arguments: list[str], folder: Path, environment: dict[str, str], out: Path, err: Path
) -> None:
    """Become the process of a command, run it, and end as an interpreter ends."""
    for number, path in ((1, out), (2, err)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, number)
        os.close(descriptor)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdout = open(1, "w", encoding=encoding, closefd=False)  # noqa: SIM115 - the standard streams of this process
    sys.stderr = open(2, "w", encoding=encoding, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # A console script does not import from the current directory.
    sys.path[:] = [*environment.get("PYTHONPATH", "").split(os.pathsep), *sys.path]
    sys.path[:] = [entry for entry in sys.path if entry]
    sys.argv = arguments
    status = 0
    try:
        main()
    except SystemExit as ending:
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
