"""Detect responses that decline to answer, in 28 languages, and those that ask the user back.

A response declines only if nothing else is claimed. A sentence is split into clauses. It declines if one clause
declines and the others say nothing either: they are courtesies, or name what was asked for ("…, wann das Museum
öffnet"). A clause declines if it has a negation, words of each list of one row (:meth:`_Language.rows`), and no word
after which it may claim something. The rules find words in any order, since the word order of these languages is free.
For other languages than English, German, French, Spanish and Italian, one expression each finds a whole sentence.
All words and expressions are in ``refusals.toml``, which says what each list is for.
"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.language import is_surely_english
from rageval_hooks.text.sentences import sentence_spans

_MAX_SENTENCES: Final = 5
_MAX_SENTENCE_LENGTH: Final = 300
"""Maximum length of a sentence that only declines, in characters."""

_MIN_ENGLISH: Final = 2
"""Different function words of a text that is read in English alone."""

_APOSTROPHES: Final = str.maketrans("’ʼ`", "'''")
_WORD: Final = re.compile(r"[\w']+")
# What a line of Markdown may have around its text.
_MARKUP: Final = " \t\n*#_-•>|"
_WORDS: Final[Mapping[str, Any]] = tomllib.loads(
    files(__package__).joinpath("refusals.toml").read_text(encoding="utf-8")
)
"""The words by language, and expressions for whole sentences."""


def _sentence_pattern(name: str) -> re.Pattern[str]:
    return re.compile("".join(_WORDS["sentences"][name]), re.IGNORECASE)


_SHORT_REFUSAL: Final = _sentence_pattern("short")
_CLARIFIES: Final = _sentence_pattern("clarifies")
_CLAIMING_QUESTION: Final = _sentence_pattern("claims")
_ENGLISH_QUESTION: Final = _sentence_pattern("asks")
_LEADS_TO_QUESTION: Final = _sentence_pattern("leads_to_question")
_TO_READER: Final = _sentence_pattern("to_reader")
_ENGLISH_WORD: Final = re.compile(r"\b(?:the|you|your|is|are|do|did|of|and|it|what|which|how)\b", re.IGNORECASE)
_CHOICE: Final = re.compile(
    r"(?m)^[ \t]{0,20}(?:[-*•]|\(?(?:\d{1,2}|[a-z])[.)])[ \t]{1,9}[^.!?\n]{1,100}$|^[^.!?\n]{1,60}$"
)
_QUESTION_SIGNS: Final = ("?", "？", "؟", "you", "please", "kindly", "i ask", "need", "require")
# The end of a clause in every language. A claim may follow a full stop in lower case: "I don't know. the price is 5".
_ENDS: Final = r"[,;:–—()]| - |[.!?]+\s|\.{2,}"


def declines(response: str) -> bool:
    """Return True if a response only says that it has no answer.

    Args:
        response: the text. An empty text does not decline.

    Returns:
        True if at least one sentence declines and the others are courtesies, all in one language.
    """
    return _all_say_nothing(response, least=1)


def says_nothing(response: str) -> bool:
    """Return True if a response, or the beginning of a streamed one, claims nothing: courtesies alone count, too."""
    return _all_say_nothing(response, least=0)


def asks_back(response: str) -> bool:
    """Return True if a response asks the user what is meant, and claims nothing.

    Either all its sentences are questions or say nothing, or it lists what may be meant: "There are several. Which one
    do you mean?"
    """
    lower = response.lower()
    # Every question to the user has one of these, and the search for one takes far longer.
    sentences = _sentences(response) if any(map(lower.__contains__, _QUESTION_SIGNS)) else []
    if not sentences:
        return False
    asked = [number for number, sentence in enumerate(sentences) if _asks(sentence)]
    others = [sentence for number, sentence in enumerate(sentences) if number not in asked]
    # "Shall I look it up?" is a courtesy, and "Shall I look for the old or the new one?" is not.
    if not asked or all(speaks_to_reader(s) and " or " not in s and not _CLARIFIES.search(s) for s in sentences):
        return False
    # "- the museum in Ardwell": what the user can choose from.
    choices = _CHOICE.findall(response) if response.rstrip()[-1] not in "?？؟" or "\n" in response else []
    rest = [sentence for sentence in others if not _CHOICE.match(sentence) or not choices]
    return all(
        _LEADS_TO_QUESTION.match(sentence) or speaks_to_reader(sentence) or says_nothing(sentence) for sentence in rest
    )


def speaks_to_reader(sentence: str) -> bool:
    """Return True if a sentence speaks to the reader, and not about the subject: "I hope this helps!"."""
    return _TO_READER.match(sentence) is not None and not any(map(str.isdigit, sentence))


def sentence_declines(sentence: str) -> bool:
    """Return True if a sentence of a longer response declines: "The passages do not mention a price"."""
    if len(sentence) > _MAX_SENTENCE_LENGTH:
        return False
    folded = _folded(sentence)
    if not folded.isascii() and _declines_elsewhere(folded):
        return True
    # Most sentences have no negation, and this test takes a twentieth of the time of the rules.
    if not any(word in _NEGATIONS or word.startswith(_NEGATION_STARTS) for word in _WORD.findall(folded)):
        return False
    if is_surely_english(sentence, least=_MIN_ENGLISH):
        return _LANGUAGES[0].declines(folded)
    return any(language.declines(folded) for language in _LANGUAGES) or _declines_elsewhere(folded)


def _sentences(response: str) -> list[str]:
    """Return the sentences of a short response; none of one with a sentence that is longer than a refusal."""
    if len(response) > _MAX_SENTENCES * _MAX_SENTENCE_LENGTH:
        return []
    sentences = [response[start:end].strip(_MARKUP) for start, end in sentence_spans(response)]
    return [] if any(len(sentence) > _MAX_SENTENCE_LENGTH for sentence in sentences) else [*filter(None, sentences)]


def _all_say_nothing(response: str, least: int) -> bool:
    """Return True if all sentences decline or are only polite, and at least so many decline."""
    sentences = _sentences(response)
    # A second line may be a claim.
    if any(len(sentence.splitlines()) > 1 for sentence in sentences) or not 0 < len(sentences) <= _MAX_SENTENCES:
        return False
    if len(sentences) == 1 and _SHORT_REFUSAL.fullmatch(sentences[0].casefold().strip(" .!()[]\"'")):
        return True
    folded = [*map(_folded, sentences)]
    polite = [speaks_to_reader(sentence) for sentence in sentences]
    is_english = is_surely_english(response, least=_MIN_ENGLISH)
    for language in _LANGUAGES[:1] if is_english else _LANGUAGES:
        other = [
            (text, is_polite) for text, is_polite in zip(folded, polite, strict=True) if not language.declines(text)
        ]
        if len(folded) - len(other) >= least and all(
            is_polite or language.is_courtesy(text) for text, is_polite in other
        ):
            return True
    if is_english:
        return False
    rest = [(text, is_polite) for text, is_polite in zip(folded, polite, strict=True) if not _declines_elsewhere(text)]
    return len(rest) < len(folded) and all(is_polite or _polite_elsewhere().match(text) for text, is_polite in rest)


def _asks(sentence: str) -> bool:
    """Return True if a sentence is a question to the user, and no claim in the form of one."""
    if _CLARIFIES.search(sentence):
        return True
    if not sentence.endswith(("?", "？", "؟")) or _CLAIMING_QUESTION.search(sentence):
        return False
    # "It was sad, don't you think?" claims something.
    return _ENGLISH_QUESTION.match(sentence) is not None or not _ENGLISH_WORD.search(sentence)


def _declines_elsewhere(folded: str) -> bool:
    """Return True if a folded sentence declines in a language with one expression."""
    return any(one.declines.search(folded) and not one.but.search(folded) for one in _elsewhere())


def _folded(sentence: str) -> str:
    """Return a sentence in lower case, without accents and with single spaces: "Größe" becomes "grosse"."""
    text = sentence.translate(_APOSTROPHES).casefold().replace("can not", "cannot")
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(text.split())


def _any_of(words: str) -> str:
    """Return an expression that finds one of some words, or beginnings of words.

    Args:
        words: expressions with spaces between them: ``je nous n'`` finds a word, ``mention*`` all its forms, and
            ``pas_sur`` two words in a row. They are in lower case and without accents.
    """
    parts = (word.replace("*", r"\w{0,12}").replace("_", " ") for word in words.split())
    # "n'" is followed by a word, and "sagen" is not.
    return "|".join(rf"\b{part}" if part.endswith(("'", "$")) else rf"\b{part}\b" for part in parts)


# What a clause declines with: words of each list of a row.
_ROWS: Final = (
    # "I do not know whether …" "I can't answer that." "I have no information about …"
    ("first", "know"),
    ("first", "information", "have"),
    # "I cannot assist with that request."
    ("first", "help", "with_that"),
    # "The documents do not state when …" "The answer is not in the context."
    ("source", "say"),
    # "The documents do not include details on …"
    ("source", "information", "contain"),
    # "Not enough information." "No relevant information was found." "The question cannot be answered."
    ("information", "lack"),
    ("question", "answered"),
)


class _Language:
    """The words of one language.

    Attributes:
        rows: the words that a clause declines with: one of each list of a row.
        negations: the negations, and beginnings of negations with a star or an apostrophe.
    """

    def __init__(self, words: Mapping[str, Any]) -> None:
        self._words = words
        self.negations = [word.partition("_")[0] for word in words["negation"].split()]

    @cached_property
    def rows(self) -> list[list[re.Pattern[str]]]:
        return [[re.compile(_any_of(self._words[name])) for name in row] for row in _ROWS]

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """The other words: those of negations, claims, connectors and splits, and what says nothing."""
        found = {name: _any_of(words) for name, words in self._words.items() if isinstance(words, str)}
        sources = found["source"]
        according = rf"(?:{found['according']})(?: \w{{1,30}}){{0,6}} (?:{sources})(?: \w{{1,20}})?$"
        return {
            "negation": re.compile(found["negation"]),
            "claims": re.compile(found["claims"]),
            "connectors": re.compile(rf"^(?:(?:{found['connectors']})(?: |$))+"),
            "splits": re.compile("|".join([_ENDS, *self._words["splits"]])),
            "neutral": re.compile(rf"{found['asks']}|{according}"),
            "courtesy": re.compile(found["courtesy"]),
            "alone": re.compile("|".join(self._words["alone"]) or "(?!)"),
            "about_sources": re.compile(
                rf"(?:{found['articles']}) (?:\w{{1,30}} ){{0,3}}(?:{sources}) (?:\w{{1,20}} )?"
                rf"(?:{found['discuss']})(?!.*\bthat\b)"
            ),
        }

    def declines(self, sentence: str) -> bool:
        """Return True if a sentence, folded and with single spaces, declines and claims nothing."""
        # Most sentences have no negation, and need not be split.
        if not self.patterns["negation"].search(sentence):
            return False
        # "The passages describe the museum, but do not mention the fee": the second clause has the first one's subject.
        subject, has_declined = "", False
        for clause in self._clauses(sentence):
            about = self.patterns["about_sources"].match(clause)
            if about is not None:
                subject = f"{about.group()} ".replace(" only ", " ")
            whole = subject + clause if about is None else clause
            if self._clause_declines(whole):
                has_declined = True
            elif not self._says_nothing(whole):
                return False
        return has_declined

    def is_courtesy(self, sentence: str) -> bool:
        """Return True if a sentence is only polite, or only says what the sources are about. It has no number."""
        clauses = self._clauses(sentence)
        # "In New York" is no courtesy: what was asked for has to be next to something else.
        polite = (self.patterns["courtesy"], self.patterns["about_sources"])
        is_polite = any(pattern.match(clause) for clause in clauses for pattern in polite)
        # Nothing is left of "Sorry."
        return (is_polite or not clauses) and all(map(self._says_nothing, clauses))

    def _clauses(self, sentence: str) -> list[str]:
        parts = (part.strip(" .!?…'\"¿¡") for part in self.patterns["splits"].split(sentence))
        bare = (self.patterns["connectors"].sub("", part) for part in parts)
        return [clause for clause in bare if clause]

    def _clause_declines(self, clause: str) -> bool:
        if not self.patterns["negation"].search(clause) or self.patterns["claims"].search(clause):
            return False
        return self.patterns["alone"].search(clause) is not None or any(
            all(pattern.search(clause) for pattern in row) for row in self.rows
        )

    def _says_nothing(self, clause: str) -> bool:
        # A number is what was asked for.
        if any(map(str.isdigit, clause)):
            return False
        return any(self.patterns[name].match(clause) for name in ("neutral", "courtesy", "about_sources"))


_LANGUAGES: Final = [_Language(words) for words in _WORDS.values() if "negation" in words]


class _Elsewhere(NamedTuple):
    """How a sentence declines in a language with one expression, and the words after which it may not."""

    declines: re.Pattern[str]
    but: re.Pattern[str]


@cache
def _elsewhere() -> list[_Elsewhere]:
    found = []
    for code, words in _WORDS.items():
        if "declines" in words:
            # These scripts have no spaces between words.
            but = _any_of(words["but"]).replace(r"\b", "" if code in ("ja", "zh", "ko", "th") else r"\b")
            found.append(_Elsewhere(re.compile(_folded("|".join(words["declines"]))), re.compile(_folded(but))))
    return found


@cache
def _polite_elsewhere() -> re.Pattern[str]:
    """Return the courtesies of all these languages."""
    return re.compile(_folded(rf"(?:{''.join(_WORDS['sentences']['polite'])})[^\d]*$"))


_NEGATION_PARTS: Final = [word for language in _LANGUAGES for word in language.negations]
_NEGATION_STARTS: Final = tuple(word.rstrip("*") for word in _NEGATION_PARTS if word.endswith(("*", "'")))
_NEGATIONS: Final = frozenset(_NEGATION_PARTS)
