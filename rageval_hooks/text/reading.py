"""Reads an answer as what it is: prose, Markdown, JSON or HTML. It finds its sentences, and what of it states nothing.

Nothing is stated by the form of an answer (list numbers, headings, labels of items, the first row of a table, keys of
JSON, tags), and by talk about its sources and to its reader: "Based on the given passages," "I hope this helps!"
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from rageval_hooks.text.limits import Span, blank, scan
from rageval_hooks.text.refusals import sentence_declines, speaks_to_reader
from rageval_hooks.text.sentences import sentence_spans

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


class Reading(NamedTuple):
    """An answer as it is read.

    Attributes:
        text: the answer, with the characters that escapes of JSON stand for; as long as the original.
        sentences: its sentences, items, rows and lines of code, as (start, end).
        silent: what states nothing, as (start, end); the spans may overlap.
    """

    text: str
    sentences: list[Span]
    silent: list[Span]


# --------------------------------------------------------------------------- the form

_MAX_MARKDOWN: Final = 60_000
"""Characters of an answer that is parsed as Markdown, at 1 to 25 µs for each. A longer one is read by lines."""

# Lines that Markdown reads in its own way: "- x", "1. x", "# x", "> x", "| x |", "```".
_MARKDOWN: Final = re.compile(r"(?m)^[ \t]*(?:[-*+#|>~`]|\d{1,3}[.)]\s)|\|[ \t]*:?---?-*:?[ \t]*\|")
# "```json" before all of an answer
_FENCE: Final = re.compile(r"\A\s*(```|~~~)(?:json|markdown|md|te?xt|html|xml)?[ \t]*\n")
# <li>, </p>, <br/>
_TAG: Final = re.compile(r"</?([A-Za-z][A-Za-z0-9]{0,11})(?:\s[^<>\n]{0,200})?/?>")
_BLOCK_TAG: Final = re.compile(
    r"</?(?:p|br|li|ul|ol|div|h[1-6]|t[rdh]|table|tbody|thead|dl|dt|dd|section|article|answer|response|blockquote)\b[^<>\n]{0,200}>",
    re.IGNORECASE,
)
# <confidence>0.93</confidence>
_META_TAG: Final = re.compile(r"<(?P<tag>[a-z_]{2,20})>[^<>]{0,300}</(?P=tag)>")
# "(a) ", "• ", "1️⃣ ", "① ", "✅ ", "Step 1: ", "- [x] " at the beginning of a line, after the markers of Markdown
_MARKER: Final = re.compile(
    r"(?:(?:[-–—*•●▪‣◦·>☐☑✓✔]|\(?(?:\d{1,3}|[A-Za-z]|[ivxIVX]{1,4})[.)]|\d\ufe0f?\u20e3|[\u2460-\u24ff\u2776-\u2793]"
    r"|\[[ xX]\]|[\u2190-\u21ff\u2600-\u27bf\U0001f300-\U0001faff]\ufe0f?)[ \t]+){1,3}"
)
# "**Parking Fees**: ", "**Parking:** ", "<b>Parking</b> – ", "*Parking*: ", a line that is only "**Parking**"
_BOLD_LABEL: Final = re.compile(
    r"(?:\*\*\*?|__|<(?:strong|b)>)(?P<label>[^*_<\n]{1,80}?)(?:[:：](?:\*\*\*?|__|</(?:strong|b)>)"
    r"|(?:\*\*\*?|__|</(?:strong|b)>)(?:[ \t]?[:：]|[ \t][–—-][ \t]|[ \t]*\|?[ \t]*$))"
    r"|(?:[*_]|<(?:em|i)>)(?P<light>[^*_<\n]{1,80}?)(?:[*_]|</(?:em|i)>)?[:：](?:[*_]|</(?:em|i)>)?(?=\s)"
)
# "Parking fees: " in an item, "Answer: " anywhere
_PLAIN_LABEL: Final = re.compile(r"(?P<label>[^\W\d_][^.,:;!?()\n*|]{0,50})[:：][ \t]+(?=\S)")
_ANSWER_LABEL: Final = re.compile(
    r"(?:\W{0,3}(?:(?:short|final|direct|quick|brief|my)\s)?(?:answer|response|reply|summary|tl;?dr|result|a"
    r"|antwort|réponse|respuesta|risposta|resposta)\W{0,3}[:：]\W{0,3}(?=\w))|\W{0,3}(?:question|q)\W{0,3}[:：].*",
    re.IGNORECASE,
)
# "3", "Step 3" and "3. Parking": a number of the label itself, and not of the subject
_LABEL_NUMBER: Final = re.compile(r"\(?#?\d{1,2}[.):]?(?:\s|$)|[^\W\d_]{2,12} #?\d{1,2}$")
# "Confidence: 93%", "relevance score = high", "Sources: handbook.pdf"
_META_LINE: Final = re.compile(
    r"\W{0,4}(?:(?:confidence|certainty|relevance|accuracy)(?: (?:score|level|rating))?|score|rating"
    r"|(?:primary |cited |data )?(?:sources?|references?|citations?|quellen?|fuentes?|fonti|fontes?|bron(?:nen)?)"
    r"(?: documents?| passages?| used)?|last (?:updated|modified|reviewed)|(?:retrieved|generated)(?: on| at| by)?"
    r"|document(?: id)?|file(?: ?name)?|pages?(?: number)?|doc(?:ument)?_?id)\W{0,3}[:：=].*",
    re.IGNORECASE,
)
# The numbers of a list within a line: "1. … 2. …", "(1) … (2) …"
_NUMBER_IN_LINE: Final = re.compile(r"(?<![^\s:;,.!?])(?:\*\*)?\(?(?P<number>\d{1,2})[.)](?:\*\*)?[ \t]+(?=[^\s\d])")
# The first cell of a table's head, over a column that numbers the rows: "| # |"; and the first cell of such a row.
_NUMBERING: Final = re.compile(r"[\s|*]{0,9}(?:#|№|no\.?|nr\.?|number|step|rank|s\.?no\.?)?[\s*]{0,9}\|", re.IGNORECASE)
_ROW_NUMBER: Final = re.compile(r"[\s|*]{0,9}\d{1,3}[.)]?[\s*]{0,9}\|")
# The first cell of a row, if it is bold or words follow: "| **Parking** |", "| Parking | Members pay less for it |"
_ROW_LABEL: Final = re.compile(
    r"[\s|]{0,9}(?:\*\*[^|*\d\n]{1,80}\*\*\s{0,9}\|"
    r"|[^|\d\n]{1,80}\|(?=[^\n]{0,20}[^\W\d_]+ [^\W\d_]+ [^\W\d_]+ [^\W\d_]))"
)
# The "2." of an item that is not written yet, in the last line of a beginning of an answer
_OPEN_ITEM: Final = re.compile(r"(?<=\n)[ \t]*(?P<number>\d{1,3})(?P<mark>[.)])\s*\Z")
_MAX_OPEN_ITEM: Final = 20
_MARKUP: Final = " \t\n*#_-•>|"
_LINE_END: Final = re.compile(r"\r\n|\r|\n")


_MAX_LABEL_WORDS: Final = 8
# Tokens of JSON: a key with its colon, a string (perhaps cut off), a number or word, a bracket; or anything else.
_JSON_TOKEN: Final = re.compile(
    r'"(?P<key>[^"\\\n]{0,80})"\s*:|(?P<value>"(?:[^"\\]|\\.)*(?:"|\Z)|-?\d[\d.eE+-]*)'
    r"|(?:true|false|null)\b|[{}\[\],:]|(?P<bare>\S)"
)
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<plain>.))")
# Keys under which an answer in JSON speaks about itself.
_META_KEY: Final = re.compile(
    r"(?:.{0,60}[_ -])?(?:confidence|certainty|scores?|rating|probability|relevance|sources?|citations?|cited"
    r"|references?|refs?|ids?|urls?|links?|pages?|section|files?|file_?names?|documents?|docs?|chunks?|passages?|quotes?|model"
    r"|lang(?:uage)?|type|status|index|rank|tokens?|timestamp|version|format|query|question|found|answerable|follow_?ups?)"
    r"|(?:is|has|source|page|doc|follow_?up|suggested)[A-Z_ -]\w*|title|heading|label|topic|aspect|category|subject",
    re.IGNORECASE,
)


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt

    # Answers have no indented code, and marks within a line need no parser.
    rules = ["code", "reference", "html_block", "inline"]
    return MarkdownIt("commonmark").enable("table").disable(rules)


def read_answer(text: str) -> Reading:
    """Return the sentences of an answer, and what of it states nothing. A beginning of an answer is read, too."""
    form = _Form(text)
    # An answer that is only "**42**" states it.
    if form.labels and not any(map(str.isalnum, blank(text, [*form.silent, *form.labels]))):
        form.labels = []
    silent = form.silent + form.labels
    text = form.text
    layout = blank(text, silent)
    if form.breaks:
        characters = list(layout)
        for position in form.breaks:
            characters[position] = "\n"
        layout = "".join(characters)
    return Reading(text, sentence_spans(layout), silent + find_asides(text))


class _Form:
    """The form of an answer.

    Attributes:
        silent: its markup.
        labels: headings, labels of items, and lines about the answer itself, as (start, end).
        breaks: positions in `silent` at which a sentence ends.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.silent: list[Span] = []
        self.labels: list[Span] = []
        self.breaks: list[int] = []
        # Most answers have no list within a line.
        self.has_numbers = "2." in text or "2)" in text
        begin, end = self._inside_fence()
        if text[begin:end].lstrip()[:1] in ("{", "[") and self._read_json(begin, end):
            return
        if "<" in text:
            self._read_tags(begin, end)
        item = _OPEN_ITEM.search(text, max(begin, end - _MAX_OPEN_ITEM), end)
        if item and (item["number"] == "1" or f"\n{int(item['number']) - 1}{item['mark']}" in f"\n{text}"):
            self.silent.append(item.span())
        if len(text) <= _MAX_MARKDOWN and _MARKDOWN.search(text):
            self._read_markdown(begin, end)
            return
        start = begin
        for line in text[begin:end].splitlines(keepends=True):
            self._read_line(start, start + len(line.rstrip()), is_item=False)
            start += len(line)

    def _read_tags(self, begin: int, end: int) -> None:
        """Mark tags; a block of HTML is read as a line."""
        self.silent += (tag.span() for tag in scan(_TAG, self.text, begin, end))
        metas = scan(_META_TAG, self.text, begin, end)
        self.labels += (meta.span() for meta in metas if _META_KEY.fullmatch(meta["tag"]))
        blocks = list(scan(_BLOCK_TAG, self.text, begin, end))
        for number, block in enumerate(blocks):
            self.breaks += [block.start(), block.start() + 1]
            stop = blocks[number + 1].start() if number + 1 < len(blocks) else end
            self._read_line(block.end(), stop, is_item="li" in block[0].lower())

    def _inside_fence(self) -> Span:
        """Return where the answer is without a fence around all of it, whose lines are markup."""
        opening = _FENCE.match(self.text)
        if opening is None:
            return 0, len(self.text)
        closing = self.text.find(opening[1], opening.end())
        if closing >= 0 and self.text[closing:].strip("`~ \t\n"):
            return 0, len(self.text)  # other text follows
        end = closing if closing >= 0 else len(self.text)
        self.silent += [(0, opening.end()), (end, len(self.text))]
        return opening.end(), end

    def _read_markdown(self, begin: int, end: int) -> None:
        part = self.text[begin:end]
        # As the parser splits lines.
        starts = [begin, *(begin + found.end() for found in _LINE_END.finditer(part)), end]
        kind, depth, done = "", 0, 0
        for token in _markdown().parse(part):
            before, kind = kind, token.type
            if kind in ("list_item_open", "list_item_close"):
                depth += token.nesting
            if token.map is None or token.map[0] < done:
                continue
            if kind not in ("table_open", "fence", "hr", "inline"):
                continue
            lines = [(starts[row], starts[row + 1]) for row in range(*token.map) if row + 1 < len(starts)]
            if kind in ("table_open", "fence"):
                done = token.map[1]
                (self._read_table if kind == "table_open" else self._read_fence)(lines)
                continue
            # The line under a heading, or between paragraphs.
            self.silent += (
                lines[-1:] if kind == "hr" or token.map[1] - token.map[0] > token.content.count("\n") + 1 else []
            )
            is_heading = before == "heading_open" and not token.content.rstrip().endswith((".", "!", "?"))
            for (start, stop), content in zip(
                lines, token.content.split("\n") if kind == "inline" else (), strict=False
            ):
                written = self.text[start:stop].rstrip()
                # What is before the content is markup: "  - ", "> ", "## ".
                at = start + max(0, written.rfind(content.strip()))
                self.silent.append((start, at))
                if is_heading:
                    self.labels.append((at, stop))
                else:
                    self._read_line(at, start + len(written), is_item=depth > 0)

    def _read_table(self, lines: Sequence[Span]) -> None:
        """Mark the head of a table, and a first column that numbers the rows."""
        self.labels.append(lines[0])
        self.silent += lines[1:2]
        is_numbered = _NUMBERING.match(self.text, *lines[0]) is not None
        for start, end in lines[2:]:
            number = _ROW_NUMBER.match(self.text, start, end) if is_numbered else None
            at = number.end() if number else start
            self.silent.append((start, at))
            label = _ROW_LABEL.match(self.text, at, end)
            self.labels.append((at, label.end() if label else at))

    def _read_fence(self, lines: Sequence[Span]) -> None:
        """Mark the first and the last line of a block of code; a block of JSON is read as such."""
        self.silent.append(lines[0])
        is_closed = not self.text[slice(*lines[-1])].strip(" \t\n`~>")
        self.silent += lines[-1:] if is_closed else []
        if "json" in self.text[slice(*lines[0])] and len(lines) > 1:
            self._read_json(lines[1][0], lines[-1][0] if is_closed else lines[-1][1])

    def _read_line(self, start: int, end: int, *, is_item: bool) -> None:
        """Mark what a line of a paragraph or item has before and between its statements."""
        text = self.text
        marker = _MARKER.match(text, start, end)
        if marker is not None:
            self.silent.append(marker.span())
            is_item, start = True, marker.end()
        if _META_LINE.fullmatch(text, start, end):
            self.labels.append((start, end))
            return
        for at in (start, *self._read_numbers(start, end)):
            label = _ANSWER_LABEL.match(text, at, end) or _BOLD_LABEL.match(text, at, end)
            if label is None and (is_item or at > start):
                label = _PLAIN_LABEL.match(text, at, end)
            if label is None or (label.re is _BOLD_LABEL and label["light"] and not is_item):
                continue
            # "**1869**: The bridge opened." states the year.
            name = _LABEL_NUMBER.sub("", next(filter(None, label.groups()), ""))
            if not any(map(str.isdigit, name)) and name.count(" ") < _MAX_LABEL_WORDS:
                self.labels.append(label.span())

    def _read_numbers(self, start: int, end: int) -> list[int]:
        """Mark the numbers of a list within a line, which count from 1; return where they end."""
        if not self.has_numbers:
            return []
        # The number of the first item may have been read as the line's own.
        expected = 2 if self.text[max(0, start - 8) : start].strip(" \t*(")[-2:] in ("1.", "1)") else 1
        lists: list[list[re.Match[str]]] = [[]]
        for number in scan(_NUMBER_IN_LINE, self.text, start, end):
            value = int(number["number"])
            # "Causes: 1. … 2. … 3. … Effects: 1. … 2. …"
            if value == 1 and expected > 2:
                lists.append([])
            elif value != expected:
                continue
            lists[-1].append(number)
            expected = value + 1
        found = [number for items in lists if items and int(items[-1]["number"]) > 1 for number in items]
        self.silent += (number.span() for number in found)
        self.breaks += (place for number in found for place in (number.start(), number.start() + 1))
        return [number.end() for number in found]

    # -- JSON

    def _read_json(self, begin: int, end: int) -> bool:
        """Mark all of an answer in JSON except its values; False if it is not JSON, or a beginning of it."""
        # Per open bracket: whether what is in it is about the answer itself.
        about: list[bool] = []
        is_about = False
        shown: list[Span] = []
        for number, token in enumerate(scan(_JSON_TOKEN, self.text, begin, end)):
            # "[1] says" is no JSON, and neither is "[] is empty".
            if token["bare"] or (number and not about) or (number == 1 and token["value"] and token[0][0] != '"'):
                return False
            if token[0] in "{[":
                about.append(is_about or about[-1:] == [True])
                is_about = False
            elif token[0] in "}]":
                about.pop()
            elif token["key"] is not None:
                is_about = _META_KEY.fullmatch(token["key"]) is not None
            elif token["value"] and not is_about and not about[-1]:
                shown.append(token.span())
        at = begin
        done = 0
        pieces: list[str] = []
        for start, stop in shown:
            quoted = self.text[start] == '"'
            self.silent.append((at, start + quoted))
            at = stop - (quoted and stop > start + 1 and self.text[stop - 1] == '"')
            self.breaks += range(at, min(at + 2, end))
            for escape in _ESCAPE.finditer(self.text, start, at):
                first, last = escape.span()
                code = int(escape["code"] or "0", 16)
                if code > 32 and not 0xD800 <= code < 0xE000:
                    # Joiners keep the length, and are no part of a word.
                    pieces += [self.text[done:first], chr(code).ljust(last - first, "\u200d")]
                    done = last
                    continue
                self.silent.append((first, first + 1 if escape["plain"] and escape["plain"] not in "nrt" else last))
                self.breaks += [first, first + 1] if escape["plain"] == "n" else []
        self.silent.append((at, end))
        self.text = "".join([*pieces, self.text[done:]])
        return True


# --------------------------------------------------------------------------- talk about the sources and to the reader

_KIND: Final = r"(?:given|provided|retrieved|supplied|available|following|above|search|source|reference|relevant)"
# "2", "1 and 3", "1, 2, and passage 3"
_NUMBERS: Final = r"#?\d{1,2}(?!\d)(?:(?:,\s?(?:and\s)?|\sand\s|\s?[&–-]\s?|\sto\s)(?:passages?\s)?#?\d{1,2}(?!\d))*"
# "passage 2", "the given passages", "this document", "passages 1 and 3", "the information provided"
_SOURCE: Final = (
    r"(?:(?:the|these|those|this|my|your|all)\s)?(?:(?:first|second|third|last|" + _KIND + r")\s){0,2}"
    r"(?:(?:passage|excerpt|document|source|text|snippet|context)s?|search results|information)"
    r"(?:\s(?:above|below|given|provided|(?:that\s)?(?:you|were|was|i)\s(?:gave|given|provided|have)))?"
    rf"(?:\s{_NUMBERS})?"
)
# A source that certainly means the prompt: with a number, or as "the given passages". "The text" may be a book's.
_CITED: Final = (
    rf"(?:passages?|excerpts?|documents?|sources?|snippets?|contexts?)\s?{_NUMBERS}(?!\s(?:pages?|words|lines|years)\b)"
)
_SAYS: Final = (
    r"(?:also\s|further\s|explicitly\s|specifically\s|does\s|do\s)?(?:stat|not|mention|say|suggest|explain|describ|indicat|provid|"
    r"highlight|emphasiz|discuss|advis|recommend|add|claim|list|report|tell|show|point)(?:es|ed|s|e)?(?:\sus|\sout)?\sthat\s"
)
_ASIDE: Final = re.compile(
    # "Based on the given passages, ", "Therefore, according to passage 2, "
    rf"(?<![^\W_])(?:(?:based|relying)\son|according\sto|as\s(?:stated|mentioned|described|noted|explained|outlined|shown|"
    rf"seen|per|discussed|indicated)(?:\s(?:in|by))?|(?:from|in|per|given|using))\s{_SOURCE}(?![^\W_])(?:,|(?=[).:;])|(?=\sas\b)|$)"
    # "Although the documents do not say how, "
    rf"|(?<![^\W_])(?:although|though|while)\s(?:the|these)\s(?:{_KIND}\s)?"
    r"(?:passages?|excerpts?|contexts?|documents?|sources?|text)"
    r"\s(?:do|does|did)(?:\snot|n['’]t)\s[^,.;:!?\n]{1,150},"
    # "(passage 2)", "(as mentioned in passage 2)", "(Ref: Passages 1 and 3)", "[Passage 1]"
    rf"|[(\[](?:[a-z:]{{1,10}}\s){{0,4}}{_CITED}[)\]]"
    # "in passage 3", "by passages 1 and 2" anywhere
    rf"|(?<![^\W_])(?:(?:as\s)?(?:stated|mentioned|described|noted|found)\s)?(?:in|by|from|to|on|of|per)\s(?:the\s)?{_CITED}"
    # "Passage 3 notes that ", "The passages also state that "
    rf"|(?<![^\W_])(?:{_CITED}|(?:the|these)\s(?:{_KIND}\s)?(?:passages?|excerpts?|context|documents?|sources?))\s{_SAYS}"
    # "Passage 2" as the subject of other verbs
    rf"|(?<![^\W_]){_CITED}",
    re.IGNORECASE,
)
# Every aside has one of these ("text" is in "context", too); most texts have none and need no search.
_HINTS: Final = ("passage", "excerpt", "document", "source", "text", "snippet", "search result", "information")
# "page 12", "pp. 3-4", "section 4.2", "§ 4", "Table A"
_PLACE: Final = (
    r"(?:pages?|pp?\.?|sections?|sec\.|§{1,2}|chapters?|ch\.|appendix|annex|tables?|figures?|fig\.|art(?:icle|\.)|clauses?"
    r"|para(?:graph)?s?\.?|lines?|slides?|seiten?|s\.|páginas?|pág\.)\s?#?(?:\d{1,4}(?:\.\d{1,3}){0,4}|[A-Z]\b|[ivxl]{1,6}\b)"
    r"(?:\s?[-–]\s?\d{1,4}(?:\.\d{1,3}){0,4})?"
)
# "handbook.pdf", "doc-1", "chunk_3", "https://example.com"
_NAME: Final = (
    r"(?:[^\s()\[\]†]{1,80}\.(?:pdf|docx?|md|txt|html?|xlsx?|csv|pptx?|json|xml|rst|epub|ya?ml)|https?://[^\s()\[\]]{1,300}"
    r"|(?:docs?|documents?|sources?|src|ref(?:erence)?s?|chunks?|passages?|contexts?|cit(?:ation|e)s?|files?|notes?|nodes?"
    r"|snippets?|excerpts?|results?|ids?)[\s:#_-]{0,2}\d{1,4}|source)"
)
_POINTER: Final = re.compile(
    # "(handbook.pdf, page 12)", "[doc-1, p. 4]", "(see section 4.2)", "[4:0 plans.md]", "(Members' Handbook, page 12)"
    r"(?:(?<!\])\(|\[)(?![(\[])\s?(?:(?:see(?:\salso)?|cf\.?|sources?|ref(?:erence)?|from|per|siehe|quelle|fuente|fonte|source\s?)[:\s]\s?)?"
    rf"(?:\d{{1,3}}(?::\d{{1,3}})?[,;:†\s]\s?|[^\d()\[\]\n,;:]{{1,60}}[,;:\s]\s?|[^()\[\]\n;]{{1,60}},\s(?={_PLACE}))?"
    rf"(?:{_PLACE}|{_NAME})(?:\s?[,;:|&]?\s?(?:and\s)?(?:{_PLACE}|{_NAME}))*\s?[)\]]"
    # "(Source: Members' Handbook)"
    r"|[(\[](?![(\[])\s?(?:sources?|refs?|references?|citations?|cited|quellen?|fuentes?|fonti|fontes?)\s?:[^()\[\]\n]{1,150}[)\]]"
    # 【4:0†plans.md】
    r"|【[^】\n]{0,100}】"
    # <sup>1</sup>, <cite>doc-1</cite>
    r"|<(?P<tag>sup|cite|ref|citation|source)\b[^<>\n]{0,100}>[^<>\n]{0,100}</(?P=tag)>"
    # "sentence.^1", "sentence (3)."
    r"|(?<=[a-z][a-z.,;!?])\^\{?\[?\d{1,2}\]?\}?\^?|(?<=[\w.!?])\s?\(\d{1,2}\)(?=[\s\"*]{0,3}(?:[.,;!?]|$))"
    # "on page 12", "in section 4.2"
    r"|(?<![^\W_])(?:on|see|at|from)\spages?\s\d{1,4}\b|(?<![^\W_])(?:in|see|per|under)\s(?:section|chapter)\s\d{1,2}\.\d[\d.]*",
    re.IGNORECASE | re.MULTILINE,
)
_POINTER_HINTS: Final = re.compile(r"[(\[【^]|<[scr]|pages? \d|(?:section|chapter) \d", re.IGNORECASE)
_MONTH: Final = r"(?:jan|feb|mar|apr|may|june?|july?|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_FULL_DATE: Final = (
    r"(?:\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{4}"
    rf"|{_MONTH}\s\d{{1,2}}(?:st|nd|rd|th)?,?\s\d{{4}}|\d{{1,2}}\s{_MONTH}\s\d{{4}})"
)
# "As of today (2025-11-28)", "as of my last update in October 2023", "Today is November 28, 2025"
_TODAY: Final = (
    r"(?:today(?:'s date)?|now|this writing|the time of writing|the current date|my (?:last|latest|current) "
    r"(?:knowledge |training )?(?:update|cutoff|data|training|knowledge))"
)
_NOW: Final = re.compile(
    r"\(?(?<![^\W_])(?:(?:current |accurate )?as of|today is|today's date is|the current date is|date:)\s"
    rf"(?:{_TODAY}[\s,(:]{{0,3}}(?:(?:in|on|is)\s)?(?:{_FULL_DATE}|{_MONTH}\s\d{{4}}|\d{{4}})?\)?"
    rf"|(?P<date>(?:\w{{3,9}}day,?\s)?{_FULL_DATE}))[,:]?",
    re.IGNORECASE,
)


def find_asides(text: str) -> list[Span]:
    """Return where a text only refers to its sources or to its own date: "Based on the given passages," "(page 12)"."""
    lower = text.lower()
    found = [found.span() for found in scan(_ASIDE, text)] if any(hint in lower for hint in _HINTS) else []
    if _POINTER_HINTS.search(text):
        found += (pointer.span() for pointer in scan(_POINTER, text))
    if "as of" in lower or "today" in lower or "date" in lower:
        found += (now.span() for now in scan(_NOW, text) if now["date"] is None)
    return found


def find_own_dates(text: str) -> list[Span]:
    """Return where a text may say of what day it is: "As of November 28, 2025,". Passages may state such dates, too."""
    return [now.span() for now in scan(_NOW, text) if now["date"]] if "s of" in text else []


def claims_nothing(sentence: str, said: str) -> bool:
    """Return True if a sentence states nothing about the subject.

    It introduces the next sentences and ends in a colon ("Side effects:"), speaks to the reader ("I hope this
    helps!"), or declines ("The passages do not mention a price").

    Args:
        sentence: the sentence.
        said: the sentence without its asides.
    """
    text = said.strip(_MARKUP)
    if text.endswith((":", "：")):
        return True
    return speaks_to_reader(text) or sentence_declines(sentence.strip(_MARKUP))
