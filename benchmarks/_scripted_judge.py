"""A judge on loopback that speaks the OpenAI chat API with a fixed latency, and knows the right answers to its rows.

It serves the questions of rageval-hooks, Ragas and DeepEval alike: it finds the form of the answer in the request and
the texts in the prompt, and applies the same three rules for all of them. A statement is supported if a passage has
it word for word, it is relevant if it names the bridge of the question, and each sentence is one statement.
"""

from __future__ import annotations

import ast
import itertools
import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Counts", "ScriptedJudge", "rows"]

PASSAGES = 5
RELEVANT = (0, 2)
"""Positions of the passages that are about the bridge of the question."""

SENTENCES_PER_PASSAGE = 8
REASON = "The passages decide this."

FACTS = (
    "The {} bridge was opened to traffic in {} after four years of work on its piers and approaches.",
    "Engineers measured the {} bridge again in {} and found that the deck had settled by a few centimetres.",
    "The council paid {1} thousand euros for the last repair of the {0} bridge and of the road that leads to it.",
    "The main span of the {} bridge is {} metres long and rests on two piers of concrete in the river.",
    "About {1} vehicles cross the {0} bridge on a working day, most of them before nine in the morning.",
    "The {} bridge carries a water pipe that was laid in {} and serves the villages on the north shore.",
    "A lighthouse stood next to the {} bridge until {}, when the harbour master had it taken down.",
    "The steel of the {} bridge was painted {} times since it was built, always in the same dark green.",
    "During the storm of {1} the {0} bridge was closed for nine days because the water reached its deck.",
    "The {} bridge has a footpath on both sides, and {} lamps light it from dusk until midnight.",
)


def rows(count: int) -> list[dict[str, Any]]:
    """Return rows with a question, an answer of three sentences, five passages and a reference.

    Two sentences of the answer are in the passages; the third has a wrong number. Two passages are about the bridge of
    the question, the first and the third.
    """
    generator = random.Random(22)
    syllables = [first + vowel + last for first in "bdfgklmnrst" for vowel in "aeiou" for last in "lnrs"]
    pairs = list(itertools.permutations(syllables, 2))
    # A name per passage, so that no passage of one row is about the bridge of another.
    names = iter([(first + second).capitalize() for first, second in generator.sample(pairs, count * PASSAGES)])
    return [_row(generator, next(names), names) for _ in range(count)]


def _row(generator: random.Random, bridge: str, others: Iterator[str]) -> dict[str, Any]:
    passages = []
    facts = _facts(generator, bridge)
    for position in range(PASSAGES):
        known = facts if position in RELEVANT else _facts(generator, next(others))
        passages.append(generator.sample(known, SENTENCES_PER_PASSAGE))
    # A wrong number contradicts the passages. DeepEval counts a claim as faithful that they merely do not mention.
    first, second, third = generator.sample([fact for fact in passages[0] if fact in passages[2]], 3)
    wrong = re.sub(r"\d+", str(generator.randint(10_000, 99_999)), third)
    return {
        "question": f"What should a visitor know about the {bridge} bridge?",
        "answer": f"{first} {second} {wrong}",
        "passages": [" ".join(sentences) for sentences in passages],
        "reference": f"{first} {second} {third}",
    }


def _facts(generator: random.Random, bridge: str) -> list[str]:
    return [fact.format(bridge, generator.randint(100, 9999)) for fact in FACTS]


@dataclass
class Counts:
    """What a client asked for.

    Attributes:
        calls: requests.
        prompt: characters of all messages and of the answers' schemas, which providers put into the prompt.
        answer: characters of all answers.
        unknown: requests that the script has no answer for.
    """

    calls: int = 0
    prompt: int = 0
    answer: int = 0
    unknown: int = 0


class ScriptedJudge:
    """The server: a context manager.

    Args:
        rows: what will be judged.
        latency: seconds from the start of a request's turn to its answer.
        at_once: requests that are answered at the same time; others wait for their turn.
    """

    def __init__(self, rows: Sequence[dict[str, Any]], latency: float, at_once: int) -> None:
        self._script = _Script(rows)
        self._latency = latency
        self._turns = threading.Semaphore(at_once)
        self._lock = threading.Lock()
        self.counts = Counts()
        judge = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # One packet per response: the client would delay the acknowledgement of the first of two.
            wbufsize = -1
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status, answer = judge._answer(body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

        self._server = Server(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> ScriptedJudge:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._turns:
            began = time.monotonic()
            prompt = "\n".join(_text(message["content"]) for message in body["messages"])
            found = self._script.answer(prompt, body.get("response_format", {}))
            text = json.dumps(found)
            schema = body.get("response_format", {}).get("json_schema", {})
            with self._lock:
                self.counts.calls += 1
                self.counts.prompt += len(prompt) + (len(json.dumps(schema)) if schema else 0)
                self.counts.answer += len(text)
                self.counts.unknown += found is None
            time.sleep(max(0.0, self._latency - (time.monotonic() - began)))
        if found is None:
            return 400, {"error": {"message": "the script has no answer for this", "type": "invalid_request_error"}}
        return 200, _completion(body["model"], text, len(prompt))


def _text(content: Any) -> str:
    """Return a message's text, which may come in parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _completion(model: str, text: str, prompt: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    # About four characters per token.
    read, written = prompt // 4, len(text) // 4
    return {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written},
    }


class _Script:
    """Answers prompts about rows.

    The names in the tables below are those of the answers' models in each library.
    """

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self._known = {sentence for row in rows for passage in row["passages"] for sentence in _sentences(passage)}
        self._questions = {row["answer"]: row["question"] for row in rows}
        # Found by the name of the schema.
        self._named: dict[str, Callable[[str], dict[str, Any]]] = {
            "TraceLabels": self._trace,
            "PassageGrades": self._grades,
            "AnswerAttempt": lambda _: {"explanation": REASON, "attempted": True},
            "Truths": lambda prompt: {"truths": _sentences(_last(prompt, "Text"))},
            "Claims": lambda prompt: {"claims": _sentences(_last(prompt, "AI Output"))},
            "Statements": lambda prompt: {"statements": _sentences(_last(prompt, "Text"))},
            "Verdicts": self._verdicts,
            "ContextualRelevancyVerdicts": self._contextual,
            "FaithfulnessScoreReason": lambda _: {"reason": REASON},
            "AnswerRelevancyScoreReason": lambda _: {"reason": REASON},
            "ContextualRelevancyScoreReason": lambda _: {"reason": REASON},
        }
        # Ragas sends no named schema: its prompt has the schema, with the model's name as the title.
        self._titled: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "StatementGeneratorOutput": lambda given: {"statements": _sentences(given["answer"])},
            "NLIStatementOutput": self._entailed,
            "ResponseRelevanceOutput": self._generated_question,
            "Verification": lambda given: _verification(_relevant(given["context"], given["question"])),
        }

    def answer(self, prompt: str, response_format: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a prompt; None if it is not one of those that are known."""
        name = response_format.get("json_schema", {}).get("name")
        if name in self._named:
            return {**self._named[name](prompt), **_nonce(prompt)}
        for title, respond in self._titled.items():
            if f'"title": "{title}"' in prompt:
                return respond(_ragas_input(prompt))
        return None

    # rageval-hooks

    def _trace(self, prompt: str) -> dict[str, Any]:
        context = dict(_keyed(prompt, r"\d+[a-z]+"))
        response = dict(_keyed(prompt, r"[a-z]+"))
        said = set(response.values())
        question = _question(prompt)
        support = [
            {
                "response_sentence_key": key,
                "explanation": REASON,
                "supporting_sentence_keys": [of for of, sentence in context.items() if sentence == text],
                "fully_supported": text in self._known,
            }
            for key, text in response.items()
        ]
        return {
            "relevance_explanation": REASON,
            "all_relevant_sentence_keys": [key for key, text in context.items() if _relevant(text, question)],
            "sentence_support_information": support,
            "all_utilized_sentence_keys": [key for key, text in context.items() if text in said],
            "overall_supported": said <= self._known,
        }

    def _grades(self, prompt: str) -> dict[str, Any]:
        question = _question(prompt)
        # 0a: The first sentence of the first passage tells what it is about.
        first = _keyed(prompt, r"\d+a")
        grades = [(int(key[:-1]), 3 if _relevant(text, question) else 0) for key, text in first]
        fields = ("match", "trustworthiness", "grade")
        return {
            "intent": REASON,
            "grades": [{"passage": passage, **dict.fromkeys(fields, grade)} for passage, grade in grades],
        }

    # DeepEval

    def _verdicts(self, prompt: str) -> dict[str, Any]:
        """Answer for faithfulness, which lists claims, and for answer relevancy, which lists statements."""
        if "\nClaims:\n" in prompt:
            good = [claim in self._known for claim in ast.literal_eval(_last(prompt, "Claims"))]
        else:
            question = _last(prompt, "Input")
            good = [_relevant(statement, question) for statement in ast.literal_eval(_last(prompt, "Statements"))]
        return {"verdicts": [_verdict(one) for one in good]}

    def _contextual(self, prompt: str) -> dict[str, Any]:
        question = _last(prompt, "Input")
        statements = _sentences(_last(prompt, "Context"))
        return {"verdicts": [{"statement": text, **_verdict(_relevant(text, question))} for text in statements]}

    # Ragas

    def _entailed(self, given: dict[str, Any]) -> dict[str, Any]:
        statements = given["statements"]
        return {"statements": [{"statement": text, **_verification(text in self._known)} for text in statements]}

    def _generated_question(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"question": self._questions[given["response"]], "noncommittal": 0}


def _sentences(text: str) -> list[str]:
    return [line for line in text.replace(". ", ".\n").splitlines() if line.strip()]


def _relevant(text: str, question: str) -> bool:
    # the Baldon bridge
    named = re.search(r"the ([A-Z]\w+ bridge)", question)
    return named is not None and named[1] in text


def _verdict(good: bool) -> dict[str, Any]:
    return {"verdict": "yes", "reason": None} if good else {"verdict": "no", "reason": REASON}


def _verification(good: bool) -> dict[str, Any]:
    return {"reason": REASON, "verdict": int(good)}


def _last(prompt: str, heading: str) -> str:
    """Return the text below the last heading of this name in a prompt of DeepEval, up to the next heading."""
    text = prompt.rpartition(f"\n{heading}:\n")[2]
    # "…\n\nClaims:" and "…\n\nJSON:"
    return re.split(r"\n\n\w+:\n", f"{text}\n", maxsplit=1)[0].strip()


def _ragas_input(prompt: str) -> dict[str, Any]:
    """Return the input, which comes after the examples as a JSON object."""
    found: dict[str, Any] = json.JSONDecoder().raw_decode(prompt.rpartition("\ninput: ")[2])[0]
    return found


def _question(prompt: str) -> str:
    """Return the quoted question of one of our prompts."""
    # > What should a visitor know about the Baldon bridge?
    return "\n".join(re.findall(r"^> (.+)$", prompt, re.MULTILINE))


def _keyed(prompt: str, keys: str) -> list[tuple[str, str]]:
    """Return the sentences with keys in one of our prompts."""
    # 0a: The Baldon bridge was opened to traffic in 1931.
    return re.findall(rf"^({keys}): (.+)$", prompt, re.MULTILINE)


def _nonce(prompt: str) -> dict[str, str]:
    # Set the field "nonce" of the object to "1a2b3c4d".
    found = re.findall(r'Set the field "(\w+)" of the object to "([0-9a-f]+)"', prompt)
    return dict(found[-1:])
