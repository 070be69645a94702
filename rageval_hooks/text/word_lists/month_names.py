"""The English names of the months."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

__all__ = ["MONTHS", "MONTH_NUMBER", "MONTH_START"]

MONTHS: Final = "January February March April May June July August September October November December".split()

MONTH_NUMBER: Final[Mapping[str, int]] = {name[:3].casefold(): number for number, name in enumerate(MONTHS, 1)}
"""The number of a month by the first three letters of its name."""

# "March", "sept.", "MAY"; also "market": the first letters of a month, where a month may begin.
MONTH_START: Final = re.compile(rf"(?<![A-Za-z])(?i:{'|'.join(MONTH_NUMBER)})")
