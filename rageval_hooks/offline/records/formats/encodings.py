"""The encoding of a text file: by its byte order mark, as UTF-8, or detected by charset-normalizer."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from rageval_hooks.errors import ConfigurationError

__all__ = ["SAMPLE_BYTES", "Encoding", "check_encoding", "detect_encoding"]

SAMPLE_BYTES = 1 << 18
"""How many bytes of a file decide on its encoding."""

# UTF-32 comes first: its little-endian mark begins with that of UTF-16.
_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# ISO-2022 switches character sets with escape sequences, for example b"\x1b$B" before Japanese text.
_ISO_2022 = re.compile(rb"\x1b[$(][@-Z]|\x1b\$\)C")
# A character of two or more bytes in UTF-8, for example b"\xc3\xa9" for "é".
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_WESTERN = "cp1252"
_FEW_BYTES = 64
_SMALL_SHARE = 0.2


@dataclass(frozen=True)
class Encoding:
    """An encoding and how it was found.

    Attributes:
        name: a Python codec.
        guessed: True if neither the user nor the file says so.
    """

    name: str
    guessed: bool = False

    @property
    def is_utf8(self) -> bool:
        """Return True for UTF-8, with or without a byte order mark."""
        return self.name in ("utf-8", "utf-8-sig")


def check_encoding(name: str) -> Encoding:
    """Return the encoding that the user named.

    Raises:
        ConfigurationError: Python has no such codec.
    """
    try:
        found = codecs.lookup(name).name
    except LookupError:
        raise ConfigurationError(
            f"--encoding {name!r} is not known: give one such as utf-8, cp1252 or shift_jis"
        ) from None
    return Encoding("utf-8-sig" if found == "utf-8" else found)


def detect_encoding(sample: bytes) -> Encoding:
    """Return the encoding of a file, from the bytes at its beginning."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return Encoding(name)
    if _ISO_2022.search(sample):
        return _detected(sample)
    if _is_utf8(sample):
        return Encoding("utf-8")
    # Valid multi-byte characters next to invalid bytes: a damaged UTF-8 file. Its damaged rows are reported.
    if _MULTIBYTE.search(sample):
        return Encoding("utf-8")
    return _detected(sample)


def _is_utf8(sample: bytes) -> bool:
    # The sample may end within a character, so the decoder is told that more may follow.
    try:
        codecs.getincrementaldecoder("utf-8")().decode(sample, final=len(sample) < SAMPLE_BYTES)
    except UnicodeDecodeError:
        return False
    return True


def _detected(sample: bytes) -> Encoding:
    special = sum(byte >= 0x80 for byte in sample)
    # Too little evidence for statistics: a few accented letters in ASCII text are nearly always Windows' own encoding.
    if 0 < special < _FEW_BYTES and special < _SMALL_SHARE * len(sample):
        return Encoding(_WESTERN, guessed=True)
    from charset_normalizer import from_bytes

    best = from_bytes(sample).best()
    if best is None:
        return Encoding("utf-8")
    # Several codecs may decode the sample to the same text; the most common one is the safest for the rest.
    if _WESTERN in best.could_be_from_charset:
        return Encoding(_WESTERN, guessed=True)
    return Encoding(best.encoding, guessed=True)
