"""What models of a turn wrote is no evidence; what was there before stays evidence."""

from __future__ import annotations

import pytest

from rageval_hooks.integrations.capture.evidence import Evidence
from rageval_hooks.integrations.capture.recorder import Framework, Run
from rageval_hooks.turn import Passage, Turn

FRAMEWORK = Framework(
    "test",
    lambda runs: Turn(),
    lambda: None,
    given_text=lambda run: str(run.input),
    returned_text=lambda run: str(run.output),
)
ROOT = Run(id="root", parent=None, framework=FRAMEWORK, kind="chain", name="root", input="", started_at=0)
ANSWER = "The pier is 120 metres long, and it cost 41 million crowns."
PAGES = " ".join(f"On day {number} the ferry left the harbour of Hallay at noon." for number in range(9))


def run(kind: str, started_at: int, ended_at: int | None, input: str, output: str) -> Run:
    return Run(
        id=object(),
        parent=ROOT,
        framework=FRAMEWORK,
        kind=kind,
        name=kind,
        input=input,
        started_at=started_at,
        ended_at=ended_at,
        output=output,
    )


@pytest.mark.parametrize(("searched", "is_evidence"), [(PAGES, False), ("", True)], ids=["it was found", "it is new"])
def test_what_was_found_before_does_not_hide_that_a_model_wrote_the_rest(searched: str, is_evidence: bool) -> None:
    """A tool returns a model's statement together with pages that a search had found. New pages make it evidence."""
    runs = [run("retriever", 1, 2, "pier", searched), run("llm", 3, 4, "How long is it?", ANSWER)]
    passage = Passage(text=f"{ANSWER} {PAGES}")

    assert Evidence(runs).among([passage], 6) == [passage] * is_evidence
    assert Evidence(runs).among([passage], 2) == [passage]  # before the model wrote anything


def test_a_call_that_has_not_ended_has_written_nothing() -> None:
    """Its reader left the stream."""
    calls = [run("llm", 1, 2, "", ANSWER), run("llm", 1, None, "", ANSWER)]
    evidence = Evidence(calls)

    assert [evidence.reached(call, f"Known: {ANSWER}") for call in calls] == [True, False]
