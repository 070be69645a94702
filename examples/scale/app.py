"""A web application whose answers are judged by Celery workers. The set-up is in compose.yaml and kubernetes.yaml.

uvicorn app:app                                   # then: curl "localhost:8000/ask?question=When?"
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough

import rageval_hooks


class Handbook(BaseRetriever):
    """Your retriever."""

    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(id="pier", page_content="The new pier was opened in September 2019 and is 96 metres long.")]


prompt = ChatPromptTemplate.from_template("Answer from these passages.\n{context}\n\nQuestion: {question}")
model = FakeListChatModel(responses=["The pier was opened in September 2019."])  # your model
chain = {"context": Handbook(), "question": RunnablePassthrough()} | prompt | model | StrOutputParser()


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Publish what waits before the process ends."""
    handle = rageval_hooks.instrument()  # the dispatcher, the broker and the judge are in the environment
    yield
    await asyncio.to_thread(handle.shutdown, 10)


app = FastAPI(lifespan=lifespan)


@app.get("/ask")
async def ask(question: str) -> str:
    """Answer. The scores come from a worker."""
    return await chain.ainvoke(question)
