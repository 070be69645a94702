"""The ready redactor: replaces personal data and secrets that can be recognised by their form."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from rageval_hooks.privacy.numbers import is_card, is_iban, is_ip_address
from rageval_hooks.privacy.presidio import presidio_patterns
from rageval_hooks.privacy.secrets import mask_secrets

__all__ = ["PatternRedactor"]

# jane.doe+news@mail.example.org
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}\b")
# DE89 3704 0044 0532 0130 00; the check digits decide
_IBAN = re.compile(r"(?<!\w)[A-Za-z]{2}\d{2}(?:[ -]?[A-Za-z0-9]){11,30}(?!\w)")
# 4111 1111 1111 1111, 4111-1111-1111-1111; the check digit decides
_CARD = re.compile(r"(?<![\d.,-])\d(?:[ -]?\d){12,18}(?![\d])")
# 192.168.0.1, but not the version 1.2.3.4.5
_IPV4 = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\w)")
# 2001:db8::1, fe80::1%eth0
_IPV6 = re.compile(r"(?<![\w:])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?:%\w{1,20})?(?![\w:])")
_PHONES = (
    # +49 30 1234567, +1 (415) 555-2671
    re.compile(r"(?<![\w+])\+\d(?:[ ()./-]{0,2}\d){6,14}(?!\d)"),
    # (415) 555-2671, 415-555-2671
    re.compile(r"(?<![\w.,-])(?:\(\d{3}\) ?|\d{3}[-. ])\d{3}[-. ]\d{4}(?![\w-])"),
    # 030 1234567, 0171/1234567, 020 7946 0958, 01 23 45 67 89
    re.compile(r"(?<![\w.,+-])\(?0\d{1,4}\)?[ /-]\d(?:[ -]?\d){4,9}(?![\w-])"),
)
_LEAST_PHONE_DIGITS = 9
"""A date, such as 05-12-2019, has eight digits."""


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
        text = _IBAN.sub(_iban, text)
        text = _CARD.sub(partial(_if, is_card, "<CREDIT_CARD>"), text)
        if ":" in text:
            text = _IPV6.sub(partial(_if, _is_ipv6, "<IP_ADDRESS>"), text)
        text = _IPV4.sub(partial(_if, is_ip_address, "<IP_ADDRESS>"), text)
        for pattern in _PHONES:
            text = pattern.sub(partial(_if, _is_phone, "<PHONE_NUMBER>"), text)
        # Loaded with the first text, which is redacted in the background: importing Presidio takes seconds.
        presidio = presidio_patterns() if self._uses_presidio else None
        return text if presidio is None else presidio(text)


def _if(is_found: Callable[[str], bool], replacement: str, match: re.Match[str]) -> str:
    return replacement if is_found(match[0]) else match[0]


def _iban(match: re.Match[str]) -> str:
    """Replace the IBAN at the beginning of a match: words that follow it may look like a part of it."""
    found = match[0]
    # The longest part first. The shortest IBAN, that of Norway, has 15 characters.
    for end in range(len(found), 14, -1):
        is_cut_in_word = found[end : end + 1].isalnum()
        if not is_cut_in_word and is_iban(found[:end]):
            return f"<IBAN_CODE>{found[end:]}"
    return found


def _is_ipv6(text: str) -> bool:
    # "::" alone is an operator of programming languages.
    return any(map(str.isalnum, text)) and is_ip_address(text)


def _is_phone(text: str) -> bool:
    return sum(map(str.isdecimal, text)) >= (7 if text.startswith("+") else _LEAST_PHONE_DIGITS)
