"""What goes wrong between a judge and its server, and what a caller sees of it."""

from __future__ import annotations

import gzip
import logging
from pathlib import Path
from typing import Any

import pytest
from openai import DefaultAsyncHttpxClient

from rageval_hooks.errors import (
    JudgeAnswerError,
    JudgeError,
    JudgeRateLimitedError,
    JudgeRefusedError,
    JudgeRejectedError,
    JudgeTooLargeError,
    JudgeTruncatedError,
    JudgeUnavailableError,
)
from rageval_hooks.judges.failures import StatusError, classify_failure
from tests.judges.helpers import GOOD, StillClock, ask, failure, judge_of
from tests.judges.server import (
    MODEL,
    AnyReply,
    JudgeServer,
    answer,
    cut_off,
    endless,
    error,
    hang_up,
    raw,
    silent,
    with_nonce,
)

PAGE = raw("<html><body>It works!</body></html>", headers={"Content-Type": "text/html"})


@pytest.mark.parametrize(
    ("reply", "kind", "message", "requests"),
    [
        (answer(None, refusal="I will not."), JudgeRefusedError, "refused to answer", 1),
        (answer("", finish_reason="content_filter"), JudgeRefusedError, "content_filter", 1),
        (error(400, "rejected by our safety system", code="content_policy_violation"), JudgeRefusedError, "filter", 1),
        (answer('{"grade":', finish_reason="length"), JudgeTruncatedError, "cut off at the token limit", 1),
        (error(401, "Incorrect API key"), JudgeRejectedError, "HTTP 401: the API key was not accepted", 1),
        (error(403, "no access"), JudgeRejectedError, "HTTP 403: access was denied: no access", 1),
        (error(404, "model not found"), JudgeRejectedError, r"no such model or URL at http://127.0.0.1:\d+/v1", 1),
        (error(400, "messages must alternate"), JudgeRejectedError, "HTTP 400: .*: messages must alternate", 1),
        (error(400, "too long", code="context_length_exceeded"), JudgeTooLargeError, "question is too large", 1),
        (raw("", status=413), JudgeTooLargeError, "HTTP 413", 1),
        (error(429, "slow down"), JudgeRateLimitedError, "HTTP 429: too many requests: slow down", 4),
        (error(429, "no credit", code="insufficient_quota"), JudgeRateLimitedError, "quota is used up", 1),
        (error(500, "oops"), JudgeUnavailableError, "HTTP 500: the server failed: oops", 4),
        (raw("<h1>Bad Gateway</h1>", status=502), JudgeUnavailableError, "HTTP 502", 4),
        (error(501, "not here"), JudgeUnavailableError, "HTTP 501", 1),
        (hang_up(), JudgeUnavailableError, "no connection to .*, or it broke", 4),
        (cut_off(answer(GOOD)), JudgeUnavailableError, "no connection to .*, or it broke", 4),
        (raw('{"choices": [{"mess'), JudgeAnswerError, "something that is not JSON", 4),
        (raw("null"), JudgeAnswerError, "something that is not JSON", 4),
        (raw('{"choices": []}'), JudgeAnswerError, "without choices", 4),
        (raw('{"choices": [7], "usage": "many"}'), JudgeAnswerError, "without choices", 4),
        (PAGE, JudgeRejectedError, "web page: check base_url", 1),
        (raw('{"error": {"code": 429, "message": "busy"}}'), JudgeRateLimitedError, "busy", 4),
        (raw('{"error": {"code": "x", "message": "busy"}}'), JudgeUnavailableError, "busy", 4),
        (answer("x" * 1_000_000), JudgeTooLargeError, "larger than 524288 bytes", 1),
        (endless(), JudgeTooLargeError, "larger than 524288 bytes", 1),
    ],
)
def test_each_failure_has_its_kind_and_reason(
    server: JudgeServer,
    clock: StillClock,
    caplog: pytest.LogCaptureFixture,
    reply: AnyReply,
    kind: type[JudgeError],
    message: str,
    requests: int,
) -> None:
    """A typed failure that says why; passing ones are tried four times in all; one clear line is logged and counted."""
    server.otherwise(reply)
    judge = judge_of(server, clock=clock)
    found = failure(judge, kind)
    import re

    assert re.search(message, found.message)
    assert len(found.message) < 500
    assert found.details["attempts"] == len(server.requests) == requests
    assert judge.stats()["failed"] == {kind.kind: 1}
    [record] = [record for record in caplog.records if record.name.startswith("rageval_hooks")]
    assert record.levelno == logging.WARNING
    assert (
        record.getMessage()
        == f"rageval-hooks: the judge openai:judge-model: {kind.kind}: {found.message} [RAGEVAL-301]"
    )


@pytest.mark.parametrize(
    "refusal",
    [
        error(400, "System role not supported"),
        error(
            400, "Unsupported value: 'messages[0].role' does not support 'system' with this model.", param="messages"
        ),
        error(400, "Conversation roles must alternate user/assistant/user/assistant/..."),
        error(422, "the system message is not supported by this chat template"),
    ],
)
def test_a_model_without_a_system_role_judges(server: JudgeServer, refusal: AnyReply) -> None:
    """The server is asked once with it. The instructions then are the beginning of the user's message."""
    server.then(refusal)
    server.otherwise(answer(GOOD))
    judge = judge_of(server, max_retries=0)
    assert [ask(judge).value.grade for _ in range(2)] == [3, 3]
    assert [[message["role"] for message in request.body["messages"]] for request in server.requests] == [
        ["system", "user", "user"],
        ["user"],
        ["user"],
    ]
    assert server.requests[1].body["messages"][0]["content"].startswith("You grade passages.\n\nThe passages: …")


def test_a_model_that_takes_no_message_at_all_is_rejected_with_its_reason(server: JudgeServer) -> None:
    """A second refusal of the roles is final."""
    server.otherwise(error(400, "System role not supported"))
    found = failure(judge_of(server, max_retries=0), JudgeRejectedError)
    assert "System role not supported" in found.message
    assert len(server.requests) == 2


def test_the_models_own_words_of_refusal_are_a_detail(server: JudgeServer) -> None:
    """They may quote the judged texts, so no message contains them."""
    server.then(answer(None, refusal="I will not grade Mr Smith."))
    found = failure(judge_of(server), JudgeRefusedError)
    assert found.details["refusal"] == "I will not grade Mr Smith."
    assert "Smith" not in str(found)


def test_a_prompt_that_is_too_large_is_not_sent(server: JudgeServer) -> None:
    """Of a metric of the user's own; those of the package cut their texts."""
    judge = judge_of(server, max_prompt_tokens=1000)
    found = failure(judge, JudgeTooLargeError, messages=[("user", "x" * 4100)])
    assert found.message == "the prompt has about 1,025 tokens, and max_prompt_tokens is 1,000"
    assert (server.requests, judge.stats()["failed"]) == ([], {"too_large": 1})


def test_nothing_is_read_beyond_the_limit(server: JudgeServer) -> None:
    """Reading stops at the limit, also for an endless answer."""
    server.otherwise(endless(b"x" * 1000))
    failure(judge_of(server, max_answer_bytes=10_000), JudgeTooLargeError)
    assert server.bytes_sent < 8_000_000  # what loopback's buffers hold


def test_an_endless_error_is_an_error_with_a_beginning(server: JudgeServer, clock: StillClock) -> None:
    """The body of an error is read up to a separate limit: the status is what counts."""
    server.otherwise(endless(b"no way " * 1000, status=401))
    found = failure(judge_of(server, clock=clock), JudgeRejectedError)
    assert found.message.startswith("HTTP 401: the API key was not accepted: no way no way")


@pytest.mark.parametrize("reply", [silent(), endless(b" ", pause=0.01)], ids=["silent", "trickling"])
def test_a_server_that_never_ends_runs_into_the_timeout(
    server: JudgeServer, clock: StillClock, reply: AnyReply
) -> None:
    """Each request is ended after its time, and the question fails as unavailable."""
    server.otherwise(reply)
    found = failure(judge_of(server, clock=clock, timeout=1.0, max_retries=1), JudgeUnavailableError)
    assert "within 1 s" in found.message
    assert len(server.requests) == 2


def test_a_repeated_failure_is_logged_once(
    server: JudgeServer, clock: StillClock, caplog: pytest.LogCaptureFixture
) -> None:
    """A judge that is down does not flood the log; the counters have every failure."""
    server.otherwise(error(401))
    judge = judge_of(server, clock=clock, circuit_failures=100)
    for _ in range(20):
        failure(judge, JudgeRejectedError)
    assert judge.stats()["failed"] == {"rejected": 20}
    assert len([record for record in caplog.records if record.name.startswith("rageval_hooks")]) == 1


def test_nobody_listening_is_unavailable(clock: StillClock) -> None:
    """A server that is down, or a wrong port."""
    with JudgeServer() as gone:
        pass
    assert "no connection" in failure(judge_of(gone, clock=clock), JudgeUnavailableError).message


def test_a_failure_carries_no_chain(server: JudgeServer, clock: StillClock) -> None:
    """The client's exceptions hold the request with its headers: they end in the judge."""
    server.otherwise(error(500))
    found = failure(judge_of(server, clock=clock), JudgeUnavailableError)
    assert (found.__cause__, found.__context__) == (None, None)


def test_a_failure_after_an_answer_says_what_was_spent(server: JudgeServer, clock: StillClock) -> None:
    """Tokens of the wrong answer are in the details of the failure that followed."""
    server.then(answer("no JSON"), error(401))
    found = failure(judge_of(server, clock=clock), JudgeRejectedError)
    assert (found.details["attempts"], found.details["input_tokens"]) == (2, 100)


def test_an_answer_without_usage_has_none(server: JudgeServer) -> None:
    """What the provider does not report is not invented."""
    server.then(answer(GOOD, usage=None))
    judgement = ask(judge_of(server))
    assert (judgement.usage, judgement.cost) == (None, None)


@pytest.mark.parametrize(
    "usage", [{"prompt_tokens": -1, "completion_tokens": 1}, {"prompt_tokens": "1", "completion_tokens": 1}, {}]
)
def test_an_impossible_usage_is_no_usage(server: JudgeServer, usage: dict[str, Any]) -> None:
    """A server's odd counts never spoil its answer."""
    server.then(answer(GOOD, usage=usage))
    assert ask(judge_of(server)).usage is None


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_redirects_are_not_followed(server: JudgeServer, clock: StillClock, status: int) -> None:
    """The other host would receive the key, and with 307 and 308 the prompt."""
    with JudgeServer() as other:
        other.otherwise(answer(GOOD))
        server.otherwise(raw("", status=status, headers={"Location": f"{other.url}/chat/completions"}))

        found = failure(judge_of(server, clock=clock), JudgeRejectedError)

        assert "redirects elsewhere: set base_url to the final URL" in found.message
        assert len(server.requests) == 1
        assert other.requests == []


def test_redirects_are_not_followed_by_a_client_that_follows_them(server: JudgeServer, clock: StillClock) -> None:
    """The HTTP client is the user's, and openai's own follows redirects by default."""
    with JudgeServer() as other:
        other.otherwise(answer(GOOD))
        server.otherwise(raw("", status=308, headers={"Location": f"{other.url}/chat/completions"}))
        judge = judge_of(server, clock=clock, http_client=DefaultAsyncHttpxClient)
        failure(judge, JudgeRejectedError)
        assert (len(server.requests), other.requests) == (1, [])


def test_a_status_that_the_client_wraps_is_still_seen() -> None:
    """openai 2 raises a connection error from what a hook of its HTTP client raises."""
    error = ConnectionError("Connection error.")
    error.__cause__ = StatusError(401, "no such key")

    found = classify_failure(error, where="the server", timeout=1, secrets=(), prompt="")

    assert found.error.message == "HTTP 401: the API key was not accepted: no such key"


GZIP = {"Content-Encoding": "gzip"}


def test_a_compressed_answer_is_read_within_its_limit(server: JudgeServer) -> None:
    """The limit counts what it is unpacked to. So does that of an error."""
    server.then(lambda request: raw(gzip.compress(with_nonce(answer(GOOD), request).content), headers=GZIP))
    judge = judge_of(server, max_answer_bytes=100_000)
    assert ask(judge).value.grade == 3
    server.then(raw(gzip.compress(bytes(1 << 20)), headers=GZIP))
    failure(judge, JudgeTooLargeError)
    body = gzip.compress(b'{"error": {"message": "no way ' + bytes(1 << 20) + b'"}}')
    server.then(raw(body, status=401, headers=GZIP))
    assert "HTTP 401: the API key was not accepted" in failure(judge, JudgeRejectedError).message


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


@pytest.mark.parametrize("depth", [900, 940, 100_000])
@pytest.mark.parametrize(
    ("status", "body"), [(400, '{"error": {"message": %s}}'), (500, "%s"), (200, "%s"), (200, '{"choices": %s}')]
)
def test_a_deeply_nested_body_is_a_typed_failure(
    server: JudgeServer, clock: StillClock, depth: int, status: int, body: str
) -> None:
    """Not a RecursionError."""
    server.otherwise(raw(body % nested(depth), status=status))
    with pytest.raises(JudgeError) as caught:
        ask(judge_of(server, clock=clock, max_retries=0))
    assert caught.value.kind in ("rejected", "unavailable", "invalid_answer")


@pytest.mark.parametrize("content", [nested(900), '{"grade": 1, "why": %s}' % nested(900)])  # noqa: UP031 - braces
def test_a_deeply_nested_answer_is_a_typed_failure(server: JudgeServer, content: str) -> None:
    """Not a RecursionError."""
    server.otherwise(answer(content))
    failure(judge_of(server), JudgeAnswerError)


def test_a_lone_surrogate_in_the_name_of_a_model_is_replaced(server: JudgeServer) -> None:
    """The name is an attribute of spans, which must be encoded."""
    server.then(lambda request: raw(with_nonce(answer(GOOD), request).content.replace(MODEL.encode(), b"m \\ud83d")))
    assert ask(judge_of(server)).model == "m \ufffd"


@pytest.mark.parametrize("cached", [True, False])
def test_lone_surrogates_are_replaced(server: JudgeServer, tmp_path: Path, cached: bool) -> None:
    """In the prompt, in the answer, in its reason and in a message of the server; none of them can be encoded."""
    server.then(answer({**GOOD, "why": "\ud83d half"}))
    judge = judge_of(server, cache=tmp_path / "cache.sqlite" if cached else None, max_retries=0)
    assert ask(judge, [("user", "Which grade has \ude00?")]).value.why == "\ufffd half"
    server.otherwise(error(400, "no \ud83d, \x1b[2J \u202e"))
    failure(judge, JudgeRejectedError).message.encode()
    assert failure(judge, JudgeRejectedError).message.isprintable()
