"""The console and the JSON Lines file."""

from __future__ import annotations

import io
import json
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

import rageval_hooks
from rageval_hooks import ErrorInfo, Evaluation, Failed, Message, Passage, Score, Skipped, Step, Timing, Turn, Usage
from rageval_hooks.exporters.base import REGISTRY
from rageval_hooks.exporters.console import ConsoleExporter
from rageval_hooks.exporters.content import ContentPolicy
from rageval_hooks.exporters.jsonl import JsonlExporter
from rageval_hooks.settings import Settings
from rageval_hooks.text.formatting import format_value
from rageval_hooks.turn import PromptTemplate, SpanReference, ToolCall
from tests.exporters.delivered import delivery_to
from tests.integrations.langchain.fakes import lcel
from tests.warm import run_warm_script

TURN = Turn(
    name="handbook",
    query="When was the pier opened?",
    response="In 2019. " * 60,
    passages=(Passage(text="It was opened in 2019.", id="d1", score=0.5, in_prompt=False, prompt_share=0.4),),
    steps=(
        Step(
            id="1",
            kind="retriever",
            name="Store",
            started_at=0,
            ended_at=20_000_000,
            passages=(Passage(text="It was opened\nin 2019.", id="d1", score=0.5, in_prompt=False, prompt_share=0.4),),
        ),
        Step(
            id="2",
            kind="llm",
            name="Chat",
            model="small",
            started_at=20_000_000,
            ended_at=1_520_000_000,
            usage=Usage(input_tokens=10, output_tokens=5, source="tiktoken"),
        ),
    ),
    timing=Timing(started_at=0, ended_at=1_520_000_000),
)
EVALUATION = Evaluation(
    turn=TURN,
    results=(
        Score(name="groundedness", value=0.25, label="fail", explanation="missing: 2019"),
        Skipped(name="entity_consistency", reason="no entities"),
        Failed(name="custom", error_type="OSError", message="disk"),
    ),
)


def _full() -> Evaluation:
    """Return an evaluation in which every field that holds text says what it is."""
    passage = Passage(text="the passage", metadata={"title": "the passage"})
    error = ErrorInfo(type="OSError", message="the error")
    times = {"started_at": 0, "ended_at": 1}
    prompt = (Message(role="user", content="the prompt"),)
    turn = Turn(
        query="the question",
        passages=(passage,),
        response="the answer",
        retrieval_queries=("the question",),
        reference="the answer",
        prompt=prompt,
        error=error,
        metadata={"note": "the metadata"},
        steps=(
            Step(id="1", kind="retriever", name="Store", input="the question", passages=(passage,), **times),
            Step(
                id="2",
                kind="llm",
                name="Chat",
                messages=prompt,
                output="the answer",
                template=PromptTemplate(text="{it}", variables={"it": "the template"}),
                tool_calls=(ToolCall(name="search", arguments='{"query": "the call"}'),),
                tools=('{"name": "the tools"}',),
                parameters={"temperature": 0.5, "stop": ["the parameters"]},
                **times,
            ),
            Step(id="3", kind="tool", name="Tool", input="the question", output="the answer", error=error, **times),
            Step(id="4", kind="prompt", name="Prompt", input="the metadata", output="the metadata", **times),
        ),
    )
    results = (
        Score(name="groundedness", value=0.25, explanation="the explanation", metadata={"why": "the explanation"}),
        Skipped(name="entity_consistency", reason="no entities"),
        Failed(name="trace", error_type="refused", message="the error", metadata={"judge": {"refusal": "the error"}}),
    )
    return Evaluation(turn=turn, results=results)


FULL = _full()


def printed(evaluation: Evaluation, **fields: Any) -> str:
    stream = io.StringIO()
    delivery_to(ConsoleExporter(stream, **fields)).export(evaluation)
    return stream.getvalue()


class TestConsole:
    def test_a_missing_model_is_reported_once(self) -> None:
        """In one line with all metrics that need it; later tables have the scores only."""
        reason = "nlp: en_core_web_sm is not installed"
        missing = [Skipped(name=name, reason=reason, missing_model="nlp") for name in ("entities", "facts")]
        evaluation = EVALUATION.model_copy(update={"results": (EVALUATION.results[0], *missing)})
        stream = io.StringIO()
        exporter = ConsoleExporter(stream)
        for _ in range(3):
            exporter.export(evaluation)
            exporter.export(evaluation.model_copy(update={"stage": "background", "results": tuple(missing)}))

        lines = stream.getvalue().splitlines()
        assert [line for line in lines if reason in line] == [f"not computed: entities, facts ({reason})"]
        assert len([line for line in lines if line.startswith("groundedness")]) == 3
        assert not [line for line in lines if line.startswith("later scores")]

    def test_the_tree(self) -> None:
        """What happened, with times and tokens, readable when piped: no colours, no line over 120 characters."""
        text = printed(EVALUATION)

        assert "rag handbook  1.52 s" in text
        assert "question: When was the pier opened?" in text
        assert "retriever Store  20 ms  1 passages" in text
        assert "0.500 [d1] (40% of it in the prompt): It was opened in 2019." in text
        assert "llm small  1.50 s  ~10→5 tokens" in text
        assert "\x1b" not in text
        assert max(map(len, text.splitlines())) <= 120

    def test_the_table_has_a_line_for_each_score(self) -> None:
        """In columns, numbers to the right; what is missing says why."""
        lines = [line.rstrip() for line in printed(EVALUATION).splitlines()]

        start = next(number for number, line in enumerate(lines) if line.startswith("score"))
        assert lines[start:] == [
            "score               value  label    why",
            "groundedness        0.250  fail     missing: 2019",
            "entity_consistency      -  skipped  no entities",
            "custom                  -  failed   OSError: disk",
        ]

    def test_the_tree_of_a_turn_that_failed(self) -> None:
        """Where it failed, what it cost until then, and which passages the model never saw."""
        error = ErrorInfo(type="TimeoutError", message="the model did not answer")
        search, call = TURN.steps
        unread = search.passages[0].model_copy(update={"id": None, "score": None, "prompt_share": None})
        turn = TURN.model_copy(
            update={
                "status": "error",
                "error": error,
                "steps": (
                    search.model_copy(update={"passages": (unread,)}),
                    call.model_copy(update={"parent_id": "1", "error": error, "complete": False}),
                ),
                "timing": Timing(started_at=0, ended_at=1_520_000_000, time_to_first_token=0.25),
                "usage": Usage(input_tokens=10, output_tokens=5),
                "span": SpanReference(trace_id="a" * 32, span_id="b" * 16),
            }
        )
        cost = Score(name="cost", value=0.0125, unit="USD", high=None)
        text = printed(EVALUATION.model_copy(update={"turn": turn, "results": (cost,)}))
        lines = [line.strip("│├└─ ") for line in text.splitlines()]

        facts = f"error  1.52 s  first token 250 ms  10→5 tokens  0.012500 USD  trace {'a' * 32}"
        failed = "TimeoutError: the model did not answer"
        assert lines[:7] == [
            f"rag handbook  {facts}",
            "question: When was the pier opened?",
            "retriever Store  20 ms  1 passages",
            "passage (not in the prompt): It was opened in 2019.",
            "llm small  1.50 s  ~10→5 tokens  (not finished)",
            failed,
            failed,
        ]
        assert "answer: " not in text

    def test_the_verdict_is_the_first_line(self) -> None:
        """With its reason, which is hidden with the texts. The table does not repeat it."""
        bad = Score(name="verdict", value=0.0, label="bad", cause="unsupported", explanation="no passage has: 2019")
        evaluation = EVALUATION.model_copy(update={"results": (*EVALUATION.results, bad)})
        late = evaluation.model_copy(update={"stage": "background"})
        declined = Skipped(name="verdict", label="declined", reason="the response declines to answer")

        first, second, *lines = printed(evaluation).splitlines()
        assert first.strip() == "bad: unsupported: no passage has: 2019"
        assert second.startswith("rag handbook")
        assert not [line for line in lines if line.startswith("verdict")]
        assert printed(late).splitlines()[0] == first.strip()
        assert printed(evaluation, policy=ContentPolicy.of_settings(False)).startswith("bad: unsupported: __REDACTED__")
        assert printed(evaluation.model_copy(update={"results": (declined,)})).startswith(
            f"declined: {declined.reason}"
        )

    def test_the_table(self) -> None:
        """A number, or the reason for its absence."""
        lines = [line.split() for line in printed(EVALUATION).splitlines()]

        assert ["groundedness", "0.250", "fail", "missing:", "2019"] in lines
        assert ["entity_consistency", "-", "skipped", "no", "entities"] in lines
        assert ["custom", "-", "failed", "OSError:", "disk"] in lines

    def test_an_error_without_a_message(self) -> None:
        """Its type is the reason: a timeout, for example, says nothing else."""
        results = (Failed(name="slow", error_type="TimeoutError", message=""),)
        lines = [line.split() for line in printed(EVALUATION.model_copy(update={"results": results})).splitlines()]

        assert ["slow", "-", "failed", "TimeoutError"] in lines

    def test_hidden_content(self) -> None:
        """What may not stand on spans is not printed either."""
        text = printed(EVALUATION, policy=ContentPolicy.of_settings(False))

        assert "2019" not in text
        assert "pier" not in text
        assert "__REDACTED__" in text

    def test_control_characters_do_not_reach_the_terminal(self) -> None:
        """Those of a passage, an answer or a reason could clear the screen or rename the window."""
        evil = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2067"
        turn = TURN.model_copy(update={"query": f"q{evil}", "response": f"r{evil}", "name": f"n{evil}"})
        results = (
            Score(name="groundedness", value=0.5, explanation=f"e{evil}"),
            Skipped(name="entity_consistency", reason=f"s{evil}"),
            Failed(name="custom", error_type="OSError", message=f"m{evil}"),
        )
        text = printed(Evaluation(turn=turn, results=results))

        assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e", "\u2067"}
        assert not [character for character in text if ord(character) < 32 and character != "\n"]
        assert "[2J" in text

    def test_late_scores(self) -> None:
        """Later scores are printed under their question."""
        text = printed(EVALUATION.model_copy(update={"stage": "background"}))

        assert text.startswith("later scores of: When was the pier opened?")

    @pytest.mark.parametrize(
        ("value", "text"),
        [(0.5, "0.500"), (1.0, "1.000"), (0.0, "0.000"), (250.0, "250"), (0.0000123, "1.2e-05"), (12.3456, "12.346")],
    )
    def test_numbers(self, value: float, text: str) -> None:
        """The digits that matter."""
        assert format_value(value) == text


class TestJsonl:
    def test_a_line_that_was_written_in_part_spoils_no_other(self, tmp_path: Path) -> None:
        """A full disk, half-way through a line: what comes after it is readable."""
        resource = pytest.importorskip("resource", reason="POSIX only")
        path = tmp_path / "scores.jsonl"
        exporter = JsonlExporter(path)
        exporter.export(EVALUATION)
        handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, hard))
            with pytest.raises(OSError, match="File too large"):
                exporter.export(EVALUATION)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, handler)
        exporter.export(EVALUATION)
        exporter.export(EVALUATION)

        whole, half, *later = path.read_text().splitlines()
        assert len(half) == 100
        assert {Evaluation.model_validate_json(line).turn.query for line in (whole, *later)} == {TURN.query}
        assert len(later) == 2

    def test_a_line_for_each_evaluation(self, tmp_path: Path) -> None:
        """They come back as they were."""
        path = tmp_path / "turns.jsonl"
        with rageval_hooks.instrument(
            metrics=["latency"], exporters=["jsonl"], jsonl_path=str(path), inline_budget_ms=0
        ) as handle:
            lcel().invoke("When?")
            handle.flush(10)

        stages = [Evaluation.model_validate_json(line) for line in path.read_text().splitlines()]
        assert [evaluation.stage for evaluation in stages] == ["inline", "background"]
        assert stages[0].turn == stages[1].turn
        assert stages[1]["latency"] > 0

    def test_a_file_that_cannot_be_written_is_refused_at_once(self, tmp_path: Path) -> None:
        """Not at the first turn."""
        with pytest.raises(rageval_hooks.ConfigurationError, match=r"jsonl.*No such file"):
            rageval_hooks.instrument(exporters=["jsonl"], jsonl_path=str(tmp_path / "nowhere" / "x.jsonl"))

    HIDES: ClassVar[dict[str, tuple[str, ...]]] = {
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=NO_CONTENT": (),
        "OPENINFERENCE_HIDE_INPUTS=true": ("the answer", "the passage"),
        "OPENINFERENCE_HIDE_OUTPUTS=true": ("the question", "the passage", "the tools", "the parameters"),
        "OPENINFERENCE_HIDE_RETRIEVAL_DOCUMENTS=true": ("the question", "the answer", "the tools", "the parameters"),
        "OPENINFERENCE_HIDE_INPUT_MESSAGES=true": (
            "the question", "the answer", "the passage", "the tools", "the parameters",
        ),
        "OPENINFERENCE_HIDE_LLM_TOOLS=true": (
            "the question", "the answer", "the passage", "the prompt", "the explanation", "the error", "the metadata",
            "the template", "the call", "the parameters",
        ),
        "RAGEVAL_ENABLED=true": (
            "the question", "the answer", "the passage", "the prompt", "the explanation", "the error", "the metadata",
            "the template", "the call", "the tools", "the parameters",
        ),
    }  # fmt: skip

    @pytest.mark.parametrize(("variable", "shown"), HIDES.items(), ids=HIDES.keys())
    def test_what_is_hidden_on_spans_is_not_in_the_file(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, shown: tuple[str, ...]
    ) -> None:
        """The turn's texts by their kind; those of steps, and what may quote any, as soon as one is hidden."""
        monkeypatch.setenv(*variable.split("="))
        delivery_to(JsonlExporter(tmp_path / "x.jsonl")).export(FULL)
        line = (tmp_path / "x.jsonl").read_text()

        kinds = self.HIDES["RAGEVAL_ENABLED=true"]
        assert {kind for kind in kinds if kind in line} == set(shown)
        assert Evaluation.model_validate_json(line)["groundedness"] == 0.25

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
    def test_a_flush_after_a_full_disk_says_why(self, caplog: pytest.LogCaptureFixture) -> None:
        """It is False once, with the number of lost evaluations and the reason in the log."""
        exporter = JsonlExporter("/dev/full")
        with pytest.raises(OSError, match="No space left"):
            exporter.export(EVALUATION)

        assert [exporter.flush(1), exporter.flush(1)] == [False, True]
        assert "1 evaluations could not be written to /dev/full: No space left on device" in caplog.text

    def test_lines_survive_rotation(self, tmp_path: Path) -> None:
        """After a file was moved away, a new one is written."""
        path = tmp_path / "turns.jsonl"
        exporter = JsonlExporter(path)
        exporter.export(EVALUATION)
        path.rename(tmp_path / "turns.jsonl.1")
        exporter.export(EVALUATION)

        assert json.loads(path.read_text())["turn"]["name"] == "handbook"

    @pytest.mark.skipif(sys.platform == "win32", reason="files cannot be locked there, and modes are others")
    def test_processes_share_a_file(self, tmp_path: Path) -> None:
        """Whole lines, none of them empty, which only the owner may read."""
        path = tmp_path / "turns.jsonl"
        script = """
import os, sys
from tests.exporters.test_text_exporters import EVALUATION
from rageval_hooks.exporters.jsonl import JsonlExporter
for _ in range(3):
    if os.fork() == 0:
        exporter = JsonlExporter(sys.argv[1])
        for _ in range(500):
            exporter.export(EVALUATION)
        os._exit(0)
for _ in range(3):
    assert os.wait()[1] == 0
"""
        run_warm_script(script, path)

        lines = path.read_text().splitlines()
        assert len(lines) == 1500
        assert {json.loads(line)["turn"]["name"] for line in lines} == {"handbook"}
        assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", REGISTRY.builtin())
def test_every_exporter_keeps_the_contract(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made from settings, exports both stages, flushes, shuts down, twice.

    The turn has no span, so an exporter to a score API has nothing to send.
    """
    from opentelemetry.sdk.trace import TracerProvider

    monkeypatch.chdir(tmp_path)
    provider = TracerProvider(shutdown_on_exit=False) if name == "otel" else None
    settings = Settings.build(jsonl_path=str(tmp_path / "x.jsonl"))
    try:
        exporter = REGISTRY.builtin()[name]()
        exporter.bind(settings, provider)
    except rageval_hooks.ConfigurationError as error:
        pytest.skip(f"it cannot be created from the settings alone: {error}")  # for example without an API key
    exporter.export(EVALUATION)
    exporter.export(EVALUATION.model_copy(update={"stage": "background"}))

    assert exporter.flush(5)
    exporter.shutdown(5)
    exporter.shutdown(5)


@pytest.mark.parametrize("made", ["link", "readable by all"])
def test_a_file_that_somebody_has_prepared(tmp_path: Path, made: str) -> None:
    """In a shared folder nobody else reads what is written, and it goes to no other file."""
    path, other = tmp_path / "rageval.jsonl", tmp_path / "other"
    other.write_text("kept")
    if made == "link":
        path.symlink_to(other)
        with pytest.raises(OSError, match="is a symbolic link"):
            JsonlExporter(path)
    else:
        path.touch(0o666)
        path.chmod(0o666)
        JsonlExporter(path).export(Evaluation(turn=Turn(query="q"), results=(), stage="inline"))
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.read_text()
    assert other.read_text() == "kept"
