"""Answers on disk."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from rageval_hooks.errors import JudgeAnswerError
from rageval_hooks.judges.cache import CachedAnswer, JudgeCache, cache_key
from rageval_hooks.judges.openai import OpenAIJudge
from rageval_hooks.turn import Message, Usage
from tests.disk import limited_file_size
from tests.interpreter import run_script
from tests.judges.helpers import GOOD, KEY, PROMPT, Grade, ask, failure, judge_of
from tests.judges.server import MODEL, JudgeServer, answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "below" / "answers.sqlite"


def kept(value: str = "{}") -> CachedAnswer:
    return CachedAnswer(value=value, model=MODEL, response_id="1", mode="json_schema")


def test_the_same_question_is_asked_once(server: JudgeServer, path: Path) -> None:
    """Also by another judge, later: the answer comes from disk, costs nothing, and says so."""
    server.then(answer(GOOD))
    first = ask(judge_of(server, cache=path))
    judge = judge_of(server, cache=path)
    second = ask(judge)
    assert second.value == first.value
    assert second.details() == {
        "model": MODEL,
        "response_id": "chatcmpl-1",
        "attempts": 0,
        "mode": "json_schema",
        "cached": True,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost": 0.0,
    }
    assert second.usage == Usage(input_tokens=0, output_tokens=0)
    assert (judge.stats()["cached"], judge.stats()["requests"]) == (1, 0)
    assert judge.stats()["cache"] == {"hits": 1, "misses": 0, "writes": 0, "errors": 0}
    assert len(server.requests) == 1


class Narrow(Grade):
    more: bool = False


@pytest.mark.parametrize(
    "change",
    [
        {"judge": {"temperature": 0.5}},
        {"judge": {"max_tokens": 7}},
        {"judge": {"parameters": {"reasoning_effort": "low"}}},
        {"ask": {"parameters": {"seed": 1}}},
        {"ask": {"messages": [("user", "Another question.")]}},
        {"ask": {"messages": [("system", PROMPT[0][1] + PROMPT[1][0])]}},
        {"ask": {"schema": Narrow}},
        {"model": "another-model"},
        {"url": "/other"},
    ],
    ids=str,
)
def test_everything_that_matters_is_in_the_key(server: JudgeServer, path: Path, change: dict[str, Any]) -> None:
    """Another parameter, prompt, schema, model or server is another question."""
    server.otherwise(answer({**GOOD, "more": True}))
    ask(judge_of(server, cache=path))
    options = {"base_url": server.url + change.get("url", ""), "api_key": KEY, "cache": path}
    judge = OpenAIJudge(change.get("model", "judge-model"), **{**options, **change.get("judge", {})})
    assert not ask(judge, **change.get("ask", {})).cached
    assert len(server.requests) == 2


def test_the_key_is_not_in_the_key(server: JudgeServer, path: Path) -> None:
    """The same question with another API key is the same question."""
    server.then(answer(GOOD))
    ask(judge_of(server, cache=path))
    assert ask(judge_of(server, cache=path, api_key="sk-another-key")).cached


def test_failures_are_not_kept(server: JudgeServer, path: Path) -> None:
    """The next time may be better."""
    server.then(answer("no"), answer("no"), answer(GOOD))
    judge = judge_of(server, cache=path)
    failure(judge, JudgeAnswerError)
    assert ask(judge).value.grade == 3


def test_an_answer_that_no_longer_fits_is_asked_for_again(server: JudgeServer, path: Path) -> None:
    """The schema's own checks may have changed without its JSON."""

    class Checked(BaseModel):
        grade: int

        def model_post_init(self, _: Any) -> None:
            if self.grade in refused:
                raise ValueError("not this one")

    refused: set[int] = set()
    server.then(answer({"grade": 1}), answer({"grade": 2}))
    judge = judge_of(server, cache=path)
    ask(judge, schema=Checked)
    refused.add(1)
    assert ask(judge, schema=Checked).value.grade == 2


def test_only_the_owner_can_read_the_cache(path: Path) -> None:
    """Answers may quote judged texts."""
    asyncio.run(JudgeCache(path).put("k", kept()))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_neither_prompt_nor_key_are_in_the_file(server: JudgeServer, path: Path) -> None:
    """Only a hash of the prompt, and the answer."""
    server.then(answer(GOOD))
    ask(judge_of(server, cache=path), [("user", "A very private question")])
    content = b"".join(file.read_bytes() for file in path.parent.iterdir())
    assert b"exact" in content
    assert b"private question" not in content
    assert KEY.encode() not in content


@pytest.mark.parametrize("content", [b"this is no database" * 1000, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_damaged_file_is_reported_and_left_alone(
    server: JudgeServer, path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Questions are answered without a cache; one warning says which file."""
    path.parent.mkdir()
    path.write_bytes(content)
    server.otherwise(answer(GOOD))
    judge = judge_of(server, cache=path)
    assert [ask(judge).cached for _ in range(3)] == [False] * 3
    [record] = [record for record in caplog.records if record.name.startswith("rageval_hooks")]
    assert record.levelno == logging.WARNING
    assert str(path) in record.getMessage()
    assert "not used" in record.getMessage()
    assert path.read_bytes() == content


def test_an_entry_that_nobody_understands_is_no_answer(server: JudgeServer, path: Path) -> None:
    """Another program may have written into the file."""
    server.then(answer(GOOD), answer(GOOD))
    ask(judge_of(server, cache=path))
    with sqlite3.connect(path) as database:
        database.execute("UPDATE answers SET answer = '[1, 2'")
    database.close()
    assert not ask(judge_of(server, cache=path)).cached


@pytest.mark.skipif(hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may write everywhere")
def test_a_directory_without_permission_is_no_reason_to_fail(server: JudgeServer, tmp_path: Path) -> None:
    """There is no cache, then."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    server.then(answer(GOOD))
    assert ask(judge_of(server, cache=closed / "answers.sqlite")).value.grade == 3


def test_a_path_that_is_a_directory_is_no_reason_to_fail(server: JudgeServer, tmp_path: Path) -> None:
    """There is no cache, then."""
    server.then(answer(GOOD))
    assert ask(judge_of(server, cache=tmp_path)).value.grade == 3


def test_a_file_that_disappears_is_made_again(path: Path) -> None:
    """The file may be deleted while the process runs."""
    cache = JudgeCache(path)
    asyncio.run(cache.put("k", kept()))
    for file in path.parent.iterdir():
        file.unlink()
    assert asyncio.run(cache.get("k")) is None
    asyncio.run(cache.put("k", kept()))
    assert asyncio.run(cache.get("k")) == kept()


def test_it_keeps_the_most_recently_used_answers_within_its_limit(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked after at every 64th write."""
    now = iter(range(1, 1000))
    monkeypatch.setattr("rageval_hooks.judges.cache.time.time", lambda: float(next(now)))
    cache = JudgeCache(path, max_bytes=20_000)

    async def fill() -> list[str]:
        for number in range(64):
            await cache.put(str(number), kept("x" * 1000))
            await cache.get("0")
        return [str(number) for number in range(64) if await cache.get(str(number)) is not None]

    left = asyncio.run(fill())
    assert left == ["0", *(str(number) for number in range(65 - len(left), 64))]
    assert 10 < len(left) < 20


def test_threads_share_it(path: Path) -> None:
    """Each on its own loop, all at once."""
    cache = JudgeCache(path)

    def work(number: int) -> CachedAnswer | None:
        async def both() -> CachedAnswer | None:
            await cache.put(str(number), kept(str(number)))
            return await cache.get(str(number))

        return asyncio.run(both())

    with ThreadPoolExecutor(8) as pool:
        assert [found.value for found in pool.map(work, range(64)) if found] == [str(n) for n in range(64)]
    assert cache.stats() == {"hits": 64, "misses": 0, "writes": 64, "errors": 0}


_WRITER = """
import asyncio, sys
from rageval_hooks.judges.cache import CachedAnswer, JudgeCache

async def main():
    cache = JudgeCache(sys.argv[1])
    for number in range(50):
        await cache.put(f"{sys.argv[2]}-{number}", CachedAnswer(value="{}", model="m", response_id=None, mode="text"))
    print(cache.stats()["writes"], cache.stats()["errors"])

asyncio.run(main())
"""


def test_processes_share_it(path: Path) -> None:
    """Several that write at once lose nothing."""
    command = [sys.executable, "-c", _WRITER, str(path)]
    processes = [subprocess.Popen([*command, name], stdout=subprocess.PIPE, text=True) for name in "abc"]
    assert [process.communicate(timeout=50)[0].strip() for process in processes] == ["50 0"] * 3
    with sqlite3.connect(path) as database:
        [(count,)] = database.execute("SELECT COUNT(*) FROM answers")
    database.close()
    assert count == 150


def test_the_key_is_the_same_in_every_process() -> None:
    """No salt, no order of sets: a later run finds it again."""
    key = cache_key(
        identity={"model": "m"}, messages=(Message(role="user", content="é"),), schema=Grade, parameters={"a": 1}
    )
    assert key == "05d00bd54b8b8fa112eee03b8e941931e54b17ca3678c0b6bb10bcc13a08e1b9"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_children_that_are_forked_while_it_is_used_find_the_answers(path: Path) -> None:
    """SQLite keeps what it knows of locks in memory, which would be wrong in a child. A fork waits only for moments.

    The children read when the writers have ended: a disk that is busy with something else holds a lock for seconds.
    """
    script = """
import asyncio, os, sys, threading, time
from rageval_hooks.judges.cache import CachedAnswer, JudgeCache
cache, answer = JudgeCache(sys.argv[1]), CachedAnswer(value="{}", model="m", response_id=None, mode="json_schema")
permits, ended = threading.Semaphore(0), threading.Semaphore(0)
async def write():
    for number in range(60):
        permits.acquire()
        await cache.put(str(number), answer)
        ended.release()
threads = [threading.Thread(target=lambda: asyncio.run(write())) for _ in range(3)]
for thread in threads:
    thread.start()
codes, longest = set(), 0.0
for _ in range(30):
    permits.release(6)
    ended.acquire()
    reading, writing = os.pipe()
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        os.read(reading, 1)
        os._exit(0 if asyncio.run(cache.get("0")) == answer else 9)
    longest = max(longest, time.monotonic() - started)
    for _ in range(5):
        ended.acquire()
    os.write(writing, b"x")
    codes.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
for thread in threads:
    thread.join()
print(codes, longest < 1.0, cache.stats()["errors"])
"""
    assert run_script(script, path.resolve()).split() == ["{0}", "True", "0"]


def test_a_full_disk_costs_the_cache_only(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Said once and counted; what is in the file is still found, and the cache works again when there is space."""
    cache = JudgeCache(path)
    asyncio.run(cache.put("small", kept()))
    with limited_file_size(300_000):
        asyncio.run(cache.put("large", kept("x" * 500_000)))
        asyncio.run(cache.put("large", kept("x" * 500_000)))
        errors = cache.stats()["errors"]
        in_file = asyncio.run(JudgeCache(path).get("small"))
    cache._rest_until = 0.0  # ten seconds later
    asyncio.run(cache.put("large", kept("x" * 500_000)))

    assert errors == 1  # the second attempt did not use the file
    assert in_file == kept()
    assert asyncio.run(cache.get("large")) == kept("x" * 500_000)
    [message] = caplog.messages
    assert "cannot be used now" in message


def test_a_short_lock_of_another_program_is_waited_for(path: Path) -> None:
    """For example a copy of the file for a backup."""
    cache = JudgeCache(path)
    asyncio.run(cache.put("k", kept()))
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    release = threading.Timer(0.3, other.execute, ["COMMIT"])
    release.start()

    asyncio.run(cache.put("k2", kept()))

    release.join()
    other.close()
    assert asyncio.run(cache.get("k2")) == kept()
    assert cache.stats()["errors"] == 0


def test_a_cache_that_stays_unusable_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every attempt is counted."""
    monkeypatch.setattr("rageval_hooks.judges.cache._REST_SECONDS", 0.0)
    cache = JudgeCache(tmp_path)  # a folder

    async def read() -> list[Any]:
        return [await cache.get("key") for _ in range(3)]

    assert asyncio.run(read()) == [None] * 3
    assert cache.stats()["errors"] == 3
    assert len([line for line in caplog.messages if "the judge's cache" in line]) == 1
