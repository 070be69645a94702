"""Detect responses that decline to answer: in English, German, French, Spanish and Italian.

A response declines only if nothing else is claimed. The rules find words of clauses, since the word order of these
languages is free. The words are folded: in lower case and without accents.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.sentences import sentence_spans

_MOST_SENTENCES: Final = 5
_LONGEST: Final = 300
"""Maximum length of a sentence that only declines, in characters."""

_APOSTROPHES: Final = str.maketrans("’ʼ`", "'''")
_WORD: Final = re.compile(r"[\w']+")
# The end of a clause in every language. A claim may follow a full stop in lower case: "I don't know. the price is 5".
_ENDS: Final = r"[,;:–—()]| - |[.!?]+\s|\.{2,}"


def declines(response: str) -> bool:
    """Return True if a response only says that it has no answer.

    Args:
        response: the text. An empty text does not decline.

    Returns:
        True if at least one sentence declines and the others are courtesies, all in one language.
    """
    return _all_say_nothing(_sentences(response), least=1)


def says_nothing(response: str) -> bool:
    """Return True if a response, or the beginning of a streamed one, claims nothing: courtesies alone count, too."""
    return _all_say_nothing(_sentences(response), least=0)


def sentence_declines(sentence: str) -> bool:
    """Return True if a sentence of a longer response declines: "The passages do not mention a price"."""
    if len(sentence) > _LONGEST:
        return False
    folded = _folded(sentence)
    # Most sentences have no negation, and this test takes a twentieth of the time of the rules.
    if not any(word in _NEGATIONS or word.startswith(_NEGATION_STARTS) for word in _WORD.findall(folded)):
        return False
    return any(rules.declines(folded) for rules in _LANGUAGES)


def _all_say_nothing(sentences: Sequence[str], least: int) -> bool:
    """Return True if all sentences decline or are only polite, and at least so many decline."""
    if not sentences:
        return False
    for rules in _LANGUAGES:
        declining = [rules.declines(sentence) for sentence in sentences]
        if sum(declining) >= least and all(
            declined or rules.is_courtesy(sentence) for declined, sentence in zip(declining, sentences, strict=True)
        ):
            return True
    return False


def _sentences(response: str) -> list[str]:
    """Return the folded sentences with single spaces; none if one is too long to only decline."""
    if len(response) > _MOST_SENTENCES * _LONGEST:
        return []
    spans = sentence_spans(response)
    if len(spans) > _MOST_SENTENCES:
        return []
    # A second line may be a claim.
    if any(end - start > _LONGEST or len(response[start:end].splitlines()) > 1 for start, end in spans):
        return []
    return [_folded(response[start:end]) for start, end in spans]


def _folded(sentence: str) -> str:
    """Return a sentence in lower case, without accents and with single spaces: "Größe" becomes "grosse"."""
    text = sentence.translate(_APOSTROPHES).casefold()
    if not text.isascii():
        text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return " ".join(text.split())


def _words(words: str) -> re.Pattern[str]:
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
class _Rules:
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

    negation: str
    rows: Sequence[Sequence[re.Pattern[str]]]
    claims: re.Pattern[str]
    connectors: re.Pattern[str]
    splits: re.Pattern[str]
    neutral: re.Pattern[str]
    courtesy: re.Pattern[str]
    about_sources: re.Pattern[str]

    @cached_property
    def _negation(self) -> re.Pattern[str]:
        return _words(self.negation)

    def declines(self, sentence: str) -> bool:
        """Return True if a sentence, folded and with single spaces, declines and claims nothing."""
        # Most sentences have no negation, and need not be split.
        if not self._negation.search(sentence):
            return False
        clauses = self._with_subjects(self._clauses(sentence))
        if not any(map(self._clause_declines, clauses)):
            return False
        return all(self._clause_declines(clause) or self._says_nothing(clause) for clause in clauses)

    def is_courtesy(self, sentence: str) -> bool:
        """Return True if a sentence is only polite, or only says what the sources are about. It has no number."""
        clauses = self._clauses(sentence)
        # "In New York" is no courtesy: what was asked for has to be next to something else.
        is_polite = any(self.courtesy.match(clause) or self.about_sources.match(clause) for clause in clauses)
        # Nothing is left of "Sorry."
        return (is_polite or not clauses) and all(map(self._says_nothing, clauses))

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
        if not self._negation.search(clause) or self.claims.search(clause):
            return False
        return any(all(pattern.search(clause) for pattern in row) for row in self.rows)

    def _says_nothing(self, clause: str) -> bool:
        # A number is what was asked for.
        if any(map(str.isdigit, clause)):
            return False
        return any(pattern.match(clause) for pattern in (self.neutral, self.courtesy, self.about_sources))


_EN_FIRST: Final = _words("i my me we our us i'm we're")
_EN_SOURCE: Final = _words(
    "documents? passages? texts? excerpts? sources? contexts? handbook manual guide knowledge_base documentation faq "
    "search_results articles? provided_information given_information"
)
_EN_INFORMATION: Final = _words("information answers? details? data mention* nothing anything")

_ENGLISH: Final = _Rules(
    negation=(
        "not no cannot can't don't doesn't didn't couldn't isn't aren't wasn't weren't unable none "
        "nothing neither nor never without outside beyond insufficient impossible "
        "lack lacks missing silent unknown unclear decline fail* regret"
    ),
    rows=(
        # "I do not know whether …" "I'm not sure."
        (_EN_FIRST, _words("know_(?!of\\b) know$ sure certain aware")),
        # "I have no information about …"
        (_EN_FIRST, _EN_INFORMATION, _words("have find found give provide see locate had")),
        # "I can't answer that." "I cannot find that in the documentation."
        (_EN_FIRST, _words("answer respond determine tell say find locate verify confirm")),
        # "I cannot assist with that request."
        (
            _EN_FIRST,
            _words("help assist comply fulfil* access"),
            _words("with_th* this that request information data internet"),
        ),
        # "The documents do not state when …"
        (
            _EN_SOURCE,
            _words(
                "mention* state* specif* address* discuss* cover* say* indicate* describe* explain* "
                "tell* clarif* nothing anything"
            ),
        ),
        # "The documents do not include details on …"
        (_EN_SOURCE, _EN_INFORMATION, _words("contain* provide* include* give* have has offer* available in")),
        (_EN_SOURCE, _words("answer* determine* outside beyond_the beyond_what found inferred")),
        # "The context is silent on this matter." "The text lacks information …"
        (_EN_SOURCE, _words("lack lacks missing silent unknown unclear clear fail* support*")),
        (_EN_INFORMATION, _words("lack missing insufficient enough sufficient")),
        (_EN_FIRST, _words("decline"), _words("answer respond")),
        (_words("search query"), _words("return* yield* produced"), _words("results nothing")),
        # "The question cannot be answered." "No relevant information was found."
        (_words("question"), _words("answer* possible")),
        (_EN_INFORMATION, _words("found available provided given")),
    ),
    claims=_words(
        "however although except likely probably perhaps maybe possibly presumably only than estimates "
        "that_(?!you\\b|i\\b|is_outside|based|in\\b|topic|request|question|information|point|with) "
        "and_(?:it|he|she|they|the) which_(?:is|are|was|were|has|had|costs?|can)"
    ),
    # "so" in "so I can't say", "unfortunately" in "unfortunately the text is silent"
    connectors=re.compile(
        r"^(?:(?:unfortunately|sorry|regrettably|and|but|so|as|since|because|therefore|hence|thus|then|however|"
        r"additionally|i'm afraid|i am afraid|(?:it is|it's) (?:important|worth) (?:to note|noting) that|"
        r"(?:please )?note that)(?: |$))+"
    ),
    # "The handbook describes the museum | but does not mention the fee" and "I don't know | because …"
    splits=re.compile(
        rf"{_ENDS}| (?=(?:because|so that|since|as) )| but | (?:and|so) (?=(?:i|we|therefore|do|does|"
        r"cannot|can't)\b)"
    ),
    # "…, based on the provided context, …", "… I don't want to guess"
    neutral=re.compile(
        r"(?:an ai|whether|if(?! you)|when|where|who|what|which|why|how) |"
        r"(?:based on|according to|from|in|with|given) (?:\w{1,30} ){0,6}(?:documents?|passages?|contexts?|"
        r"texts?|sources?|"
        r"information|excerpts?|handbook|documentation|available|provided)$|"
        r"(?:i )?(?:don't|do not|would rather not|prefer not to) (?:want to |wish to |like to )?(?:guess|speculate)"
    ),
    # "sorry about that", "let me know if …"
    courtesy=re.compile(
        r"(?:sorry|i(?:'m| am) (?:so |very )?(?:sorry|afraid)|unfortunately|i apologi[sz]e|my apologies|let me know|"
        r"i(?:'d| would) be (?:happy|glad)|i can (?:help|look again)|is there anything|feel free|"
        r"(?:please|(?:can|could|would) you|you (?:may|might) (?:want|wish) to) (?:ask|check|clarify|consult|contact|"
        r"give|let|provide|refer|rephrase|share|specify|tell|try|upload|visit)|"
        r"if you (?:can|could|have|need|want|would like|tell|give|share|provide)(?!.* please))\b"
    ),
    # "the retrieved documents only discuss the museum"
    about_sources=re.compile(
        r"(?:the|these|those|my) (?:\w{1,30} ){0,3}(?:excerpts?|documents?|passages?|texts?|contexts?|sources?|"
        r"materials?|information) (?:only |mainly |mostly |primarily )?"
        r"(?:discuss|cover|describe|focus|talk|deal|concern|relate|are about|is about)\w{0,3}\b(?!.*\bthat\b)"
    ),
)

_GE_FIRST: Final = _words("ich mir mich wir uns")
_GE_SOURCE: Final = _words(
    "dokument* unterlagen textstelle* passage* abschnitt* quelle* kontext* auszug* auszuge* text* handbuch* "
    "wissensdatenbank wissensbasis suchergebnis* materialien faq"
)
_GE_INFORMATION: Final = _words(
    "information* angabe* antwort* hinweis* detail* auskunft* daten einzelheiten nichts naheres inhalte"
)

_GERMAN: Final = _Rules(
    negation=("nicht nichts kein* weder nie ausserhalb unbekannt unklar unmoglich fehl* unzureichend"),
    rows=(
        # "Das weiß ich nicht." "… ist mir nichts bekannt."
        (_GE_FIRST, _words("weiss wissen kenne kennen bekannt sicher")),
        # "Ich konnte … keine Angaben finden." "Dazu liegen mir keine Informationen vor."
        (
            _GE_FIRST,
            _GE_INFORMATION,
            _words("habe haben hatte hatten liegen liegt finde* fand* gefunden geben fehlen verfug*"),
        ),
        # "Diese Frage kann ich nicht beantworten."
        (
            _GE_FIRST,
            _words("beantworten antworten sagen ermitteln bestimmen feststellen entnehmen weiterhelfen finden"),
        ),
        # "Dabei kann ich nicht helfen."
        (
            _GE_FIRST,
            _words("helfen behilflich"),
            _words("dabei damit hierbei bei_dieser bei_diesem mit_dieser"),
        ),
        (_GE_FIRST, _words("zugriff zugang"), _GE_INFORMATION),
        # "Die Dokumente erwähnen … nicht." "Das Handbuch geht darauf nicht ein."
        (
            _GE_SOURCE,
            _words(
                "erwahn* steht stehen hervor behandel* sag* gesagt ersichtlich findet finden gefunden gibt_nicht_an "
                "geben_nicht_an geht_auf gehen_auf angegeben genannt beschr* erlauter* aufgefuhrt"
            ),
        ),
        # "Dazu kann ich keine Aussage treffen." "Ich bin nicht in der Lage, …"
        (_GE_FIRST, _words("aussage in_der_lage imstande")),
        # "Die Informationen reichen nicht aus, …" "Diese Information fehlt in den Dokumenten." "Keine Angabe."
        (_GE_INFORMATION, _words("reich* ausreichend* genugend genug fehl* unzureichend* keine_angaben?")),
        # "Die Dokumente enthalten keine Informationen über …"
        (_GE_SOURCE, _GE_INFORMATION, _words("enthalt* enthielt* mach* gibt geben liefer* bieten bietet vorhanden")),
        # "Der Preis lässt sich aus den Dokumenten nicht bestimmen."
        (_GE_SOURCE, _words("bestimmen ermitteln beantworten entnehmen ableiten ausserhalb")),
        # "Diese Frage kann nicht beantwortet werden."
        (_words("frage"), _words("beantworten beantwortet")),
        # "Es wurden keine Informationen gefunden."
        (_GE_INFORMATION, _words("gefunden verfugbar vorhanden liegen"), _words("keine? nicht")),
    ),
    claims=_words(
        "jedoch allerdings sondern dennoch trotzdem wahrscheinlich vermutlich vielleicht "
        "moglicherweise ausser dass und_(?:er|sie|es|man|dies)"
    ),
    # "daher" in "daher weiß ich es nicht"
    connectors=re.compile(
        r"^(?:(?:leider|entschuldigung|verzeihung|und|aber|doch|jedoch|daher|deshalb|deswegen|somit|also|da|weil|denn|"
        r"bedauerlicherweise) )+"
    ),
    # "Es tut mir leid | und ich kann dazu nichts sagen"
    splits=re.compile(rf"{_ENDS}| und (?=(?:ich|kann|konnte|mochte|daher|deshalb|somit)\b)"),
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

_FR_FIRST: Final = _words("je j' nous m' mes ma")
_FR_SOURCE: Final = _words(
    "document* passage* texte* extrait* source* contexte manuel guide base_de_connaissances faq resultats_de_recherche"
)
_FR_INFORMATION: Final = _words(
    "information* reponse* detail* donnee* precision* indication* mention* element* renseignement* rien"
)

_FRENCH: Final = _Rules(
    negation=(
        "ne n' aucun* rien ni impossible incapable ignore ignorons depasse* hors inconnu* pas absent* manqu* "
        "insuffisant*"
    ),
    rows=(
        # "Je ne sais pas." "J'ignore si …"
        (_FR_FIRST, _words("sais savons connais connaissons ignore ignorons")),
        (_FR_FIRST, _words("pas_sure? pas_certaine?")),
        # "Je n'ai trouvé aucune information …"
        (_FR_FIRST, _FR_INFORMATION, _words("n'ai n'avons avoir trouv* dispose* possed* donner fournir obtenir vois")),
        # "Je ne peux pas répondre."
        (_FR_FIRST, _words("repondre determiner dire renseigner preciser trouver trouve_pas")),
        # "Je ne peux pas vous aider avec cette demande."
        (_FR_FIRST, _words("aider"), _words("avec_cette avec_ce avec_cela avec_ca dans_cette sur_ce aider$")),
        (_FR_FIRST, _words("suite_a_cette acces_a_cette acces_a_ces acces_a_l' suite_a_votre")),
        # "Les documents ne mentionnent pas …"
        (
            _FR_SOURCE,
            _words("mention* precis* indiqu* dis* abord* parl* trait* evoqu* couvr* specifi* figur* trouv* rien"),
        ),
        # "Le manuel ne contient aucune information …"
        (_FR_SOURCE, _FR_INFORMATION, _words("contien* fourni* donne* comport* offr* inclu* y_a disponible*")),
        (_FR_SOURCE, _words("determiner repondre depasse hors_du")),
        # "Il n'est pas possible de répondre."
        (_words("possible impossible"), _words("repondre determiner savoir dire trouver")),
        # "Pas assez d'informations." "Cette information est absente des documents."
        (_FR_INFORMATION, _words("assez suffisamment suffisant* insuffisant* absent* manqu*")),
        # "Cette question ne peut pas recevoir de réponse." "Aucune information n'a été trouvée."
        (_words("question"), _words("reponse repondre repondu")),
        (_FR_INFORMATION, _words("trouvee?s? disponibles? figure figurent")),
    ),
    claims=_words(
        "mais cependant toutefois sauf probablement peut-etre sans_doute que_(?!vous\\b) et_(?:il|elle|on|c'est)"
    ),
    # "donc" in "donc je ne sais pas"
    connectors=re.compile(
        r"^(?:(?:malheureusement|desole|desolee|pardon|et|mais|donc|alors|car|comme|puisque|parce que|ainsi|"
        r"par consequent) )+"
    ),
    # "Je ne sais pas | car le texte n'en parle pas" and "Je regrette | mais je ne sais pas"
    splits=re.compile(rf"{_ENDS}| (?=car\b)| mais | et (?=(?:je|nous|j')\b)"),
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

_SP_SOURCE: Final = _words(
    "documento* pasaje* texto* extracto* fragmento* fuente* contexto* manual guia base_de_conocimiento* documentacion "
    "preguntas_frecuentes resultados_de_busqueda"
)
_SP_INFORMATION: Final = _words("informacion* respuesta* detalle* dato* indicacion* mencion* nada")
# Spanish leaves the pronoun out: the form of the verb is the first person.
_SP_HAVE: Final = _words(
    "tengo tenemos dispongo disponemos encuentro encontre encontramos encontrar encontrado hallado cuento hay "
    "dar proporcionar ofrecer"
)
_SP_ABLE: Final = _words("puedo podemos pude pudimos podido logro soy_capaz posible")

_SPANISH: Final = _Rules(
    negation=("no ni nada ningun* sin desconozco imposible fuera falta faltan insuficiente*"),
    rows=(
        # "No lo sé." "No conozco la respuesta."
        (re.compile(r"\bno (?:lo |la )?(?:sabemos|conozco|conocemos|estoy segur[oa])\b|\bno l[oa] se\b"),),
        # "No sé si …": without its accent, "se" is also the reflexive pronoun.
        (re.compile(r"\bno se(?: (?:si|que|quien|cual|cuando|donde|como|cuant[oa]s?|por que|nada)\b|$)"),),
        (_words("desconozco"),),
        # "No tengo suficiente información …" "No he encontrado ninguna información …"
        (_SP_HAVE, _SP_INFORMATION),
        # "No puedo responder a eso." "No es posible determinar el precio …"
        (_SP_ABLE, _words("responder* contestar* determinar* decir* encontrar* saber* indicar* dar")),
        # "No puedo ayudarle con eso." "No puedo atender esa solicitud."
        (
            _SP_ABLE,
            _words("ayudar* atender*"),
            _words("con_es* en_es* es[ao]_solicitud es[ao]_peticion ayudar\\w*$"),
        ),
        (_words("acceso"), _words("informacion* dato* documento*")),
        (_words("encuentro"), _SP_SOURCE),
        # "Los documentos no mencionan …"
        (
            _SP_SOURCE,
            _words(
                "mencion* especific* indic* dic* habla* trata* aborda* cubre* precis* figura* aparec* "
                "esta estan hay describ* senala*"
            ),
        ),
        # "El manual no contiene información …"
        (_SP_SOURCE, _SP_INFORMATION, _words("contien* proporcion* ofrec* inclu* da dan tien*")),
        (_SP_SOURCE, _words("determinar responder alcance")),
        # "Información insuficiente." "Esa información falta en los documentos."
        (_SP_INFORMATION, _words("falta faltan insuficiente* suficiente*")),
        # "Esta pregunta no se puede responder." "No se encontró información relevante."
        (_words("pregunta"), _words("responder respond* contestar")),
        (_SP_INFORMATION, _words("encontro encontraron hay disponible* existe* encontrada")),
    ),
    claims=_words(
        "pero sin_embargo aunque salvo excepto probablemente quizas? tal_vez "
        "que_(?!busca|tengo|tenemos|tiene|se_me) y_(?:el|ella|es)"
    ),
    # "por lo tanto" in "por lo tanto no lo sé"
    connectors=re.compile(
        r"^(?:(?:lamentablemente|desafortunadamente|lo siento|disculpe|perdon|y|pero|asi que|por lo que|por tanto|"
        r"por lo tanto|ya que|porque|pues|como|dado que|me temo que) )+"
    ),
    # "No lo sé | porque el texto no lo dice" and "Lo siento | pero no lo sé"
    splits=re.compile(rf"{_ENDS}| (?=(?:porque|ya que|asi que)\b)| pero | y (?=(?:no puedo|no quiero|prefiero|por)\b)"),
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

_IT_SOURCE: Final = _words(
    "document* bran* test[oi] estratt* font* contesto passagg* manuale guida base_di_conoscenza documentazione faq "
    "risultati_di_ricerca"
)
_IT_INFORMATION: Final = _words("informazion* rispost* dettagl* dat[oi] indicazion* menzion* nulla niente")
# Italian leaves the pronoun out: the form of the verb is the first person.
_IT_HAVE: Final = _words(
    "ho abbiamo avere dispongo disponiamo trovo trovato troviamo trovare sono_riuscit* dare fornire c'e ci_sono"
)
_IT_ABLE: Final = _words("posso possiamo sono_in_grado siamo_in_grado riesco riuscit* possibile potuto")

_ITALIAN: Final = _Rules(
    negation=("non ne_il ne_la ne_i nessun* nulla niente impossibile oltre alcun* ignoro manca mancano insufficient*"),
    rows=(
        # "Non lo so." "Non conosco la risposta."
        (re.compile(r"\bnon (?:lo |la )?(?:so|sappiamo|conosco|conosciamo)\b|\bnon sono (?:del tutto )?sicur[oa]\b"),),
        # "Non ho trovato alcuna informazione …"
        (_IT_HAVE, _IT_INFORMATION),
        # "Non posso rispondere." "Non è possibile determinare …"
        (_IT_ABLE, _words("risponder* determinar* dir* trovar* saper* indicar* dare")),
        # "Non posso aiutarla con questo."
        (_IT_ABLE, _words("aiutar* soddisfar*"), _words("con_quest* in_quest* questa_richiesta aiutar\\w*$")),
        (_words("accesso"), _IT_INFORMATION),
        (_words("trovo trovato"), _IT_SOURCE),
        # "I documenti non menzionano …"
        (
            _IT_SOURCE,
            _words(
                "menzion* specific* indic* dic* parla* tratta* affronta* copr* precis* riporta* figura* "
                "trova trovano c'e descriv*"
            ),
        ),
        # "I documenti non contengono informazioni …"
        (_IT_SOURCE, _IT_INFORMATION, _words("conten* contien* forni* offr* includ* ci_sono c'e disponibil* danno")),
        (_IT_SOURCE, _words("determinare rispondere oltre")),
        # "Informazioni insufficienti." "Questa informazione manca nei documenti."
        (_IT_INFORMATION, _words("manca mancano insufficient* sufficient* abbastanza")),
        # "A questa domanda non si può rispondere." "Non è stata trovata alcuna informazione."
        (_words("domanda"), _words("rispondere risposta")),
        (_IT_INFORMATION, _words("trovat* disponibil* risult* ci_sono")),
    ),
    claims=_words("ma pero tuttavia tranne salvo probabilmente forse che_(?!cerca|cerchi) e_(?:lui|lei|esso)"),
    # "quindi" in "quindi non lo so"
    connectors=re.compile(
        r"^(?:(?:purtroppo|mi dispiace|mi spiace|mi scuso|scusi|e|ma|quindi|percio|pertanto|dunque|perche|poiche|"
        r"siccome|dato che|visto che|temo di) )+"
    ),
    # "Non lo so | perché il testo non lo dice" and "Mi scuso | ma non lo so"
    splits=re.compile(rf"{_ENDS}| (?=(?:perche|poiche|quindi)\b)| ma | e (?=(?:non posso|preferisco|non voglio)\b)"),
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

_LANGUAGES: Final = (_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _ITALIAN)

_NEGATION_PARTS: Final = [word.partition("_")[0] for rules in _LANGUAGES for word in rules.negation.split()]
_NEGATION_STARTS: Final = tuple(word.rstrip("*") for word in _NEGATION_PARTS if word.endswith(("*", "'")))
_NEGATIONS: Final = frozenset(_NEGATION_PARTS)
