"""Processes that share a budget, for the tests of both stores."""

from __future__ import annotations

import json
from dataclasses import dataclass

from tests.interpreter import run_script

__all__ = ["Spent", "spend"]

_SCRIPT = """
import asyncio, json, os, random, sys
from pydantic import BaseModel
from rageval_hooks.budgets import with_budget
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.judges.base import Judgement
from rageval_hooks.errors import JudgeError
from rageval_hooks.turn import Usage

store, limits, processes = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])

class Grade(BaseModel):
    value: int

class Costly(FakeJudge):
    # Each answer has another size.
    async def complete(self, messages, schema, *, parameters=None):
        judgement = await super().complete(messages, schema)
        tokens = random.randint(50, 100)
        usage = Usage(input_tokens=tokens - 10, output_tokens=10)
        return Judgement(value=judgement.value, model="fake", usage=usage, cost=tokens / 1000)

async def answer(call):
    await asyncio.sleep(random.uniform(0, 0.005))
    return {"value": 1}

async def main():
    random.seed()
    judge = with_budget(Costly(answer, cost=0.1), limits, store)
    async def ask():
        # On a busy machine the store may not answer in time. Such a question is asked again.
        for _ in range(100):
            try:
                return await judge.complete([("user", "?")], Grade)
            except JudgeError as error:
                refusal = error
            if refusal.kind != "budget_unavailable":
                break
            await asyncio.sleep(0.1)
        return refusal
    found = await asyncio.gather(*(ask() for _ in range(60)))
    answers = [one for one in found if not isinstance(one, JudgeError)]
    return {
        "calls": len(answers),
        "tokens": sum(one.usage.total_tokens for one in answers),
        "usd": sum(one.cost for one in answers),
        "refusals": sorted({f"{one.kind}: {one.message}" for one in found if isinstance(one, JudgeError)}),
    }

children = []
for _ in range(processes):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, json.dumps(asyncio.run(main())).encode())
        os._exit(0)
    os.close(writer)
    children.append((pid, reader))
for pid, reader in children:
    print(os.read(reader, 65536).decode())
    assert os.waitpid(pid, 0)[1] == 0
"""


@dataclass
class Spent:
    """What all processes have used together, and why they were refused more."""

    calls: int
    tokens: float
    usd: float
    refusals: set[str]


def spend(store: str, processes: int = 4, **limits: float) -> Spent:
    """Let several processes ask a judge 60 questions each, eight and more at a time. A call has 50 to 100 tokens."""
    output = run_script(_SCRIPT, store, json.dumps(limits), processes)
    found = [json.loads(line) for line in output.splitlines()]
    return Spent(
        calls=sum(one["calls"] for one in found),
        tokens=sum(one["tokens"] for one in found),
        usd=sum(one["usd"] for one in found),
        refusals={refusal for one in found for refusal in one["refusals"]},
    )
