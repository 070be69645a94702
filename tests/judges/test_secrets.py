"""The key is nowhere to be found."""

from __future__ import annotations

import io
import json
import logging
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.errors import ConfigurationError, JudgeError
from rageval_hooks.judges.failures import _message, clean_message
from rageval_hooks.judges.openai import OpenAIJudge
from rageval_hooks.runtime.urls import safe_url
from tests.judges.helpers import GOOD, KEY, StillClock, ask, judge_of
from tests.judges.server import JudgeServer, Received, answer, endless, error, hang_up, raw, silent

PASSWORD = "correct-horse-battery"
HEADER = "gateway-0123456789"
SECRETS = (KEY, PASSWORD, HEADER)


def echo(request: Received) -> Any:
    """Return all that the client sent, as an error message."""
    return error(401, f"Incorrect API key provided: {KEY}. {dict(request.headers)}", headers={"X-Key": KEY})


REPLIES: dict[str, Any] = {
    "answer": answer(GOOD),
    "echo": echo,
    "echo in a page": lambda request: raw(f"<p>{request.headers}</p>", status=500),
    "echo in JSON": lambda request: raw(json.dumps({"detail": dict(request.headers)}), status=422),
    "wrong answer": answer("no JSON"),
    "rate limit": error(429, f"key {KEY} is over its limit", headers={"Retry-After": "9999"}),
    "hang up": hang_up(),
    "endless": endless(),
    "silent": silent(),
}


def everything_in(error: BaseException) -> str:
    """Return all texts of an exception and of those behind it."""
    texts = []
    seen: set[int] = set()
    todo: list[BaseException | None] = [error]
    while todo:
        current = todo.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        todo += [current.__cause__, current.__context__]
        texts += [str(current), repr(current), repr(vars(current)), repr(current.args)]
        texts += traceback.format_exception(current)
    return "\n".join(texts)


@pytest.mark.parametrize("name", REPLIES)
def test_no_key_in_logs_reprs_exceptions_statistics_and_cache(
    name: str, server: JudgeServer, clock: StillClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With everything logged that the libraries can log, whatever the server does."""
    caplog.set_level(logging.DEBUG)
    for library in ("openai", "httpx", "httpx2", "httpcore", "httpcore2", "asyncio"):
        caplog.set_level(logging.DEBUG, library)
    server.otherwise(REPLIES[name])
    judge = judge_of(
        server,
        base_url=server.url.replace("://", f"://user:{PASSWORD}@"),
        headers={"X-Gateway": HEADER},
        clock=clock,
        timeout=0.3,
        max_retries=1,
        cache=tmp_path / "answers.sqlite",
    )
    seen = [repr(judge), str(judge), repr(judge.policy)]
    try:
        seen.append(repr(ask(judge)))
    except JudgeError as error:
        seen += [everything_in(error), repr(pickle.dumps(error))]
    seen += [repr(judge.stats()), repr(vars(judge))]
    seen += [record.getMessage() + str(record.exc_info) + repr(record.args) for record in caplog.records]
    seen += [path.read_bytes().decode("latin-1") for path in tmp_path.iterdir()]
    text = "\n".join(seen)
    assert server.requests[0].headers["x-gateway"] == HEADER
    for secret in SECRETS:
        assert secret not in text


def test_client_libraries_log_nothing_of_a_judges_calls(server: JudgeServer, caplog: pytest.LogCaptureFixture) -> None:
    """An application that logs at INFO does not get a line for each request of ours; its own stay."""
    caplog.set_level(logging.DEBUG)
    server.otherwise(answer(GOOD))
    ask(judge_of(server))
    assert [record.name for record in caplog.records if record.name.startswith(("openai", "http"))] == []
    logging.getLogger("httpx2").info("the application's own")
    assert "the application's own" in caplog.text


def test_the_prompt_and_the_answer_are_in_no_log(server: JudgeServer, caplog: pytest.LogCaptureFixture) -> None:
    """Also not when the answer cannot be used."""
    caplog.set_level(logging.DEBUG)
    server.otherwise(answer('{"grade": 9, "why": "Mr Smith said so"}'))
    with pytest.raises(JudgeError) as caught:
        ask(judge_of(server), [("user", "Mr Jones asks.")])
    text = caplog.text + str(caught.value) + repr(caught.value.details)
    assert "Smith" not in text
    assert "Jones" not in text


@pytest.mark.parametrize("status", [400, 413, 429, 500])
def test_a_server_that_quotes_the_prompt_is_not_quoted(
    server: JudgeServer, clock: StillClock, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    """Its message is shown without the judged texts, also where the cut would leave their beginning."""
    text = "the patient Mrs Ada Quill\nhas diabetes"
    padding = "This is refused. " * 15
    server.otherwise(
        error(status, f"{padding}invalid content: 'the patient Mrs Ada Quill has diabetes' is not allowed")
    )
    with pytest.raises(JudgeError) as caught:
        ask(judge_of(server, clock=clock), [("user", f"Grade this: {text}. Be strict.")])
    shown = caplog.text + str(caught.value) + repr(caught.value.details)
    assert "invalid content: '[…]' is not allowed" in shown
    assert "patient" not in shown


def test_a_wrong_url_is_not_repeated_in_the_message() -> None:
    """It may hold a password."""
    with pytest.raises(ConfigurationError) as caught:
        OpenAIJudge("m", base_url=f"htp://user:{PASSWORD}@host/v1")
    assert PASSWORD not in everything_in(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Incorrect API key provided: sk-abcdefgh12345678.", "Incorrect API key provided: ***."),
        ("Authorization: Bearer abc.def.ghi", "Authorization: Bearer ***"),
        ('{"api_key": "topsecret", "x": 1}', '{"api_key": "***", "x": 1}'),
        ("GET http://u:p@host/v1?api-key=topsecret&x=1", "GET http://***@host/v1?api-key=***&x=1"),
        ("key glpat-abcdefgh12345678 refused", "key *** refused"),
        ("AKIAABCDEFGHIJKLMNOP is not allowed", "*** is not allowed"),
        ("my own pass phrase", "my *** phrase"),
        ("my own passport", "my ***"),
        ("a\n b\t c", "a b c"),
        ("skeleton risk-assessment max_tokens: 5", "skeleton risk-assessment max_tokens: 5"),
    ],
)
def test_messages_of_servers_are_cleaned(text: str, shown: str) -> None:
    """Keys are masked wherever they look like one, and known secrets wherever they stand."""
    assert clean_message(text, ["own pass", "own passport"]) == shown


def test_long_messages_are_cut() -> None:
    """A page of HTML is no message."""
    assert len(clean_message("x " * 1_000_000)) == 300


def test_a_message_about_a_very_long_prompt_is_not_shown() -> None:
    """Looking for what it quotes of the prompt would take too long."""
    assert clean_message("HTTP 400: a word", prompt="word " * 100_001) == "(not shown: it may quote the prompt)"


def test_a_secret_is_masked_before_a_message_is_shortened() -> None:
    """No part of the secret stays at the end of the message."""
    assert "secret" not in clean_message("a" * 295 + "secret-value", ["secret-value"])


def test_urls_are_shown_without_what_is_nobodys_business() -> None:
    """User, password, query and fragment."""
    assert safe_url("https://u:p@host:8000/v1?key=k#f") == "https://host:8000/v1"


def test_the_log_of_an_uncaught_failure_is_clean(server: JudgeServer, clock: StillClock) -> None:
    """A traceback, as a logging handler prints it."""
    stream = io.StringIO()
    logger = logging.Logger("app")
    logger.addHandler(logging.StreamHandler(stream))
    server.otherwise(echo)
    try:
        ask(judge_of(server, clock=clock))
    except JudgeError:
        logger.exception("failed")
    assert "HTTP 401" in stream.getvalue()
    assert KEY not in stream.getvalue()


def test_an_error_whose_body_cannot_be_shown() -> None:
    """A cycle, for example: the failure has its kind all the same."""
    body: dict[str, Any] = {}
    body["detail"] = {"again": body}

    assert _message(body) == "(unreadable)"
