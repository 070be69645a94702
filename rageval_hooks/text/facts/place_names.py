"""Names of countries and cities that mean the same place, where no rule leads from one to the other."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from rageval_hooks.text.words import fold, stem

__all__ = ["same_place_found"]

# Each line is one place: names, adjectives, peoples. Capitals alone are an abbreviation.
_PLACES: Final = """
United Kingdom, Great Britain, Britain, British, UK, GB
United States, United States of America, America, American, US, USA
European Union, EU
United Nations, UN
United Arab Emirates, Emirati, UAE
Soviet Union, Soviet, USSR
Los Angeles, LA
New York City, NYC
Germany, German
France, French
Netherlands, Holland, Dutch
Spain, Spanish, Spaniard
Portugal, Portuguese
England, English
Scotland, Scottish, Scots
Wales, Welsh
Ireland, Irish
Denmark, Danish, Dane
Sweden, Swedish, Swede
Norway, Norwegian
Finland, Finnish, Finn
Iceland, Icelandic
Poland, Polish, Pole
Czech Republic, Czechia, Czech
Slovakia, Slovak
Slovenia, Slovene, Slovenian
Greece, Greek
Turkey, Turkish, Turk
Cyprus, Cypriot
Switzerland, Swiss
Thailand, Thai
Philippines, Filipino, Philippine
Peru, Peruvian
Argentina, Argentine, Argentinian
Afghanistan, Afghan
New Zealand, NZ
"""

Name = tuple[str, ...]


def _name(text: str) -> Name:
    if text.isupper():
        return (text,)
    return tuple(stem(fold(word)) for word in text.split() if word != "of")


_GROUPS: Final[list[list[Name]]] = [
    [_name(text.strip()) for text in line.split(",")] for line in _PLACES.strip().splitlines()
]
_GROUP_OF: Final[dict[Name, list[Name]]] = {
    tuple(fold(word) for word in name): group for group in _GROUPS for name in group
}


def same_place_found(forms: Sequence[str], keys: Collection[str], acronyms: Collection[str]) -> bool:
    """Return True if a text has another name of the same place: "Dutch" for "Netherlands", "UK" for "United Kingdom".

    Args:
        forms: the keys of the name's words.
        keys: the keys of the text's words.
        acronyms: the text's abbreviations, in lower case.
    """
    group = _GROUP_OF.get(tuple(fold(form) for form in forms))
    if group is None:
        return False
    return any(_is_found(name, keys, acronyms) for name in group)


def _is_found(name: Name, keys: Collection[str], acronyms: Collection[str]) -> bool:
    if name[0].isupper():
        # Only in capitals: "us" and "la" are words as well.
        return fold(name[0]) in acronyms
    return all(word in keys for word in name)
