"""``start_turn`` in code without a framework: what the application says becomes the turn."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
import trio
from langchain_core.documents import Document
from langchain_core.messages import AIMessage
from llama_index.core.base.llms.types import ChatMessage, ChatResponse
from llama_index.core.base.response.schema import Response
from llama_index.core.schema import NodeWithScore, TextNode
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import rageval_hooks
from rageval_hooks import Passage, metric
from rageval_hooks.integrations.capture.recorder import shared_recorder
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.manual.conftest import Captured

QUESTION = "When was the pier opened?"
ANSWER = "It was opened in 2019."
FACT = "The pier was opened in 2019."


class OutOfOrderError(Exception):
    """An exception of the application."""


def answer(question: str = QUESTION, **about: Any) -> None:
    with rageval_hooks.start_turn(question, **about) as turn:
        turn.add_passages([FACT])
        turn.respond(ANSWER)


def test_question_passages_and_answer_become_a_turn(captured: Captured) -> None:
    """No framework is needed."""
    answer()

    turn = captured.turn
    assert (turn.query, turn.response, turn.status, turn.complete) == (QUESTION, ANSWER, "ok", True)
    assert [passage.text for passage in turn.passages] == [FACT]
    assert turn.is_rag
    assert turn.timing is not None
    assert captured.handle.stats()["evaluated"] == 1


def test_scores_are_there_when_the_block_ends() -> None:
    """The end of the block waits for local scores, within the inline budget."""
    seen = []
    with rageval_hooks.instrument(metrics=["groundedness"], models="lexical", exporters=[], on_evaluation=seen.append):
        answer()
        assert [result.status for evaluation in seen for result in evaluation.results] == ["scored"]


def test_session_user_metadata_and_reference(captured: Captured) -> None:
    """Ids may be texts, numbers or UUIDs."""
    answer(session_id=UUID(int=7), user_id=42, metadata={"tenant": "harbour"}, reference="In 2019.")

    turn = captured.turn
    assert (turn.session_id, turn.user_id) == (str(UUID(int=7)), "42")
    assert turn.metadata == {"tenant": "harbour"}
    assert turn.reference == "In 2019."


def test_session_from_the_opentelemetry_context(captured: Captured) -> None:
    """Baggage names the session if the application does not."""
    token = context.attach(baggage.set_baggage("session.id", "s-1"))
    try:
        answer()
    finally:
        context.detach(token)

    assert captured.turn.session_id == "s-1"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (FACT, Passage(text=FACT)),
        ({"text": FACT, "id": "d1", "score": 0.9}, Passage(text=FACT, id="d1", score=0.9)),
        ({"document": {"snippet": FACT}, "_id": 7, "score": 0.9}, Passage(text=FACT, id="7", score=0.9)),
        (Passage(text=FACT, id="d1"), Passage(text=FACT, id="d1")),
        (
            Document(page_content=FACT, id="d1", metadata={"score": 0.9}),
            Passage(text=FACT, id="d1", score=0.9, metadata={"score": 0.9}),
        ),
        ((Document(page_content=FACT, id="d1"), 0.9), Passage(text=FACT, id="d1", score=0.9)),
        (TextNode(text=FACT, id_="d1"), Passage(text=FACT, id="d1")),
        (NodeWithScore(node=TextNode(text=FACT, id_="d1"), score=0.9), Passage(text=FACT, id="d1", score=0.9)),
    ],
    ids=["text", "mapping", "search result", "passage", "document", "document and score", "node", "node with score"],
)
@pytest.mark.parametrize("wrap", [lambda one: [one], lambda one: (item for item in [one]), lambda one: one])
def test_forms_of_passages(captured: Captured, given: Any, expected: Passage, wrap: Callable[[Any], Any]) -> None:
    """Passages come in a list, from a generator, or alone."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        turn.add_passages(wrap(given))
        turn.respond(ANSWER)

    assert captured.turn.passages == (expected,)


@pytest.mark.parametrize(
    "given",
    [
        ANSWER,
        AIMessage(ANSWER),
        AIMessage([{"type": "text", "text": ANSWER}]),
        ChatResponse(message=ChatMessage(role="assistant", content=ANSWER)),
        Response(response=ANSWER),
    ],
    ids=["text", "message", "blocks", "chat response", "response"],
)
def test_forms_of_answers(captured: Captured, given: Any) -> None:
    """Messages and responses of frameworks count as their text."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        turn.respond(given)

    assert captured.turn.response == ANSWER


def test_passages_are_kept_as_they_were_added(captured: Captured) -> None:
    """The application may change its documents afterwards."""
    document = Document(page_content=FACT)
    with rageval_hooks.start_turn(QUESTION) as turn:
        turn.add_passages([document])
        document.page_content = "cut"

    assert [passage.text for passage in captured.turn.passages] == [FACT]


def test_the_last_answer_counts(captured: Captured) -> None:
    """An application may correct itself."""
    with rageval_hooks.start_turn(QUESTION) as turn:
        turn.respond("In 2018.")
        turn.respond(ANSWER)

    assert captured.turn.response == ANSWER


class TestErrors:
    def test_an_exception_passes_through_and_marks_the_turn(self, captured: Captured) -> None:
        """The host sees the same exception object."""
        error = OutOfOrderError("the index is gone")
        with pytest.raises(OutOfOrderError) as caught, rageval_hooks.start_turn(QUESTION):
            raise error

        assert caught.value is error
        turn = captured.turn
        assert turn.status == "error"
        assert turn.error is not None
        assert (turn.error.type, turn.error.message) == ("OutOfOrderError", "the index is gone")

    def test_a_cancelled_task_is_no_error(self, captured: Captured) -> None:
        """Its status is ``cancelled``, and the cancellation reaches the caller."""

        async def ask() -> None:
            started = asyncio.Event()

            async def work() -> None:
                async with rageval_hooks.start_turn(QUESTION) as turn:
                    turn.add_passages([FACT])
                    started.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await started.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(ask())

        assert captured.turn.status == "cancelled"
        assert captured.turn.error is None

    @pytest.mark.parametrize(
        ("call", "message"),
        [
            (lambda turn: turn.add_passages(42), r"add_passages\(\) takes passages, not a value of type int"),
            (lambda turn: turn.add_passages(None), r"add_passages\(\) takes passages, not None"),
            (lambda turn: turn.add_passages([FACT, 3]), "passage 2 is a value of type int without a text"),
            (lambda turn: turn.add_passages([{"title": "x"}]), "passage 1 is a value of type dict without a text"),
            (lambda turn: turn.add_passages({"title": "x"}), "takes passages, not a value of type dict"),
            (lambda turn: turn.respond(None), r"respond\(\) takes the text of the answer, not None"),
            (lambda turn: turn.respond(iter("ab")), "not a value of type str_"),
        ],
    )
    @pytest.mark.parametrize("instrumented", [True, False])
    def test_wrong_arguments(self, call: Callable[[Any], None], message: str, instrumented: bool) -> None:
        """They raise with and without ``instrument()``, so that a test of the application finds them."""
        handle = rageval_hooks.instrument(metrics=[], exporters=[]) if instrumented else None
        with rageval_hooks.start_turn(QUESTION) as turn, pytest.raises(TypeError, match=message):
            call(turn)
        if handle is not None:
            handle.shutdown()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"question": None}, "the question as a text, not None"),
            ({"question": b"When?"}, "the question as a text, not a value of type bytes"),
            ({"question": QUESTION, "metadata": "x"}, "metadata=…"),
            ({"question": QUESTION, "reference": 3}, "reference=…"),
        ],
    )
    def test_wrong_arguments_of_the_turn(self, arguments: dict[str, Any], message: str) -> None:
        """The message says what is wrong."""
        with pytest.raises(TypeError, match=message):
            rageval_hooks.start_turn(**arguments)


class TestWhereNothingIsRecorded:
    def test_without_instrument(self, caplog: pytest.LogCaptureFixture) -> None:
        """The block runs, and a line at debug level says that nothing is recorded."""
        with caplog.at_level(logging.DEBUG, "rageval_hooks"):
            answer()

        [record] = caplog.records
        assert record.levelno == logging.DEBUG
        assert "start_turn() without instrument()" in record.getMessage()

    def test_sampled_out(self) -> None:
        """Sampling decides when the block begins."""
        memory = InMemoryExporter()
        with rageval_hooks.instrument(metrics=[], exporters=[memory], sample_rate=0.0) as handle:
            answer()
            assert handle.flush(10)
            assert memory.evaluations == []
            assert handle.stats()["sampled_out"] == 1
            assert handle.stats()["open_runs"] == 0

    def test_in_on_evaluation(self) -> None:
        """Turns that the callback starts are not evaluated; otherwise evaluation would never end."""
        memory = InMemoryExporter()
        with rageval_hooks.instrument(
            metrics=[], exporters=[memory], on_evaluation=lambda evaluation: answer()
        ) as handle:
            answer()
            assert handle.flush(10)

        assert len(memory.evaluations) == 1

    def test_after_shutdown(self) -> None:
        """A block that is open at the shutdown ends quietly."""
        memory = InMemoryExporter()
        handle = rageval_hooks.instrument(metrics=[], exporters=[memory])
        with rageval_hooks.start_turn(QUESTION) as turn:
            handle.shutdown()
            turn.respond(ANSWER)

        assert memory.evaluations == []

    def test_after_the_block(self, captured: Captured) -> None:
        """Calls after the end have no effect."""
        with rageval_hooks.start_turn(QUESTION) as turn:
            turn.respond(ANSWER)
        turn.respond("Later.")
        turn.add_passages(["Later."])

        assert captured.turn.response == ANSWER
        assert captured.turn.passages == ()


class TestConcurrency:
    def test_async(self, captured: Captured) -> None:
        """Concurrent tasks have separate turns."""

        async def ask(number: int) -> None:
            async with rageval_hooks.start_turn(f"question {number}") as turn:
                await asyncio.sleep(0)
                turn.add_passages([f"passage {number}"])
                await asyncio.sleep(0)
                turn.respond(f"answer {number}")

        async def ask_all() -> None:
            await asyncio.gather(*(ask(number) for number in range(5)))

        asyncio.run(ask_all())

        found = {(turn.query, turn.passages[0].text, turn.response) for turn in captured.turns}
        assert found == {(f"question {n}", f"passage {n}", f"answer {n}") for n in range(5)}

    def test_threads(self, captured: Captured) -> None:
        """Threads have separate turns."""

        def ask(number: int) -> None:
            with rageval_hooks.start_turn(f"question {number}") as turn:
                turn.respond(f"answer {number}")

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert {(turn.query, turn.response) for turn in captured.turns} == {
            (f"question {n}", f"answer {n}") for n in range(5)
        }

    def test_another_thread_adds_to_the_turn(self, captured: Captured) -> None:
        """The object may be used from any thread."""
        with rageval_hooks.start_turn(QUESTION) as turn:
            thread = threading.Thread(target=turn.add_passages, args=([FACT],))
            thread.start()
            thread.join()

        assert [passage.text for passage in captured.turn.passages] == [FACT]


class TestNested:
    def test_the_outer_block_wins(self, captured: Captured) -> None:
        """There is one turn, with the outer question and answer and the passages of both."""
        with rageval_hooks.start_turn(QUESTION) as outer:
            outer.add_passages([FACT])
            with rageval_hooks.start_turn("opening of the pier") as inner:
                inner.add_passages(["The ferry takes 18 minutes."])
                inner.respond("In 2018.")
            outer.respond(ANSWER)

        turn = captured.turn
        assert (turn.query, turn.response) == (QUESTION, ANSWER)
        assert [passage.text for passage in turn.passages] == [FACT, "The ferry takes 18 minutes."]

    def test_an_inner_answer_without_an_outer_one(self, captured: Captured) -> None:
        """It is the answer of the turn."""
        with rageval_hooks.start_turn(QUESTION):
            answer("opening of the pier")

        assert captured.turn.response == ANSWER

    def test_one_after_the_other(self, captured: Captured) -> None:
        """A block that has ended encloses nothing."""
        answer("first")
        answer("second")

        assert [turn.query for turn in captured.turns] == ["first", "second"]


class TestGenerators:
    def stream(self) -> Iterator[str]:
        with rageval_hooks.start_turn(QUESTION) as turn:
            turn.add_passages([FACT])
            yield from ("It was ", "opened in 2019.")
            turn.respond(ANSWER)

    def test_a_stream_that_is_read(self, captured: Captured) -> None:
        """The turn ends with the stream."""
        assert "".join(self.stream()) == ANSWER
        assert captured.turn.response == ANSWER

    def test_a_stream_that_its_reader_leaves(self, captured: Captured) -> None:
        """The turn is cancelled; a new question afterwards is a new turn."""
        stream: Any = self.stream()
        next(stream)
        stream.close()
        assert captured.turn.status == "cancelled"
        answer("another")

        assert [turn.query for turn in captured.turns] == [QUESTION, "another"]

    def test_a_stream_that_ends_in_another_context(self, captured: Captured) -> None:
        """As in web frameworks that run each step of a generator on a thread pool."""
        from contextvars import copy_context

        stream = self.stream()
        pieces = [copy_context().run(next, stream), copy_context().run(next, stream)]
        assert copy_context().run(next, stream, None) is None

        assert "".join(pieces) == ANSWER
        assert captured.turn.response == ANSWER


def test_the_span_is_a_child_of_the_span_at_the_start() -> None:
    """The block begins inside the application's span, and may end outside of it."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    tracer = provider.get_tracer("app")
    with rageval_hooks.instrument(metrics=[], tracer_provider=provider) as handle:
        with tracer.start_as_current_span("request") as request:
            block = rageval_hooks.start_turn(QUESTION)
            turn = block.__enter__()
        turn.add_passages([FACT])
        turn.respond(ANSWER)
        block.__exit__(None, None, None)
        assert handle.flush(10)

    [span] = [span for span in spans.get_finished_spans() if span.name != "request"]
    assert span.parent is not None
    assert span.parent.span_id == request.get_span_context().span_id


def test_texts_stay_off_spans_without_content() -> None:
    """``capture_content=False`` holds for what the application names, too."""
    spans = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    with rageval_hooks.instrument(
        metrics=["groundedness"], models="lexical", tracer_provider=provider, capture_content=False
    ) as handle:
        answer()
        assert handle.flush(10)

    finished = spans.get_finished_spans()
    assert finished
    for text in (QUESTION, ANSWER, FACT):
        assert text not in "".join(span.to_json() for span in finished)


# --------------------------------------------------------------------------- trio


def test_a_block_in_trio_waits_for_its_scores_without_blocking_the_loop() -> None:
    """Other tasks run while the end of the block waits."""
    seen: list[Any] = []
    other_task = threading.Event()

    @metric(requires=["response"], high=None)
    def patient(turn: Any) -> float:
        """Take until another task of the loop has run."""
        return float(other_task.wait(20))

    async def ask() -> None:
        async with rageval_hooks.start_turn(QUESTION) as turn:
            turn.add_passages([FACT])
            turn.respond(ANSWER)
        seen.append(list(seen[0].results))

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask)
            await trio.sleep(0)  # until the block of the other task waits
            nursery.start_soon(trio.to_thread.run_sync, other_task.set)

    callback = {"on_evaluation": seen.append, "inline_budget_ms": 20_000}
    with rageval_hooks.instrument(metrics=[patient], exporters=[], **callback):
        trio.run(main)

    assert [result.value for result in seen[1]] == [1.0]


def test_a_block_that_trio_cancels_is_a_cancelled_turn(captured: Captured) -> None:
    """It is no error, and the cancellation goes on."""

    async def main() -> bool:
        with trio.move_on_after(0.01) as scope:
            async with rageval_hooks.start_turn(QUESTION) as turn:
                turn.add_passages([FACT])
                await trio.sleep_forever()
        return scope.cancelled_caught

    assert trio.run(main)
    assert (captured.turn.status, captured.turn.error) == ("cancelled", None)


def test_a_trace_that_cannot_be_named_does_not_break_the_block(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spans of other tracers are asked for it, whatever they do."""

    def ask(_: object) -> None:
        raise RuntimeError("this span has no context")

    monkeypatch.setattr("rageval_hooks.integrations.manual.block.span_reference", ask)
    with rageval_hooks.start_turn("When was it opened?") as turn:
        turn.respond("In 2019.")
    assert turn.trace_id == ""
    assert [one.response for one in captured.turns] == ["In 2019."]


@pytest.mark.parametrize("event", ["start", "end"])
def test_a_turn_that_cannot_be_recorded_does_not_break_the_block(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, event: str
) -> None:
    """The block runs to its end, and our exception is counted."""

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("our own mistake")

    with monkeypatch.context() as patch:
        patch.setattr(shared_recorder(), event, fail)
        with rageval_hooks.start_turn(QUESTION) as turn:
            turn.respond(ANSWER)

    assert captured.turns == []
    assert captured.handle.stats()["internal_errors"] == 1
    captured.handle.pipeline._counters.reset_after_fork()
