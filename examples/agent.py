"""A LangChain agent with a search tool: one turn per question. Runs without a key: python examples/agent.py"""

from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool

import rageval_hooks

DOCUMENTS = [Document(id="pier", page_content="The new pier was opened in September 2019 and is 96 metres long.")]


@tool(response_format="content_and_artifact")
def search(query: str):  # noqa: ARG001 - every question gets the whole handbook
    """Search the handbook."""
    return "\n".join(document.page_content for document in DOCUMENTS), DOCUMENTS


class ScriptedModel(GenericFakeChatModel):
    """A placeholder for your model: it searches once, then answers."""

    def bind_tools(self, tools, **kwargs):
        return self


model = ScriptedModel(
    messages=iter(
        [
            AIMessage("", tool_calls=[{"name": "search", "args": {"query": "length of the pier"}, "id": "1"}]),
            AIMessage("The pier is 96 metres long."),
        ]
    )
)
agent = create_agent(model, [search])

with rageval_hooks.instrument(models="lexical", spans="all") as handle:
    state = agent.invoke(
        {"messages": [("human", "How long is the pier?")]}, {"metadata": {"session_id": "s-1", "user_id": "marta"}}
    )
    print(state["messages"][-1].content)
    handle.flush()
    print({name: handle.stats()[name] for name in ("turns", "evaluated", "scored", "skipped", "failed")})
