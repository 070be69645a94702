"""Refusals in Italian. The words are folded: without accents."""

from __future__ import annotations

import re
from typing import Final

from rageval_hooks.text.declining.language import ClauseRules, word_pattern

__all__ = ["ITALIAN"]

_SOURCE: Final = word_pattern(
    "document* bran* test[oi] estratt* font* contesto passagg* manuale guida base_di_conoscenza documentazione faq "
    "risultati_di_ricerca"
)
_INFORMATION: Final = word_pattern("informazion* rispost* dettagl* dat[oi] indicazion* menzion* nulla niente")
# Italian leaves the pronoun out: the form of the verb is the first person.
_HAVE: Final = word_pattern(
    "ho abbiamo avere dispongo disponiamo trovo trovato troviamo trovare sono_riuscit* dare fornire c'e ci_sono"
)
_ABLE: Final = word_pattern("posso possiamo sono_in_grado siamo_in_grado riesco riuscit* possibile potuto")

ITALIAN: Final = ClauseRules(
    negation=word_pattern(
        "non ne_il ne_la ne_i nessun* nulla niente impossibile oltre alcun* ignoro manca mancano insufficient*"
    ),
    rows=(
        # "Non lo so." "Non conosco la risposta."
        (re.compile(r"\bnon (?:lo |la )?(?:so|sappiamo|conosco|conosciamo)\b|\bnon sono (?:del tutto )?sicur[oa]\b"),),
        # "Non ho trovato alcuna informazione …"
        (_HAVE, _INFORMATION),
        # "Non posso rispondere." "Non è possibile determinare …"
        (_ABLE, word_pattern("risponder* determinar* dir* trovar* saper* indicar* dare")),
        # "Non posso aiutarla con questo."
        (_ABLE, word_pattern("aiutar* soddisfar*"), word_pattern("con_quest* in_quest* questa_richiesta aiutar\\w*$")),
        (word_pattern("accesso"), _INFORMATION),
        (word_pattern("trovo trovato"), _SOURCE),
        # "I documenti non menzionano …"
        (
            _SOURCE,
            word_pattern(
                "menzion* specific* indic* dic* parla* tratta* affronta* copr* precis* riporta* figura* "
                "trova trovano c'e descriv*"
            ),
        ),
        # "I documenti non contengono informazioni …"
        (_SOURCE, _INFORMATION, word_pattern("conten* contien* forni* offr* includ* ci_sono c'e disponibil* danno")),
        (_SOURCE, word_pattern("determinare rispondere oltre")),
        # "Informazioni insufficienti." "Questa informazione manca nei documenti."
        (_INFORMATION, word_pattern("manca mancano insufficient* sufficient* abbastanza")),
        # "A questa domanda non si può rispondere." "Non è stata trovata alcuna informazione."
        (word_pattern("domanda"), word_pattern("rispondere risposta")),
        (_INFORMATION, word_pattern("trovat* disponibil* risult* ci_sono")),
    ),
    claims=word_pattern("ma pero tuttavia tranne salvo probabilmente forse che_(?!cerca|cerchi) e_(?:lui|lei|esso)"),
    # "quindi" in "quindi non lo so"
    connectors=re.compile(
        r"^(?:(?:purtroppo|mi dispiace|mi spiace|mi scuso|scusi|e|ma|quindi|percio|pertanto|dunque|perche|poiche|"
        r"siccome|dato che|visto che|temo di) )+"
    ),
    # "Non lo so | perché il testo non lo dice" and "Mi scuso | ma non lo so"
    splits=re.compile(
        r"[,;:–—()]| - | (?=(?:perche|poiche|quindi)\b)| ma | e (?=(?:non posso|preferisco|non voglio)\b)"
    ),
    # "…, in base al contesto fornito, …", "… preferisco non indovinare"
    neutral=re.compile(
        r"(?:se|quando|dove|chi|quale|quali|come|perche|quant[oaie]|per)\b|(?:in base a[il]?|secondo|"
        r"sulla base de\w{1,3}) (?:\w{1,30} ){0,6}(?:documenti|contesto|brani|test[oi]|fornit[oi]|fonti)$|"
        r"(?:preferisco|voglio) non (?:indovinare|tirare)|non voglio indovinare"
    ),
    # "mi dispiace", "per favore consulti …"
    courtesy=re.compile(
        r"(?:mi (?:dispiace|spiace|scuso)|purtroppo|scus\w{1,3}|non esiti|se (?:mi|ha|hai|"
        r"vuole|vuoi|puo|puoi)|saro|posso aiutar\w{2}|(?:[lt][ai] prego di|per favore|potrebbe|potresti|puo|puoi) "
        r"(?:contatt|consult|riformul|fornir|verific|precis|specific|chiarir|prov)\w{0,5})\b"
    ),
    # "i documenti descrivono il museo"
    about_sources=re.compile(
        r"(?:gli|i|il|le|la) (?:\w{1,30} ){0,3}(?:estratti|documenti?|brani|test[oi]|contesto|passaggi|fonti) "
        r"(?:solo )?(?:descriv|parla|tratta|riguarda|affronta)\w{0,4}\b"
    ),
)
