"""The built-in redactor: replaces personal data and secrets that can be recognised by their form."""

from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from rageval_hooks.privacy.secrets import mask_secrets

_SPACES = " \u00a0\u2007\u2009\u202f"
"""The space, and those that keep the groups of a number on one line."""

# jane.doe+news@mail.example.org
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}\b")
# DE89 3704 0044 0532 0130 00; the check digits decide
_IBAN = re.compile(rf"(?<!\w)[A-Za-z]{{2}}\d{{2}}(?:[{_SPACES}-]?[A-Za-z0-9]){{11,30}}(?!\w)")
# 4111 1111 1111 1111, 4111-1111-1111-1111, and numbers around it: "…,12,4111111111111111,1227". Not the digits after a
# decimal point. The check digit decides.
_DIGIT_GROUPS = re.compile(rf"(?<![\d.])(?<!\d-)\d+(?:[{_SPACES}‐‑–-]\d+)*")
# 192.168.0.1, but not the version 1.2.3.4.5
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w)")
# 2001:db8::1, fe80::1%eth0
_IPV6 = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:%\w{1,20})?(?![\w:])")
_PHONES = (
    # +49 30 1234567, +1 (415) 555-2671
    re.compile(rf"(?<![\w+])\+\d(?:[{_SPACES}()./-]{{0,2}}\d){{6,14}}(?!\d)"),
    # (415) 555-2671, 415-555-2671
    re.compile(rf"(?<![\w.,-])(?:\(\d{{3}}\)[{_SPACES}]?|\d{{3}}[{_SPACES}.-])\d{{3}}[{_SPACES}.-]\d{{4}}(?![\w-])"),
    # 030 1234567, 0171/1234567, 020 7946 0958, 01 23 45 67 89
    re.compile(rf"(?<![\w.,+-])\(?0\d{{1,4}}\)?[{_SPACES}/-]\d(?:[{_SPACES}-]?\d){{4,9}}(?![\w-])"),
)
_MIN_PHONE_DIGITS = 9
"""A date, such as 05-12-2019, has eight digits."""

# American Express 34 and 37, Diners 30, 36, 38 and 39, JCB 35, Visa 4, Mastercard 51 to 55 and 2221 to 2720, Maestro
# and others 50 and 56 to 69. Years, such as 1999 2000 2001 2002, are none.
_ISSUER = re.compile(r"3[04-9]|4|5|6|22[2-9]|2[3-6]|27[0-2]")
_CARD_LENGTHS = range(13, 20)
_IBAN_LENGTHS = range(15, 35)


class PatternRedactor:
    """Replaces what can be recognised by its form, such as ``<EMAIL_ADDRESS>`` for an e-mail address.

    These are e-mail addresses, phone numbers, card numbers and IBANs with valid check digits, IP addresses, and keys,
    tokens and passwords. If the package ``presidio-analyzer`` is installed, its pattern recognisers are used too: they
    find the identity numbers of many countries. Names and postal addresses have no form and are not recognised.

    Args:
        presidio: False not to use Presidio.

    Example:
        >>> PatternRedactor(presidio=False)("Mail jane@example.org, from 10.0.0.7.")
        'Mail <EMAIL_ADDRESS>, from <IP_ADDRESS>.'
    """

    def __init__(self, *, presidio: bool = True) -> None:
        self._uses_presidio = presidio

    def __call__(self, text: str) -> str:
        """Return a text without what was recognised."""
        # The order matters: a password in a URL looks like an e-mail address, and an IBAN holds a card's digits.
        text = mask_secrets(text, "<SECRET>")
        if "@" in text:
            text = _EMAIL.sub("<EMAIL_ADDRESS>", text)
        text = _IBAN.sub(_without_iban, text)
        text = _DIGIT_GROUPS.sub(_without_cards, text)
        if ":" in text:
            text = _replaced(_IPV6, _is_ipv6, "<IP_ADDRESS>", text)
        text = _replaced(_IPV4, _is_ip_address, "<IP_ADDRESS>", text)
        for pattern in _PHONES:
            text = _replaced(pattern, _is_phone, "<PHONE_NUMBER>", text)
        # Loaded with the first text, which is redacted in the background: importing Presidio takes seconds.
        return redact_by_recognizers(text, presidio_recognizers()) if self._uses_presidio else text


def _replaced(pattern: re.Pattern[str], is_right: Callable[[str], bool], replacement: str, text: str) -> str:
    """Replace what a pattern finds, if a check confirms it."""
    return pattern.sub(lambda match: replacement if is_right(match[0]) else match[0], text)


def _without_iban(match: re.Match[str]) -> str:
    """Replace the IBAN at the beginning of a match: words that follow it may look like a part of it."""
    found = match[0]
    # The longest part first. The shortest IBAN, that of Norway, has 15 characters.
    for end in range(len(found), 14, -1):
        is_cut_in_word = found[end : end + 1].isalnum()
        if not is_cut_in_word and _is_iban(found[:end]):
            return f"<IBAN_CODE>{found[end:]}"
    return found


def _is_iban(text: str) -> bool:
    """Return True if a text is an IBAN by its check digits (ISO 13616)."""
    compact = "".join(character for character in text if character.isalnum())
    if len(compact) not in _IBAN_LENGTHS:
        return False
    # Letters of either case count 10 to 35.
    digits = "".join(str(int(character, 36)) for character in compact[4:] + compact[:4])
    return int(digits) % 97 == 1


def _without_cards(match: re.Match[str]) -> str:
    """Replace the card numbers in a row of groups of digits, such as "12 4111 1111 1111 1111 1227"."""
    text = match[0]
    if len(text) < _CARD_LENGTHS.start:
        return text
    groups = [group.span() for group in re.finditer(r"\d+", text)]
    kept, position = [], 0
    for index, (start, _) in enumerate(groups):
        if start < position or not _ISSUER.match(text, start):
            continue
        # From here to the end of each group, the longest first. A card has at most as many groups as digits.
        ends = [end for _, end in groups[index : index + _CARD_LENGTHS.stop] if end - start < 2 * _CARD_LENGTHS.stop]
        end = next((end for end in reversed(ends) if _is_card(text[start:end])), None)
        if end is not None:
            kept += [text[position:start], "<CREDIT_CARD>"]
            position = end
    return "".join([*kept, text[position:]])


def _is_card(number: str) -> bool:
    """Return True if the digits of a text are a card number by Luhn's check digit (ISO/IEC 7812)."""
    digits = [int(character) for character in number if character.isdecimal()]
    if len(digits) not in _CARD_LENGTHS:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def _is_ip_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_ipv6(text: str) -> bool:
    # "::" alone is an operator of programming languages.
    return any(map(str.isalnum, text)) and _is_ip_address(text)


def _is_phone(text: str) -> bool:
    return sum(map(str.isdecimal, text)) >= (7 if text.startswith("+") else _MIN_PHONE_DIGITS)


# --------------------------------------------------------------------------- Presidio's patterns, without its models

# A pattern that needs words around it to be certain, such as any number of nine digits, scores less.
_MIN_SCORE = 0.5
# These download the list of top-level domains, or are in the built-in redactor with fewer false alarms.
_NOT_USED = frozenset(
    {"EmailRecognizer", "UrlRecognizer", "PhoneRecognizer", "DateRecognizer", "IpRecognizer", "CreditCardRecognizer"}
    | {"UuidRecognizer"}  # ids of runs, documents and sessions
)


@cache
def presidio_recognizers() -> tuple[Any, ...]:
    """Return Presidio's recognisers that need no language model; none if Presidio is not installed."""
    try:
        from presidio_analyzer import PatternRecognizer, predefined_recognizers
    except ImportError:
        return ()
    found: list[Any] = []
    for _, kind in inspect.getmembers(predefined_recognizers, inspect.isclass):
        if issubclass(kind, PatternRecognizer) and kind.__name__ not in _NOT_USED:
            with suppress(Exception):  # an abstract class, or one that needs a service
                found.append(kind())
    return tuple(found)


def redact_by_recognizers(text: str, recognizers: Sequence[Any]) -> str:
    """Replace what recognisers of Presidio find, such as ``<US_SSN>``."""
    found: list[Any] = []
    for recognizer in recognizers:
        found += recognizer.analyze(text, recognizer.supported_entities, None) or ()
    # Of results that overlap, the most certain one is taken.
    certain = [result for result in found if result.score >= _MIN_SCORE]
    certain.sort(key=lambda result: (-result.score, result.start))
    taken: list[Any] = []
    for result in certain:
        if all(result.end <= other.start or other.end <= result.start for other in taken):
            taken.append(result)
    # From the end, so that the positions before it stay valid.
    for result in sorted(taken, key=lambda result: -result.start):
        text = f"{text[: result.start]}<{result.entity_type}>{text[result.end :]}"
    return text
