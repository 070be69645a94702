"""Chunks of documents: cut at paragraphs and sentences, with ids from their content, sampled evenly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import chain, islice, zip_longest

from rageval_hooks.offline.distinct import distinct
from rageval_hooks.offline.testsets.document_kinds import Document
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import words

# A text with fewer words is a caption or a page number.
_LEAST_WORDS = 5
_BETWEEN_BLOCKS = "\n\n"
# Blank lines between paragraphs: "one\n \ntwo" has two blocks.
_BLOCKS = re.compile(r"\n\s*\n")
# A heading of Markdown, or the underline of one: "## Fares", "=====", "-----".
_HEADING = re.compile(r"#{1,6}\s|={3,}|-{3,}")


class Chunk(Data):
    """A piece of a document that a question can be asked about.

    Attributes:
        id: of the vector store where it comes from one; else a hash of the document's name and the text, so that it
            is the same in every run.
        text: the piece.
        document: the source document's name.
    """

    id: Text
    text: Text
    document: Text


def chunks_of(documents: Iterable[Document], size: int) -> Iterator[Chunk]:
    """Cut documents into chunks. A document with an id is a chunk already. Pieces with few words are dropped.

    Args:
        documents: the documents.
        size: maximum characters of a chunk.
    """
    for document in documents:
        if document.id is not None:
            yield Chunk(id=document.id, text=document.text, document=document.name)
            continue
        seen: Counter[str] = Counter()
        for text in filter(_has_enough_words, cut(document.text, size)):
            # The same text may occur twice in a document, for example a notice.
            seen[text] += 1
            yield Chunk(id=chunk_id(document.name, text, seen[text]), text=text, document=document.name)


def _has_enough_words(text: str) -> bool:
    """Return True if there is enough to ask about: page numbers and captions are not."""
    return len(list(islice(words(text), _LEAST_WORDS))) == _LEAST_WORDS


def chunk_id(document: str, text: str, occurrence: int = 1) -> str:
    """Return the id of a chunk, which depends only on the document's name and the text."""
    digest = blake2b(digest_size=8)
    # The length before each part makes ("ab", "c") differ from ("a", "bc").
    parts = [document, text]
    # The first occurrence has the id of a text that occurs once.
    if occurrence > 1:
        parts.append(str(occurrence))
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "big"))
        digest.update(data)
    return digest.hexdigest()


def cut(text: str, size: int) -> Iterator[str]:
    """Cut a text into as few pieces of at most ``size`` characters as possible.

    Paragraphs are kept together where they fit, else sentences, else words. A heading stays with what follows it, and
    begins a new piece if the one before is half full.
    """
    piece = ""
    for part, joint in _parts(text, size):
        new = f"{piece}{joint}{part}" if piece else part
        is_full = len(new) > size or _begins_section(part, piece, size)
        if piece and is_full:
            piece, heading = _without_heading(piece)
            yield piece
            new = _below_heading(heading, part, size)
        piece = new
    if piece:
        yield piece


def _begins_section(part: str, piece: str, size: int) -> bool:
    """Return True for a heading after a piece that is half full: a short section before it would stay a small piece."""
    return _HEADING.match(part) is not None and len(piece) * 2 >= size


def _below_heading(heading: str, part: str, size: int) -> str:
    with_heading = f"{heading}\n\n{part}" if heading else part
    # A heading that does not fit is dropped: a piece is never longer than the judge expects.
    return with_heading if len(with_heading) <= size else part


def _without_heading(piece: str) -> tuple[str, str]:
    """Split a heading without text below it from the end of a piece."""
    before, gap, last = piece.rpartition("\n\n")
    is_heading = _HEADING.match(last) is not None and "\n" not in last
    # A piece that is only a heading stays.
    if not gap or not is_heading:
        return piece, ""
    return before, last


def _parts(text: str, size: int) -> Iterator[tuple[str, str]]:
    """Yield the parts that are never cut, each with the separator before it."""
    blocks = map(str.strip, _BLOCKS.split(text))
    for block in filter(None, blocks):
        if len(block) <= size:
            yield block, _BETWEEN_BLOCKS
        else:
            yield from _sentences(block, size)


def _sentences(block: str, size: int) -> Iterator[tuple[str, str]]:
    joint = _BETWEEN_BLOCKS
    for start, end in sentence_spans(block):
        for part in _pieces(block[start:end], size):
            yield part, joint
            joint = " "


def _pieces(sentence: str, size: int) -> Iterator[str]:
    """Cut a sentence that is longer than a chunk, between words if possible."""
    while len(sentence) > size:
        # A space in the second half keeps the pieces of similar size.
        place = sentence.rfind(" ", size // 2, size + 1)
        place = size if place < 0 else place
        yield sentence[:place].strip()
        sentence = sentence[place:].strip()
    if sentence:
        yield sentence


def unique_chunks(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return the chunks without repetitions.

    Files that number their chunks separately use an id for several texts. Such an id gets the document's name.
    """
    by_content: dict[tuple[str, str], Chunk] = {}
    for chunk in chunks:
        by_content.setdefault((chunk.id, chunk.text), chunk)
    found = list(by_content.values())
    shared = shared_ids(found)
    names = [f"{chunk.document}:{chunk.id}" if chunk.id in shared else chunk.id for chunk in found]
    # One document may use an id for several texts, too.
    ids = distinct(names)
    return [chunk.model_copy(update={"id": new}) for chunk, new in zip(found, ids, strict=True)]


def shared_ids(chunks: Iterable[Chunk]) -> set[str]:
    """Return the ids that chunks with different texts have in common."""
    texts: dict[str, set[str]] = {}
    for chunk in chunks:
        texts.setdefault(chunk.id, set()).add(chunk.text)
    return {name for name, found in texts.items() if len(found) > 1}


def spread(chunks: Sequence[Chunk], limit: int, seed: int) -> list[Chunk]:
    """Choose some chunks, from as many documents as possible and evenly from each; the same ones for the same seed.

    Args:
        chunks: all of them.
        limit: how many are wanted.
        seed: another one chooses others.

    Returns:
        The chosen ones in the order in which they were given.
    """
    chosen = {chunk.id for chunk in spread_order(chunks, seed)[:limit]}
    return [chunk for chunk in chunks if chunk.id in chosen]


def spread_order(chunks: Sequence[Chunk], seed: int) -> list[Chunk]:
    """Return the chunks in the order in which a growing limit adds them: one of each document, then a second of each.

    The order of some chunks is the same among more of them, so that a larger limit keeps what a smaller one chose.
    """

    def lot(name: str) -> bytes:
        return blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()

    documents: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        documents.setdefault(chunk.document, []).append(chunk)
    # A hash of seed and id is a random order that stays when documents are added.
    drawn = [sorted(documents[name], key=lambda chunk: lot(chunk.id)) for name in sorted(documents, key=lot)]
    # By rounds, so that long documents do not dominate.
    return list(filter(None, chain.from_iterable(zip_longest(*drawn))))
