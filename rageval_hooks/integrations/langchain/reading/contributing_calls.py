"""The model calls whose prompts the answer was written from."""

from __future__ import annotations

from collections.abc import Sequence

from rageval_hooks.integrations.capture.authorship import ModelCall, contributors, prompt_text
from rageval_hooks.integrations.capture.run_facts import end_of, of_kind
from rageval_hooks.integrations.capture.runs import Run
from rageval_hooks.integrations.langchain.payloads import tool_text
from rageval_hooks.integrations.langchain.reading.model_calls import generated_text, prompt_of

__all__ = ["prompt_of_answer", "prompting_calls"]


def prompting_calls(runs: Sequence[Run], models: Sequence[Run], answering: Run | None, response: str) -> Sequence[Run]:
    """Return the answering call and the calls whose text reached its prompt; none if no model wrote the answer.

    Args:
        runs: the records by start time, the root first.
        models: the model calls outside of retrievers.
        answering: the call that wrote the answer; None if no model wrote it.
        response: the answer.
    """
    if answering is None or _is_answered_by_tool(runs, response):
        return ()
    if len(models) == 1:
        return models  # saves building the call, which formats its prompt
    calls = {id(run): _call(run) for run in models}
    chosen = contributors(calls[id(answering)], calls.values())
    return [run for run in models if calls[id(run)] in chosen]


def _call(run: Run) -> ModelCall:
    return ModelCall(
        prompt=prompt_text(prompt_of(run)),
        text=generated_text(run.output),
        started_at=run.started_at,
        ended_at=end_of(run, run.started_at),
    )


def _is_answered_by_tool(runs: Sequence[Run], response: str) -> bool:
    """Return True if a tool's text is the answer and no model wrote it (``return_direct``): then there is no prompt."""
    if not response:
        return False
    # A model may have repeated the tool's text. Then it is the model's answer.
    written = [generated_text(run.output).strip() for run in of_kind(runs, "llm")]
    if response in written:
        return False
    return response in [tool_text(run.output) for run in of_kind(runs, "tool")]


def prompt_of_answer(calls: Sequence[Run]) -> str | None:
    """Return the text of the prompts of some calls; None without a call."""
    prompts = [prompt_text(prompt_of(call)) for call in calls]
    return "\n".join(prompts) if prompts else None
