"""Check digits of card numbers and IBANs, and addresses of the Internet."""

from __future__ import annotations

import ipaddress

__all__ = ["is_card", "is_iban", "is_ip_address"]

_CARD_LENGTHS = range(13, 20)
_IBAN_LENGTHS = range(15, 35)


def is_card(number: str) -> bool:
    """Return True if the digits of a text are a card number by Luhn's check digit (ISO/IEC 7812).

    Example:
        >>> is_card("4111 1111 1111 1111"), is_card("4111 1111 1111 1112")
        (True, False)
    """
    digits = list(map(int, filter(str.isdecimal, number)))
    # The first digit says the kind of the card; banks and shops have 2 and above.
    if len(digits) not in _CARD_LENGTHS or digits[0] < 2:
        return False
    # 8888 8888 8888 8888 passes the check too, and is a placeholder.
    if len(set(digits)) == 1:
        return False
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[-2::-2]]
    return (sum(digits[-1::-2]) + sum(doubled)) % 10 == 0


def is_iban(text: str) -> bool:
    """Return True if a text is an IBAN by its check digits (ISO 13616).

    Example:
        >>> is_iban("DE89 3704 0044 0532 0130 00"), is_iban("DE88 3704 0044 0532 0130 00")
        (True, False)
    """
    compact = "".join(character for character in text if character.isalnum()).upper()
    if len(compact) not in _IBAN_LENGTHS or not compact.isascii():
        return False
    # Letters count 10 to 35.
    digits = "".join(str(int(character, 36)) for character in compact[4:] + compact[:4])
    return int(digits) % 97 == 1


def is_ip_address(text: str) -> bool:
    """Return True if a text is an address of IP version 4 or 6."""
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
