"""The Python code of the README and of the documentation pages compiles, and what can run here runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import Runnable, RunnableLambda, RunnablePassthrough
from pytest_examples import CodeExample, find_examples

import rageval_hooks

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", *(str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("docs/**/*.md")))]


def blocks_of(page: str) -> list[CodeExample]:
    """Return the Python blocks of a page, in their order."""
    return list(find_examples(ROOT / page))


def a_chain() -> Runnable[str, str]:
    """Build the chain that the pages call `chain`."""
    passages = [Document(page_content="The new pier was opened in September 2019.")]
    prompt = ChatPromptTemplate.from_template("{context}\n\n{question}")
    model = FakeListChatModel(responses=["The pier was opened in September 2018."])
    retriever = RunnableLambda(lambda _: passages, name="retriever")
    return {"context": retriever, "question": RunnablePassthrough()} | prompt | model | StrOutputParser()


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Run the code in an empty folder, with an API key that no server accepts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")


@pytest.mark.parametrize("page", PAGES)
def test_the_code_of_a_page_works(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page run one after the other, as a reader would type them.

    A block with the setting `test="skip"` needs a model or a server: it is only compiled.
    """
    handles: list[Any] = []
    original = rageval_hooks.instrument

    def remembering(*args: Any, **kwargs: Any) -> Any:
        handles.append(original(*args, **kwargs))
        return handles[-1]

    monkeypatch.setattr(rageval_hooks, "instrument", remembering)
    names = {"__name__": "documentation", "chain": a_chain(), "question": "When was the pier opened?"}
    try:
        for block in blocks_of(page):
            # Blank lines in front: a traceback then shows the line of the page.
            code = compile("\n" * block.start_line + block.source, page, "exec")
            if block.prefix_settings().get("test") != "skip":
                exec(code, names)
    finally:
        for handle in handles:
            handle.shutdown(5)


def test_blocks_are_found() -> None:
    """The test above would pass on pages without blocks."""
    assert sum(len(blocks_of(page)) for page in PAGES) > 10
