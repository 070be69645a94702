"""How a language declines, by the words of a clause: for languages whose word order is freer than that of English."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ClauseRules", "fold_accents", "word_pattern"]


def fold_accents(text: str) -> str:
    """Return a text in lower case without accents: "Größe" becomes "grosse", and "l’été" becomes "l'ete"."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in decomposed if not unicodedata.combining(character))


def word_pattern(words: str) -> re.Pattern[str]:
    """Return a pattern that finds one of some words, or beginnings of words.

    Args:
        words: expressions with spaces between them: ``je nous n'`` finds a word, ``mention*`` all its forms, and
            ``pas_sur`` two words in a row. They are in lower case and without accents.
    """
    return re.compile("|".join(map(_one_word, words.split())))


def _one_word(word: str) -> str:
    part = word.replace("*", r"\w{0,12}").replace("_", " ")
    # "n'" is followed by a word, and "sagen" is not.
    end = "" if part.endswith("'") else r"\b"
    return rf"\b{part}{end}"


@dataclass(frozen=True, kw_only=True)
class ClauseRules:
    """Detects clauses that decline.

    A sentence is split into clauses. It declines if one clause declines and the others say nothing either: they are
    courtesies, or name what was asked for ("…, wann das Museum öffnet"). A clause declines if it has a negation, the
    words of one row, and no word after which it may claim something.

    Attributes:
        negation: "nicht", "keine".
        rows: each has patterns that must all be found: the first person with a verb of knowing, a source with a verb of
            saying, …
        claims: "aber", "wahrscheinlich".
        connectors: the words that join clauses, at the beginning of a clause: "daher", "weil".
        splits: where a clause ends, besides punctuation.
        neutral: the beginning of a clause that says nothing by itself: "wann", "um".
        courtesy: the beginning of a courtesy: "bitte", "wenn sie".
        about_sources: a clause that only says what the sources are about: "die Auszüge behandeln …".
    """

    negation: re.Pattern[str]
    rows: Sequence[Sequence[re.Pattern[str]]]
    claims: re.Pattern[str]
    connectors: re.Pattern[str]
    splits: re.Pattern[str]
    neutral: re.Pattern[str]
    courtesy: re.Pattern[str]
    about_sources: re.Pattern[str]

    def declines(self, sentence: str) -> bool:
        """Return True if a sentence, folded and with single spaces, declines and claims nothing."""
        # Most sentences have no negation, and need not be split.
        if not self.negation.search(sentence):
            return False
        clauses = self._with_subjects(self._clauses(sentence))
        if not any(map(self._clause_declines, clauses)):
            return False
        return all(self._clause_declines(clause) or self._says_nothing(clause) for clause in clauses)

    def is_courtesy(self, sentence: str) -> bool:
        """Return True if a sentence is only polite, or only says what the sources are about. It has no number."""
        clauses = self._clauses(sentence)
        # "In New York" is no courtesy: what was asked for has to be next to something else.
        if not any(map(self._is_certain_courtesy, clauses)):
            return False
        return all(map(self._says_nothing, clauses))

    def _is_certain_courtesy(self, clause: str) -> bool:
        return bool(self.courtesy.match(clause) or self.about_sources.match(clause))

    def _clauses(self, sentence: str) -> list[str]:
        parts = (part.strip(" .!?…'\"¿¡") for part in self.splits.split(sentence))
        bare = (self.connectors.sub("", part) for part in parts if part)
        return [clause for clause in bare if clause]

    def _with_subjects(self, clauses: Sequence[str]) -> list[str]:
        """Return the clauses, those after one about the sources with that one's subject.

        "The passages describe the museum, but do not mention the fee" becomes "the passages describe …" and "the
        passages describe do not mention the fee".
        """
        subject = ""
        complete = []
        for clause in clauses:
            about = self.about_sources.match(clause)
            if about is not None:
                subject = about.group()
                complete.append(clause)
            elif subject:
                complete.append(f"{subject} {clause}")
            else:
                complete.append(clause)
        return complete

    def _clause_declines(self, clause: str) -> bool:
        if not self.negation.search(clause) or self.claims.search(clause):
            return False
        return any(_all_found(row, clause) for row in self.rows)

    def _says_nothing(self, clause: str) -> bool:
        # A number is what was asked for.
        if any(map(str.isdigit, clause)):
            return False
        return any(pattern.match(clause) for pattern in (self.neutral, self.courtesy, self.about_sources))


def _all_found(patterns: Sequence[re.Pattern[str]], clause: str) -> bool:
    return all(pattern.search(clause) for pattern in patterns)
