"""English words: common ones that are no names, and the names of the months.

``scripts/word_lists.py`` makes ``common_words.txt``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Final

MONTHS: Final = "January February March April May June July August September October November December".split()

MONTH_NUMBER: Final[Mapping[str, int]] = {name[:3].casefold(): number for number, name in enumerate(MONTHS, 1)}
"""The number of a month by the first three letters of its name."""

# "March", "sept.", "MAY"; also "market": the first letters of a month, where a month may begin.
MONTH_START: Final = re.compile(rf"(?<![A-Za-z])(?i:{'|'.join(MONTH_NUMBER)})")


@cache
def _common_words() -> frozenset[str]:
    # About 5 ms and 3 MB, for processes that check facts.
    text = files(__package__).joinpath("common_words.txt").read_text(encoding="utf-8")
    return frozenset(line for line in text.splitlines() if not line.startswith("#"))


def is_common(key: str) -> bool:
    """Return True for the key of an English word that is no name, or is one besides ("rose", "mark")."""
    return key in _common_words()
