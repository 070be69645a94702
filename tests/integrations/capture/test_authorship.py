"""Which model call wrote a text."""

from __future__ import annotations

import pytest

from rageval_hooks.integrations.capture.turns import writer_of

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
