"""Run the frameworks' own unit tests with the hook, and print the tests that fail only with it.

Usage::

    python scripts/compat/hosts.py [SUITE ...]        # all suites by default; `make compat-hosts` calls this

The suites come from the source distributions of the versions in ``constraints.txt``. They are downloaded with pip and
run in a separate virtual environment, in ``.compat/``. Exits with 1 if a test fails only with the hook, if the hook
reports an error itself, or if runs are left in its table afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PLUGINS = Path(__file__).resolve().parent
CONSTRAINTS = PROJECT / "constraints.txt"
MUST_BE_ZERO = ("given_up", "internal_errors")
SECONDS_PER_RUN = 3600
RETRIES = 3


@dataclass(frozen=True, kw_only=True)
class Suite:
    """The unit tests of one distribution.

    Attributes:
        distribution: as pip knows it.
        package: the folder of the package in the source distribution. It is renamed, so that the installed package is
            tested.
        tests: the paths to run.
        requirements: what the tests import.
        environment: variables that the tests read.
        options: further options of pytest.
        runs_left: runs that the tests start and never end, so that they stay in the hook's table.
    """

    distribution: str
    package: str
    tests: tuple[str, ...]
    requirements: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    runs_left: int = 0


PYTEST = ("pytest>=9,<10", "pytest-asyncio", "pytest-mock", "pytest-socket", "pytest-xdist", "syrupy>=5,<6")

SUITES = {
    "core": Suite(
        distribution="langchain-core",
        package="langchain_core",
        tests=("tests/unit_tests",),
        requirements=(
            *PYTEST,
            "blockbuster>=1.5.18,<1.6",
            "freezegun",
            "grandalf",
            "langchain-tests",
            "langchain-text-splitters",
            "numpy",
            "pytest-benchmark",
            "pytest-codspeed",
            "responses",
        ),
    ),
    "agents": Suite(
        distribution="langchain",
        package="langchain",
        tests=("tests/unit_tests/agents", "tests/unit_tests/tools", "tests/unit_tests/chat_models"),
        requirements=(*PYTEST, "blockbuster", "langchain-openai", "langchain-tests", "toml"),
    ),
    "langgraph": Suite(
        distribution="langgraph",
        package="langgraph",
        tests=("tests",),
        requirements=(
            *PYTEST,
            "langgraph-checkpoint-postgres",
            "langgraph-checkpoint-sqlite",
            "psycopg[binary,pool]",
            "pycryptodome",
            "pytest-repeat",
            "redis",
            "uvloop",
        ),
        environment=(("NO_DOCKER", "true"),),  # no tests that need a database server
        runs_left=1,  # a test cancels a run with a trace policy, whose end LangGraph then reports to tracers only
    ),
    "prebuilt": Suite(
        distribution="langgraph-prebuilt",
        package="langgraph",
        tests=("tests",),
        requirements=(
            *PYTEST,
            "langgraph",
            "langgraph-checkpoint-postgres",
            "langgraph-checkpoint-sqlite",
            "psycopg[binary,pool]",
        ),
        environment=(("NO_DOCKER", "true"),),
        runs_left=1,  # a test cancels an asynchronous tool, of which langchain-core reports no end
    ),
    "classic": Suite(
        distribution="langchain-classic",
        package="langchain_classic",
        tests=("tests/unit_tests",),
        requirements=(
            *PYTEST,
            "blockbuster",
            "cffi",
            "freezegun",
            "langchain-openai",
            "langchain-tests",
            "lark",
            "numpy",
            "pandas",
            "requests-mock",
            "sqlalchemy[asyncio]",
            "responses",
            "toml",
        ),
    ),
    # The source distributions of llama-index-core and llama-index-workflows contain no tests.
    "llama-index": Suite(
        distribution="llama-index-instrumentation",
        package="src",
        tests=("tests",),
        requirements=(*PYTEST, "llama-index-core", "pytest-timeout"),
        # Its tests turn warnings into errors, and some versions of pytest-asyncio warn if this is not set.
        options=("-o", "asyncio_default_fixture_loop_scope=function"),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run of a suite reported.

    Attributes:
        summary: pytest's last line.
        failed: ids of the tests that failed.
        stats: the hook's counters; empty without the hook.
        left: names of the roots that never ended.
    """

    summary: str
    failed: frozenset[str]
    stats: dict[str, int]
    left: tuple[str, ...]


class Workplace:
    """The folder with the virtual environment, the unpacked source distributions and the logs.

    Args:
        folder: is created if needed.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "venv" / "bin" / "python"

    def install(self, suites: Iterable[Suite]) -> None:
        """Create the virtual environment, and install what the suites need and the project."""
        if not self.python.exists():
            subprocess.run([sys.executable, "-m", "venv", self.folder / "venv"], check=True)
            self._pip("install", "uv>=0.9")
        wanted = {item for suite in suites for item in (suite.distribution, *suite.requirements)}
        options = ("--quiet", "--python", self.python, "--constraint", CONSTRAINTS)
        project = f"{PROJECT}[langchain,llama-index]"
        subprocess.run([self.python, "-m", "uv", "pip", "install", *options, *sorted(wanted), project], check=True)

    def unpack(self, suite: Suite) -> Path:
        """Download the source distribution of the installed version; returns its folder."""
        version = self._version(suite.distribution)
        name = f"{suite.distribution.replace('-', '_')}-{version}"
        tests = self.folder / name
        if not tests.exists():
            self._pip(
                "download", "--no-deps", "--no-binary", suite.distribution, "--dest", self.folder,
                f"{suite.distribution}=={version}",
            )  # fmt: skip
            with tarfile.open(self.folder / f"{name}.tar.gz") as archive:
                archive.extractall(self.folder, filter="data")
            (tests / suite.package).rename(tests / f"{suite.package}.not-installed")
        return tests

    def run(self, name: str, suite: Suite, *, hook: bool, only: Iterable[str] = ()) -> Outcome:
        """Run a suite, or only some of its tests.

        Args:
            name: for the files with the log and the result.
            suite: the tests.
            hook: whether the hook is attached.
            only: ids of tests; all if the list is empty.

        Raises:
            RuntimeError: pytest did not get to the end; the message names the log.
        """
        log, result = self.folder / f"{name}.log", self.folder / f"{name}.json"
        result.unlink(missing_ok=True)
        environment = {
            **os.environ,
            **dict(suite.environment),
            "PYTHONPATH": str(PLUGINS),
            "HOST_SUITE_RESULT": str(result),
            "HOST_SUITE_HOOK": "1" if hook else "0",
        }
        # The settings of the suite, also if it has none: pytest would look for some in the folders above. Our own
        # pytest plugin comes with the installation, and is not under test.
        options = (
            "-c",
            "pyproject.toml",
            "--rootdir",
            ".",
            "-p",
            "outcomes_plugin",
            "-p",
            "no:rageval_hooks",
            "-p",
            "no:cacheprovider",
            "-q",
            "--tb=short",
        )
        with log.open("w") as output:
            subprocess.run(
                [self.python, "-m", "pytest", *options, *suite.options, *(only or suite.tests)],
                cwd=self.unpack(suite),
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=SECONDS_PER_RUN,
                check=False,
            )
        if not result.exists():
            raise RuntimeError(f"{name}: pytest wrote no result; see {log}")
        written = json.loads(result.read_text())
        summary = log.read_text(errors="replace").strip().splitlines()[-1].strip("= ")
        return Outcome(
            summary=summary, failed=frozenset(written["failed"]), stats=written["stats"], left=tuple(written["left"])
        )

    def _version(self, distribution: str) -> str:
        code = f"import importlib.metadata as m; print(m.version({distribution!r}))"
        return subprocess.run([self.python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()

    def _pip(self, *arguments: object) -> None:
        command = [self.python, "-m", "pip", "--quiet", "--disable-pip-version-check", *map(str, arguments)]
        subprocess.run(command, check=True)


def check(workplace: Workplace, name: str) -> bool:
    """Run a suite with the hook, and what fails also without it; returns True if nothing fails only with it."""
    suite = SUITES[name]
    workplace.unpack(suite)
    hooked = workplace.run(f"{name}-with", suite, hook=True)
    print(f"{name}, with the hook: {hooked.summary}", flush=True)
    print(f"{name}, counters of the hook: {hooked.stats}")

    new = hooked.failed
    if new:
        without = workplace.run(f"{name}-without", suite, hook=False, only=sorted(new))
        print(f"{name}, the failed tests without the hook: {without.summary}", flush=True)
        new -= without.failed
    # Some tests measure time, and fail now and then on a busy machine. What the hook breaks fails every time.
    for _ in range(RETRIES):
        if new:
            new &= workplace.run(f"{name}-again", suite, hook=True, only=sorted(new)).failed
    for test in sorted(new):
        print(f"{name}: fails only with the hook: {test}")
    wrong = {counter: hooked.stats[counter] for counter in MUST_BE_ZERO if hooked.stats.get(counter)}
    if hooked.stats["open_runs"] > suite.runs_left:
        wrong["open_runs"] = hooked.stats["open_runs"]
    if wrong:
        print(
            f"{name}: counters that are too high: {wrong}; roots that never ended: {', '.join(hooked.left) or 'none'}"
        )
    return not new and not wrong


def main() -> int:
    """Run the suites that are named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=f"any of: {', '.join(SUITES)}")
    parser.add_argument("--folder", type=Path, default=PROJECT / ".compat", help="where everything is installed")
    arguments = parser.parse_args()
    names = arguments.suites or list(SUITES)
    if unknown := sorted(set(names) - set(SUITES)):
        parser.error(f"unknown suites: {', '.join(unknown)}. Valid: {', '.join(SUITES)}")
    workplace = Workplace(arguments.folder.resolve())
    workplace.folder.mkdir(parents=True, exist_ok=True)
    workplace.install(SUITES[name] for name in names)
    passed = [check(workplace, name) for name in names]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
