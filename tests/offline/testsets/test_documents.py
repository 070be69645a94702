"""Documents and chunks: what is read, what is said of what is not, and pieces that stay the same."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.offline.testsets.chunks import Chunk, chunks_of, cut, spread, unique_chunks
from rageval_hooks.offline.testsets.documents import Document, Library, read_documents
from rageval_hooks.offline.testsets.stores import chunks_of_store
from tests.offline.pdf import GLYPH_NUMBERS, HELVETICA, pdf

FERRY = "The ferry to Quern takes 18 minutes. It runs every hour."


def read(tmp_path: Path, **files: bytes | str) -> Library:
    for name, content in files.items():
        path = tmp_path / name.replace("__", ".")
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_documents([tmp_path])


def test_links_out_of_a_folder_are_not_followed(tmp_path: Path) -> None:
    """A link could lead to a key; one within the folder is read."""
    folder, secret = tmp_path / "docs", tmp_path / "id_rsa.txt"
    folder.mkdir()
    secret.write_text("-----BEGIN PRIVATE KEY-----")
    (folder / "a.txt").write_text(FERRY)
    (folder / "b.txt").symlink_to(secret)
    (folder / "c.txt").symlink_to(folder / "a.txt")
    library = read_documents([folder])

    assert [document.name for document in library.documents] == ["a.txt", "c.txt"]
    assert library.skipped == {"a symbolic link out of the folder is not followed": ["b.txt"]}


def test_a_very_large_pdf_is_not_read(tmp_path: Path) -> None:
    """It would take fifteen times its size of memory."""
    with open(tmp_path / "a.pdf", "wb") as file:
        file.truncate(60 << 20)
    [problem] = read_documents([tmp_path]).problems

    assert problem == "a.pdf: it is larger than 32 MiB (unpacked): split it, or convert it to text"


@pytest.mark.parametrize("name", ["a.txt.gz", "a.html.gz"])
def test_a_text_that_is_too_large(tmp_path: Path, name: str) -> None:
    """A small compressed file cannot fill the memory; the others are read."""
    (tmp_path / "b.txt").write_text("The pier was opened in 2019 by the mayor of Hallay.")
    with gzip.open(tmp_path / name, "wb", 1) as file:
        for _ in range(33):
            file.write(b"x " * (1 << 19))
    library = read_documents([tmp_path])
    assert [document.name for document in library.documents] == ["b.txt"]
    assert library.problems == [f"{name}: it is larger than 32 MiB (unpacked): split it"]


class TestEncodings:
    @pytest.mark.parametrize(
        ("text", "encoding"),
        [
            ("Die Fähre nach Quern.", "latin-1"),
            ("Die Fähre nach Quern.", "utf-16"),
            ("Когда открылся причал? Причал открылся в сентябре, его открыл мэр города Халлай.", "cp1251"),
            ("いつ開きましたか。港は二〇一九年に開きました。", "iso2022_jp"),
        ],
    )
    def test_are_detected(self, tmp_path: Path, text: str, encoding: str) -> None:
        """By the byte order mark, as UTF-8, or from the bytes."""
        (tmp_path / "a.txt").write_bytes(text.encode(encoding))
        assert [document.text for document in read_documents([tmp_path]).documents] == [text]

    def test_can_be_named(self, tmp_path: Path) -> None:
        """Where bytes tell too little."""
        (tmp_path / "a.txt").write_bytes("Când?".encode("cp1250"))
        [document] = read_documents([tmp_path], encoding="cp1250").documents
        assert document.text == "Când?"

    def test_one_that_is_not_known(self, tmp_path: Path) -> None:
        """Is an error."""
        (tmp_path / "a.txt").write_text("x")
        with pytest.raises(ConfigurationError, match="--encoding 'klingon' is not known"):
            read_documents([tmp_path], encoding="klingon")


class TestOffice:
    """HTML and Office documents become Markdown."""

    def test_html(self, tmp_path: Path) -> None:
        """Without its scripts."""
        page = "<html><body><h1>Ferry</h1><script>x()</script><p>It takes 18 minutes.</p></body></html>"
        [document] = read(tmp_path, a__html=page).documents
        assert document.text.split() == ["#", "Ferry", "It", "takes", "18", "minutes."]

    @pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
    def test_html_in_an_encoding(self, tmp_path: Path, encoding: str) -> None:
        """As of a text file: a page may not name its own."""
        page = "<html><body><p>Die Fähre fährt über den Fluß.</p></body></html>"
        [document] = read(tmp_path, a__html=page.encode(encoding)).documents
        assert document.text == "Die Fähre fährt über den Fluß."

    def test_presentations_and_workbooks(self, tmp_path: Path) -> None:
        """With the text of slides and cells."""
        import openpyxl
        from pptx import Presentation

        slides = Presentation()
        slides.slides.add_slide(slides.slide_layouts[0]).shapes.title.text = "The pier of Hallay"
        slides.save(tmp_path / "a.pptx")
        book = openpyxl.Workbook()
        book.active.append(["ferry", "minutes"])
        book.active.append(["Quern", 18])
        book.save(tmp_path / "b.xlsx")

        first, second = read_documents([tmp_path]).documents
        assert "The pier of Hallay" in first.text
        assert "| Quern | 18 |" in second.text

    def test_a_file_that_is_something_else(self, tmp_path: Path) -> None:
        """Is a problem."""
        [problem] = read(tmp_path, a__docx=b"hello").problems
        assert problem.startswith("a.docx: it is not a .docx file")

    @pytest.mark.parametrize("suffix", ["docx", "pptx", "xlsx", "epub"])
    def test_an_office_file_that_is_damaged(self, tmp_path: Path, suffix: str) -> None:
        """A zip archive without a document in it: what else is in it is no text."""
        with zipfile.ZipFile(tmp_path / f"a.{suffix}", "w") as archive:
            archive.writestr("word/other.xml", "<x/>")

        library = read_documents([tmp_path])
        assert library.documents == []
        assert library.problems[0].startswith(f"a.{suffix}: MarkItDown cannot read it: ")

    def test_compressed_files(self, tmp_path: Path) -> None:
        """Are read as what is in them."""
        (tmp_path / "a.md.gz").write_bytes(gzip.compress(FERRY.encode()))
        [document] = read_documents([tmp_path]).documents
        assert (document.name, document.text) == ("a.md.gz", FERRY)


def test_headings_of_restructuredtext_begin_chunks(tmp_path: Path) -> None:
    """A heading stays with what follows it, as in Markdown."""
    text = "=====\nIsles\n=====\n\nThere are three of them here.\n\n"
    text += "The ferry\n---------\n\nIt takes 18 minutes to cross.\n"
    library = read(tmp_path, a__rst=text)
    chunks = [chunk.text for chunk in chunks_of(library.documents, 50)]
    assert chunks == [
        "=====\nIsles\n=====\n\nThere are three of them here.",
        "The ferry\n---------\n\nIt takes 18 minutes to cross.",
    ]


class TestFiles:
    def test_each_kind(self, tmp_path: Path) -> None:
        """Text, Markdown, PDF and JSON lines; other files of a folder are passed over."""
        library = read(
            tmp_path,
            a__txt="\ufeffThe pier.",
            b__md="# Ferry\n\nIt runs.",
            c__pdf=pdf(["The first page.", "The second page."]),
            d__jsonl='{"text": "A row."}\n\n{"text": "Another.", "id": 7, "document": "rows.md"}\n',
            e__png=b"\x89PNG",
        )

        assert [(document.name, document.text, document.id) for document in library.documents] == [
            ("a.txt", "The pier.", None),
            ("b.md", "# Ferry\n\nIt runs.", None),
            ("c.pdf", "The first page.\n\nThe second page.", None),
            ("d.jsonl:1", "A row.", None),
            ("rows.md", "Another.", "7"),
        ]
        assert library.problems == []
        assert list(library.skipped_lines()) == ["skipped 1: .png is not read (e.png)"]

    @pytest.mark.parametrize(("count", "names"), [(3, "1.png, 2.png, 3.png"), (4, "1.png, 2.png, 3.png, …")])
    def test_skipped_files_of_a_kind_are_one_line(self, tmp_path: Path, count: int, names: str) -> None:
        """With three of them; an ellipsis says that there are more."""
        for number in range(1, count + 1):
            (tmp_path / f"{number}.png").write_bytes(b"\x89PNG")

        lines = list(read_documents([tmp_path]).skipped_lines())
        assert lines == [f"skipped {count}: .png is not read ({names})"]

    def test_folders_are_read_at_any_depth(self, tmp_path: Path) -> None:
        """Documents are named by their path below the folder; hidden files are ignored."""
        for name in ("b/x.md", "a.md", ".git/y.md", "b/.hidden.md"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("Text.")

        assert [document.name for document in read_documents([tmp_path]).documents] == ["a.md", "b/x.md"]

    @pytest.mark.parametrize(
        ("name", "content", "reason"),
        [
            ("scan.pdf", pdf(["", ""]), "its 2 pages have no text: they may be pictures, and need text recognition"),
            (
                "glyphs.pdf",
                pdf(["The pier."], GLYPH_NUMBERS),
                "the fonts of 1 of its 1 pages cannot be decoded",
            ),
            # The numbers of the glyphs are those of letters, of other ones.
            (
                "glyphs.pdf",
                pdf(["\0T\0h\0e\0 \0p\0i\0e\0r"], GLYPH_NUMBERS),
                "the fonts of 1 of its 1 pages cannot be decoded",
            ),
            ("no.pdf", b"hello", "it is not a readable PDF"),
            ("empty.md", b" \n", "it is empty"),
        ],
    )
    def test_what_cannot_be_read_is_said(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: bytes, reason: str
    ) -> None:
        """By file, with the reason, and once; the rest is read."""
        (tmp_path / name).write_bytes(content)
        library = read(tmp_path, good__txt=FERRY)

        [problem] = library.problems
        assert problem.startswith(f"{name}: {reason}")
        assert [document.name for document in library.documents] == ["good.txt"]
        assert caplog.records == []

    @pytest.mark.parametrize(
        ("line", "reason"),
        [
            ("nonsense", "not JSON"),
            ('["a"]', "not a JSON object"),
            (
                '{"title": "x", "words": "y"}',
                "it has no text under one of text, content, page_content, body; found: title, words",
            ),
            ('{"text": "  "}', "its text is empty"),
            ('{"text": "x", "y": ' + "[" * 100_000 + "]" * 100_000 + "}", "not JSON: maximum recursion depth"),
        ],
    )
    def test_a_bad_line_is_said(self, tmp_path: Path, line: str, reason: str) -> None:
        """With its number."""
        library = read(tmp_path, rows__jsonl=f'{{"text": "Good."}}\n{line}\n')

        [problem] = library.problems
        assert problem.startswith(f"rows.jsonl, line 2: {reason}")
        assert len(library.documents) == 1

    def test_a_file_of_another_kind(self, tmp_path: Path) -> None:
        """Named by itself, it is a problem."""
        path = tmp_path / "picture.png"
        path.write_bytes(b"PNG")

        [problem] = read_documents([path]).problems
        assert "'.png' are not read; those in .adoc, .docx, .epub" in problem

    def test_a_pdf_of_which_one_page_cannot_be_decoded(self, tmp_path: Path) -> None:
        """The other pages are read, and the problem is named. A picture has no text, and no fonts."""
        pages = pdf(["The pier.", "\0F\0e\0r\0r\0y", ""], HELVETICA, GLYPH_NUMBERS, HELVETICA)
        (tmp_path / "a.pdf").write_bytes(pages)
        library = read_documents([tmp_path / "a.pdf"])

        assert [document.text for document in library.documents] == ["The pier."]
        assert library.problems == [
            "a.pdf: the fonts of 1 of its 3 pages cannot be decoded: text recognition (OCR) reads them"
        ]

    def test_a_locked_pdf(self, tmp_path: Path) -> None:
        """Asks for one without a password."""
        from pypdf import PdfReader, PdfWriter

        (tmp_path / "open.pdf").write_bytes(pdf(["Secret."]))
        writer = PdfWriter(clone_from=PdfReader(tmp_path / "open.pdf"))
        writer.encrypt("word", algorithm="RC4-128")
        writer.write(tmp_path / "locked.pdf")

        [problem] = read_documents([tmp_path / "locked.pdf"]).problems
        assert "password" in problem

    def test_no_such_file(self, tmp_path: Path) -> None:
        """Is an error at once."""
        with pytest.raises(ConfigurationError, match="there is no file or folder"):
            read_documents([tmp_path / "nowhere"])


class TestChunks:
    def test_paragraphs_are_kept_together(self) -> None:
        """As many as fit; a heading goes with what follows."""
        text = "# Pier\n\nThe pier is long.\n\nIt is old.\n\n# Ferry\n\nThe ferry is quick and clean."

        assert list(cut(text, 50)) == [
            "# Pier\n\nThe pier is long.\n\nIt is old.",
            "# Ferry\n\nThe ferry is quick and clean.",
        ]

    def test_a_heading_at_the_end_of_a_full_piece_goes_to_the_next(self) -> None:
        """Unless both together are too long: nothing is lost."""
        text = "The pier is long.\n\n# Ferry\n\nThe ferry is quick and clean."

        assert list(cut(text, 40)) == ["The pier is long.", "# Ferry\n\nThe ferry is quick and clean."]
        assert list(cut(text, 36)) == ["The pier is long.\n\n# Ferry", "The ferry is quick and clean."]

    def test_long_paragraphs_are_cut_at_sentences(self) -> None:
        """And long sentences between words."""
        assert list(cut("The pier is long. It is old. It was built by Dr. Hale in 1902.", 36)) == [
            "The pier is long. It is old.",
            "It was built by Dr. Hale in 1902.",
        ]
        assert list(cut("one two three four five six", 12)) == ["one two", "three four", "five six"]

    @given(st.text(alphabet="ab \n.#A?-", max_size=400), st.integers(min_value=10, max_value=60))
    def test_nothing_is_lost(self, text: str, size: int) -> None:
        """For any text, no piece is too long, and the pieces have all characters in order."""
        pieces = list(cut(text, size))

        assert all(0 < len(piece) <= size for piece in pieces)
        assert "".join("".join(pieces).split()) == "".join(text.split())

    def test_ids_are_the_same_in_every_run(self) -> None:
        """And depend on the document's name and the text alone: a new paragraph before changes no other chunk."""
        old = list(chunks_of([Document(name="a.md", text=FERRY)], 500))
        new = list(chunks_of([Document(name="z.md", text=FERRY), Document(name="a.md", text=FERRY)], 500))

        assert [chunk.id for chunk in old] == ["a969cef341e8554d"]
        assert new[1] == old[0]
        assert new[0].id != old[0].id

    def test_the_same_text_twice(self) -> None:
        """Has two ids."""
        text = f"{FERRY}\n\n{'x ' * 30}\n\n{FERRY}"
        chunks = list(chunks_of([Document(name="a.md", text=text)], 60))

        assert [chunk.text for chunk in chunks] == [FERRY, ("x " * 30).strip(), FERRY]
        assert len({chunk.id for chunk in chunks}) == 3

    def test_what_hardly_has_a_word_is_left_out(self) -> None:
        """There is nothing to ask about."""
        assert list(chunks_of([Document(name="a.md", text="# Contents\n\n12")], 100)) == []

    def test_a_document_with_an_id_is_a_chunk(self) -> None:
        """Whatever its length: it is one of the store."""
        [chunk] = chunks_of([Document(name="a.md", text=FERRY * 10, id="c7")], 50)

        assert (chunk.id, chunk.text, chunk.document) == ("c7", FERRY * 10, "a.md")


CHUNKS = [
    Chunk(id=f"{name}{number}", text=FERRY, document=name)
    for name, size in (("a", 50), ("b", 5), ("c", 1))
    for number in range(size)
]


class TestSpread:
    def test_every_document_has_its_share(self) -> None:
        """Not the first ones; in the order that they had."""
        chosen = spread(CHUNKS, 9, seed=0)
        ids = [chunk.id for chunk in CHUNKS]

        assert [sum(chunk.document == name for chunk in chosen) for name in "abc"] == [4, 4, 1]
        assert [ids.index(chunk.id) for chunk in chosen] == sorted(ids.index(chunk.id) for chunk in chosen)
        assert [chunk.id for chunk in chosen[:4]] != ["a0", "a1", "a2", "a3"]

    def test_the_seed_decides(self) -> None:
        """The same one chooses the same chunks."""
        assert spread(CHUNKS, 5, seed=1) == spread(CHUNKS, 5, seed=1)
        assert spread(CHUNKS, 5, seed=1) != spread(CHUNKS, 5, seed=2)

    def test_more_keeps_what_was_chosen(self) -> None:
        """A larger limit adds to the smaller one's choice."""
        few, many = spread(CHUNKS, 5, seed=1), spread(CHUNKS, 20, seed=1)

        assert {chunk.id for chunk in few} < {chunk.id for chunk in many}
        assert len(spread(CHUNKS, 1000, seed=1)) == len(CHUNKS)

    def test_one_id_counts_once(self) -> None:
        """The first of the same."""
        first, other = Chunk(id="x", text="one", document="a"), Chunk(id="y", text="two", document="a")
        again = first.model_copy(update={"document": "b"})
        assert unique_chunks([first, other, again]) == [first, other]

    def test_files_that_number_each_for_itself(self) -> None:
        """An id that stands for several texts gets the document's name before it, and none of them is lost."""
        given = [("a", "0", "one"), ("b", "0", "two"), ("b", "0", "three"), ("b", "1", "four")]
        found = unique_chunks(Chunk(document=name, id=number, text=text) for name, number, text in given)

        assert [(chunk.id, chunk.text) for chunk in found] == [
            ("a:0", "one"),
            ("b:0", "two"),
            ("b:0-2", "three"),
            ("1", "four"),
        ]


STORES = """
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore

FERRY = "The ferry to Quern takes 18 minutes."
documents = [Document(id="d1", page_content=FERRY, metadata={"source": "ferry.md"})]
langchain = InMemoryVectorStore(DeterministicFakeEmbedding(size=4))
langchain.add_documents(documents)
node = TextNode(id_="d1", text=FERRY, metadata={"file_name": "ferry.md"})
docstore = SimpleDocumentStore()
docstore.add_documents([node])


class Index:
    docstore = docstore


class Chroma:
    def get(self):
        return {"ids": ["d1"], "documents": [FERRY], "metadatas": [{"source": "ferry.md"}]}


class Faiss:
    class docstore:
        _dict = {"d1": Document(FERRY, metadata={"source": "ferry.md"})}


class VectorStore:
    stores_text = True

    def get_nodes(self):
        return [node]


index = Index()
chroma = Chroma()
faiss = Faiss()
vectors = VectorStore()
nodes = [NodeWithScore(node=node, score=0.5)]
rows = [{"id": "d1", "text": FERRY, "metadata": {"document": "ferry.md"}}]


def make():
    return documents


def broken():
    raise RuntimeError("no disk")


class Closed(VectorStore):
    def get_nodes(self):
        raise ConnectionError("the store is closed")


closed = Closed()
empty = []
partly = ["", FERRY, "  "]
number = 7
function = max
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("stores")
    (folder / "stores_of_tests.py").write_text(STORES)
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(folder)
    yield "stores_of_tests"
    patch.undo()


class TestStores:
    @pytest.mark.parametrize(
        "name",
        ["langchain", "faiss", "documents", "docstore", "vectors", "index", "chroma", "nodes", "rows", "make"],
    )
    def test_chunks_keep_id_and_source(self, stores: str, name: str) -> None:
        """Of the real stores and documents of both frameworks, and of what comes near."""
        [chunk] = chunks_of_store(f"{stores}:{name}")

        assert chunk == Chunk(id="d1", text="The ferry to Quern takes 18 minutes.", document="ferry.md")

    def test_what_has_no_text_is_no_chunk(self, stores: str) -> None:
        """No question could be asked about it."""
        assert [chunk.text for chunk in chunks_of_store(f"{stores}:partly")] == ["The ferry to Quern takes 18 minutes."]

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("empty", "has no chunks with a text"),
            ("number", "is an int, whose chunks cannot be listed: name a list of documents"),
            ("function", "is a builtin_function_or_method, whose chunks cannot be listed"),
            ("closed", "the chunks of Closed cannot be listed: ConnectionError: the store is closed"),
            ("broken", r"broken\(\) failed: RuntimeError: no disk"),
            ("nods", r"there is no 'nods'. Did you mean 'nodes'\?"),
        ],
    )
    def test_what_is_none_is_said(self, stores: str, name: str, message: str) -> None:
        """With what would be one."""
        with pytest.raises(ConfigurationError, match=message):
            chunks_of_store(f"{stores}:{name}")
