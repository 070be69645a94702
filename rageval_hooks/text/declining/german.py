"""Refusals in German. The words are folded: without umlauts, and with "ss"."""

from __future__ import annotations

import re
from typing import Final

from rageval_hooks.text.declining.language import ClauseRules, word_pattern

__all__ = ["GERMAN"]

_FIRST: Final = word_pattern("ich mir mich wir uns")
_SOURCE: Final = word_pattern(
    "dokument* unterlagen textstelle* passage* abschnitt* quelle* kontext* auszug* auszuge* text* handbuch* "
    "wissensdatenbank wissensbasis suchergebnis* materialien faq"
)
_INFORMATION: Final = word_pattern(
    "information* angabe* antwort* hinweis* detail* auskunft* daten einzelheiten nichts naheres inhalte"
)

GERMAN: Final = ClauseRules(
    negation=word_pattern("nicht nichts kein* weder nie ausserhalb unbekannt unklar unmoglich fehl* unzureichend"),
    rows=(
        # "Das weiß ich nicht." "… ist mir nichts bekannt."
        (_FIRST, word_pattern("weiss wissen kenne kennen bekannt sicher")),
        # "Ich konnte … keine Angaben finden." "Dazu liegen mir keine Informationen vor."
        (
            _FIRST,
            _INFORMATION,
            word_pattern("habe haben hatte hatten liegen liegt finde* fand* gefunden geben fehlen verfug*"),
        ),
        # "Diese Frage kann ich nicht beantworten."
        (
            _FIRST,
            word_pattern("beantworten antworten sagen ermitteln bestimmen feststellen entnehmen weiterhelfen finden"),
        ),
        # "Dabei kann ich nicht helfen."
        (
            _FIRST,
            word_pattern("helfen behilflich"),
            word_pattern("dabei damit hierbei bei_dieser bei_diesem mit_dieser"),
        ),
        (_FIRST, word_pattern("zugriff zugang"), _INFORMATION),
        # "Die Dokumente erwähnen … nicht." "Das Handbuch geht darauf nicht ein."
        (
            _SOURCE,
            word_pattern(
                "erwahn* steht stehen hervor behandel* sag* gesagt ersichtlich findet finden gefunden gibt_nicht_an "
                "geben_nicht_an geht_auf gehen_auf angegeben genannt beschr* erlauter* aufgefuhrt"
            ),
        ),
        # "Dazu kann ich keine Aussage treffen." "Ich bin nicht in der Lage, …"
        (_FIRST, word_pattern("aussage in_der_lage imstande")),
        # "Die Informationen reichen nicht aus, …" "Diese Information fehlt in den Dokumenten." "Keine Angabe."
        (_INFORMATION, word_pattern("reich* ausreichend* genugend genug fehl* unzureichend* keine_angaben?")),
        # "Die Dokumente enthalten keine Informationen über …"
        (_SOURCE, _INFORMATION, word_pattern("enthalt* enthielt* mach* gibt geben liefer* bieten bietet vorhanden")),
        # "Der Preis lässt sich aus den Dokumenten nicht bestimmen."
        (_SOURCE, word_pattern("bestimmen ermitteln beantworten entnehmen ableiten ausserhalb")),
        # "Diese Frage kann nicht beantwortet werden."
        (word_pattern("frage"), word_pattern("beantworten beantwortet")),
        # "Es wurden keine Informationen gefunden."
        (_INFORMATION, word_pattern("gefunden verfugbar vorhanden liegen"), word_pattern("keine? nicht")),
    ),
    claims=word_pattern(
        "jedoch allerdings sondern dennoch trotzdem wahrscheinlich vermutlich vielleicht "
        "moglicherweise ausser dass und_(?:er|sie|es|man|dies)"
    ),
    # "daher" in "daher weiß ich es nicht"
    connectors=re.compile(
        r"^(?:(?:leider|entschuldigung|verzeihung|und|aber|doch|jedoch|daher|deshalb|deswegen|somit|also|da|weil|denn|"
        r"bedauerlicherweise) )+"
    ),
    # "Es tut mir leid | und ich kann dazu nichts sagen"
    splits=re.compile(r"[,;:–—()]| - | und (?=(?:ich|kann|konnte|mochte|daher|deshalb|somit)\b)"),
    # "…, ob das Becken beheizt ist", "…, um die Frage zu beantworten", "…, die Sie suchen", "… und möchte nicht raten"
    neutral=re.compile(
        r"(?:ob|wann|wo|wer|wen|wem|wie|was|welche[rsmn]?|warum|weshalb|woher|wohin|wieviele?|um)\b|"
        r"(?:die|der|das|den|nach der|nach denen) (?:sie|du|ihr|mir|ich)\b|(?:ich )?(?:mochte|"
        r"will) nicht raten|(?:die|diese|ihre) frage zu \w{1,20}$"
    ),
    # "bitte formulieren Sie …", "wenn Sie …", "es tut mir leid"
    courtesy=re.compile(
        r"(?:es tut mir (?:sehr )?leid|tut mir leid|leider|entschuldig\w{0,8}|verzeihung|gerne?|wenn (?:sie|du)|"
        r"falls (?:sie|du)|helfe ich|kann ich (?:ihnen|dir)|haben sie (?:noch )?(?:weitere|andere) fragen|ich helfe|"
        r"bitte (?:wende|kontaktiere|frage|prufe|formuliere|gebe|teile|versuche|nenne|lasse|konsultiere)n?|"
        r"(?:konnten|konntest|konnen|kannst) (?:sie|du) (?:\w{1,30} ){0,6}(?:formulieren|prazisieren|nennen|mitteilen|"
        r"prufen|wenden|versuchen))\b"
    ),
    # "die bereitgestellten Auszüge behandeln nur das Museum"
    about_sources=re.compile(
        r"(?:die|der|das) (?:\w{1,30} ){0,3}(?:auszuge|dokumente?|unterlagen|textstellen|passagen|texte?|kontext|"
        r"abschnitte?|quellen) (?:nur |lediglich |hauptsachlich )?(?:behandel|beschreib|betreff|befass|handel)\w{1,3}\b"
    ),
)
