"""Secrets that were cut before redaction, such as by pydantic, whose messages quote a value in part."""

from __future__ import annotations

import logging

import pytest
from pydantic import BaseModel, ValidationError

from rageval_hooks import ErrorInfo, Turn
from rageval_hooks.privacy import PatternRedactor, PrivacyPolicy
from rageval_hooks.runtime.logs import RateLimitedLogger

CARD = "5500 0000 0000 0004"
ANSWER = f"In 2019 we sent the money to {CARD}."


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("value='Pay to 5500 0000 00...y, thanks'", "value='Pay to <REDACTED>...y, thanks'"),
        ("value='Pay to 5500…'", "value='Pay to <REDACTED>…'"),
        ("no number: 5500", "no number: <REDACTED>"),
        ("…0004 is no number", "…<REDACTED> is no number"),
        ("'0 0004' is no number", "'<REDACTED>' is no number"),
        ("5500 0000 is no number", "<REDACTED> is no number"),
        ("5500 euros were paid", "5500 euros were paid"),  # not cut, and four characters
        ("it opened in 2019", "it opened in 2019"),
        ("15500 0000 is another number", "15500 0000 is another number"),
        ("a timeout", "a timeout"),
    ],
)
@pytest.mark.parametrize(
    "redact", [True, lambda text: PatternRedactor(presidio=False)(text)], ids=["ready", "function"]
)
def test_a_piece_of_a_secret_of_the_turn(redact: object, message: str, shown: str) -> None:
    """Its beginning or end is masked; what only looks like it stays."""
    turn = Turn(query="How?", response=ANSWER, error=ErrorInfo(type="ValueError", message=message))

    private = PrivacyPolicy(redact).turn(turn)  # type: ignore[arg-type]

    assert private.error is not None
    assert private.error.message == shown
    assert private.response == "In 2019 we sent the money to <CREDIT_CARD>."


@pytest.mark.parametrize(
    "secret", ["sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z", "DE89 3704 0044 0532 0130 00", "AKIAIOSFODNN7EXAMPLE"]
)
def test_a_message_of_pydantic(secret: str) -> None:
    """No piece of six characters of the secret is left."""

    class Refund(BaseModel):
        amount: int

    answer = f"Pay it to {secret} please, said the customer in the chat of Monday, thanks"
    with pytest.raises(ValidationError) as caught:
        Refund.model_validate({"amount": answer})
    turn = Turn(query="How?", response=answer, error=ErrorInfo(type="ValidationError", message=str(caught.value)))

    private = PrivacyPolicy(True).turn(turn)

    assert not any(secret[place : place + 6] in private.model_dump_json() for place in range(len(secret) - 5))
    assert "chat of Monday, thanks" in private.model_dump_json()


def test_words_are_harmless() -> None:
    """A piece of a password that is a usual word may be anywhere."""
    turn = Turn(query="Is that correct?", response='password: "correct horse 77 battery"', metadata={"by": "horses"})

    private = PrivacyPolicy(True).turn(turn)

    assert private.query == "Is that correct?"
    assert private.metadata == {"by": "horses"}


def test_a_log_line_has_no_piece_of_a_recent_secret(caplog: pytest.LogCaptureFixture) -> None:
    """The log does not know which turn a line is about."""
    policy = PrivacyPolicy(True)
    policy.turn(Turn(query="How?", response=ANSWER))

    RateLimitedLogger(logging.getLogger("rageval_hooks.test")).warn("kind", "failed: %s", "'5500 0000 00...'")

    assert caplog.messages == ["rageval-hooks: failed: '<REDACTED>...'"]
