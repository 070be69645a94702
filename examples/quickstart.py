"""The one line in a LangChain app. Runs without a key: python examples/quickstart.py"""

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough

import rageval_hooks

DOCUMENTS = [
    Document(id="pier", page_content="The new pier was opened in September 2019 and is 96 metres long."),
    Document(id="ferry", page_content="The ferry to Quern takes 18 minutes and leaves every half hour."),
]


class Handbook(BaseRetriever):
    """Your retriever."""

    def _get_relevant_documents(self, query, *, run_manager):
        return DOCUMENTS


prompt = ChatPromptTemplate.from_template("Answer from these passages.\n{context}\n\nQuestion: {question}")
model = FakeListChatModel(responses=["The pier was opened in September 2018. It is 96 metres long."])  # your model
chain = {"context": Handbook(), "question": RunnablePassthrough()} | prompt | model | StrOutputParser()

# The one line. models="lexical" needs no weights: leave it out for the real models.
rageval_hooks.instrument(models="lexical")

print(chain.invoke("When was the pier opened?"))
# Without a tracing backend the turn and its scores are printed. For spans:
#   pip install "rageval-hooks[otlp]"; export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318
