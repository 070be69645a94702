"""Runs commands and scripts in forks of a process that has imported what they need.

A fresh interpreter spends seconds of CPU on imports. A fork starts at once, and is a real process too: it has its own
environment, directory, standard streams, signals and exit status. Tests of what happens during imports, at the start
of an interpreter or when a process is killed need a fresh one: ``tests.interpreter``.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["run_command", "run_warm_script"]

_PRELOAD = (
    "charset_normalizer jinja2 langchain_core.documents langchain_core.runnables langchain_core.tools httpx openai"
    " openai.resources.chat scipy.stats"
    " rageval_hooks.cli rageval_hooks.cli.report rageval_hooks.demo rageval_hooks.guard"
    " rageval_hooks.integrations.langchain.hook rageval_hooks.judges.openai rageval_hooks.offline.scoring"
    " tests.integrations.langchain.fakes"
).split()
_LIMIT = 240
"""Seconds after which a process counts as hanging."""
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([name for name in _PRELOAD if find_spec(name.split(".")[0]) is not None])


def run_command(
    *arguments: str, status: int = 0, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``rageval-hooks`` with arguments; return its exit status and what it printed.

    Raises:
        AssertionError: the exit status is another; the message is its standard error.
    """
    from rageval_hooks.cli import main

    done = _run(main, ["rageval-hooks", *arguments], folder, os.environ if environment is None else environment)
    assert done.returncode == status, done.stderr
    return done


def run_warm_script(
    script: str, *arguments: object, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a script; return what it printed.

    Raises:
        AssertionError: it failed; the message is its standard error.
    """
    given = ["-c", script, *map(str, arguments)]
    done = _run(_execute, given, folder, os.environ if environment is None else environment)
    assert done.returncode == 0, done.stderr
    return done


def _execute() -> None:
    script = sys.argv.pop(1)
    exec(compile(script, "<script>", "exec"), vars(sys.modules["__main__"]))


def _run(
    main: Callable[[], None], arguments: Sequence[str], folder: Path | None, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    with TemporaryDirectory() as streams:
        out, err = Path(streams, "out"), Path(streams, "err")
        process = _CONTEXT.Process(
            target=_be, args=(main, list(arguments), folder or Path.cwd(), dict(environment), out, err)
        )
        process.start()
        try:
            process.join(_LIMIT)
            assert not process.is_alive(), f"{arguments} hangs: {err.read_text()}"
        finally:
            process.kill()
            process.join(10)
        code = process.exitcode or 0
        process.close()
        encoding = environment.get("PYTHONIOENCODING", "utf-8")
        return subprocess.CompletedProcess(list(arguments), code, out.read_text(encoding), err.read_text(encoding))


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
