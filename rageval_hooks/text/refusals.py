"""Detect responses that decline to answer, in 22 languages, and those that ask the user back.

A response declines only if nothing else is claimed. A sentence is split into clauses. It declines if one clause
declines and the others say nothing either: they are courtesies, or name what was asked for ("…, wann das Museum
öffnet"). A clause declines if it has a negation, words of each list of one row (:meth:`_Language.rows`), and no word
after which it may claim something. The rules find words in any order, since the word order of these languages is free.
For other languages than English, German, French, Spanish and Italian, one expression each finds a whole sentence.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

from rageval_hooks.runtime.lazy import cached_property
from rageval_hooks.text.sentences import sentence_spans

_MAX_SENTENCES: Final = 5
_LONGEST: Final = 300
"""Maximum length of a sentence that only declines, in characters."""

_APOSTROPHES: Final = str.maketrans("’ʼ`", "'''")
_WORD: Final = re.compile(r"[\w']+")
# What a line of Markdown may have around its text.
_MARKUP: Final = " \t\n*#_-•>|"
# A whole answer: "Not found.", "N/A", "Unknown."
_SHORT_REFUSAL: Final = re.compile(
    r"(?:(?:answer|result|response)\W{1,3})?(?:n/?a|n\.a|none|null|nil|unknown|unclear|unsure|not sure|no idea"
    r"|unanswerable|nothing|"
    r"(?:not|none|nothing) (?:found|available|known|applicable|mentioned|specified|stated|given|provided|relevant"
    r"|listed|disclosed|"
    r"sure|answerable|in (?:the )?(?:context|documents?|passages?|text|sources?))|insufficient (?:information|data"
    r"|context|evidence)|"
    r"no (?:\w{4,10} )?(?:information|info|data|answers?|results?|matches?|documents?|details?|context"
    r"|evidence)(?: (?:found|available|"
    r"given|provided))?|information not (?:found|available|provided)|cannot (?:answer|say|determine|tell)"
    r"|can't (?:say|tell|answer)|"
    r"unbekannt|keine (?:angaben?|antwort|informationen)|k\.?a|nicht (?:gefunden|bekannt|angegeben)|inconnue?"
    r"|introuvable|"
    r"non (?:trouve|trouvé|précisé|disponible|renseigné|mentionné)|desconocido|no (?:disponible|encontrado|consta"
    r"|especificado)|"
    r"sconosciuto|non (?:trovato|specificato)|desconhecido|não (?:encontrado|disponível|informado|consta)|onbekend|"
    r"niet (?:gevonden|bekend)|okänt|ukendt|nie znaleziono|nieznane|brak (?:informacji|danych)|неизвестно|не найдено"
    r"|нет данных|"
    r"bilinmiyor|bulunamadı|不明|不明です|未知|未找到|无|没有信息|未提及|未提供|该当なし|記載なし|情報なし|"
    r"알 수 없음|없음|정보 없음|"
    r"غير معروف|غير متوفر|لا يوجد|ไม่พบ|ไม่ทราบ|ไม่มีข้อมูล|अज्ञात|उपलब्ध नहीं)"
)
# "Could you clarify …", "which one do you mean", "I need more details"
_CLARIFIES: Final = re.compile(
    r"\b(?:could|can|would|will|may) you (?:please |kindly |perhaps )?(?:clarify|specify|tell me|let me know|give me"
    r"|provide|share|"
    r"elaborate|rephrase|explain|be more|say|confirm|narrow|describe|point)|\b(?:please |kindly )(?:clarify|specify"
    r"|provide|tell me|"
    r"elaborate|rephrase|give (?:me )?more|be more|let me know (?:which|what|whether)|share more|confirm (?:which"
    r"|whether|if))|"
    r"\b(?:i|we)(?:'d|'ll| would| will| do)? (?:\w{4,9} )?(?:need|require) (?:to know|(?:(?:a|some) )?(?:bit |little )?"
    r"(?:more|further|additional)|clarification|you to)|\b(?:which|what|who|where) [^.?]{0,80}\b(?:do you mean"
    r"|are you (?:referring|"
    r"asking|looking|interested|thinking|talking)|did you (?:mean|have in mind)|would you like|do you (?:want|need"
    r"|have in mind))|"
    r"^(?:do|did) you mean\b|^(?:are|were) you (?:referring|asking|looking|interested|talking)\b",
    re.IGNORECASE,
)
# "Did you know that the pier cost 5 million?", "It opened in 2019, right?"
_CLAIMING_QUESTION: Final = re.compile(
    r"\b(?:did|do) you know\b|\bknow that\b|,\s?(?:right|correct|no|yes|ok|(?:is|was|does|did|are)n't \w+)\?$"
    r"|^(?:the|it|he|she|they|this|"
    r"that|in|on|at|yes|no)\b(?!.{0,30}\b(?:which|what)\b)|\b(?:because|since|so that)\b",
    re.IGNORECASE,
)
_ENGLISH_WORD: Final = re.compile(r"\b(?:the|you|your|is|are|do|did|of|and|it|what|which|how)\b", re.IGNORECASE)
_ENGLISH_QUESTION: Final = re.compile(
    r"(?:(?:i'm |i am )?(?:sorry|sure|ok|okay|hi|hello|thanks|just|to|before|in order|great|happy|i want"
    r"|i see)\b[^,:?]{0,60}[,:] )?"
    r"(?:and |or |so |for )?(?:which|what|who|whom|whose|when|where|why|how|do|does|did|is|are|was|were|can|could"
    r"|would|will|have|has"
    r"|shall|should|may|might|any)\b",
    re.IGNORECASE,
)
_LEADS_TO_QUESTION: Final = re.compile(
    r"(?:there (?:are|seem to be|appear to be) (?:several|multiple|many|different|various|a few|two|three"
    r"|more than one)\b|i (?:found|see|"
    r"have|know of) (?:several|multiple|a few|more than one|different|two|three)\b|(?:your|the|this"
    r"|that) (?:question|query|request|term|"
    r"name|message)\b|it depends\b|that depends\b|to (?:help|answer|assist|give|find|make sure)\b|(?:i'm|i am|i'd"
    r"|i would|i want|i'll|i will|"
    r"i can|i could|happy|glad|sure|sorry|thanks|thank)\b|before i\b|just to\b|in order to\b|so that i\b"
    r"|for example\b|e\.g\b|depending\b)"
    r"[^.\d]*[.!:]?$",
    re.IGNORECASE,
)
_CHOICE: Final = re.compile(
    r"(?m)^[ \t]{0,20}(?:[-*•]|\(?(?:\d{1,2}|[a-z])[.)])[ \t]{1,9}[^.!?\n]{1,100}$|^[^.!?\n]{1,60}$"
)
# "Sure!", "Certainly, here is", "I hope this helps", "Would you like me to look it up?", "Have a pleasant trip!"
_TO_READER: Final = re.compile(
    r"(?:sure|certainly|of course|absolutely|(?:great|good|excellent|interesting) question|thank you|thanks|hello|hi"
    r"|hey|you'?re welcome|dear \w+|good (?:morning|afternoon|evening)|happy to help|no problem|my pleasure)(?:\W|$)"
    r"|(?:i|we) hope (?:this|that|it|these|you)\b"
    r"|(?:please )?(?:let (?:me|us) know|feel free|do not hesitate|don't hesitate)\b"
    r"|please (?:contact|reach out|get in touch|check|see|visit|refer to|consult|ask|note that i)\b"
    r"|(?:if|should) you (?:have|need|want|would like|require|wish)\b[^.]{0,60}\b(?:more|further|additional|help|other"
    r"|questions?|assistance|anything|details?)\b"
    r"|for (?:more|further|additional|up-to-date|current|the latest|detailed|specific)\b[^.]{0,60}\b(?:please|visit|see"
    r"|contact|check|consult|refer|ask)\b"
    r"|(?:would you like|do you want|shall i|should i|can i|may i|could i|is there (?:anything|something)|anything else"
    r"|what else|do you (?:have|need) (?:any|more|other)|how (?:else )?(?:can|may) i|want me to)\b[^.]{0,250}\?$"
    r"|(?:i am|i'm|i'd be|i would be|i will be|i'll be) (?:happy|glad|here) to\b"
    r"|have (?:a|an) (?:\w{1,12} ){1,2}(?:day|trip|stay|visit|time|weekend|evening|journey)\b"
    r"|enjoy your\b|safe travels\b|good luck\b"
    r"|(?:here(?:['’]s| is| are| you go)|below (?:is|are))(?:\W?$| (?:an?|the|my|some|your|how)\b[^.]{0,200}[:.]?$)"
    r"|(?:in (?:summary|conclusion|short)|to (?:summarize|conclude|sum up)|overall)\W*$",
    re.IGNORECASE,
)
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
    sentences = _sentences(response)
    if not sentences:
        return False
    asked = [number for number, sentence in enumerate(sentences) if _asks(sentence)]
    others = [sentence for number, sentence in enumerate(sentences) if number not in asked]
    if not asked or all(map(speaks_to_reader, sentences)):
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
    if len(sentence) > _LONGEST:
        return False
    folded = _folded(sentence)
    if not folded.isascii() and _declines_elsewhere(folded):
        return True
    # Most sentences have no negation, and this test takes a twentieth of the time of the rules.
    if not any(word in _NEGATIONS or word.startswith(_NEGATION_STARTS) for word in _WORD.findall(folded)):
        return False
    return any(language.declines(folded) for language in _LANGUAGES) or _declines_elsewhere(folded)


def _sentences(response: str) -> list[str]:
    """Return the sentences of a short response; none of one with a sentence that is longer than a refusal."""
    if len(response) > _MAX_SENTENCES * _LONGEST:
        return []
    sentences = [response[start:end].strip(_MARKUP) for start, end in sentence_spans(response)]
    return [] if any(len(sentence) > _LONGEST for sentence in sentences) else [*filter(None, sentences)]


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
    for language in _LANGUAGES:
        other = [
            (text, is_polite) for text, is_polite in zip(folded, polite, strict=True) if not language.declines(text)
        ]
        if len(folded) - len(other) >= least and all(
            is_polite or language.is_courtesy(text) for text, is_polite in other
        ):
            return True
    rest = [(text, is_polite) for text, is_polite in zip(folded, polite, strict=True) if not _declines_elsewhere(text)]
    return len(rest) < len(folded) and all(is_polite or _elsewhere()[1].match(text) for text, is_polite in rest)


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
    return any(pattern.search(folded) and not but.search(folded) for pattern, but in _elsewhere()[0])


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


@dataclass(frozen=True, kw_only=True)
class _Language:
    """The words of one language, as :func:`_any_of` reads them.

    Attributes:
        negation: "not", "none".
        first: the first person, with verbs of ability where the pronoun is left out: "I", "puedo".
        know: "know", "sure", "answer", "determine"; in full where the pronoun is left out: "no lo se".
        have: "have", "find", for information.
        help: "help", "comply"; with `with_that` after it: "with that", "this request".
        source: "document", "passage".
        say: what sources do: "mention", "lack"; and what an answer is to them: "beyond", "inferred".
        information: "information", "details".
        contain: what sources do with information: "contain".
        lack: what information is: "missing", "enough", "available".
        question: "question"; with `answered` after it.
        claims: words after which a clause may claim something: "but", "probably".
        connectors: words that join clauses, at the beginning of a clause: "so", "because".
        splits: where a clause ends, besides punctuation.
        asks: the beginning of a clause that says nothing by itself: "whether", "when", "I don't want to guess".
        according: the beginning of a clause that ends in a source: "based on".
        courtesy: the beginning of a courtesy: "please check", "if you have".
        articles: what is before a source: "the", "these".
        discuss: what a clause says that is only about the sources: "the excerpts discuss …".
        alone: an expression that declines by itself: "I can't do that".
    """

    negation: str
    first: str
    know: str
    have: str
    help: str
    with_that: str
    source: str
    say: str
    information: str
    contain: str
    lack: str
    question: str
    answered: str
    claims: str
    connectors: str
    splits: str
    asks: str
    according: str
    courtesy: str
    articles: str
    discuss: str
    alone: str = "(?!)"

    @cached_property
    def rows(self) -> list[list[re.Pattern[str]]]:
        """The words that a clause declines with: one of each list of a row."""
        rows = (
            # "I do not know whether …" "I can't answer that." "I have no information about …"
            (self.first, self.know),
            (self.first, self.information, self.have),
            # "I cannot assist with that request."
            (self.first, self.help, self.with_that),
            # "The documents do not state when …" "The answer is not in the context."
            (self.source, self.say),
            # "The documents do not include details on …"
            (self.source, self.information, self.contain),
            # "Not enough information." "No relevant information was found." "The question cannot be answered."
            (self.information, self.lack),
            (self.question, self.answered),
        )
        return [[re.compile(_any_of(words)) for words in row] for row in rows]

    @cached_property
    def patterns(self) -> dict[str, re.Pattern[str]]:
        """The other words: those of negations, claims, connectors and splits, and what says nothing."""
        sources = _any_of(self.source)
        according = rf"(?:{_any_of(self.according)})(?: \w{{1,30}}){{0,6}} (?:{sources})(?: \w{{1,20}})?$"
        return {
            "negation": re.compile(_any_of(self.negation)),
            "claims": re.compile(_any_of(self.claims)),
            "connectors": re.compile(rf"^(?:(?:{_any_of(self.connectors)})(?: |$))+"),
            "splits": re.compile(rf"{_ENDS}|{self.splits}"),
            "neutral": re.compile(rf"{_any_of(self.asks)}|{according}"),
            "courtesy": re.compile(_any_of(self.courtesy)),
            "alone": re.compile(self.alone),
            "about_sources": re.compile(
                rf"(?:{_any_of(self.articles)}) (?:\w{{1,30}} ){{0,3}}(?:{sources}) (?:\w{{1,20}} )?"
                rf"(?:{_any_of(self.discuss)})(?!.*\bthat\b)"
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
                subject = f"{about.group()} "
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


_ENGLISH: Final = _Language(
    negation="not no cannot can't don't doesn't didn't couldn't isn't aren't wasn't weren't unable none nothing "
    "neither nor never without outside beyond insufficient impossible lack lacks missing silent unknown unclear "
    "decline fail* regret",
    first="i my me we our us i'm we're",
    know="know_(?!of\\b) know$ sure certain aware answer respond determine tell say find locate verify confirm",
    have="have find found give provide see locate had",
    help="help assist comply fulfil* access",
    with_that="with_th* this that request information data internet",
    source="documents? passages? texts? excerpts? sources? contexts? handbook manual guide knowledge_base "
    "documentation faq search_results articles? provided_information given_information "
    "information_(?:provided|available)",
    say="mention* state* specif* address* discuss* cover* say* indicate* describe* explain* tell* clarif* nothing "
    "anything answer* determine* outside beyond_the beyond_what found inferred lack lacks missing silent unknown "
    "unclear clear fail* support*",
    information="information answers? details? data mention* nothing anything",
    contain="contain* provide* include* give* have has offer* available in",
    lack="lack missing insufficient enough sufficient found available provided given",
    question="question (?:search|query)(?=.{0,300}\\b(?:results|nothing)\\b)",
    answered="answer* possible return* yield* produced",
    claims="however although except likely probably perhaps maybe possibly presumably only than estimates "
    "that_(?!you\\b|i\\b|is_outside|based|in\\b|topic|request|question|information|point|with) "
    "and_(?:it|he|she|they|the) which_(?:is|are|was|were|has|had|costs?|can)",
    connectors="unfortunately sorry regrettably and but so as while hmm well oh okay apologies since because"
    " therefore hence thus then however "
    "additionally i'm_afraid i_am_afraid (?:it_is|it's)_(?:important|worth)_(?:to_note|noting)_that "
    "(?:please_)?note_that",
    # "The handbook describes the museum | but does not mention the fee" and "I don't know | because …"
    splits=r" (?=(?:because|so that|since|as) )| but | (?:and|so) (?=(?:i|we|therefore|do|does|cannot|can't)\b)",
    asks="an_ai_ a_(?:large_)?language_model i_(?:have_)?(?:searched|looked|checked"
    "|reviewed)_ either$ at_this_time$ at_the_moment$ right_now$ too$ though$ whether_ if_(?!you\\b) when_ where_"
    " who_ what_ which_ why_ how_ (?:i_)?(?:don't|do_not|"
    "would_rather_not|prefer_not_to)_(?:(?:want|wish|like)_to_)?(?:guess|speculate)",
    according="based_on according_to from in with given",
    courtesy="sorry i(?:'m|_am)_(?:so_|very_)?(?:sorry|afraid) unfortunately i_apologi[sz]e my_apologies let_me_know "
    "i(?:'d|_would)_be_(?:happy|glad) i_can_(?:help|look_again) is_there_anything feel_free (?:please|(?:can|could|"
    "would)_you|you_(?:may|might)_(?:want|wish)_to)_(?:ask|check|clarify|consult|contact|give|let|provide|refer|"
    "rephrase|share|specify|tell|try|upload|visit) if_you_(?:can|could|have|need|want|would_like|tell|give|share|"
    "provide)(?!.{0,300}_please)",
    articles="the(?!_articles?\\b) these those my",
    discuss="discuss* cover* describe* focus* talk* deal* concern* relate* are_about is_about",
    alone=r"\bi (?:cannot|can't|am unable to|am not able to|won't be able to) (?:do (?:that|this|it)|answer|assist"
    r"|comment"
    r"|confirm|verify|advise (?:you )?(?:on|about)|say$|tell (?:you|from|whether|when|who|what|how|which)|respond"
    r"|comply"
    r"|help (?:you )?with)|\bi neither (?:have|know)|\bi have no (?:idea|knowledge|answer|record|way|data)"
    r"|\bfound nothing\b"
    r"|^(?:there (?:is|are|was|were) |i (?:have|see) )?no (?:\w{4,12} ){0,2}(?:information|info|details?|data"
    r"|mention|results?"
    r"|answers?|records?|matches|references?)(?: (?:available|found|given))?(?:$| (?:about|on|regarding|concerning"
    r"|for|related"
    r"|in the (?:context|document|passage|text|source|provided|given|knowledge)|that (?:says|states|mentions)"
    r"|whether|when"
    r"|where|who|how)\b)|\b(?:is|are|was|were)? ?not (?:specified|stated|mentioned|indicated|disclosed|named)$"
    r"|\b(?:is|are|was|were)? ?not (?:specified|stated|mentioned|given|provided|found|listed|available|included"
    r"|covered) (?:in|by)"
    r" (?:the|these|those|this|any|your) (?:\w{1,12} )?(?:context|documents?|passages?|text|sources?|handbook|manual"
    r"|information)"
    r"|\b(?:outside|beyond) (?:of )?(?:my|the) (?:scope|knowledge|expertise)|\bbeyond what i\b|\bi neither\b"
    r"|\bit is not possible to (?:say|tell|determine|answer|know)"
    r"|\b(?:passages?|documents?|context|excerpts?|text|sources?)\b.{0,20} (?:do|does|did)(?: not|n't) (?:provide"
    r"|give|contain"
    r"|include|offer) (?:the |any |an? )?(?:\w{1,12} ){0,2}(?:dates?|names?|numbers?|price|cost|times?|year|reason"
    r"|age|figures?"
    r"|answers?|mention|explanation|amount)\b|\bi (?:don't|do not) (?:have|know|see) (?:that|this|an? (?:answer|date"
    r"|figure"
    r"|number|name|source|record)|any(?:thing)?\b|the (?:answer|details?|exact|specific|date|number|name))",
)

_GERMAN: Final = _Language(
    negation="nicht nichts kein* weder nie ausserhalb unbekannt unklar unmoglich fehl* unzureichend",
    first="ich mir mich wir uns",
    know="weiss wissen kenne kennen bekannt sicher beantworten antworten sagen ermitteln bestimmen feststellen "
    "entnehmen weiterhelfen finden aussage in_der_lage imstande",
    have="habe haben hatte hatten liegen liegt finde* fand* gefunden geben fehlen verfug*",
    help="helfen behilflich zugriff zugang",
    with_that="dabei damit hierbei bei_dieser bei_diesem mit_dieser information* daten",
    source="dokument* unterlagen textstelle* passage* abschnitt* quelle* kontext* auszug* auszuge* text* handbuch* "
    "wissensdatenbank wissensbasis suchergebnis* materialien faq",
    say="erwahn* steht stehen hervor behandel* sag* gesagt ersichtlich findet finden gefunden gibt_nicht_an "
    "geben_nicht_an geht_auf gehen_auf angegeben genannt beschr* erlauter* aufgefuhrt bestimmen ermitteln beantworten "
    "entnehmen ableiten ausserhalb",
    information="information* angabe* antwort* hinweis* detail* auskunft* daten einzelheiten nichts naheres inhalte",
    contain="enthalt* enthielt* mach* gibt geben liefer* bieten bietet vorhanden",
    lack="reich* ausreichend* genugend genug fehl* unzureichend* keine_angaben? gefunden verfugbar vorhanden liegen",
    question="frage",
    answered="beantworten beantwortet",
    claims="jedoch allerdings sondern dennoch trotzdem wahrscheinlich vermutlich vielleicht moglicherweise ausser "
    "dass und_(?:er|sie|es|man|dies)",
    connectors="leider entschuldigung verzeihung und aber doch jedoch daher deshalb deswegen somit also da weil denn "
    "bedauerlicherweise",
    # "Es tut mir leid | und ich kann dazu nichts sagen"
    splits=r" und (?=(?:ich|kann|konnte|mochte|daher|deshalb|somit)\b)",
    # "…, die Sie suchen"
    asks="ob wann wo wer wen wem wie was welche[rsmn]? warum weshalb woher wohin wieviele? um (?:die|der|das|den|"
    "nach_der|nach_denen)_(?:sie|du|ihr|mir|ich) (?:die|diese|ihre)_frage_zu_\\w{1,20}$ "
    "(?:ich_)?(?:mochte|will)_nicht_raten",
    according="laut gemass nach aus auf_grundlage basierend_auf",
    courtesy="(?:es_)?tut_mir_(?:sehr_)?leid leider entschuldig* verzeihung gerne? wenn_(?:sie|du) falls_(?:sie|du) "
    "helfe_ich kann_ich_(?:ihnen|dir) haben_sie_(?:noch_)?(?:weitere|andere)_fragen ich_helfe bitte_(?:wende|"
    "kontaktiere|frage|prufe|formuliere|gebe|teile|versuche|nenne|lasse|konsultiere)n? (?:konnten|konntest|konnen|"
    "kannst)_(?:sie|du)_(?:\\w{1,30}_){0,6}(?:formulieren|prazisieren|nennen|mitteilen|prufen|wenden|versuchen)",
    articles="die der das",
    discuss="behandel* beschreib* betreff* befass* handel*",
)

_FRENCH: Final = _Language(
    negation="ne n' aucun* rien ni impossible incapable ignore ignorons depasse* hors inconnu* pas absent* manqu* "
    "insuffisant*",
    first="je j' nous m' mes ma possible impossible",
    know="sais savons connais connaissons ignore ignorons savoir pas_sure? pas_certaine? repondre determiner dire "
    "renseigner preciser trouver trouve_pas suite_a_cette suite_a_votre acces_a_cette acces_a_ces acces_a_l'",
    have="n'ai n'avons avoir trouv* dispose* possed* donner fournir obtenir vois",
    help="aider",
    with_that="avec_cette avec_ce avec_cela avec_ca dans_cette sur_ce aider$",
    source="document* passage* texte* extrait* source* contexte manuel guide base_de_connaissances faq "
    "resultats_de_recherche",
    say="mention* precis* indiqu* dis* abord* parl* trait* evoqu* couvr* specifi* figur* trouv* rien determiner "
    "repondre depasse hors_du",
    information="information* reponse* detail* donnee* precision* indication* mention* element* renseignement* rien",
    contain="contien* fourni* donne* comport* offr* inclu* y_a disponible*",
    lack="assez suffisamment suffisant* insuffisant* absent* manqu* trouvee?s? disponibles? figure figurent",
    question="question",
    answered="reponse repondre repondu",
    claims="mais cependant toutefois sauf probablement peut-etre sans_doute que_(?!vous\\b) et_(?:il|elle|on|c'est)",
    connectors="malheureusement desole desolee pardon et mais donc alors car comme puisque parce_que ainsi "
    "par_consequent",
    # "Je ne sais pas | car le texte n'en parle pas" and "Je regrette | mais je ne sais pas"
    splits=r" (?=car\b)| mais | et (?=(?:je|nous|j')\b)",
    asks="si quand ou qui quel\\w{0,4} comment pourquoi combien pour (?:je_)?(?:prefere|ne_(?:veux|"
    "souhaite)_pas)_(?:ne_pas_)?deviner",
    according="d'apres selon sur_la_base a_partir",
    courtesy="(?:je_suis_|nous_sommes_)?(?:vraiment_)?desolee?s? malheureusement je_(?:le_)?regrette je_m'excuse "
    "pardon excusez n'hesitez si_vous si_tu je_serai je_(?:peux|pourrai)_vous_aider puis-je (?:veuillez|merci_de|"
    "(?:pourriez|pouvez|peux|pourrais)-(?:vous|tu))_(?:contacter|consulter|preciser|reformuler|fournir|verifier|"
    "vous_adresser|me|nous|essayer)",
    articles="les? la",
    discuss="decri* parle* traite* porte* concerne* aborde* evoque*",
)

# Spanish and Italian leave the pronoun out: the form of the verb is the first person.
_SPANISH: Final = _Language(
    negation="no ni nada ningun* sin desconozco imposible fuera falta faltan insuficiente*",
    first="puedo podemos pude pudimos podido logro soy_capaz posible tengo tenemos dispongo disponemos encuentro "
    "encontre encontramos encontrar encontrado hallado cuento hay se sabemos conozco conocemos estoy desconozco",
    # "No sé si …": without its accent, "se" is also the reflexive pronoun.
    know="no_(?:lo_|la_)?(?:sabemos|conozco|conocemos|estoy_segur[oa]) no_l[oa]_se desconozco no_se$ no_se_(?:si|que|"
    "quien|cual|cuando|donde|como|cuant[oa]s?|por_que|nada) responder* contestar* determinar* decir* encontrar* "
    "saber* indicar* dar",
    have="tengo tenemos dispongo disponemos encuentro encontre encontramos encontrar encontrado hallado cuento hay "
    "dar proporcionar ofrecer acceso",
    help="ayudar* atender*",
    with_that="con_es* en_es* es[ao]_solicitud es[ao]_peticion ayudar\\w*$",
    source="documento* pasaje* texto* extracto* fragmento* fuente* contexto* manual guia base_de_conocimiento* "
    "documentacion preguntas_frecuentes resultados_de_busqueda",
    say="mencion* especific* indic* dic* habla* trata* aborda* cubre* precis* figura* aparec* esta estan hay describ* "
    "senala* encuentro acceso determinar responder alcance",
    information="informacion* respuesta* detalle* dato* indicacion* mencion* nada",
    contain="contien* proporcion* ofrec* inclu* da dan tien*",
    lack="falta faltan insuficiente* suficiente* encontro encontraron hay disponible* existe* encontrada",
    question="pregunta",
    answered="responder respond* contestar",
    claims="pero sin_embargo aunque salvo excepto probablemente quizas? tal_vez "
    "que_(?!busca|tengo|tenemos|tiene|se_me) y_(?:el|ella|es)",
    connectors="lamentablemente desafortunadamente lo_siento disculpe perdon y pero asi_que por_lo_que por_tanto "
    "por_lo_tanto ya_que porque pues como dado_que me_temo_que",
    # "No lo sé | porque el texto no lo dice" and "Lo siento | pero no lo sé"
    splits=r" (?=(?:porque|ya que|asi que)\b)| pero | y (?=(?:no puedo|no quiero|prefiero|por)\b)",
    asks="si cuando donde quien\\w{0,2} cual\\w{0,2} como por_que cuant[oa]s? para (?:prefiero|quiero)_no_adivinar "
    "no_quiero_adivinar",
    according="segun con_base_en a_partir_de",
    courtesy="lo_(?:siento|lamento) lamentablemente disculp\\w{1,6} perdon\\w{0,4} por_favor$ no_dude "
    "si_(?:me|tiene|desea|necesita|puede|quiere) con_gusto estare puedo_ayudar le_ayudare (?:por_favor_)?(?:(?:podria|"
    "puede)s?_)?(?:pongase|reformular|proporcionar|aclarar|facilitar|consultar|contactar|decirme|ser_mas|reformule|"
    "proporcione|aclare|facilite|consulte|contacte|intente|indique|verifique)",
    articles="los las el la",
    discuss="describ* habla* trata* aborda* cubre*",
)

_ITALIAN: Final = _Language(
    negation="non ne_il ne_la ne_i nessun* nulla niente impossibile oltre alcun* ignoro manca mancano insufficient*",
    first="posso possiamo sono_in_grado siamo_in_grado riesco riuscit* possibile potuto ho abbiamo dispongo "
    "disponiamo trovo trovato troviamo trovare avere c'e ci_sono so sappiamo conosco conosciamo sono",
    know="non_(?:lo_|la_)?(?:so|sappiamo|conosco|conosciamo) non_sono_(?:del_tutto_)?sicur[oa] risponder* determinar* "
    "dir* trovar* saper* indicar* dare",
    have="ho abbiamo avere dispongo disponiamo trovo trovato troviamo trovare sono_riuscit* dare fornire c'e ci_sono "
    "accesso",
    help="aiutar* soddisfar*",
    with_that="con_quest* in_quest* questa_richiesta aiutar\\w*$",
    source="document* bran* test[oi] estratt* font* contesto passagg* manuale guida base_di_conoscenza documentazione "
    "faq risultati_di_ricerca",
    say="menzion* specific* indic* dic* parla* tratta* affronta* copr* precis* riporta* figura* trova trovano trovo "
    "trovato c'e descriv* determinare rispondere oltre",
    information="informazion* rispost* dettagl* dat[oi] indicazion* menzion* nulla niente",
    contain="conten* contien* forni* offr* includ* ci_sono c'e disponibil* danno",
    lack="manca mancano insufficient* sufficient* abbastanza trovat* disponibil* risult* ci_sono",
    question="domanda",
    answered="rispondere risposta",
    claims="ma pero tuttavia tranne salvo probabilmente forse che_(?!cerca|cerchi) e_(?:lui|lei|esso)",
    connectors="purtroppo mi_dispiace mi_spiace mi_scuso scusi e ma quindi percio pertanto dunque perche poiche "
    "siccome dato_che visto_che temo_di",
    # "Non lo so | perché il testo non lo dice" and "Mi scuso | ma non lo so"
    splits=r" (?=(?:perche|poiche|quindi)\b)| ma | e (?=(?:non posso|preferisco|non voglio)\b)",
    asks="se quando dove chi quale quali come perche quant[oaie] per (?:preferisco|voglio)_non_(?:indovinare|tirare) "
    "non_voglio_indovinare",
    according="in_base_a[il]? secondo sulla_base_de\\w{1,3}",
    courtesy="mi_(?:dispiace|spiace|scuso) purtroppo scus\\w{1,3} non_esiti se_(?:mi|ha|hai|vuole|vuoi|puo|puoi) saro "
    "posso_aiutar\\w{2} (?:[lt][ai]_prego_di|per_favore|potrebbe|potresti|puo|puoi)_(?:contatt|consult|riformul|fornir|"
    "verific|precis|specific|chiarir|prov)\\w{0,5}",
    articles="gli i il le la",
    discuss="descriv* parla* tratta* riguarda* affronta*",
)

_LANGUAGES: Final = (_ENGLISH, _GERMAN, _FRENCH, _SPANISH, _ITALIAN)

_Elsewhere = tuple[list[tuple[re.Pattern[str], re.Pattern[str]]], re.Pattern[str]]


@cache
def _elsewhere() -> _Elsewhere:
    """Return how sentences decline in other languages, and after which words they may not; and all their courtesies."""
    text = files(__package__).joinpath("refusals.txt").read_text(encoding="utf-8")
    found, polite = [], ""
    for block in text.split("\n\n")[1:]:
        code, *expressions = block.strip().splitlines()
        if code == "polite":
            polite = "|".join(expressions)
            continue
        but = _any_of(expressions.pop().removeprefix("but: "))
        # These scripts have no spaces between words.
        but = but.replace(r"\b", "") if code in ("ja", "zh", "ko", "th") else but
        found.append((re.compile(_folded("|".join(expressions))), re.compile(_folded(but))))
    return found, re.compile(_folded(rf"(?:{polite})[^\d]*$"))


_NEGATION_PARTS: Final = [word.partition("_")[0] for rules in _LANGUAGES for word in rules.negation.split()]
_NEGATION_STARTS: Final = tuple(word.rstrip("*") for word in _NEGATION_PARTS if word.endswith(("*", "'")))
_NEGATIONS: Final = frozenset(_NEGATION_PARTS)
