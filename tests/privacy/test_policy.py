"""``redact=``, lists of metadata and hashes of ids: nothing private leaves, and the scores stay."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rageval_hooks import ConfigurationError, Evaluation, Failed, Passage, Score, Skipped, Turn, evaluate, metric
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.privacy import PrivacyPolicy
from rageval_hooks.runtime.logs import RateLimitedLogger
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from rageval_hooks.turn import ErrorInfo, Message, Step, ToolCall
from tests.metrics.good_judge import by_schema

MAIL = "jane@example.org"
CARD = 4111111111111111
TURN = Turn(
    id="t1",
    query=f"Who is {MAIL}?",
    response=f"She is {MAIL}. She wrote the handbook.",
    passages=(Passage(text=f"Write to {MAIL}.", id=MAIL, metadata={"author": MAIL, "page": 3, "card": CARD}),),
    prompt=(Message(role="user", content=f"Who is {MAIL}?"),),
    steps=(
        Step(id="1", kind="tool", name="search", started_at=1, ended_at=2, input=f'{{"q": "{MAIL}"}}', output=MAIL),
        Step(id="2", kind="llm", name="chat", started_at=2, ended_at=3, parameters={"user": MAIL}),
    ),
    error=ErrorInfo(type="ValueError", message=f"no {MAIL}"),
    session_id="session-1",
    user_id="user-1",
    metadata={"thread_id": "session-1", "team": "blue", "secret_note": "x", "deep": {"secret_note": "y", "z": 1}},
)


@metric(name="length", high=None)
def length(turn: Turn) -> float:
    return len(turn.response)


@metric(name="broken")
def broken(turn: Turn) -> float:
    raise ValueError(turn.response)


def run(path: Path, exporters: list[Any], **settings: Any) -> tuple[Pipeline, FakeJudge]:
    """Evaluate the turn, and wait until everything is delivered."""
    judge = by_schema()
    options: dict[str, Any] = {"metrics": [length, broken, "trace"], "models": "lexical", "judge": judge}
    if "jsonl" in exporters:
        options["jsonl_path"] = str(path / "turns.jsonl")
    pipeline = Pipeline.build(**{**options, "exporters": exporters, **settings})
    pipeline.submit(EndedTurn.of(TURN))
    assert pipeline.flush(30)
    pipeline.shutdown()
    return pipeline, judge


def replace(text: str) -> str:
    return text.replace(MAIL, "<EMAIL_ADDRESS>")


@pytest.mark.parametrize("redact", [True, replace], ids=["ready", "function"])
@pytest.mark.parametrize("dispatch", ["thread", "spool"])
def test_no_private_text_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, redact: bool | Callable[[str], str], dispatch: str
) -> None:
    """Not into spans, prompts of judges, files, log lines and the spool; the scores are those of the original text."""
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    exporter = InMemoryExporter()
    seen: list[bytes] = []

    def look(call: Any) -> Any:
        seen.extend(file.read_bytes() for file in tmp_path.glob("spool*"))
        return by_schema()._script(call)

    _, judge = run(
        tmp_path,
        ["otel", "jsonl", exporter],
        redact=redact,
        tracer_provider=provider,
        judge=FakeJudge(look),
        dispatch=dispatch,
        spool_path=str(tmp_path / "spool.db"),
    )

    [inline] = [found for found in exporter.evaluations if found.stage == "inline"]
    assert inline["length"] == len(TURN.response)
    shown = repr([span.to_json() for span in spans.get_finished_spans()])
    written = (tmp_path / "turns.jsonl").read_text()
    for text in (shown, written, caplog.text, repr(exporter.evaluations), repr(judge.calls)):
        assert MAIL not in text
    assert "<EMAIL_ADDRESS>" in shown
    assert "<EMAIL_ADDRESS>" in written
    assert all(MAIL.encode() not in content for content in seen)
    assert bool(seen) == (dispatch == "spool")


def test_log_lines_are_redacted(caplog: pytest.LogCaptureFixture) -> None:
    """Also the traceback of an exception, as long as a policy redacts."""
    policy = PrivacyPolicy(True)
    error = ValueError(MAIL)
    RateLimitedLogger(logging.getLogger("rageval_hooks.test")).warn("a", "the metric of %s failed", MAIL, error=error)

    assert policy.active
    assert "the metric of <EMAIL_ADDRESS> failed\nValueError: <EMAIL_ADDRESS>" in caplog.text


def test_the_judge_sees_redacted_texts(tmp_path: Path) -> None:
    """Its scores come as usual."""
    exporter = InMemoryExporter()
    _, judge = run(tmp_path, [exporter], redact=True)

    assert [MAIL in call.prompt for call in judge.calls] == [False]
    assert "She is <EMAIL_ADDRESS>." in judge.calls[0].prompt
    assert any(found["trace.adherence"] == 1.0 for found in exporter.evaluations if found.stage == "background")


def test_the_judge_of_an_evaluation_by_hand_sees_redacted_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the environment's setting, also for commands; the turn that is returned is the caller's."""
    monkeypatch.setenv("RAGEVAL_REDACT", "true")
    judge = by_schema()
    evaluation = evaluate(TURN, metrics=[length, "trace"], judge=judge)

    assert [MAIL in call.prompt for call in judge.calls] == [False]
    assert (evaluation.turn, evaluation["length"]) == (TURN, len(TURN.response))


def exported(tmp_path: Path, **settings: Any) -> list[Evaluation]:
    exporter = InMemoryExporter()
    run(tmp_path, [exporter], **settings)
    return exporter.evaluations


def test_ids_are_hashed_with_a_salt(tmp_path: Path) -> None:
    """Everywhere, and the same in all evaluations of the turn; another salt gives other hashes."""
    first = exported(tmp_path, id_salt="a secret of ours")
    other = exported(tmp_path, id_salt="another secret")

    assert "session-1" not in repr(first)
    assert "user-1" not in repr(first)
    assert len({(found.turn.session_id, found.turn.metadata["thread_id"]) for found in first}) == 1
    assert first[0].turn.session_id == first[0].turn.metadata["thread_id"] != other[0].turn.session_id
    assert first[0].turn.user_id != first[0].turn.session_id


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({}, {"thread_id", "team", "secret_note", "deep"}),
        ({"metadata_deny": ["secret_*"]}, {"thread_id", "team", "deep"}),
        ({"metadata_allow": "team, page"}, {"team"}),
    ],
)
def test_lists_of_metadata(tmp_path: Path, settings: dict[str, Any], kept: set[str]) -> None:
    """Names may be patterns; what is denied is denied at any depth."""
    found = exported(tmp_path, **settings)[0].turn

    assert set(found.metadata) == kept
    assert ("secret_note" in found.metadata.get("deep", {})) == ("secret_note" in kept)
    assert ("author" in found.passages[0].metadata) == ("metadata_allow" not in settings)


def test_denied_names_in_lists() -> None:
    """For example of the parts of a page."""
    turn = Turn(metadata={"parts": [{"secret_note": "x", "page": 3}]})

    assert PrivacyPolicy(metadata_deny=["secret_*"]).turn(turn).metadata == {"parts": [{"page": 3}]}


@pytest.mark.parametrize("redact", [lambda text: 1 / 0, lambda text: None])
def test_a_function_that_fails_hides_the_text(redact: Any, caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once, without the text."""
    caplog.set_level(logging.WARNING)
    found = PrivacyPolicy(redact).turn(TURN)

    assert (found.query, found.id, found.steps[0].name) == ("__REDACTED__", "t1", "search")
    [message] = caplog.messages
    assert message.endswith(": texts are replaced as a whole [RAGEVAL-213]")
    assert MAIL not in caplog.text


def test_numbers_in_metadata() -> None:
    """A card number may be an integer, or a float from a table with gaps."""
    metadata = {"author": MAIL, "page": 3, "year": 2019.0, "card": CARD, "cards": [float(CARD), 0.5]}
    assert PrivacyPolicy(True).turn(Turn(metadata=metadata)).metadata == {
        "author": "<EMAIL_ADDRESS>",
        "page": 3,
        "year": 2019.0,
        "card": "<CREDIT_CARD>",
        "cards": ["<CREDIT_CARD>", 0.5],
    }


def test_ids_of_tool_calls_are_texts_of_the_application() -> None:
    """Call and result keep the same id."""
    call = Message(role="assistant", content="", tool_calls=(ToolCall(id=MAIL, name="search", arguments="{}"),))
    result = Message(role="tool", content="none", tool_call_id=MAIL)
    step = Step(id="1", kind="tool", name="search", started_at=1, ended_at=2, call_id=MAIL)
    found = PrivacyPolicy(True).turn(Turn(prompt=(call, result), steps=(step,)))
    ids = {found.prompt[0].tool_calls[0].id, found.prompt[1].tool_call_id, found.steps[0].call_id}
    assert ids == {"<EMAIL_ADDRESS>"}


def test_texts_of_results_are_hidden_and_what_the_judge_cost_stays() -> None:
    """Where nothing was computed from the redacted texts, as for a file that was made without redaction."""
    judge = {"model": "m", "cost": 0.1, "input_tokens": 12}
    score = Score(name="a", value=1.0, explanation="4111", metadata={"words": ["4111"], "judge": judge})
    failed = Failed(name="b", error_type="ValueError", message="4111", metadata={"judge": judge})
    skipped = Skipped(name="c", reason="no passages")
    hidden, unsaid, same = PrivacyPolicy(True).results([score, failed, skipped])

    assert isinstance(hidden, Score)
    assert isinstance(unsaid, Failed)
    assert (hidden.value, hidden.explanation) == (1.0, "not shown: it may quote redacted texts")
    assert (unsaid.error_type, unsaid.message) == ("ValueError", "not shown: it may quote redacted texts")
    assert hidden.metadata == unsaid.metadata == {"judge": judge}
    assert same == skipped


def test_wrong_settings() -> None:
    """Are found at construction."""
    with pytest.raises(ConfigurationError, match="redact must be True or a function"):
        Pipeline.build(metrics=["latency"], exporters=[], redact="yes please")
    with pytest.raises(ConfigurationError, match="id_salt"):
        Pipeline.build(metrics=["latency"], exporters=[], id_salt="short")


def test_content_off_still_leaves_scores(tmp_path: Path) -> None:
    """Values, labels and names only."""
    run(tmp_path, ["jsonl"], capture_content=False)
    first, *_ = (tmp_path / "turns.jsonl").read_text().splitlines()

    assert Evaluation.model_validate_json(first)["length"] == len(TURN.response)
    assert "handbook" not in first
    assert (tmp_path / "turns.jsonl").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("redact", [None, replace], ids=["all texts", "redacted"])
def test_a_turn_without_private_texts_keeps_its_explanations(tmp_path: Path, redact: Any) -> None:
    """Word for word, with their details."""
    exporter = InMemoryExporter()
    turn = Turn(query="When?", response="It was opened in 2019.", passages=(Passage(text="It was opened in 2018."),))
    pipeline = Pipeline.build(metrics=["unsupported_facts"], models="lexical", exporters=[exporter], redact=redact)
    pipeline.submit(EndedTurn.of(turn))
    assert pipeline.flush(30)
    pipeline.shutdown()

    [evaluation] = exporter.evaluations
    [score] = evaluation.scores
    assert (score.label, score.explanation) == ("fail", "no passage has: 2019")
