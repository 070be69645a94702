"""A FastAPI app that streams its answers, with the scores of each in one log line.

pip install fastapi uvicorn
python examples/fastapi_streaming.py            # asks itself one question and stops
uvicorn examples.fastapi_streaming:app          # then: curl -N "localhost:8000/ask?question=When?"
"""

import asyncio
import logging

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough

import rageval_hooks

logger = logging.getLogger("handbook")


class Handbook(BaseRetriever):
    """Your retriever."""

    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(id="pier", page_content="The new pier was opened in September 2019 and is 96 metres long.")]


prompt = ChatPromptTemplate.from_template("Answer from these passages.\n{context}\n\nQuestion: {question}")
model = FakeListChatModel(responses=["The pier was opened in September 2019."])  # your model
chain = {"context": Handbook(), "question": RunnablePassthrough()} | prompt | model | StrOutputParser()


def log_scores(evaluation: rageval_hooks.Evaluation) -> None:
    """Called when the stream has ended, off the event loop."""
    scores = ", ".join(f"{score.name} {score.value:.2f}" for score in evaluation.turn_scores())
    logger.info("%s: %s", evaluation.turn.query, scores)


rageval_hooks.instrument(
    models="lexical",  # leave it out for the real models
    metrics=["groundedness", "unsupported_facts", "latency"],
    exporters=["console"],
    on_evaluation=log_scores,
)
app = FastAPI()


@app.get("/ask")
async def ask(question: str) -> StreamingResponse:
    """Stream the answer; if the client goes away, the turn ends as cancelled."""
    return StreamingResponse(chain.astream(question), media_type="text/plain")


async def ask_itself() -> str:
    """One request through the app, without a server."""
    import httpx

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://handbook") as client:
        return (await client.get("/ask", params={"question": "When was the pier opened?"})).text


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    print(asyncio.run(ask_itself()))
