"""Check a wheel that was installed without extras into an empty environment.

Run with that environment's Python, in the root of the project. The wheel must contain the whole package and nothing
else, be typed, and score a turn without any extra.
"""

from __future__ import annotations

import importlib.metadata as metadata
import time
from pathlib import Path

started = time.perf_counter()
import rageval_hooks  # noqa: E402  # the import itself is timed

seconds = time.perf_counter() - started
files = metadata.files("rageval-hooks") or []
top = {file.parts[0] for file in files if not file.parts[0].startswith("..")}
packages = {name for name in top if not name.endswith(".dist-info")}
assert packages == {"rageval_hooks"}, packages
# Every file of the package is there, also those that are no Python.
sources = {path for path in Path("rageval_hooks").rglob("*") if path.is_file() and path.suffix != ".pyc"}
missing = {path.as_posix() for path in sources} - {file.as_posix() for file in files}
assert not missing, missing
assert metadata.metadata("rageval-hooks")["License-Expression"] == "Apache-2.0"

[evaluation] = rageval_hooks.evaluate_conversation(
    [{"role": "user", "content": "When?"}, {"role": "assistant", "content": "In 2019."}],
    [["It was opened in 2019."]],
    models="lexical",
)
assert evaluation["groundedness"] > 0.5, evaluation
print(f"wheel: contains {packages}, typed, Apache-2.0; import rageval_hooks took {seconds:.3f} s")
