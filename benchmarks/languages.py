"""Do ``groundedness`` and ``faithfulness`` tell supported from unsupported answers in other languages?

    python benchmarks/languages.py

Ten pairs per language, written for this script: a passage, a sentence that it supports in other words, and the same
sentence with one thing wrong. A pair is right if the supported sentence has the higher score, and tied if both are
equal. Lexical tier. Ten pairs show whether a score means anything in a language. They do not show how well it agrees
with people.

A second table says how well the language of these sentences is detected, and that of ninety short questions: by the
rules, and by the extra ``languages`` if it is installed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rageval_hooks import Passage, Score, Turn, evaluate
from rageval_hooks.text.language import language_by_rules, language_of, prepare_language_detection

PAIRS: Final[dict[str, tuple[str, tuple[tuple[str, str], ...]]]] = {
    "German": (
        (
            "Die Brücke in Bremen wurde am 3. Mai 1931 eröffnet. Sie ist 240 Meter lang. Sie kostete 12 Millionen "
            "Mark. Der Architekt Karl Weber entwarf sie. Radfahrer dürfen sie nicht benutzen. Im Sommer ist sie bis "
            "22 Uhr offen."
        ),
        (
            ("Die Brücke wurde 1931 eröffnet.", "Die Brücke wurde 1938 eröffnet."),
            ("Karl Weber entwarf die Brücke.", "Otto Klein entwarf die Brücke."),
            ("Sie ist 240 Meter lang.", "Sie ist 420 Meter lang."),
            ("Die Brücke steht in Bremen.", "Die Brücke steht in Hamburg."),
            ("Sie kostete 12 Millionen Mark.", "Sie kostete 15 Millionen Mark."),
            ("Radfahrer dürfen die Brücke nicht benutzen.", "Radfahrer dürfen die Brücke benutzen."),
            ("Im Sommer ist sie bis 22 Uhr offen.", "Im Winter ist sie bis 22 Uhr offen."),
            ("Die Eröffnung der Brücke war am 3. Mai 1931.", "Die Eröffnung der Brücke war am 9. Juni 1931."),
            ("Der Architekt war Karl Weber.", "Der Ingenieur war Karl Schulz."),
            ("Die Brücke kostete 12 Millionen Mark.", "Der Tunnel kostete 12 Millionen Dollar."),
        ),
    ),
    "French": (
        (
            "Le musée de Lyon a ouvert ses portes le 14 juin 1952. Il possède 3 200 tableaux et reçoit "
            "90 000 visiteurs par an. La directrice Claire Martin le dirige depuis 2015. Les enfants ne paient pas. "
            "Il est fermé le lundi."
        ),
        (
            ("Le musée a ouvert en 1952.", "Le musée a ouvert en 1962."),
            ("Claire Martin dirige le musée.", "Sophie Durand dirige le musée."),
            ("Le musée possède 3 200 tableaux.", "Le musée possède 5 200 tableaux."),
            ("Le musée se trouve à Lyon.", "Le musée se trouve à Marseille."),
            ("Il reçoit 90 000 visiteurs par an.", "Il reçoit 50 000 visiteurs par an."),
            ("Les enfants ne paient pas.", "Les enfants paient."),
            ("Le musée est fermé le lundi.", "Le musée est fermé le samedi."),
            ("Il a ouvert le 14 juin 1952.", "Il a ouvert le 14 juillet 1952."),
            ("La directrice est là depuis 2015.", "La directrice est là depuis 2011."),
            ("Le musée possède des tableaux.", "Le musée possède des sculptures."),
        ),
    ),
    "Spanish": (
        (
            "El puerto de Valencia abrió el 2 de marzo de 1908. Tiene 18 muelles y recibe 4.000 barcos al año. La "
            "ingeniera Ana Torres lo amplió en 1994. Los pescadores no pueden entrar por la noche. El faro es blanco."
        ),
        (
            ("El puerto abrió en 1908.", "El puerto abrió en 1918."),
            ("Ana Torres amplió el puerto.", "Luis Romero amplió el puerto."),
            ("El puerto tiene 18 muelles.", "El puerto tiene 28 muelles."),
            ("El puerto está en Valencia.", "El puerto está en Bilbao."),
            ("Recibe 4.000 barcos al año.", "Recibe 7.000 barcos al año."),
            ("Los pescadores no pueden entrar por la noche.", "Los pescadores pueden entrar por la noche."),
            ("El faro es blanco.", "El faro es rojo."),
            ("La ampliación del puerto fue en 1994.", "La ampliación del puerto fue en 1984."),
            ("La ingeniera se llama Ana Torres.", "La arquitecta se llama Ana Ruiz."),
            ("El puerto abrió el 2 de marzo.", "El puerto abrió el 2 de agosto."),
        ),
    ),
    "Italian": (
        (
            "Il teatro di Parma fu inaugurato il 16 maggio 1829. Ha 1.200 posti e un palco di 24 metri. L'architetto "
            "Nicola Bettoli lo progettò. I cani non possono entrare. La stagione comincia in ottobre."
        ),
        (
            ("Il teatro fu inaugurato nel 1829.", "Il teatro fu inaugurato nel 1839."),
            ("Nicola Bettoli progettò il teatro.", "Marco Rinaldi progettò il teatro."),
            ("Il teatro ha 1.200 posti.", "Il teatro ha 2.100 posti."),
            ("Il teatro si trova a Parma.", "Il teatro si trova a Torino."),
            ("Il palco è di 24 metri.", "Il palco è di 34 metri."),
            ("I cani non possono entrare.", "I cani possono entrare."),
            ("La stagione comincia in ottobre.", "La stagione comincia in gennaio."),
            ("Fu inaugurato il 16 maggio 1829.", "Fu inaugurato il 16 marzo 1829."),
            ("L'architetto fu Nicola Bettoli.", "Il pittore fu Nicola Ferri."),
            ("Il teatro ha un palco.", "Il teatro ha un giardino."),
        ),
    ),
    "Portuguese": (
        (
            "A biblioteca de Coimbra abriu em 5 de abril de 1728. Guarda 60.000 livros em três salas. O reitor Paulo "
            "Nunes mandou restaurá-la em 2001. Os visitantes não podem fotografar. A entrada custa 8 euros."
        ),
        (
            ("A biblioteca abriu em 1728.", "A biblioteca abriu em 1782."),
            ("Paulo Nunes mandou restaurar a biblioteca.", "Rui Costa mandou restaurar a biblioteca."),
            ("A biblioteca guarda 60.000 livros.", "A biblioteca guarda 90.000 livros."),
            ("A biblioteca fica em Coimbra.", "A biblioteca fica em Lisboa."),
            ("A entrada custa 8 euros.", "A entrada custa 5 euros."),
            ("Os visitantes não podem fotografar.", "Os visitantes podem fotografar."),
            ("Os livros estão em três salas.", "Os livros estão em sete salas."),
            ("Abriu em 5 de abril de 1728.", "Abriu em 5 de junho de 1728."),
            ("O restauro da biblioteca foi em 2001.", "O restauro da biblioteca foi em 2010."),
            ("A biblioteca guarda livros.", "A biblioteca guarda moedas."),
        ),
    ),
    "Dutch": (
        (
            "De molen van Delft werd op 8 juli 1765 gebouwd. Hij is 31 meter hoog en maalt 500 kilo graan per dag. "
            "Molenaar Jan de Boer werkt er sinds 1998. Honden mogen niet naar binnen. Op zondag is de molen gesloten."
        ),
        (
            ("De molen werd in 1765 gebouwd.", "De molen werd in 1785 gebouwd."),
            ("Jan de Boer is de molenaar.", "Piet Visser is de molenaar."),
            ("De molen is 31 meter hoog.", "De molen is 41 meter hoog."),
            ("De molen staat in Delft.", "De molen staat in Utrecht."),
            ("Hij maalt 500 kilo graan per dag.", "Hij maalt 700 kilo graan per dag."),
            ("Honden mogen niet naar binnen.", "Honden mogen naar binnen."),
            ("Op zondag is de molen gesloten.", "Op vrijdag is de molen gesloten."),
            ("De molen werd op 8 juli gebouwd.", "De molen werd op 8 augustus gebouwd."),
            ("De molenaar werkt er sinds 1998.", "De molenaar werkt er sinds 1989."),
            ("De molen maalt graan.", "De molen maalt koffie."),
        ),
    ),
    "Chinese": (
        "北京大桥于1968年5月3日通车，全长1576米，耗资1250万元。设计师李明负责设计。行人不得上桥。大桥由北京市政府管理。",
        (
            ("大桥于1968年通车。", "大桥于1978年通车。"),
            ("设计师是李明。", "设计师是王强。"),
            ("大桥全长1576米。", "大桥全长1675米。"),
            ("大桥在北京。", "大桥在上海。"),
            ("大桥耗资1250万元。", "大桥耗资2250万元。"),
            ("行人不得上桥。", "行人可以上桥。"),
            ("大桥由市政府管理。", "大桥由铁路公司管理。"),
            ("大桥于5月3日通车。", "大桥于8月9日通车。"),
            ("李明负责设计大桥。", "李明负责拆除铁塔。"),
            ("北京市政府管理大桥。", "南京市居民管理学校。"),
        ),
    ),
    "Japanese": (
        "大阪の図書館は1974年4月2日に開館した。蔵書は35万冊で、館長は田中一郎である。館内では飲食できない。月曜日は休館する。入館料は200円である。",
        (
            ("図書館は1974年に開館した。", "図書館は1984年に開館した。"),
            ("館長は田中一郎である。", "館長は鈴木健太である。"),
            ("蔵書は35万冊である。", "蔵書は53万冊である。"),
            ("図書館は大阪にある。", "図書館は京都にある。"),
            ("入館料は200円である。", "入館料は500円である。"),
            ("館内では飲食できない。", "館内では飲食できる。"),
            ("月曜日は休館する。", "金曜日は休館する。"),
            ("4月2日に開館した。", "9月7日に開館した。"),
            ("図書館は月曜日に休館する。", "美術館は月曜日に休館する。"),
            ("図書館の蔵書は35万冊だ。", "図書館の写真は35万枚だ。"),
        ),
    ),
}
QUESTIONS: Final[dict[str, str]] = {
    "de": (
        "Wann wurde die Brücke eröffnet?|Wer entwarf den Turm?|Wie hoch ist das Haus?"
        "|Wo wohnt Karl heute?|Warum ist Wasser nass?|Welche Farbe hat Gold?|Was kostet eine Fahrkarte?"
        "|Wie heißt der Minister?|Gibt es hier Parkplätze?|Wohin fährt dieser Zug?"
    ),
    "fr": (
        "Quand ouvre le musée ?|Qui dirige cette école ?|Combien coûte le billet ?|Où habite Marie ?"
        "|Pourquoi pleut-il autant ?|Quelle est la capitale ?|Comment réserver une table ?"
        "|Qui a peint ceci ?|Que mangent les pandas ?|Faut-il payer en avance ?"
    ),
    "es": (
        "¿Cuándo abre el puerto?|¿Quién dirige la escuela?|¿Cuánto cuesta el billete?|¿Dónde vive Ana?"
        "|¿Por qué llueve tanto?|¿Cuál es la capital?|¿Cómo reservar una mesa?|¿Qué comen los osos?"
        "|¿Hay plazas libres hoy?|¿Quién ganó el partido?"
    ),
    "it": (
        "Quando apre il museo?|Chi dirige la scuola?|Quanto costa il biglietto?|Dove abita Maria?"
        "|Perché piove tanto?|Qual è la capitale?|Come si prenota?|Chi ha dipinto questo?"
        "|Cosa mangiano gli orsi?|Ci sono posti liberi?"
    ),
    "pt": (
        "Quando abre o museu?|Quem dirige a escola?|Quanto custa o bilhete?|Onde mora a Maria?"
        "|Por que chove tanto?|Qual é a capital?|Como reservar uma mesa?|Quem pintou este quadro?"
        "|O que comem os ursos?|Há lugares livres hoje?"
    ),
    "nl": (
        "Wanneer opent het museum?|Wie leidt de school?|Hoeveel kost een kaartje?|Waar woont Marie nu?"
        "|Waarom regent het zo?|Wat is de hoofdstad?|Hoe reserveer ik?|Wie schilderde dit werk?"
        "|Wat eten beren graag?|Zijn er vrije plaatsen?"
    ),
    "zh": (
        "大桥什么时候通车?|谁是设计师?|门票多少钱?|他住在哪里?|为什么下雨?|首都是哪里?|怎么预订?|谁画了这幅画?|熊吃什么?|今天有座位吗?"
    ),
    "ja": (
        "いつ開館しますか。|館長は誰ですか。|切符はいくらですか。|彼はどこに住んでいますか。|なぜ雨が降るの。|首都はどこですか。|どう予約しますか。|誰が描きましたか。|熊は何を食べますか。"
        "|席はありますか。"
    ),
    "en": (
        "When did it open?|Who leads the school?|How much are tickets?|Where does Marie live?"
        "|Why is water wet?|What is the capital?|How do I book?|Who painted this?|What do bears eat?"
        "|Any free seats today?"
    ),
}
"""Ten questions of two to six words in each language, by its code, with bars between them."""
CODES: Final = dict(zip(PAIRS, ("de", "fr", "es", "it", "pt", "nl", "zh", "ja"), strict=True))
SCORES: Final = ("groundedness", "faithfulness")


def scores(response: str, passage: str) -> dict[str, float]:
    """Return the scores of a response; a skipped one is -1."""
    turn = Turn(query="", passages=(Passage(text=passage),), response=response)
    found = evaluate(turn, metrics=list(SCORES), models="lexical").results
    values = {result.name: result.value for result in found if isinstance(result, Score)}
    return {name: values.get(name, -1.0) for name in SCORES}


def main() -> None:
    """Print a table."""
    print("| language | score | right | tied | wrong | pairs |")
    print("|---|---|---|---|---|---|")
    for language, (passage, pairs) in PAIRS.items():
        found = [(scores(right, passage), scores(wrong, passage)) for right, wrong in pairs]
        for name in SCORES:
            differences = [one[name] - other[name] for one, other in found]
            right, tied = sum(value > 1e-9 for value in differences), sum(abs(value) <= 1e-9 for value in differences)
            print(f"| {language} | {name} | {right} | {tied} | {len(pairs) - right - tied} | {len(pairs)} |")
    print(*detection(), sep="\n")


def detection() -> Iterator[str]:
    """Yield a table: how often the language of a text is right, undecided and wrong."""
    sentences = [(CODES[name], text) for name, (_, pairs) in PAIRS.items() for pair in pairs for text in pair]
    questions = [(code, text) for code, texts in QUESTIONS.items() for text in texts.split("|")]
    prepare_language_detection(wait=True)
    yield "\n| texts | detector | right | undecided | wrong | of |\n|---|---|---|---|---|---|"
    for what, texts in (("sentences", sentences), ("short questions", questions)):
        for name, detect in (("rules", language_by_rules), ("installed", language_of)):
            found = [(code, detect(text)) for code, text in texts]
            right, undecided = sum(code == one for code, one in found), sum(one is None for _, one in found)
            yield f"| {what} | {name} | {right} | {undecided} | {len(texts) - right - undecided} | {len(texts)} |"


if __name__ == "__main__":
    main()
