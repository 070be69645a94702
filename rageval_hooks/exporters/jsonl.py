"""One JSON object per evaluation and line, appended to a file."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import ClassVar

from opentelemetry.trace import TracerProvider

from rageval_hooks.exporters.base import Exporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.plugins import Option
from rageval_hooks.runtime.files import open_private
from rageval_hooks.score import Evaluation
from rageval_hooks.settings import Settings

_logger = logging.getLogger(__name__)

_END_BYTES = 4 * 2**20
_DEFAULT_PATH = "rageval.jsonl"


class JsonlExporter(Exporter):
    """Appends evaluations to a JSON Lines file; each line is complete once :meth:`export` returns.

    Several processes may write to one file. A new file can only be read by its owner, as it contains texts.
    After an export that failed in the middle of a line, as on a full disk, the next one begins a new line.

    Args:
        path: the file; None for the setting ``jsonl_path``.
        policy: the texts that may be written; all that the settings show by default.

    Raises:
        OSError: the file cannot be written; at construction, or when it is bound to the settings of a pipeline.
    """

    name: ClassVar[str] = "jsonl"
    options: ClassVar = {
        "jsonl_path": Option(
            keyword="path",
            type=str,
            default=_DEFAULT_PATH,
            about="where the exporter `jsonl` writes.",
            valid="a path",
        )
    }

    def __init__(self, path: str | os.PathLike[str] | None = None, *, policy: ContentPolicy | None = None) -> None:
        self.path = path
        self.content = policy or ContentPolicy()
        if path is not None:
            self._check()
        self._lost = 0
        self._reason = ""

    def bind(self, settings: Settings, tracer_provider: TracerProvider | None) -> None:
        """Take the path from the settings, if none was given."""
        super().bind(settings, tracer_provider)
        self._check()

    @property
    def _file(self) -> Path:
        return Path(self.path or _DEFAULT_PATH)

    def _check(self) -> None:
        """Raise OSError if the file cannot be written: now, and not in the background."""
        if self._file.exists():
            self._open().close()
            return
        # The file comes with the first line.
        folder = self._file.parent
        code = errno.EACCES if folder.is_dir() else errno.ENOENT
        if not os.access(folder, os.W_OK):
            raise OSError(code, os.strerror(code), str(self._file))

    def export(self, evaluation: Evaluation) -> None:
        """Append a line."""
        left = memoryview(evaluation.model_dump_json().encode() + b"\n")
        # Opened for each line, so that log rotation and forks do no harm.
        try:
            with self._open() as file, _locked(file):
                # The disk may have been full in the middle of a line.
                if file.seek(0, os.SEEK_END) and not _ends_a_line(file):
                    file.write(b"\n")
                while left:
                    left = left[file.write(left) or 0 :]
        except OSError as error:
            self._lost += 1
            self._reason = error.strerror or str(error)
            raise

    def flush(self, timeout: float) -> bool:
        """Return True if everything since the last flush was written; log the reason otherwise."""
        lost, self._lost = self._lost, 0
        if lost:
            why = f"to {self._file}: {self._reason}"
            _logger.warning("rageval-hooks: %d evaluations could not be written %s [RAGEVAL-508]", lost, why)
        return not lost

    def stores(self, evaluation: Evaluation) -> bool:
        """Return True if the end of the file has a line about the turn's trace."""
        span = evaluation.turn.span
        if span is None:
            return False
        with open(self._file, "rb") as file:
            # The file may have gigabytes; what was just written is near its end.
            file.seek(max(0, os.path.getsize(self._file) - _END_BYTES))
            return span.trace_id.encode() in file.read()

    def _open(self) -> FileIO:
        return open(self._file, "a+b", buffering=0, opener=open_private)


@contextmanager
def _locked(file: FileIO) -> Iterator[None]:
    """Keep other processes from writing, on systems where files can be locked."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    fcntl.flock(file, fcntl.LOCK_EX)
    try:
        yield
    finally:
        # Closing is not enough: a child that was forked meanwhile has the file open too, and with it the lock.
        fcntl.flock(file, fcntl.LOCK_UN)


def _ends_a_line(file: FileIO) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b"\n"
