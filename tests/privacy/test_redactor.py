"""The built-in redactor: what it recognises, and what it leaves."""

from __future__ import annotations

import time

import pytest

from rageval_hooks.privacy import PatternRedactor

REDACT = PatternRedactor(presidio=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mail jane.doe+news@mail.example.org.", "Mail <EMAIL_ADDRESS>."),
        ("+49 30 1234567 or +1 (415) 555-2671", "<PHONE_NUMBER> or <PHONE_NUMBER>"),
        ("(415) 555-2671, 415-555-2671, 020 7946 0958", "<PHONE_NUMBER>, <PHONE_NUMBER>, <PHONE_NUMBER>"),
        ("01 23 45 67 89 or 0171/12345678", "<PHONE_NUMBER> or <PHONE_NUMBER>"),
        ("Card 4111 1111 1111 1111, exp. 12/27", "Card <CREDIT_CARD>, exp. 12/27"),
        ("378282246310005 and 5555-5555-5555-4444", "<CREDIT_CARD> and <CREDIT_CARD>"),
        ("12,4111111111111111,1227 4111 1111 1111 1111 123", "12,<CREDIT_CARD>,1227 <CREDIT_CARD> 123"),
        ("4111\u00a01111\u00a01111\u00a01111, 4111111111111111.0", "<CREDIT_CARD>, <CREDIT_CARD>.0"),
        ("DE89 3704 0044 0532 0130 00 is the account", "<IBAN_CODE> is the account"),
        ("GB29NWBK60161331926819.", "<IBAN_CODE>."),
        ("10.0.0.7, [2001:db8::8a2e:370:7334], fe80::1%eth0", "<IP_ADDRESS>, [<IP_ADDRESS>], <IP_ADDRESS>"),
        ("sk-proj-abcdefgh12345678 ghp_abcdefghij0123456789", "<SECRET> <SECRET>"),
        ("AKIAIOSFODNN7EXAMPLE", "<SECRET>"),
        ("Authorization: Bearer abc.def-123456", "Authorization: Bearer <SECRET>"),
        ('{"api_key": "abcdef12345"}', '{"api_key": "<SECRET>"}'),
        ("password=hunter2&x=1", "password=<SECRET>&x=1"),
        ("the password: hunter2!", "the password: <SECRET>"),
        ("postgres://joe:s3cret@db/x", "postgres://<SECRET>@db/x"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij", "<SECRET>"),
        ("-----BEGIN PRIVATE KEY-----\nMIIEvQ\n-----END PRIVATE KEY-----", "<SECRET>"),
    ],
)
def test_what_is_replaced(text: str, expected: str) -> None:
    """By its form, and by its check digits where it has some; a second time changes nothing."""
    assert REDACT(text) == expected
    assert REDACT(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        "The pier was opened on 05-12-2019 at 12:30:45, for 1,234,567.89 USD.",
        "ISBN 978-3-16, 2019-05-12, 1999-2019, pages 123-4567.",
        "1999 2000 2001 2002 2003 2004 2005 2006, hf_hub_download, 0.4111111111111111",
        'key-value-store-2019-edition, monkey: "Bob"',
        "4111 1111 1111 1112 and DE88370400440532013000 have wrong check digits.",
        "Parcel AB72 34 56 78 90 is here, order 4000 1234 5676, serial number 40001234567890123454.",  # other lengths
        "std::vector, a :: b, version 1.2.3.4.5 and 300.1.1.1",
        "The bearer of this letter; a basic question. A key: value store",
        "Meet me @ noon. f5358330a3e6cd448587",
    ],
)
def test_what_is_left(text: str) -> None:
    """Dates, amounts, wrong check digits, code and words."""
    assert REDACT(text) == text


@pytest.mark.parametrize(
    "unit", ["a", "1", "1 ", "a.", "a@", "0-", "1:", "a@a.", "DE89 ", "sk-", "key=", "eyJ.", "://"]
)
def test_the_time_grows_with_the_length(unit: str) -> None:
    """A text that was made for it must not stop the process."""
    text = unit * (200_000 // len(unit))
    started = time.thread_time()
    REDACT(text)
    assert time.thread_time() - started < 5
