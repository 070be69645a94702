"""Draw functions of the package at random, break each of them, and say whether a test notices.

Cosmic Ray makes the mutations. Each one runs the tests of the folder that mirrors the module, and the files of tests
that name the module or the function. If none of them notices it, the tests of the modules that import the module run.
All of it happens in a copy of the project.

Exits with 1 if fewer than ``--at-least`` mutations are noticed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import MutationVisitor, _make_diff
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from cosmic_ray.testing import run_tests
from cosmic_ray.work_item import TestOutcome

PACKAGE = "rageval_hooks"
EMPTY = ("None", "False", '""', "()", "[]", "{}")


class ReturnNothing(Operator):
    """A function returns None instead of its value, unless that is as empty."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        if node.type == "return_stmt" and node.children[1].get_code().strip() not in EMPTY:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        node.children[1:] = [parso.parse(" None").children[0]]
        return node

    @classmethod
    def examples(cls) -> tuple[()]:
        return ()


# What changes a number by one is left out: it often changes a limit that nobody can see.
COMPARISONS = ("Eq_NotEq", "NotEq_Eq", "Lt_GtE", "GtE_Lt", "Gt_LtE", "LtE_Gt", "Is_IsNot", "IsNot_Is")
OPERATORS: list[Operator] = [
    ReturnNothing(),
    *(
        get_operator(f"core/{name}")()
        for name in (
            *("AddNot", "ReplaceAndWithOr", "ReplaceOrWithAnd", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue"),
            "ZeroIterationForLoop",
            *(f"ReplaceComparisonOperator_{name}" for name in COMPARISONS),
        )
    ),
]


@dataclass(frozen=True)
class Mutation:
    """One change of one function.

    Attributes:
        path: the module, relative to the project.
        function: the function's name.
        line: its first line.
        operator: what makes the change.
        occurrence: where, among the places of the module that the operator can change.
    """

    path: Path
    function: str
    line: int
    operator: Operator
    occurrence: int


def mutations_in(path: Path) -> Iterator[Mutation]:
    """Yield everything that can be changed in the functions of a module."""
    tree = get_ast(path.read_text(encoding="utf-8"))
    for operator in OPERATORS:
        nodes = (node for node in ast_nodes(tree) for _ in operator.mutation_positions(node))
        for occurrence, node in enumerate(nodes):
            function = parso.python.tree.search_ancestor(node, "funcdef")
            # `zip(…, strict=True)` asserts something, and changes nothing.
            if function is not None and not node.parent.get_code().strip().startswith("strict="):
                yield Mutation(path, function.name.value, function.start_pos[0], operator, occurrence)


def tests_of(mutation: Mutation) -> Iterator[list[str]]:
    """Yield the tests to run: the nearest ones, and then those of the modules that import this one."""
    module = ".".join(mutation.path.with_suffix("").parts)
    # Names of one word, such as `start`, are in most tests.
    names = [module, *([mutation.function] if "_" in mutation.function.strip("_") else [])]
    named = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    files = [path for path in sorted(Path("tests").rglob("test_*.py")) if "e2e" not in path.parts]
    about = {str(path) for path in files if named.search(path.read_text(encoding="utf-8"))}
    nearest = {*_mirror(mutation.path), *about}
    yield sorted(nearest)
    folder, _, name = map(re.escape, module.rpartition("."))
    imports = re.compile(rf"^\s*(from {folder}\.{name} import|from {folder} import .*\b{name}\b)", re.MULTILINE)
    users = [path for path in Path(PACKAGE).rglob("*.py") if imports.search(path.read_text(encoding="utf-8"))]
    yield sorted({tests for path in users for tests in _mirror(path)} - nearest)


def _mirror(path: Path) -> list[str]:
    """Return the folder of tests, or the files, that mirror a module."""
    parts = path.with_suffix("").parts[1:]
    folder = Path("tests", *parts[:-1])
    while not folder.is_dir():
        folder = folder.parent
    tests = [str(file) for file in sorted(folder.glob(f"test_{parts[-1].strip('_')}*.py"))]
    if (own := folder / parts[-1]).is_dir():
        return [*tests, str(own)]
    return tests if folder == Path("tests") else [str(folder)]


def main() -> None:
    """Draw, break, test and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--functions", type=int, default=20)
    parser.add_argument("--at-least", type=int, default=0)
    parser.add_argument("--workers", default="auto", help="pytest's -n")
    parser.add_argument("--timeout", type=float, default=900, help="seconds for the tests of a mutation")
    options = parser.parse_args()

    project = Path(__file__).parents[1]
    with tempfile.TemporaryDirectory() as copy:
        listed = subprocess.run(["git", "ls-files"], cwd=project, capture_output=True, text=True, check=True)
        for name in filter(None, listed.stdout.splitlines()):
            (target := Path(copy, name)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(project / name, target)
        os.chdir(copy)
        # The environment has the project installed from its own folder: the copy comes before it.
        os.environ["PYTHONPATH"] = copy
        chosen = random.Random(options.seed)
        by_function: dict[tuple[Path, str, int], list[Mutation]] = {}
        for path in sorted(Path(PACKAGE).rglob("*.py")):
            for mutation in mutations_in(path):
                by_function.setdefault((path, mutation.function, mutation.line), []).append(mutation)
        drawn = chosen.sample(sorted(by_function), options.functions)
        noticed = sum(_is_noticed(chosen.choice(by_function[key]), options) for key in drawn)
        os.chdir(project)
    print(f"{noticed} of {options.functions} mutations noticed (seed {options.seed})")
    sys.exit(noticed < options.at_least)


def _is_noticed(mutation: Mutation, options: argparse.Namespace) -> bool:
    """Break a function, run its tests, mend it, and print what happened."""
    started = time.monotonic()
    code = mutation.path.read_text(encoding="utf-8")
    mutated = MutationVisitor.mutate_code(code, mutation.operator, mutation.occurrence)
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-n", options.workers]
    is_noticed, last = False, "no tests"
    groups = [tests for tests in tests_of(mutation) if tests]
    mutation.path.write_text(mutated, encoding="utf-8")
    try:
        for tests in groups:
            outcome, output = run_tests(shlex.join([*pytest, *tests]), options.timeout)
            # Tests failed, or the package cannot be imported.
            is_noticed = outcome is TestOutcome.KILLED
            last = output.strip().splitlines()[-1] if output.strip() else ""
            if is_noticed:
                break
    finally:
        mutation.path.write_text(code, encoding="utf-8")
    name = f"{mutation.path}:{mutation.line} {mutation.function}"
    print(f"{'noticed' if is_noticed else 'UNNOTICED'}: {name} ({time.monotonic() - started:.0f} s; {last})")
    print("\n".join(_make_diff(code, mutated, mutation.path)[3:]), flush=True)
    return is_noticed


if __name__ == "__main__":
    main()
