"""The turn of an answer that was cut off says so, and metrics of the answer are skipped."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import rageval_hooks
from rageval_hooks.testing import InMemoryExporter
from tests.integrations.langchain.conftest import Captured
from tests.integrations.langchain.fakes import lcel, model

QUESTION = "When was the pier opened?"


def test_a_stream_that_is_closed_early_is_not_scored_as_an_answer() -> None:
    """Groundedness is skipped, with the reason."""
    exporter = InMemoryExporter()
    with rageval_hooks.instrument(metrics=["groundedness"], exporters=[exporter], models="lexical") as handle:
        stream = lcel("It was opened in 2019.").stream(QUESTION)
        next(stream)
        stream.close()
        assert handle.flush(10)

    [evaluation] = exporter.evaluations
    assert not evaluation.turn.complete
    assert evaluation.turn.response == "It "
    assert evaluation.scores == ()
    assert [skipped.reason for skipped in evaluation.skipped] == [
        "answer incomplete: the model was stopped before its end"
    ]


def test_a_stream_that_is_read_to_its_end_is_complete(captured: Captured) -> None:
    """A complete stream is scored."""
    list(lcel().stream(QUESTION))

    assert captured.turn.complete


def test_a_stream_that_breaks_off_with_an_error_is_incomplete(captured: Captured) -> None:
    """The connection to the provider is lost in the middle of the answer."""

    class Breaking(type(model())):  # type: ignore[misc]
        def _stream(self, *args: object, **kwargs: object) -> Iterator[object]:
            chunks = super()._stream(*args, **kwargs)
            yield next(chunks)
            raise ConnectionError("connection lost")

    broken = Breaking(script=lambda messages: "It was opened in 2019.")
    with pytest.raises(ConnectionError):
        list((lcel().first | lcel().middle[0] | broken).stream(QUESTION))  # type: ignore[attr-defined]

    assert (captured.turn.status, captured.turn.complete) == ("error", False)
