"""Refusals in French. The words are folded: without accents."""

from __future__ import annotations

import re
from typing import Final

from rageval_hooks.text.declining.language import ClauseRules, word_pattern

__all__ = ["FRENCH"]

_FIRST: Final = word_pattern("je j' nous m' mes ma")
_SOURCE: Final = word_pattern(
    "document* passage* texte* extrait* source* contexte manuel guide base_de_connaissances faq resultats_de_recherche"
)
_INFORMATION: Final = word_pattern(
    "information* reponse* detail* donnee* precision* indication* mention* element* renseignement* rien"
)

FRENCH: Final = ClauseRules(
    negation=word_pattern(
        "ne n' aucun* rien ni impossible incapable ignore ignorons depasse* hors inconnu* pas absent* manqu* "
        "insuffisant*"
    ),
    rows=(
        # "Je ne sais pas." "J'ignore si …"
        (_FIRST, word_pattern("sais savons connais connaissons ignore ignorons")),
        (_FIRST, word_pattern("pas_sure? pas_certaine?")),
        # "Je n'ai trouvé aucune information …"
        (_FIRST, _INFORMATION, word_pattern("n'ai n'avons avoir trouv* dispose* possed* donner fournir obtenir vois")),
        # "Je ne peux pas répondre."
        (_FIRST, word_pattern("repondre determiner dire renseigner preciser trouver trouve_pas")),
        # "Je ne peux pas vous aider avec cette demande."
        (_FIRST, word_pattern("aider"), word_pattern("avec_cette avec_ce avec_cela avec_ca dans_cette sur_ce aider$")),
        (_FIRST, word_pattern("suite_a_cette acces_a_cette acces_a_ces acces_a_l' suite_a_votre")),
        # "Les documents ne mentionnent pas …"
        (
            _SOURCE,
            word_pattern("mention* precis* indiqu* dis* abord* parl* trait* evoqu* couvr* specifi* figur* trouv* rien"),
        ),
        # "Le manuel ne contient aucune information …"
        (_SOURCE, _INFORMATION, word_pattern("contien* fourni* donne* comport* offr* inclu* y_a disponible*")),
        (_SOURCE, word_pattern("determiner repondre depasse hors_du")),
        # "Il n'est pas possible de répondre."
        (word_pattern("possible impossible"), word_pattern("repondre determiner savoir dire trouver")),
        # "Pas assez d'informations." "Cette information est absente des documents."
        (_INFORMATION, word_pattern("assez suffisamment suffisant* insuffisant* absent* manqu*")),
        # "Cette question ne peut pas recevoir de réponse." "Aucune information n'a été trouvée."
        (word_pattern("question"), word_pattern("reponse repondre repondu")),
        (_INFORMATION, word_pattern("trouvee?s? disponibles? figure figurent")),
    ),
    claims=word_pattern(
        "mais cependant toutefois sauf probablement peut-etre sans_doute que_(?!vous\\b) et_(?:il|elle|on|c'est)"
    ),
    # "donc" in "donc je ne sais pas"
    connectors=re.compile(
        r"^(?:(?:malheureusement|desole|desolee|pardon|et|mais|donc|alors|car|comme|puisque|parce que|ainsi|"
        r"par consequent) )+"
    ),
    # "Je ne sais pas | car le texte n'en parle pas" and "Je regrette | mais je ne sais pas"
    splits=re.compile(r"[,;:–—()]| - | (?=car\b)| mais | et (?=(?:je|nous|j')\b)"),
    # "…, d'après le contexte fourni, …", "…, si la piscine est chauffée", "… je préfère ne pas deviner"
    neutral=re.compile(
        r"(?:si|quand|ou|qui|quel\w{0,4}|comment|pourquoi|combien|pour)\b|(?:d'apres|selon|sur la base|"
        r"a partir) (?:\w{1,30} ){0,6}(?:documents?|contexte|passages?|textes?|fournie?s?|sources?)$|"
        r"(?:je )?(?:prefere|ne (?:veux|souhaite) pas) (?:ne pas )?deviner"
    ),
    # "n'hésitez pas à …", "veuillez préciser …", "je suis désolé"
    courtesy=re.compile(
        r"(?:(?:je suis |nous sommes )?(?:vraiment )?desolee?s?|malheureusement|je (?:le )?regrette|"
        r"je m'excuse|pardon|excusez|"
        r"n'hesitez|si vous|si tu|je serai|je (?:peux|pourrai) vous aider|puis-je|"
        r"(?:veuillez|merci de|(?:pourriez|pouvez|peux|pourrais)-(?:vous|tu)) (?:contacter|consulter|preciser|"
        r"reformuler|"
        r"fournir|verifier|vous adresser|me|nous|essayer))"
    ),
    # "les documents fournis décrivent le musée"
    about_sources=re.compile(
        r"(?:les?|la) (?:\w{1,30} ){0,3}(?:extraits?|documents?|passages?|textes?|contexte|sources?) (?:\w{1,20} )?"
        r"(?:decri|parle|traite|porte|concerne|aborde|evoque)\w{0,6}\b"
    ),
)
