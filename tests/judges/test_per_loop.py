"""One judge on several event loops, in threads, and after a fork."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from rageval_hooks import Turn, evaluate, score_dataset
from rageval_hooks.errors import ConfigurationError
from rageval_hooks.judges.concurrency import PerLoop
from tests.interpreter import run_script
from tests.judges.helpers import GOOD, PROMPT, Grade, ask, judge_of, until
from tests.judges.server import Gate, JudgeServer, answer, held


def test_a_judge_serves_one_loop_after_the_other(server: JudgeServer) -> None:
    """Each ``asyncio.run`` has separate connections, which are closed with it, without a warning."""
    server.otherwise(answer(GOOD))
    judge = judge_of(server)
    assert [ask(judge).value.grade for _ in range(3)] == [3, 3, 3]
    gc.collect()


def test_a_judge_serves_loops_in_many_threads(server: JudgeServer) -> None:
    """At the same time; the counters have all of them."""
    server.otherwise(answer(GOOD))
    judge = judge_of(server)
    with ThreadPoolExecutor(8) as pool:
        assert [found.value.grade for found in pool.map(lambda _: ask(judge), range(24))] == [3] * 24
    assert judge.stats()["answered"] == 24


def test_connections_are_used_again_until_they_are_closed(server: JudgeServer) -> None:
    """On one loop, questions share connections; after ``aclose`` the judge opens new ones."""
    server.otherwise(answer(GOOD))
    made = []

    def client() -> openai.DefaultAsyncHttpxClient:
        made.append(openai.DefaultAsyncHttpxClient())
        return made[-1]

    async def main() -> None:
        judge = judge_of(server, http_client=client)
        await judge.complete(PROMPT, Grade)
        await judge.complete(PROMPT, Grade)
        assert len(made) == 1
        await judge.aclose()
        assert made[0].is_closed
        await judge.complete(PROMPT, Grade)
        await judge.aclose()

    asyncio.run(main())
    assert [client.is_closed for client in made] == [True, True]


def test_a_judge_that_is_passed_in_keeps_its_connections_until_it_is_closed(server: JudgeServer) -> None:
    """``evaluate`` asks it on the background thread; ``close`` works without an event loop, and drops no socket."""
    server.otherwise(answer({"explanation": "", "attempted": True}))
    made = []

    def client() -> openai.DefaultAsyncHttpxClient:
        made.append(openai.DefaultAsyncHttpxClient())
        return made[-1]

    judge = judge_of(server, http_client=client)
    for response in ("In 2019.", "In May 2019."):
        evaluate(
            Turn(query="When was the pier opened?", response=response),
            metrics=["no_answer"],
            models="lexical",
            judge=judge,
        )
    assert [client.is_closed for client in made] == [False]

    judge.close()

    assert [client.is_closed for client in made] == [True]
    evaluate(
        Turn(query="When was the pier opened?", response="In June."),
        metrics=["no_answer"],
        models="lexical",
        judge=judge,
    )
    assert len(made) == 2
    judge.close()
    del judge
    made.clear()
    gc.collect()


def test_scoring_rows_leaves_no_connection_open(server: JudgeServer) -> None:
    """The judge is asked on the event loop of the scoring, which closes it."""
    server.otherwise(answer({"explanation": "", "attempted": True}))
    made = []

    def client() -> openai.DefaultAsyncHttpxClient:
        made.append(openai.DefaultAsyncHttpxClient())
        return made[-1]

    row = {"question": "When was the pier opened?", "answer": "In 2019.", "contexts": ["It was opened in 2019."]}
    frame = score_dataset(
        [row], metrics=["no_answer"], models="lexical", judge=judge_of(server, http_client=client), progress=False
    )

    assert list(frame["no_answer"]) == [1]
    assert [client.is_closed for client in made] == [True]


def test_a_thing_of_the_running_loop_is_not_closed_by_its_own_thread() -> None:
    """It would wait for itself."""
    closed: list[object] = []

    async def close(thing: object) -> None:
        closed.append(thing)

    things = PerLoop(object, close)

    async def main() -> None:
        thing = await things.get()
        things.close(5)
        assert await things.get() is thing

    asyncio.run(main())
    assert len(closed) == 1


def test_a_client_is_refused_in_place_of_a_function(server: JudgeServer) -> None:
    """It would belong to one event loop, and the judge works on several."""
    with pytest.raises(ConfigurationError, match="http_client must be a function that returns a client"):
        judge_of(server, http_client=openai.DefaultAsyncHttpxClient())


def test_no_more_requests_at_once_than_allowed(server: JudgeServer) -> None:
    """The others wait."""
    gate = Gate()
    server.otherwise(held(answer(GOOD), gate))

    async def main() -> int:
        async with judge_of(server, max_concurrency=3) as judge:
            questions = [asyncio.create_task(judge.complete(PROMPT, Grade)) for _ in range(10)]
            await until(lambda: len(server.requests) == 3)
            gate.set()
            await asyncio.gather(*questions)
            return int(judge.stats()["answered"])

    assert asyncio.run(main()) == 10
    assert server.most_at_once == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")  # that is what is tested
def test_a_forked_child_opens_new_connections(server: JudgeServer) -> None:
    """The child uses the parent's judge while a request of the parent is open; neither disturbs the other."""
    gate = Gate()
    server.then(answer(GOOD), held(answer(GOOD), gate))
    server.otherwise(answer({"grade": 1}))
    judge = judge_of(server)

    async def parent() -> int:
        await judge.complete(PROMPT, Grade)
        question = asyncio.create_task(judge.complete(PROMPT, Grade))
        await asyncio.to_thread(server.wait_for_requests, 2)
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            _in_child(writer, judge)
        os.close(writer)
        result = await asyncio.get_running_loop().run_in_executor(None, os.read, reader, 100)
        os.close(reader)
        os.waitpid(child, 0)
        assert result == b"1"
        gate.set()
        return (await question).value.grade

    assert asyncio.run(parent()) == 3


_FORKS = """
import asyncio, os, random, sys, threading, time
from pydantic import BaseModel
from rageval_hooks.judges.openai import OpenAIJudge

class Grade(BaseModel):
    grade: int

def ask(judge):
    try:
        return asyncio.run(judge.complete([("user", "?")], Grade)).value.grade
    except Exception as error:
        return type(error).__name__

codes = []
for _ in range(20):
    judge = OpenAIJudge("m", base_url=sys.argv[1])
    parents = [threading.Thread(target=ask, args=(judge,)) for _ in range(2)]
    for parent in parents:
        parent.start()
    time.sleep(random.random() * 0.03)
    child = os.fork()
    if child == 0:
        found = []
        thread = threading.Thread(target=lambda: found.append(ask(judge)), daemon=True)
        thread.start()
        thread.join(60)
        os._exit(0 if found == [3] else 1)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    for parent in parents:
        parent.join()
print(sum(codes))
"""


def test_what_requests_look_up_is_imported_with_the_judge() -> None:
    """The client finds ``httpx`` in ``sys.modules``, half imported if an exporter's thread imports it meanwhile."""
    pytest.importorskip("httpx")
    code = """
import sys
from rageval_hooks.judges.openai import OpenAIJudge
OpenAIJudge("m", base_url="http://127.0.0.1:9/v1")
print(hasattr(sys.modules.get("httpx"), "Timeout"))
"""
    assert run_script(code).split() == ["True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_children_that_are_forked_while_clients_are_created_use_the_judge(server: JudgeServer) -> None:
    """OpenSSL holds locks while it reads certificates, which a child would wait for forever."""
    server.otherwise(answer({"grade": 3}))
    assert run_script(_FORKS, server.url).split() == ["0"]


def _in_child(writer: int, judge: Any) -> None:
    result = b"nothing"

    def work() -> None:  # in a thread: this one is inside the parent's running loop
        nonlocal result
        result = str(ask(judge).value.grade).encode()

    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(20)
        os.write(writer, result)
    finally:
        os._exit(0)


def test_a_thing_per_loop_is_made_once_and_closed_with_its_loop() -> None:
    """Without anybody closing it by hand."""
    closed = []

    async def close(thing: object) -> None:
        closed.append(thing)

    things = PerLoop(object, close)

    async def main() -> object:
        first = await things.get()
        assert await things.get() is first
        return first

    one, two = asyncio.run(main()), asyncio.run(main())
    assert one is not two
    assert closed == [one, two]


def test_a_loop_that_was_never_ended_properly_is_forgotten() -> None:
    """An application may close its loop without notice: its object must not stay forever."""
    things = PerLoop(set)
    loop = asyncio.new_event_loop()
    gone = weakref.ref(loop.run_until_complete(things.get()))
    loop.close()
    asyncio.run(things.get())
    gc.collect()
    assert gone() is None
