"""Refusals in Spanish. The words are folded: without accents."""

from __future__ import annotations

import re
from typing import Final

from rageval_hooks.text.declining.language import ClauseRules, word_pattern

__all__ = ["SPANISH"]

_SOURCE: Final = word_pattern(
    "documento* pasaje* texto* extracto* fragmento* fuente* contexto* manual guia base_de_conocimiento* documentacion "
    "preguntas_frecuentes resultados_de_busqueda"
)
_INFORMATION: Final = word_pattern("informacion* respuesta* detalle* dato* indicacion* mencion* nada")
# Spanish leaves the pronoun out: the form of the verb is the first person.
_HAVE: Final = word_pattern(
    "tengo tenemos dispongo disponemos encuentro encontre encontramos encontrar encontrado hallado cuento hay "
    "dar proporcionar ofrecer"
)
_ABLE: Final = word_pattern("puedo podemos pude pudimos podido logro soy_capaz posible")

SPANISH: Final = ClauseRules(
    negation=word_pattern("no ni nada ningun* sin desconozco imposible fuera falta faltan insuficiente*"),
    rows=(
        # "No lo sé." "No conozco la respuesta."
        (re.compile(r"\bno (?:lo |la )?(?:sabemos|conozco|conocemos|estoy segur[oa])\b|\bno l[oa] se\b"),),
        # "No sé si …": without its accent, "se" is also the reflexive pronoun.
        (re.compile(r"\bno se(?: (?:si|que|quien|cual|cuando|donde|como|cuant[oa]s?|por que|nada)\b|$)"),),
        (word_pattern("desconozco"),),
        # "No tengo suficiente información …" "No he encontrado ninguna información …"
        (_HAVE, _INFORMATION),
        # "No puedo responder a eso." "No es posible determinar el precio …"
        (_ABLE, word_pattern("responder* contestar* determinar* decir* encontrar* saber* indicar* dar")),
        # "No puedo ayudarle con eso." "No puedo atender esa solicitud."
        (
            _ABLE,
            word_pattern("ayudar* atender*"),
            word_pattern("con_es* en_es* es[ao]_solicitud es[ao]_peticion ayudar\\w*$"),
        ),
        (word_pattern("acceso"), word_pattern("informacion* dato* documento*")),
        (word_pattern("encuentro"), _SOURCE),
        # "Los documentos no mencionan …"
        (
            _SOURCE,
            word_pattern(
                "mencion* especific* indic* dic* habla* trata* aborda* cubre* precis* figura* aparec* "
                "esta estan hay describ* senala*"
            ),
        ),
        # "El manual no contiene información …"
        (_SOURCE, _INFORMATION, word_pattern("contien* proporcion* ofrec* inclu* da dan tien*")),
        (_SOURCE, word_pattern("determinar responder alcance")),
        # "Información insuficiente." "Esa información falta en los documentos."
        (_INFORMATION, word_pattern("falta faltan insuficiente* suficiente*")),
        # "Esta pregunta no se puede responder." "No se encontró información relevante."
        (word_pattern("pregunta"), word_pattern("responder respond* contestar")),
        (_INFORMATION, word_pattern("encontro encontraron hay disponible* existe* encontrada")),
    ),
    claims=word_pattern(
        "pero sin_embargo aunque salvo excepto probablemente quizas? tal_vez "
        "que_(?!busca|tengo|tenemos|tiene|se_me) y_(?:el|ella|es)"
    ),
    # "por lo tanto" in "por lo tanto no lo sé"
    connectors=re.compile(
        r"^(?:(?:lamentablemente|desafortunadamente|lo siento|disculpe|perdon|y|pero|asi que|por lo que|por tanto|"
        r"por lo tanto|ya que|porque|pues|como|dado que|me temo que) )+"
    ),
    # "No lo sé | porque el texto no lo dice" and "Lo siento | pero no lo sé"
    splits=re.compile(
        r"[,;:–—()]| - | (?=(?:porque|ya que|asi que)\b)| pero | y (?=(?:no puedo|no quiero|prefiero|por)\b)"
    ),
    # "…, según el contexto proporcionado, …", "… prefiero no adivinar"
    neutral=re.compile(
        r"(?:si|cuando|donde|quien\w{0,2}|cual\w{0,2}|como|por que|cuant[oa]s?|para)\b|(?:segun|con base en|"
        r"a partir de) (?:\w{1,30} ){0,6}(?:documentos?|contexto|pasajes?|textos?|proporcionad[oa]s?|fuentes?)$|"
        r"(?:prefiero|quiero) no adivinar|no quiero adivinar"
    ),
    # "lo siento", "por favor reformule …"
    courtesy=re.compile(
        r"(?:lo (?:siento|lamento)|lamentablemente|disculp\w{1,6}|perdon\w{0,4}|por favor$|no dude|si (?:me|"
        r"tiene|desea|"
        r"necesita|puede|quiere)|con gusto|estare|puedo ayudar|le ayudare|(?:por favor )?(?:(?:podria|puede)s? )?"
        r"(?:pongase|reformular|proporcionar|aclarar|facilitar|consultar|contactar|decirme|ser mas|reformule|"
        r"proporcione|aclare|facilite|consulte|contacte|intente|indique|verifique))\b"
    ),
    # "los documentos describen el museo"
    about_sources=re.compile(
        r"(?:los|las|el|la) (?:\w{1,30} ){0,3}(?:extractos?|documentos?|pasajes?|textos?|contexto|fragmentos?|"
        r"fuentes?) "
        r"(?:solo )?(?:describ|habla|trata|aborda|cubre)\w{0,4}\b"
    ),
)
