"""An application without a framework. Runs without a key: python examples/plain_python.py"""

import re

import rageval_hooks

HANDBOOK = {
    "pier": "The new pier was opened in September 2019 and is 96 metres long.",
    "ferry": "The ferry to Quern takes 18 minutes and leaves every half hour.",
}


def search(question):
    """Your search: a database, a search engine, an HTTP service."""
    words = set(re.findall(r"\w+", question.lower()))
    found = [
        {"id": key, "text": text, "score": len(words & set(re.findall(r"\w+", text.lower()))) / len(words)}
        for key, text in HANDBOOK.items()
    ]
    return sorted(found, key=lambda passage: passage["score"], reverse=True)


def generate(prompt):
    """Your model, called with any client. This one gets the year wrong."""
    return prompt.splitlines()[0].replace("2019", "2018")


def answer(question):
    with rageval_hooks.start_turn(question, session_id="s-17") as turn:
        passages = search(question)
        turn.add_passages(passages)
        context = "\n".join(passage["text"] for passage in passages)
        reply = generate(f"{context}\n\nQuestion: {question}")
        turn.respond(reply)
    return reply


# models="lexical" needs no weights: leave it out for the real models.
rageval_hooks.instrument(models="lexical")

print(answer("When was the pier opened?"))
# Without a tracing backend the turn and its scores are printed. For spans:
#   pip install "rageval-hooks[otlp]"; export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318
