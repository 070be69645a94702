"""The spaCy pipeline, through its real loading code, on a tiny one that knows a handful of sentences by heart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rageval_hooks.errors import ModelUnavailableError, OverBudgetError
from rageval_hooks.models import load_now
from rageval_hooks.models.nlp import Entity, Nlp, load_nlp
from rageval_hooks.settings import ModelSettings
from tests.lazily import LazyModule

spacy = LazyModule("spacy")


@pytest.fixture(scope="module")
def nlp(tiny_nlp: Path) -> Nlp:
    return load_nlp(ModelSettings(nlp=str(tiny_nlp)))


def without(folder: Path, *components: str) -> Nlp:
    pipeline = spacy.load(folder)
    for component in components:
        pipeline.remove_pipe(component)
    return Nlp(pipeline, "mine")


@pytest.mark.parametrize(
    ("text", "entities"),
    [
        ("Anna Berg designed the bridge.", [Entity("Anna Berg", "PERSON")]),
        ("Paris opened a museum in 2019.", [Entity("Paris", "GPE"), Entity("2019", "DATE")]),
        ("Who designed the new pier?", []),
        ("", []),
    ],
)
def test_entities_are_those_of_spacy(nlp: Nlp, tiny_nlp: Path, text: str, entities: list[Entity]) -> None:
    """Their texts and kinds, in order."""
    assert nlp.entities(text) == entities
    assert [(ent.text, ent.label_) for ent in spacy.load(tiny_nlp)(text).ents] == [(e.text, e.kind) for e in entities]


@pytest.mark.parametrize(
    ("query", "concepts"),
    [
        ("Who designed the new pier?", ["new pier", "designed"]),
        ("Explain the old tower .", ["old tower"]),
        ("Anna Berg designed the bridge.", ["Anna Berg", "bridge", "designed"]),
        ("Who painted the museum ? Who painted the museum ?", ["museum", "painted"]),
        ("", []),
    ],
)
def test_concepts_are_noun_chunks_and_verbs(nlp: Nlp, query: str, concepts: list[str]) -> None:
    """Without articles, question words, what only says how one asks ("explain"), and repetitions."""
    assert nlp.concepts(query) == concepts


def test_a_long_text_is_read_in_pieces(nlp: Nlp) -> None:
    """The entities of all pieces are found, and time is asked for before each of them."""
    sentence = "Paris opened a museum in 2019.\n"
    pauses: list[int] = []

    entities = nlp.entities(sentence * 2_000, lambda: pauses.append(1))

    assert len(pauses) == 4
    assert len(entities) == 4_000


@pytest.mark.parametrize("method", ["entities", "concepts"])
def test_what_pauses_stops_the_work(nlp: Nlp, method: str) -> None:
    """What the function raises comes out."""

    def pause() -> None:
        raise OverBudgetError

    with pytest.raises(OverBudgetError):
        getattr(nlp, method)("Anna Berg designed the bridge.", pause)


def test_a_very_long_word_is_read(nlp: Nlp) -> None:
    """Two pieces without a space to cut at."""
    assert isinstance(nlp.entities("x" * 30_000), list)


def test_the_vocabulary_does_not_grow(tiny_nlp: Path) -> None:
    """New words of every text would fill the memory of a process that runs for months."""
    pipeline = spacy.load(tiny_nlp)
    nlp = Nlp(pipeline, "mine")
    nlp.entities("Anna Berg designed the bridge.")
    before = len(pipeline.vocab.strings)

    for number in range(50):
        nlp.entities(f"Xq{number}zz designed the wq{number}yy.")
        nlp.concepts(f"Who designed the kq{number}yy?")

    assert len(pipeline.vocab.strings) == before


@pytest.mark.parametrize(
    ("component", "method", "reason"),
    [
        ("ner", "entities", "mine has no entity recogniser (ner)"),
        ("parser", "concepts", "mine has no parser, which noun chunks need"),
        ("tagger", "concepts", "mine has no tagger, which verbs need"),
    ],
)
def test_a_pipeline_that_lacks_a_component(tiny_nlp: Path, component: str, method: str, reason: str) -> None:
    """What needs it cannot be had, and the reason names it; the rest works."""
    nlp = without(tiny_nlp, component)
    other = {"entities": "concepts", "concepts": "entities"}[method]

    with pytest.raises(ModelUnavailableError) as raised:
        getattr(nlp, method)("Anna Berg designed the bridge.")
    assert raised.value.reason == reason
    assert "Anna Berg" in str(getattr(nlp, other)("Anna Berg designed the bridge."))


def test_a_language_without_noun_chunks(tiny_nlp: Path) -> None:
    """spaCy has rules for some languages only; the reason says so."""
    pipeline = spacy.blank("xx")
    source = spacy.load(tiny_nlp)
    for component in ("tagger", "parser"):
        pipeline.add_pipe(component, source=source)

    with pytest.raises(ModelUnavailableError, match="spaCy has no rules for its language"):
        Nlp(pipeline, "mine").concepts("Anna")


def test_a_path_in_the_home_folder(tiny_nlp: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``~`` is understood."""
    shutil.copytree(tiny_nlp, tmp_path / "pipeline")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))

    nlp = load_nlp(ModelSettings(nlp="~/pipeline"))

    assert nlp.entities("Anna Berg designed the bridge.") == [Entity("Anna Berg", "PERSON")]


def test_a_pipeline_that_is_not_installed() -> None:
    """The reason says how to get it; nothing is downloaded."""
    with pytest.raises(ModelUnavailableError, match="python -m spacy download en_core_web_none, or set models="):
        load_now("nlp", ModelSettings(nlp="en_core_web_none"))


def test_a_folder_that_is_no_pipeline(tmp_path: Path) -> None:
    """The reason names it."""
    with pytest.raises(ModelUnavailableError, match=f"{tmp_path} cannot be loaded"):
        load_now("nlp", ModelSettings(nlp=str(tmp_path)))


def test_a_broken_pipeline(tiny_nlp: Path, tmp_path: Path) -> None:
    """A file that is cut off is a reason, not an exception of spaCy's."""
    folder = shutil.copytree(tiny_nlp, tmp_path / "broken")
    (folder / "ner" / "model").write_bytes(b"\x00")

    with pytest.raises(ModelUnavailableError, match="broken cannot be loaded"):
        load_now("nlp", ModelSettings(nlp=str(folder)))
