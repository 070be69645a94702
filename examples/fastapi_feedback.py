"""A chat with thumbs: what people say of an answer becomes an annotation of its trace.

pip install fastapi uvicorn
python examples/fastapi_feedback.py             # asks itself one question, says thumbs down, and stops
uvicorn examples.fastapi_feedback:app           # then open http://localhost:8000

With OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:6006 the traces go to a Phoenix, and so do the thumbs.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import HTMLResponse
from langchain_core.documents import Document
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnablePassthrough
from pydantic import BaseModel

import rageval_hooks

PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Handbook</title>
<body style="font: 16px sans-serif; max-width: 40em; margin: 2em auto">
<form id="ask"><input id="question" size="40" placeholder="Your question" required> <button>Ask</button></form>
<div id="answers"></div>
<script>
const post = (path, body) =>
  fetch(path, {method: "POST", headers: {"content-type": "application/json"}, body: JSON.stringify(body)});
document.getElementById("ask").onsubmit = async event => {
  event.preventDefault();
  const answer = await (await post("/ask", {question: document.getElementById("question").value})).json();
  const block = document.createElement("p");
  block.textContent = answer.text + " ";
  for (const [label, good] of [["👍", true], ["👎", false]]) {
    const button = document.createElement("button");
    button.textContent = label;
    button.ariaLabel = good ? "good answer" : "bad answer";
    button.onclick = async () => {
      const comment = good ? null : prompt("What is wrong?");
      await post("/feedback", {trace_id: answer.trace_id, good, comment});
      block.append(" Thank you.");
    };
    block.append(button);
  }
  document.getElementById("answers").prepend(block);
};
</script></body></html>"""


class Handbook(BaseRetriever):
    """Your retriever."""

    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(id="pier", page_content="The new pier was opened in September 2019 and is 96 metres long.")]


prompt = ChatPromptTemplate.from_template("Answer from these passages.\n{context}\n\nQuestion: {question}")
model = FakeListChatModel(responses=["The pier was opened in September 2018."])  # your model; this one is wrong
chain = {"context": Handbook(), "question": RunnablePassthrough()} | prompt | model | StrOutputParser()

handle = rageval_hooks.instrument(models="lexical")  # leave the models out for the real ones


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    """Deliver what is pending at the end: uvicorn ends by a signal, without Python's exit handlers."""
    yield
    await asyncio.to_thread(handle.shutdown)


app = FastAPI(lifespan=lifespan)


class Question(BaseModel):
    """What the page sends when somebody asks."""

    question: str


class Thumb(BaseModel):
    """What the page sends when somebody clicks a thumb."""

    trace_id: str
    good: bool
    comment: str | None = None


@app.get("/", response_class=HTMLResponse)
async def page() -> str:
    """The chat."""
    return PAGE


@app.post("/ask")
async def ask(question: Question) -> dict[str, str]:
    """Answer, and say which trace the answer is in."""
    async with rageval_hooks.start_turn(question.question) as turn:
        text = await chain.ainvoke(question.question)
        turn.respond(text)
    return {"text": text, "trace_id": turn.trace_id}


@app.post("/feedback")
async def feedback(thumb: Thumb) -> dict[str, bool]:
    """Hand the thumb over. It returns at once; the annotation is sent in the background."""
    return {"taken": handle.feedback(thumb.trace_id, thumb.good, comment=thumb.comment, annotator="a user's id")}


async def ask_itself() -> str:
    """One question and one thumb through the app, without a server."""
    import httpx

    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://handbook") as client:
        answer = (await client.post("/ask", json={"question": "When was the pier opened?"})).json()
        thumb = {"trace_id": answer["trace_id"], "good": False, "comment": "It was 2019."}
        await client.post("/feedback", json=thumb)
    return answer["text"]


if __name__ == "__main__":
    print(asyncio.run(ask_itself()))
