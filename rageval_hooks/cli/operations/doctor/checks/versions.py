"""Versions of Python, of this package and of what it works with, against the ranges that this package declares."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from typing import ClassVar, Final

from rageval_hooks.cli.operations.doctor.base import Check, Finding, ok, problem
from rageval_hooks.cli.operations.doctor.setup import Setup
from rageval_hooks.version import __version__

__all__ = ["VersionCheck"]

_PACKAGE: Final = "rageval-hooks"
_SHOWN: Final = (
    "langchain-core",
    "langgraph",
    "llama-index-core",
    "opentelemetry-sdk",
    "opentelemetry-exporter-otlp-proto-http",
    "openai",
    "sentence-transformers",
    "torch",
    "spacy",
)
"""Packages whose version is worth a line even if it is in range."""

_FOR_DEVELOPMENT: Final = frozenset({"test", "test-lexical", "compat", "e2e", "build", "docs", "dev"})
"""Extras that an application does not install."""

# For example "langchain-core>=1.0; extra == 'langchain'", or "opentelemetry-api>=1.39".
_REQUIREMENT = re.compile(r"\A([\w.-]+)(?:\[[^\]]*\])?\s*(>=|==)\s*([\w.]+)(?:.*extra == ['\"]([\w-]+)['\"])?")
# A part of Requires-Python, for example "<3.15" or ">=3.11".
_BOUND = re.compile(r"(>=|<)\s*([\d.]+)")


class VersionCheck(Check):
    """Compares what is installed with the declared ranges."""

    name: ClassVar[str] = "versions"
    order: ClassVar[int] = 10

    def run(self, setup: Setup) -> Iterator[Finding]:
        """Yield the versions, and those that are out of range."""
        yield from _python()
        yield ok(f"{_PACKAGE} {__version__}")
        yield ok("installed: " + (", ".join(_installed_pairs()) or "none of the packages that it works with"))
        for package, operator, bound in _ranges():
            found = _installed(package)
            if found is not None and not _fits(found, operator, bound):
                yield problem(
                    f"{package} {found} is installed, which is not {operator}{bound}", _upgrade(package, bound)
                )


def _python() -> Iterator[Finding]:
    running = platform.python_version()
    for operator, bound in _BOUND.findall(_requires_python()):
        if not _fits(running, operator, bound):
            yield problem(f"Python {running} is not {operator}{bound}", "use a Python in this range")
            return
    yield ok(f"Python {running} on {platform.system()} {platform.machine()}")


def _requires_python() -> str:
    try:
        return str(metadata(_PACKAGE).json.get("requires_python", ""))
    except PackageNotFoundError:
        return ""


def _installed_pairs() -> Iterator[str]:
    for package in _SHOWN:
        found = _installed(package)
        if found is not None:
            yield f"{package} {found}"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _ranges() -> Iterator[tuple[str, str, str]]:
    """Yield packages with the bound that this package declares for them."""
    try:
        declared = requires(_PACKAGE) or []
    except PackageNotFoundError:  # a checkout that is on the path and not installed
        return
    for text in declared:
        found = _REQUIREMENT.match(text)
        if found and found[4] not in _FOR_DEVELOPMENT:
            yield found[1], found[2], found[3]


def _fits(found: str, operator: str, bound: str) -> bool:
    if operator == "<":
        return _numbers(found) < _numbers(bound)
    if operator == "==":
        return _numbers(found) == _numbers(bound)
    return _numbers(found) >= _numbers(bound)


def _numbers(text: str) -> tuple[int, ...]:
    """Return the release of a version, for example (1, 39) for "1.39.0b1": zeros at the end do not count."""
    release = re.match(r"\d+(?:\.\d+)*", text)
    numbers = [int(part) for part in release[0].split(".")] if release else [0]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _upgrade(package: str, bound: str) -> str:
    return f'pip install "{package}>={bound}"'
