"""The largest inputs that the offline commands read, one limit for each kind. A larger input is an error that says so.

Without limits, a file of 3 MB that is compressed a thousand times fills the memory of a machine.
"""

from __future__ import annotations

import zipfile
from typing import IO, AnyStr, Final

from rageval_hooks.errors import TurnError

MIB: Final = 1 << 20

LINE: Final = 64 * MIB
"""Bytes of a line of JSON Lines, and characters of a line or a cell of CSV."""

DOCUMENT: Final = 256 * MIB
"""Bytes of a JSON document, which is read as a whole and takes about eight times as much memory."""

ROW_GROUP: Final = 2048 * MIB
"""Bytes of a row group of Parquet without compression."""

WORKBOOK: Final = 1024 * MIB
"""Bytes of a workbook with rows when its archive is unpacked. Its rows are read one by one, its texts at once."""

ARCHIVE: Final = 256 * MIB
"""Bytes of an Office document for ``generate`` when its archive is unpacked."""

TEXT: Final = 32 * MIB
"""Bytes of a text document for ``generate``."""

PDF: Final = 32 * MIB
"""Bytes of a PDF, for which pypdf needs about 15 times as much memory."""

REPLY: Final = 16 * MIB
"""Bytes of the reply of an application that is asked by its URL."""


def in_mib(size: int) -> str:
    """Return a size for a message: ``64 MiB``."""
    return f"{size // MIB} MiB"


def read_whole(file: IO[AnyStr], limit: int, name: object, advice: str) -> AnyStr:
    """Return the contents of a file.

    Args:
        file: the file, decompressed.
        limit: how much may be in it, in bytes or characters.
        name: what is read, for the message.
        advice: what to do about a larger file.

    Raises:
        TurnError: it is larger.
    """
    content = file.read(limit + 1)
    if len(content) > limit:
        raise TurnError(f"{name} is larger than {in_mib(limit)} (unpacked): {advice}")
    return content


def check_archive(file: IO[bytes], limit: int, name: object) -> None:
    """Check how large a zip archive is when it is unpacked: Office documents are such archives.

    Args:
        file: the archive.
        limit: bytes.
        name: what is read, for the message.

    Raises:
        TurnError: it is larger than the limit.
        zipfile.BadZipFile: it is no such archive.
    """
    with zipfile.ZipFile(file) as archive:
        size = sum(info.file_size for info in archive.infolist())
    if size > limit:
        raise TurnError(f"{name} is larger than {in_mib(limit)} (unpacked): split it")
    file.seek(0)
