"""A judge that answers every question of the built-in metrics sensibly, from what the question asks about."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rageval_hooks import Passage, Turn
from rageval_hooks.judges.openai import OpenAIJudge
from rageval_hooks.testing import FakeJudge
from tests.judges.server import AnyReply, JudgeServer, Received, Reply, answer

__all__ = ["DECLINED", "SUITE", "by_schema", "good_answer", "long_turn", "on_server", "served"]

SUITE = ["trace", "umbrela", "nuggets", "citation", "no_answer"]
DECLINED = {"explanation": "it says that it does not know", "attempted": False}


def long_turn(passages: int | Sequence[Passage] = 10, **fields: Any) -> Turn:
    """Return a turn with citations."""
    if not isinstance(passages, int):
        return long_turn(0, **fields).model_copy(update={"passages": tuple(passages)})
    return Turn(
        **{
            "query": "What is COVID-19?",
            "response": "COVID-19 is a disease [1]. It spreads by droplets [1, 2]. Vaccines help.",
            "passages": tuple(
                Passage(text=f"Passage number {n} speaks of it. It says more.", id=f"p{n}") for n in range(passages)
            ),
            **fields,
        }
    )


def good_answer(schema: str, task: str, *, nuggets: int = 4) -> dict[str, Any]:
    """Return an answer of the form that is wanted, complete for what the task asks about."""
    if schema == "TraceLabels":
        keys = re.findall(r"^([a-z]+): ", task, re.MULTILINE)
        return {
            "relevance_explanation": "why",
            "all_relevant_sentence_keys": ["0a", "1a"],
            "all_utilized_sentence_keys": ["0a"],
            "overall_supported": True,
            "sentence_support_information": [
                {
                    "response_sentence_key": key,
                    "explanation": "",
                    "supporting_sentence_keys": ["0a"],
                    "fully_supported": True,
                }
                for key in keys
            ],
        }
    if schema == "PassageGrades":
        asked = re.search(r"Grade (?:all (\d+) passages|only (?:the passages|passage) ([\d, ]+))", task)
        assert asked is not None
        numbers = range(int(asked[1])) if asked[1] else map(int, re.findall(r"\d+", asked[2]))
        grades = [{"passage": n, "match": 3, "trustworthiness": 3, "grade": 1 + n % 3} for n in numbers]
        return {"intent": "to know what it is", "grades": grades}
    if schema == "AnswerAttempt":
        return {"explanation": "it answers", "attempted": True}
    if schema == "WeighedNuggetDrafts":
        drafts = [{"nugget": f"fact number {n}", "importance": ("vital", "okay")[n % 2]} for n in range(nuggets)]
        return {"nuggets": drafts}
    if schema == "NuggetDrafts":
        known = len(re.findall(r"^\d+: ", task, re.MULTILINE))
        return {"nuggets": [f"fact number {n}" for n in range(known, known + nuggets)]}
    if schema == "NuggetWeights":
        numbers = map(int, re.findall(r"^(\d+): ", task, re.MULTILINE))
        return {"nuggets": [{"nugget": n, "importance": ("vital", "okay")[n % 2]} for n in numbers]}
    if schema == "NuggetAssignments":
        numbers = map(int, re.findall(r"^(\d+): ", task, re.MULTILINE))
        words = ("support", "partial_support", "not_support")
        return {"nuggets": [{"nugget": n, "support": words[n % 3]} for n in numbers]}
    if schema == "CitationSupport":
        pairs = re.findall(r"\((\w+), (\d+)\)", task.split("Pairs: ", 1)[1])
        return {"pairs": [{"sentence": key, "passage": int(n), "support": "full"} for key, n in pairs]}
    if schema == "ReferenceComparison":
        return {"missing": "", "extra": "the droplets", "completeness": 1.0, "conciseness": 0.5}
    raise AssertionError(f"no metric asks for {schema}")


def by_schema(given: Mapping[str, Any] | None = None, **options: Any) -> FakeJudge:
    """Return a judge with some given answers, by the schema's name; the others are good ones.

    An answer may be a function of the call.
    """

    def script(call: Any) -> Any:
        name = call.schema.__name__
        own = (given or {}).get(name)
        if own is None:
            return good_answer(name, call.messages[-1].content, **options)
        return own(call) if isinstance(own, Callable) else own  # type: ignore[arg-type]

    return FakeJudge(script)


def on_server(given: Mapping[str, Any] | None = None, **options: Any) -> Callable[[Received], Reply]:
    """Return the same for the server of the tests; own answers are replies, or functions of the request."""

    def reply(request: Received) -> Reply:
        name = request.body["response_format"]["json_schema"]["name"]
        own = (given or {}).get(name)
        if own is None:
            return answer(good_answer(name, request.body["messages"][-1]["content"], **options))
        return own(request) if callable(own) else own

    return reply


@contextmanager
def served(reply: AnyReply, **options: Any) -> Iterator[tuple[JudgeServer, OpenAIJudge]]:
    """Start a server that replies so, and yield it with a judge that asks it, whose connections are closed after."""
    with JudgeServer() as server:
        server.otherwise(reply)
        judge = OpenAIJudge("judge-model", base_url=server.url, api_key="sk-test", **options)
        try:
            yield server, judge
        finally:
            judge.close()
