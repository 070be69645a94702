"""The answer cache: SQLite, shared by threads and processes, so that equal questions are paid for once.

diskcache would make a directory of the file that users name, and has had no release since 2023.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from rageval_hooks.judges.answers import schema_json
from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.prompts import INSTRUCTIONS_VERSION
from rageval_hooks.runtime.fork import ForkSafeLock
from rageval_hooks.runtime.jsonable import Data, plain_mapping
from rageval_hooks.runtime.sqlite_file import use_file
from rageval_hooks.turn import Message

_logger = logging.getLogger(__name__)
T = TypeVar("T")

# Part of the key: a change of the stored form makes old answers unfindable instead of unreadable.
_FORMAT = 1
_REST_SECONDS = 10.0
# Pruning reads the whole table.
_PRUNE_EVERY = 64
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS answers "
    "(key TEXT PRIMARY KEY, answer TEXT NOT NULL, size INTEGER NOT NULL, used REAL NOT NULL)"
)
# Removes the least recently used answers beyond a size.
_PRUNE = (
    "DELETE FROM answers WHERE key IN (SELECT key FROM ("
    "SELECT key, SUM(size) OVER (ORDER BY used DESC, key) AS kept FROM answers) WHERE kept > ?)"
)


class CachedAnswer(Data):
    """The stored part of a judgement.

    Attributes:
        value: the validated answer, as JSON.
        model: the model that answered.
        response_id: the provider's id of the response.
        mode: the mode of the request.
    """

    value: str
    model: str
    response_id: str | None
    mode: Mode


def cache_key(
    *,
    identity: Mapping[str, Any],
    messages: tuple[Message, ...],
    schema: type[BaseModel],
    parameters: Mapping[str, Any],
) -> str:
    """Return a hash over everything that an answer depends on.

    Args:
        identity: model, server, and what else distinguishes the model from others; without secrets.
        messages: the prompt.
        schema: the schema of the answer.
        parameters: the requested parameters, including those that the model refuses.
    """
    parts = {
        "format": _FORMAT,
        "instructions": INSTRUCTIONS_VERSION,
        "identity": plain_mapping(identity),
        "messages": [[message.role, message.content] for message in messages],
        "schema": schema_json(schema),
        "parameters": plain_mapping(parameters),
    }
    # Sorted, so that equal questions have equal keys whatever the order of their parameters.
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class JudgeCache:
    """A file of answers. It holds neither prompts nor keys, but answers may quote texts: only its owner can read it.

    Errors never reach the caller. A file that is damaged, or cannot be used now (disk full, no permission, locked), is
    reported once, until it works again, and tried again after some seconds.

    Args:
        path: the file. It is created, with its directory, if it does not exist.
        max_bytes: limit for all answers. The least recently used ones are removed now and then.
    """

    def __init__(self, path: str | Path, max_bytes: int = 256 * 1024 * 1024) -> None:
        self.path = Path(path).expanduser()
        self.max_bytes = max_bytes
        self._lock = ForkSafeLock()
        self._counts: Counter[str] = Counter()
        self._is_failing = False
        self._rest_until = 0.0

    async def get(self, key: str) -> CachedAnswer | None:
        """Return the cached answer, or None."""

        def read(database: sqlite3.Connection) -> CachedAnswer | None:
            row = database.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
            if row is None:
                return None
            # For pruning. An answer that was found counts, also on a full disk.
            with suppress(sqlite3.OperationalError):
                database.execute("UPDATE answers SET used = ? WHERE key = ?", (time.time(), key))
            return CachedAnswer.model_validate_json(row[0])

        found = await self._in_thread(read)
        self._counts["misses" if found is None else "hits"] += 1
        return found

    async def put(self, key: str, answer: CachedAnswer) -> None:
        """Store an answer."""

        def write(database: sqlite3.Connection) -> None:
            text = answer.model_dump_json()
            database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (key, text, len(text), time.time()))
            self._counts["writes"] += 1
            if self._counts["writes"] % _PRUNE_EVERY == 0:
                database.execute(_PRUNE, (self.max_bytes * 9 // 10,))  # room for the next writes

        await self._in_thread(write)

    def stats(self) -> dict[str, int]:
        """Return the counts of hits, misses, writes and errors of this process."""
        return {name: self._counts[name] for name in ("hits", "misses", "writes", "errors")}

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        # SQLite waits for locks of other processes, which would stop the event loop.
        return await asyncio.get_running_loop().run_in_executor(None, self._try, work)

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        if time.monotonic() < self._rest_until:
            return None
        try:
            with self._lock:
                found = use_file(self.path, work, "PRAGMA journal_mode=WAL", _SCHEMA, "PRAGMA synchronous=NORMAL")
        except Exception as error:
            self._counts["errors"] += 1
            # Each attempt may take as long as a lock is waited for, and the caller waits for it.
            self._rest_until = time.monotonic() + _REST_SECONDS
            if self._is_failing:
                return None
            if isinstance(error, sqlite3.OperationalError | OSError):
                _logger.warning(
                    "rageval-hooks: the judge's cache %s cannot be used now: %s [RAGEVAL-302]", self.path, error
                )
            else:
                _logger.warning(
                    "rageval-hooks: the judge's cache %s is damaged and not used: %s. Delete the file [RAGEVAL-303]",
                    self.path,
                    error,
                )
            self._is_failing = True
            return None
        self._is_failing = False
        return found
