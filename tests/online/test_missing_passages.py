"""Answers without passages are counted by reason, and one log line says what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

import rageval_hooks
from rageval_hooks.online import counters as missing_passages
from tests.integrations.langchain import fakes

QUESTION = "When was the pier opened?"
PIER = fakes.FACTS[0]


@tool
def consult(matter: str) -> str:
    """Ask the harbour master."""
    return PIER.page_content


def without_search(question: str) -> Any:
    return fakes.model().invoke(question)


def with_text_only_tool(question: str) -> Any:
    return fakes.model().invoke(consult.invoke(question))


def with_empty_search(question: str) -> Any:
    return fakes.model().invoke(f"{fakes.retriever([]).invoke(question)}")


def without_documents_in_the_prompt(question: str) -> Any:
    fakes.retriever([PIER]).invoke(question)
    return fakes.model().invoke(question)


@pytest.fixture
def handle() -> Iterator[rageval_hooks.Instrumentation]:
    with rageval_hooks.instrument(metrics=[], exporters=[]) as handle:
        yield handle


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of this module; a judge of an earlier test may still log in the background."""
    own = (record for record in caplog.records if record.name == missing_passages.__name__)
    return [record.getMessage() for record in own if record.levelno == logging.WARNING]


@pytest.mark.parametrize(
    ("application", "reason", "text"),
    [
        (without_search, "no_retriever", "no retriever was called"),
        (with_text_only_tool, "text_only_tool", "name the tools in search_tools"),
        (with_empty_search, "nothing_found", "the retriever returned nothing"),
        (without_documents_in_the_prompt, "not_in_prompt", "are not in the model's prompt"),
    ],
)
def test_reasons(
    handle: rageval_hooks.Instrumentation, caplog: pytest.LogCaptureFixture, application: Any, reason: str, text: str
) -> None:
    """The log line has the count, the likely reason and the page of the documentation."""
    RunnableLambda(application).invoke(QUESTION)
    assert handle.flush(10)

    counts = handle.stats()["without_passages_by_reason"]
    assert counts == {name: int(name == reason) for name in counts}
    assert counts[reason] == 1
    [line] = warnings_in(caplog)
    assert "1 answer has no passages" in line
    assert text in line
    assert "docs/troubleshooting.md" in line


def test_thanks_in_a_conversation_with_searches(
    handle: rageval_hooks.Instrumentation, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that needs no search is not counted where searches are captured."""
    config: Any = {"metadata": {"session_id": "s"}}
    fakes.lcel().invoke(QUESTION, config)
    assert handle.flush(10)
    RunnableLambda(without_search).invoke("Thank you", config)
    assert handle.flush(10)

    assert not any(handle.stats()["without_passages_by_reason"].values())


def test_the_conversations_with_searches_are_bounded(
    handle: rageval_hooks.Instrumentation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier one is forgotten: an answer without a search counts there again."""
    monkeypatch.setattr(missing_passages, "_MAX_SESSIONS", 1)
    for session in ("a", "b"):
        fakes.lcel().invoke(QUESTION, {"metadata": {"session_id": session}})
        assert handle.flush(10)
    for session in ("a", "b"):
        RunnableLambda(without_search).invoke("Thank you", {"metadata": {"session_id": session}})
    assert handle.flush(10)

    assert handle.stats()["without_passages_by_reason"]["no_retriever"] == 1


def test_one_line_for_many_answers(handle: rageval_hooks.Instrumentation, caplog: pytest.LogCaptureFixture) -> None:
    """The log is not flooded; the counts go on."""
    for _ in range(5):
        RunnableLambda(without_search).invoke(QUESTION)
    assert handle.flush(10)

    assert handle.stats()["without_passages_by_reason"]["no_retriever"] == 5
    assert len(warnings_in(caplog)) == 1


def test_answers_with_passages(handle: rageval_hooks.Instrumentation, caplog: pytest.LogCaptureFixture) -> None:
    """There is nothing to say about them, nor about a bare search."""
    fakes.lcel().invoke(QUESTION)
    fakes.retriever([Document(page_content="x")]).invoke(QUESTION)
    assert handle.flush(10)

    assert not any(handle.stats()["without_passages_by_reason"].values())
    assert warnings_in(caplog) == []


def test_on_purpose(caplog: pytest.LogCaptureFixture) -> None:
    """With ``evaluate_without_retrieval`` such answers are expected."""
    with rageval_hooks.instrument(metrics=[], exporters=[], evaluate_without_retrieval=True) as handle:
        RunnableLambda(without_search).invoke(QUESTION)
        assert handle.flush(10)

    assert warnings_in(caplog) == []


def test_a_model_that_is_called_directly_is_no_answer_without_passages(
    handle: rageval_hooks.Instrumentation, caplog: pytest.LogCaptureFixture
) -> None:
    """Many applications call models for other purposes, too."""
    fakes.model().invoke(QUESTION)
    assert handle.flush(10)

    assert warnings_in(caplog) == []
