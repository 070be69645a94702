"""Values of the application that do something when they are looked at: only plain containers are read."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import MagicMock

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough

import rageval_hooks
from rageval_hooks import GroundingGuard
from rageval_hooks.integrations.langchain import CallbackHandler
from rageval_hooks.integrations.langchain.payloads import as_json as langchain_json
from rageval_hooks.integrations.llama_index.values import as_json as llama_index_json
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.fakes import model

TEXT = "The pier cost 5 euros."


class Reads:
    """Counts what is read of the application's values."""

    count = 0


class OnDisk(Mapping[str, Any]):
    """A mapping such as ``shelve``'s, whose values come from a disk."""

    def __getitem__(self, key: str) -> Any:
        Reads.count += 1
        return TEXT

    def __iter__(self) -> Iterator[str]:
        Reads.count += 1
        return map(str, itertools.count())

    def __len__(self) -> int:
        return 10**9


class LazyDict(dict[str, Any]):
    """A dictionary that loads what is asked for."""

    def __getitem__(self, key: str) -> Any:
        Reads.count += 1
        return TEXT

    def items(self) -> Any:
        Reads.count += 1
        return ((str(number), TEXT) for number in itertools.count())

    values = items


class Endless(list[Any]):
    """A list without an end, as a database's cursor may be."""

    def __iter__(self) -> Iterator[Any]:
        Reads.count += 1
        return itertools.repeat(TEXT)


class StrictMock:
    """Fails the application's test if anything is asked of it."""

    def __getattr__(self, name: str) -> Any:
        pytest.fail(f"unexpected access to {name}")

    def __str__(self) -> str:
        pytest.fail("unexpected str()")


LAZY: dict[str, Callable[[], Any]] = {
    "a mapping on disk": OnDisk,
    "a lazy dictionary": LazyDict,
    "an endless list": Endless,
    "a strict mock": StrictMock,
    "a mock": MagicMock,
    "a generator": lambda: (pytest.fail("read") for _ in range(1)),
}


@dataclass
class Found:
    """A dataclass, with one of these values in a field, and a property that asks a server."""

    text: str
    rows: Any = None
    key: str = field(default="secret", repr=False)

    @property
    def more(self) -> str:
        pytest.fail("unexpected access to more")


@dataclass(slots=True)
class Slotted:
    inner: Found


@dataclass
class Masked:
    """Its text is the application's."""

    key: str = "secret"

    def __repr__(self) -> str:
        return "Masked(***)"


@pytest.mark.parametrize("as_json", [langchain_json, llama_index_json])
def test_a_dataclass_is_shown_by_its_fields(as_json: Callable[[Any], str]) -> None:
    """Those that its generated text shows. No code of its class runs."""
    Reads.count = 0
    shown = json.loads(as_json(Slotted(Found(TEXT, [LazyDict(a=1), OnDisk()]))))

    assert shown == {"inner": {"text": TEXT, "rows": [{"a": 1}, "<OnDisk>"]}}
    assert Reads.count == 0
    assert json.loads(as_json([Masked()])) == ["<Masked>"]


def chain() -> Runnable[Any, Any]:
    """A chain that passes the value on in its state."""
    found = RunnablePassthrough.assign(context=lambda _: [Document(TEXT)])
    return found | RunnablePassthrough.assign(
        answer=RunnableLambda(lambda state: state["context"][0].page_content) | model(TEXT)
    )


@pytest.mark.parametrize("kind", LAZY)
@pytest.mark.parametrize("place", ["state", "metadata", "start_turn"])
def test_the_value_is_not_looked_at(kind: str, place: str) -> None:
    """The turn is captured as usual, and the value is shown by its type, if at all."""
    value, exporter = LAZY[kind](), InMemoryExporter()
    Reads.count = 0
    with rageval_hooks.instrument(models="lexical", exporters=[exporter]) as handle:
        if place == "start_turn":
            with rageval_hooks.start_turn("What did it cost?", metadata={"db": value}) as turn:
                turn.add_passages([TEXT])
                turn.respond(TEXT)
        else:
            config: Any = {"metadata": {"db": value, "session": value}} if place == "metadata" else {}
            chain().invoke({"question": "What did it cost?", **({"db": value} if place == "state" else {})}, config)
        assert handle.flush(20)

    assert Reads.count == 0
    if isinstance(value, MagicMock):
        assert value.mock_calls == []
    evaluation = exporter.evaluations[0]
    assert [passage.text for passage in evaluation.turn.passages] == [TEXT]


@pytest.mark.parametrize("handled", [False, True])
def test_a_guard_leaves_a_generator_to_the_application(handled: bool) -> None:
    """Its passages are those that the turn has."""
    guard = GroundingGuard(models="lexical", on_fail="flag", timeout_ms=20_000)
    asked = RunnableLambda(lambda _: {"answer": TEXT, "context": (Document(text) for text in ("a", "b"))}) | guard
    callbacks = [CallbackHandler(models="lexical", exporters=[InMemoryExporter()])] if handled else []

    output = asked.invoke("What did it cost?", {"callbacks": callbacks})

    assert [document.page_content for document in output["context"]] == ["a", "b"]
