"""Answers on disk, so that the same question is paid for once: SQLite, shared by threads and processes."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.prompts.instructions import INSTRUCTIONS_VERSION
from rageval_hooks.judges.prompts.schema import schema_json
from rageval_hooks.runtime.executors import ForkSafeLock
from rageval_hooks.runtime.jsonable import plain_mapping
from rageval_hooks.runtime.rate_limited_logs import RateLimitedLogger
from rageval_hooks.turn import Message

__all__ = ["CachedAnswer", "JudgeCache", "cache_key"]

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_FORMAT = 1
_BUSY_TIMEOUT = 2.0
_BUSY_PAUSE = 0.02
_PRUNE_EVERY = 64
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS answers "
    "(key TEXT PRIMARY KEY, answer TEXT NOT NULL, size INTEGER NOT NULL, used REAL NOT NULL)"
)


@dataclass(frozen=True)
class CachedAnswer:
    """What is kept of a judgement.

    Attributes:
        value: the checked answer, as JSON.
        model: the model that gave it.
        response_id: the provider's id.
        mode: how the form was asked for.
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
        identity: model, server, and whatever else tells the model from others; without secrets.
        messages: the prompt.
        schema: the form of the answer.
        parameters: as they are asked for, whether the model takes them or not.
    """
    parts = {
        "format": _FORMAT,
        "instructions": INSTRUCTIONS_VERSION,
        "identity": plain_mapping(identity),
        "messages": [[message.role, message.content] for message in messages],
        "schema": schema_json(schema),
        "parameters": plain_mapping(parameters),
    }
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


class JudgeCache:
    """A file of answers: no prompts, no keys. But answers may quote what was judged: only its owner can read it.

    What goes wrong here never reaches a caller: a damaged file is reported once and left alone, and there is no cache.

    Args:
        path: the file; made, with its directory, if it does not exist.
        max_bytes: of answers; beyond it those go that were not used for longest. Looked after now and then.
    """

    def __init__(self, path: str | Path, max_bytes: int = 256 * 1024 * 1024) -> None:
        self.path = Path(path).expanduser()
        self.max_bytes = max_bytes
        self._lock = ForkSafeLock()
        self._counts: Counter[str] = Counter()
        self._ready = False
        self._damaged = False
        self._limited_log = RateLimitedLogger(_logger)

    async def get(self, key: str) -> CachedAnswer | None:
        """Return the answer, or None."""
        found = await self._in_thread(lambda database: self._read(database, key))
        self._count("hits" if found is not None else "misses")
        return found

    async def put(self, key: str, answer: CachedAnswer) -> None:
        """Keep an answer."""
        await self._in_thread(lambda database: self._write(database, key, answer))

    def prune(self, max_bytes: int | None = None) -> int:
        """Remove the answers that were not used for longest; returns how many.

        Args:
            max_bytes: of answers that may stay; the cache's own limit by default. 0 removes all.
        """
        limit = self.max_bytes if max_bytes is None else max_bytes
        return self._try(lambda database: self._prune(database, limit)) or 0

    def stats(self) -> dict[str, int]:
        """Return hits, misses, writes and errors of this process."""
        with self._lock:
            return {name: self._counts[name] for name in ("hits", "misses", "writes", "errors")}

    async def _in_thread(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        if self._damaged:
            return None
        return await asyncio.get_running_loop().run_in_executor(None, self._try, work)

    def _try(self, work: Callable[[sqlite3.Connection], T]) -> T | None:
        if self._damaged:
            return None
        try:
            with self._connection() as database:
                return work(database)
        except sqlite3.OperationalError as error:  # locked for too long, disk full, no permission: it may pass
            self._count("errors")
            self._limited_log.warn("cache", "the judge's cache %s cannot be used now: %s", self.path, error)
        except Exception as error:
            self._damaged = True
            self._count("errors")
            self._limited_log.warn(
                "damaged", "the judge's cache %s is not used: %s. Remove the file to start anew", self.path, error
            )
        return None

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        # One for each use: cheap beside a judge's call, and neither threads nor forks can share one by mistake.
        self._make_file()
        database = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT, isolation_level=None)
        try:
            if not self._ready:
                self._set_up(database)
                self._ready = True
            database.execute("PRAGMA synchronous=NORMAL")
            yield database
        finally:
            database.close()

    def _set_up(self, database: sqlite3.Connection) -> None:
        # SQLite does not wait for a lock while it changes the journal's mode: two processes may both be the first.
        deadline = time.monotonic() + _BUSY_TIMEOUT
        while True:
            try:
                database.execute("PRAGMA journal_mode=WAL")
                database.execute(_SCHEMA)
                return
            except sqlite3.OperationalError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_BUSY_PAUSE)

    def _make_file(self) -> None:
        if self._ready and self.path.exists():
            return
        self._ready = False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))

    def _read(self, database: sqlite3.Connection, key: str) -> CachedAnswer | None:
        row = database.execute("SELECT answer FROM answers WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        database.execute("UPDATE answers SET used = ? WHERE key = ?", (time.time(), key))
        fields = json.loads(row[0])
        return CachedAnswer(
            value=str(fields["value"]),
            model=str(fields["model"]),
            response_id=fields.get("response_id"),
            mode=cast(Mode, fields["mode"]),
        )

    def _write(self, database: sqlite3.Connection, key: str, answer: CachedAnswer) -> None:
        text = json.dumps(
            {"value": answer.value, "model": answer.model, "response_id": answer.response_id, "mode": answer.mode}
        )
        database.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (key, text, len(text), time.time()))
        self._count("writes")
        if self._counts["writes"] % _PRUNE_EVERY == 0:
            self._prune(database, self.max_bytes)

    def _prune(self, database: sqlite3.Connection, limit: int) -> int:
        total = database.execute("SELECT COALESCE(SUM(size), 0) FROM answers").fetchone()[0]
        if total <= limit:
            return 0
        goal = limit * 9 // 10  # some room, so that this is not done again at once
        cursor = database.execute(
            "DELETE FROM answers WHERE key IN (SELECT key FROM ("
            "SELECT key, SUM(size) OVER (ORDER BY used DESC, key) AS kept FROM answers) WHERE kept > ?)",
            (goal,),
        )
        return cursor.rowcount

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
