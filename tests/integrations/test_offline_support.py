"""Which objects the offline commands can ask."""

from __future__ import annotations

import pytest
from langchain_core.runnables import RunnableLambda
from llama_index.core.query_engine import CustomQueryEngine

from rageval_hooks.integrations.langchain.offline import support as langchain
from rageval_hooks.integrations.llama_index.offline import support as llama_index
from rageval_hooks.integrations.offline_support import OfflineSupport


@pytest.mark.parametrize("support", [langchain, llama_index])
@pytest.mark.parametrize("app", [CustomQueryEngine, len, "text", None])
def test_other_objects_are_no_applications(support: OfflineSupport, app: object) -> None:
    """The class of an engine is not an engine."""
    assert support.question_function(app, None) is None


def test_a_runnable_whose_input_has_no_schema_gets_the_question() -> None:
    """pydantic has no words for some types."""
    ask = langchain.question_function(RunnableLambda(lambda question: f"{question}!").with_types(input_type=type), None)

    assert ask is not None
    assert ask("When") == "When!"
