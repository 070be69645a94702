"""A LangChain app without a line for evaluations. They come from the command that starts it, and from variables:

export RAGEVAL_MODELS=lexical         # needs no weights: leave it out for the real models
rageval-hooks launch python examples/no_code.py
opentelemetry-instrument python examples/no_code.py       # pip install "rageval-hooks[distro]"
"""

from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough

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

if __name__ == "__main__":
    print(chain.invoke("When was the pier opened?"))
