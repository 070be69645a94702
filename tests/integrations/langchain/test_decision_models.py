"""A decision model classifies inside of a turn: it is shown as a model call, and did not write the answer.

LangChain has them since langchain-core 1.8. They are reported as this module's fake is: a model, with the input and
the output of a chain.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, ensure_config

from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import lcel

QUESTION = "When was the pier opened?"


@dataclass
class Verdict:
    """The typed answers of a decision model."""

    answers: dict[str, Any]
    usage: dict[str, int] = field(default_factory=lambda: {"input_tokens": 7, "output_tokens": 1, "total_tokens": 8})


class DecisionModel(Runnable[Any, Any]):
    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Verdict:
        config = ensure_config(config)
        config["metadata"] = {**config["metadata"], "ls_model_name": "decider", "ls_provider": "acme"}
        return self._call_with_config(
            lambda request: Verdict({name: {"noul": 0.1} for name in request["questions"]}),
            input,
            config,
            run_type="llm",
        )


def ask(state: Any) -> Verdict:
    return DecisionModel().invoke({"state": state, "questions": {"is_safe": {"type": "noul"}}})


def test_a_decision_before_and_after_the_answer(captured: Captured) -> None:
    """Its questions, answers and tokens are on its step. The answer and its prompt are those of the other model."""
    guarded = RunnableLambda(lambda question: (ask(question), lcel().invoke(question))[1]) | RunnableLambda(
        lambda answer: SimpleNamespace(text=answer, verdict=ask(answer)).text
    )
    guarded.invoke(QUESTION)

    turn = captured.turn
    before, chat, after = [step for step in turn.steps if step.kind == "llm"]
    assert (turn.query, turn.response, turn.model) == (QUESTION, "It was opened in 2019.", chat.model)
    assert turn.prompt == chat.messages
    for step in (before, after):
        assert "is_safe" in (step.output or "")
        assert (step.model, step.provider) == ("decider", "acme")
        assert step.usage is not None
        assert step.usage.total_tokens == 8
    assert json.loads(before.messages[0].content)["state"] == QUESTION


def test_a_chain_that_returns_an_object_of_its_own(captured: Captured) -> None:
    """Its answer is taken from the model that wrote one, not from the decision that came last."""

    class Opaque:
        pass

    (lcel() | RunnableLambda(lambda answer: (ask(answer), Opaque())[1])).invoke(QUESTION)

    assert captured.turn.response == "It was opened in 2019."


def test_the_question_is_captured_as_it_was_asked(captured: Captured) -> None:
    """An application may change its state after the turn, before the turn is built in the background."""
    state = [{"role": "user", "content": QUESTION}]
    RunnableLambda(lambda question: (ask(state), lcel().invoke(question))[1]).invoke(QUESTION)
    state[0]["content"] = "changed"

    [before, _] = [step for step in captured.turn.steps if step.kind == "llm"]
    assert json.loads(before.messages[0].content)["state"] == [{"role": "user", "content": QUESTION}]
