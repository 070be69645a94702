"""How many result files of public projects can be read, unchanged or with the ``--map`` that the message proposes.

    .venv/bin/python benchmarks/public_files.py MIRROR [--list benchmarks/public_files.txt]

MIRROR is a folder with the repositories of the list as git directories: ``OWNER+NAME/repo``. Nothing of them is kept
here; a file is read from the repository for the time of the run. A file counts as read if nine of ten rows have a
question and an answer. Prints one line per file, and the count.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from rageval_hooks.errors import RagevalError
from rageval_hooks.offline.records.columns import ColumnMap
from rageval_hooks.offline.records.reading import ReadOptions, read_items
from rageval_hooks.offline.records.record import Record

# "--map response=reply", "--map 'passages=hits[].text'"
_PROPOSED = re.compile(r"--map (?:'([^']+)'|(\w+)='([^']+)'|(\S+=\S+))")
_SHARE = 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mirror", type=Path)
    parser.add_argument("--list", type=Path, default=Path(__file__).with_name("public_files.txt"))
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for line in arguments.list.read_text().splitlines():
            repository, _, path = line.partition("\t")
            if not path:
                continue
            file = fetched(arguments.mirror, repository, path, Path(folder))
            status, note = ("absent", "") if file is None else read(file)
            counts[status] += 1
            print(f"{status:12} {repository}\t{path}\t{note}", flush=True)
    print(dict(counts))


def fetched(mirror: Path, repository: str, path: str, folder: Path) -> Path | None:
    """Write a file of a repository into a folder; None if the snapshot lacks it, as it lacks the largest files."""
    git = mirror / repository.replace("/", "+") / "repo"
    shown = subprocess.run(["git", "-C", git, "show", f"HEAD:{path}"], capture_output=True, check=False)
    if shown.returncode:
        return None
    target = folder / Path(path).name
    target.write_bytes(shown.stdout)
    return target


def read(path: Path) -> tuple[str, str]:
    """Return whether a file can be read, and its contents or the reason."""
    try:
        return "as it is", attempt(path, None)
    except RagevalError as error:
        message = str(error)
    # Without a proposal the message says how to name a column, which is nothing to copy.
    _, _, proposal = message.partition(". Try ")
    proposal = proposal.partition("\n")[0]
    proposed = ["=".join(filter(None, found)).rstrip(".") for found in _PROPOSED.findall(proposal)]
    if not proposed:
        return "not read", message.replace(str(path), path.name)[:700]
    try:
        return "with --map", f"{attempt(path, ColumnMap.parse(proposed))} {proposed}"
    except RagevalError as error:
        return "not read", f"{proposed}: {error}".replace(str(path), path.name)[:700]


def attempt(path: Path, mapping: ColumnMap | None) -> str:
    """Read a file and describe its contents.

    Raises:
        RagevalError: it cannot be read, or too few rows can be used.
    """
    records, bad = [], []
    for _, item in read_items(path, options=ReadOptions(columns=mapping)):
        (records if isinstance(item, Record) else bad).append(item)
    usable = [record for record in records if is_usable(record)]
    total = len(records) + len(bad)
    if not total or len(usable) < _SHARE * total:
        reason = bad[0].reason if bad else "no answer"
        raise RagevalError(f"{len(usable)} of {total} rows: {reason}")
    passages = sum(bool(record.turn.passages) for record in usable)
    references = sum(record.turn.reference is not None for record in usable)
    return f"{len(usable)} of {total} rows, {passages} with passages, {references} with a reference"


def is_usable(record: Record) -> bool:
    """Return True if a record has a question, and an answer or the error that prevented it."""
    turn = record.turn
    return bool(turn.query.strip()) and bool(turn.response.strip() or turn.error)


if __name__ == "__main__":
    main()
