"""Chunks of documents: cut at paragraphs and sentences, with ids from their content, sampled evenly, and linked.

Chunks that share rare words and names are candidates for questions about both.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, islice, zip_longest

from rageval_hooks.offline.records.record import distinct
from rageval_hooks.offline.testsets.documents import Document
from rageval_hooks.runtime.jsonable import Data, Text
from rageval_hooks.text.sentences import sentence_spans
from rageval_hooks.text.words import blank_marks, weighted_lines, words

# A text with fewer words is a caption or a page number.
_MIN_WORDS = 5
_BETWEEN_BLOCKS = "\n\n"
# Blank lines between paragraphs: "one\n \ntwo" has two blocks.
_BLOCKS = re.compile(r"\n\s*\n")
# A block that is a heading: "## Fares"; or a line with an underline, as in reStructuredText, "Fares\n=====", and
# perhaps the same line above it.
_HEADING = re.compile(r"\A(?:#{1,6}\s.*|(?:([^\w\s])\1{2,}\n)?\S.*\n([^\w\s])\2{2,}\s*)")


# Cosine similarities. Below the first, two chunks share no more than a common word; above the second they say the same.
_MIN_LIKENESS, _MAX_LIKENESS = 0.05, 0.85
# A word in more than this share of the chunks says nothing about which of them belong together.
_COMMON = 0.2
# In a small collection every word is in a large share of the chunks.
_ALWAYS_RARE = 5


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
        for text in cut(document.text, size):
            # Of page numbers and captions there is nothing to ask about.
            if len(list(islice(words(text), _MIN_WORDS))) < _MIN_WORDS:
                continue
            # The same text may occur twice in a document, for example a notice.
            seen[text] += 1
            yield Chunk(id=chunk_id(document.name, text, seen[text]), text=text, document=document.name)


def chunk_id(document: str, text: str, occurrence: int = 1) -> str:
    """Return the id of a chunk, which depends only on the document's name and the text."""
    digest = blake2b(digest_size=8)
    # The first occurrence has the id of a text that occurs once.
    for part in (document, text, *([str(occurrence)] if occurrence > 1 else [])):
        data = part.encode()
        # The length before each part makes ("ab", "c") differ from ("a", "bc").
        digest.update(len(data).to_bytes(8, "big") + data)
    return digest.hexdigest()


def cut(text: str, size: int) -> Iterator[str]:
    """Cut a text into as few pieces of at most ``size`` characters as possible.

    Paragraphs are kept together where they fit, else sentences, else words. A heading stays with what follows it, and
    begins a new piece if the one before is half full.
    """
    piece = ""
    for part, joint in _parts(text, size):
        new = f"{piece}{joint}{part}" if piece else part
        # A short section before a heading would stay a small piece.
        begins_section = _HEADING.match(part) is not None and len(piece) * 2 >= size
        if piece and (len(new) > size or begins_section):
            # A heading without text below it goes to what follows.
            before, _, last = piece.rpartition(_BETWEEN_BLOCKS)
            with_heading = f"{last}{_BETWEEN_BLOCKS}{part}"
            if before and _HEADING.fullmatch(last) and len(with_heading) <= size:
                yield before
                new = with_heading
            else:
                yield piece
                new = part
        piece = new
    if piece:
        yield piece


def _parts(text: str, size: int) -> Iterator[tuple[str, str]]:
    """Yield the parts that are never cut, each with the separator before it."""
    for block in filter(None, map(str.strip, _BLOCKS.split(text))):
        if len(block) <= size:
            yield block, _BETWEEN_BLOCKS
            continue
        joint = _BETWEEN_BLOCKS
        for start, end in sentence_spans(block):
            sentence = block[start:end]
            while sentence:
                # A sentence that is longer than a chunk is cut between words if possible. A space in the second half
                # keeps the pieces of similar size.
                place = len(sentence) if len(sentence) <= size else sentence.rfind(" ", size // 2, size + 1)
                place = size if place < 0 else place
                yield sentence[:place].strip(), joint
                sentence = sentence[place:].strip()
                joint = " "


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


def spread(chunks: Sequence[Chunk], limit: int | None, seed: int) -> list[Chunk]:
    """Choose some chunks, from as many documents as possible and evenly from each; the same ones for the same seed.

    Args:
        chunks: all of them.
        limit: how many are wanted; None for all.
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


# --------------------------------------------------------------------------- links


class ChunkIndex:
    """Finds the chunks of a collection that are similar to a text, by the words that both have.

    Names and numbers count twice, and rare words more than frequent ones. No model is needed.

    Args:
        chunks: the whole collection, also the chunks that no question is asked about.
    """

    def __init__(self, chunks: Sequence[Chunk]) -> None:
        self._chunks = list(chunks)
        counted = [_weights(chunk.text) for chunk in self._chunks]
        self._frequencies = Counter(chain.from_iterable(counted))
        self._vectors = [self._vector(weights) for weights in counted]
        self._chunks_with: defaultdict[str, list[int]] = defaultdict(list)
        for position, vector in enumerate(self._vectors):
            for word in vector:
                self._chunks_with[word].append(position)

    def digest(self) -> str:
        """Return a hash of all texts: it changes with the collection."""
        digest = blake2b(digest_size=8)
        for text in sorted(chunk.text for chunk in self._chunks):
            digest.update(blake2b(text.encode(), digest_size=16).digest())
        return digest.hexdigest()

    def nearest(self, text: str, most: int) -> list[Chunk]:
        """Return the chunks that are most similar to a text, the most similar first; none that share no rare word."""
        return [chunk for chunk, _ in self._similar(text)[:most]]

    def linked(self, chunk: Chunk, most: int = 1) -> list[Chunk]:
        """Return the chunks that a question could connect with a chunk, the best first.

        Chunks of other documents come first. Copies of the chunk are not linked to it.
        """
        found = self._similar(chunk.text)
        usable = [other for other, value in found if _MIN_LIKENESS <= value <= _MAX_LIKENESS]
        # A stable sort keeps the order by similarity within both groups.
        return sorted(usable, key=lambda other: other.document == chunk.document)[:most]

    def _similar(self, text: str) -> list[tuple[Chunk, float]]:
        """Return the chunks that share a rare word with a text, with their cosine similarities, the highest first."""
        found: defaultdict[int, float] = defaultdict(float)
        for word, weight in self._vector(_weights(text)).items():
            for position in self._chunks_with.get(word, ()):
                found[position] += weight * self._vectors[position][word]
        # Equal ones are in the order of the collection.
        order = sorted(found, key=lambda position: (-found[position], position))
        return [(self._chunks[position], found[position]) for position in order]

    def _vector(self, words: Mapping[str, float]) -> dict[str, float]:
        """Return the weights of the rare words, as a vector of length 1."""
        total = len(self._chunks)
        limit = max(_ALWAYS_RARE, _COMMON * total)
        weights = {
            word: weight * math.log(1 + total / self._frequencies[word])
            for word, weight in words.items()
            if 0 < self._frequencies[word] <= limit
        }
        length = math.sqrt(sum(weight * weight for weight in weights.values()))
        return {word: weight / length for word, weight in weights.items()}


def _weights(text: str) -> dict[str, float]:
    """Return the content words of a text with their weights: 2 for names and numbers, 1 for others."""
    lines = weighted_lines(blank_marks(text), sentence_spans(text))
    found: dict[str, float] = {}
    for word in chain.from_iterable(line.words for line in lines):
        if word.is_content:
            found[word.key] = max(word.weight, found.get(word.key, 0.0))
    return found
