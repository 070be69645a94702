"""Which model call wrote a text."""

from __future__ import annotations

import json

import pytest

from rageval_hooks.integrations.capture.authorship import writer_of
from rageval_hooks.turn import Message

LONG = " ".join(f"Pier {number} was opened by the mayor." for number in range(4_000))


@pytest.mark.parametrize("size", [1_000, 60_000, 99_980, 140_000])
@pytest.mark.parametrize("form", ["{}", "{}\n\n", "\n**{}**", "{} [1]"])
def test_the_writer_of_a_text_that_begins_as_another_one(form: str, size: int) -> None:
    """Two drafts of an agent may differ at their ends only, and the answer may be the earlier one."""
    text = f"{LONG[:size]} and it has 7 lamps."
    calls = [form.format(text), f"{LONG[:size]} and it has no lamps at all."]

    assert writer_of(text, calls, str) == calls[0]
    assert writer_of(f"> {text}", calls, str) == calls[0]
    assert writer_of(calls[1], calls, str) == calls[1]


ANSWER = 'The pier is 120 metres long, cost 41 million crowns,\nand is called "the long one".'
CLAIMS = {"claims": [{"claim": ANSWER.replace("\n", " "), "label": "supported"}]}
LATER = {
    "a claim checker": json.dumps(CLAIMS),
    "a note for the memory": "User learned: the pier is 120 metres long, cost 41 million crowns, and has a nickname.",
    "follow-up questions": "Who paid the 41 million crowns? Is the pier 120 metres long? What is the long one?",
    "an output guard": json.dumps({"safe": True, "text": ANSWER}),
    "a title": "Length and cost of the pier",
    "a summary of the conversation": f"The user asked about the pier. The assistant said: {ANSWER}",
}
WRITTEN = {
    "a field of JSON": json.dumps({"answer": ANSWER, "used": [1]}),
    "a field of JSON in ASCII, with a dash": json.dumps({"answer": ANSWER, "sources": "pages 3–9"}, ensure_ascii=True),
    "the text": ANSWER,
    "citations": ANSWER.replace(" long,", " long [1],").replace('one".', 'one" [doc-2].'),
}
SHOWN = {
    "as it is": ANSWER,
    "with sources": f"{ANSWER}\n\nSources:\n- hallay.pdf, page 3\n- costs.pdf, page 9",
    "with a greeting": f"Hello Ann! {ANSWER}",
    "without quotes": ANSWER.replace('"', ""),
}


@pytest.mark.parametrize("later", LATER.values(), ids=LATER)
@pytest.mark.parametrize("written", WRITTEN.values(), ids=WRITTEN)
@pytest.mark.parametrize("shown", SHOWN.values(), ids=SHOWN)
def test_a_later_call_that_repeats_the_answer_has_not_written_it(shown: str, written: str, later: str) -> None:
    """The application takes the answer out of JSON, or adds to it; then a model checks it, or notes it down."""
    rewriter = "length and cost of the pier"

    assert writer_of(shown, [rewriter, written, later], str) == written
    assert writer_of(shown, [rewriter, written], str) == written


@pytest.mark.parametrize(
    ("role", "writer"), [("user", "first"), ("system", "first"), ("tool", "second"), ("assistant", "second")]
)
def test_two_calls_with_the_same_text(role: str, writer: str) -> None:
    """A guard that returns a text of its instructions has not written it. A supervisor repeats what it was told."""
    prompts = {
        "first": [Message(role="user", content="How long is it?")],
        "second": [Message(role=role, content=ANSWER)],
    }

    assert writer_of(ANSWER, list(prompts), lambda call: ANSWER, prompts.__getitem__) == writer
