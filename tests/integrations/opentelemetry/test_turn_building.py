"""Turns from finished spans, by the pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from rageval_hooks.integrations.opentelemetry import NoTurn, TracedSpan, turns_from_spans
from rageval_hooks.turn import Turn
from tests.integrations.opentelemetry.recorded import (
    ANSWER,
    CONVENTIONS,
    OTHER,
    PASSAGE,
    PROMPT,
    QUESTION,
    load,
    names,
    said,
    span,
    text,
)


def read(spans: list[dict[str, Any]]) -> list[Turn | NoTurn]:
    return list(turns_from_spans(map(TracedSpan.of, spans)))


def only(spans: list[dict[str, Any]]) -> Turn:
    [turn] = read(spans)
    assert isinstance(turn, Turn), turn
    return turn


def chat(number: int, parent: int, given: list[dict[str, Any]], answer: str, **about: Any) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.input.messages": text(given),
        "gen_ai.output.messages": text([said("assistant", answer)]),
    }
    return span(number, parent, "chat m", attributes, **about)


class TestRecordings:
    @pytest.mark.parametrize("name", names())
    def test_a_recorded_application(self, name: str) -> None:
        """Question, passages and answer are what the application used; without content the reason is said."""
        recording = load(name)
        found = read(recording["spans"])
        turns = [turn for turn in found if isinstance(turn, Turn)]
        if not recording["recorded"]:
            for one in found:
                reasons = one.missing.values() if isinstance(one, Turn) else [one.reason]
                assert all("set" in reason for reason in reasons)
                assert reasons
            return
        expected = recording["truth"].get("turns") or [recording["truth"]]
        shown = [(turn.query, [one.text for one in turn.prompt_passages], turn.response) for turn in turns]
        truth = [(one["question"], one["passages"], one["answer"]) for one in expected]
        assert sorted(shown) == sorted(truth)


class TestConventions:
    @pytest.mark.parametrize("name", CONVENTIONS)
    def test_each_convention(self, name: str) -> None:
        """Of each one, the spans of a turn are read alike."""
        spans, passages = CONVENTIONS[name]
        turn = only(spans)
        assert (turn.query, turn.response) == (QUESTION, ANSWER)
        assert [passage.text for passage in turn.prompt_passages] == passages

    def test_a_function_response_of_google(self) -> None:
        """OpenInference's instrumentor for ADK writes it whole."""
        output = {"id": "c1", "name": "search_guide", "response": {"result": PASSAGE}}
        tool = {
            "openinference.span.kind": "TOOL",
            "tool.name": "search_guide",
            "input.value": text({"query": QUESTION}),
            "output.value": text(output),
        }
        root = {"openinference.span.kind": "AGENT", "input.value": QUESTION, "output.value": ANSWER}
        turn = only([span(1, 0, "agent", root), span(2, 1, "tool", tool)])
        assert [passage.text for passage in turn.prompt_passages] == [PASSAGE]


class TestPlaceholdersAndCuts:
    @pytest.mark.parametrize("shown", ["__REDACTED__", "[REDACTED]", "", "[Scrubbed due to 'password']"])
    def test_a_placeholder_is_no_answer(self, shown: str) -> None:
        """No verdict comes from it, and the reason names the switch."""
        attributes = {"openinference.span.kind": "CHAIN", "input.value": shown, "output.value": shown}
        model = {"openinference.span.kind": "LLM", "input.value": shown, "output.value": shown}
        [found] = read([span(1, 0, "chain", attributes), span(2, 1, "llm", model)])
        assert isinstance(found, NoTurn)
        assert (found.cause, found.instrumentor) == ("no_content", "OpenInference")
        assert "OPENINFERENCE_HIDE" in found.reason

    @pytest.mark.parametrize("end", ["... [truncated]", " …<truncated 300 characters>"])
    def test_a_cut_answer_is_none(self, end: str) -> None:
        """A text that was cut says less than the application did."""
        [found] = read([chat(1, 0, [said("user", PROMPT)], ANSWER + end)])
        assert isinstance(found, NoTurn)

    def test_cut_messages_are_none(self) -> None:
        """JSON without its end was cut by a limit."""
        whole = chat(1, 0, [said("user", PROMPT)], ANSWER)
        whole["attributes"]["gen_ai.output.messages"] = whole["attributes"]["gen_ai.output.messages"][:-9]
        [found] = read([whole])
        assert isinstance(found, NoTurn)

    def test_hidden_passages(self) -> None:
        """The turn has none, and says which switch records them."""
        hidden = {
            "openinference.span.kind": "RETRIEVER",
            "retrieval.documents.0.document.content": "__REDACTED__",
            "retrieval.documents.0.document.id": "1",
        }
        root = {"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": ANSWER}
        turn = only([span(1, 0, "chain", root), span(2, 1, "retriever", hidden)])
        assert turn.passages == ()
        assert "OPENINFERENCE_HIDE" in turn.missing["passages"]


class TestFormsOfExports:
    def test_values_of_otlp_json(self) -> None:
        """Each value names its type; messages may be structured, as the GenAI conventions prefer."""

        def otlp(value: Any) -> dict[str, Any]:
            if isinstance(value, dict):
                return {"kvlistValue": {"values": [{"key": name, "value": otlp(one)} for name, one in value.items()]}}
            if isinstance(value, list):
                return {"arrayValue": {"values": [otlp(one) for one in value]}}
            return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}

        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": [said("user", PROMPT)],
            "gen_ai.output.messages": [said("assistant", ANSWER)],
            "gen_ai.usage.input_tokens": 40,
            "gen_ai.usage.output_tokens": 7,
        }
        written = [{"key": name, "value": otlp(value)} for name, value in attributes.items()]
        turn = only([span(1, 0, "chat m", attributes=[*written, {"key": "empty", "value": {}}])])
        assert (turn.query, turn.response) == (QUESTION, ANSWER)
        assert [passage.text for passage in turn.prompt_passages] == [PASSAGE, OTHER]
        assert turn.usage is not None
        assert (turn.usage.input_tokens, turn.usage.output_tokens) == (40, 7)

    def test_a_table_with_documents_as_json(self) -> None:
        """Phoenix's tables have such columns; metadata that we wrote says what was in the prompt."""
        documents = [
            {"document.content": PASSAGE, "document.id": "1", "document.metadata": {"page": 3}},
            {"document.content": OTHER, "document.metadata": {"rageval": {"document": {"in_prompt": False}}}},
        ]
        root = {"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": ANSWER}
        search = {"attributes.openinference.span.kind": "RETRIEVER", "attributes.retrieval.documents": text(documents)}
        turn = only([span(1, 0, "chain", root), span(2, 1, "search") | search])
        assert [(one.text, one.id, one.metadata, one.in_prompt) for one in turn.passages] == [
            (PASSAGE, "1", {"page": 3}, None),
            (OTHER, None, {}, False),
        ]

    @pytest.mark.parametrize("moment", ["yesterday", float("nan"), float("inf"), None])
    def test_a_time_that_is_no_number(self, moment: Any) -> None:
        """Is unknown, and the turn is read."""
        row = chat(1, 0, [said("user", PROMPT)], ANSWER) | {"start_time": moment, "end_time": moment}
        turn = only([row])
        assert turn.response == ANSWER
        assert turn.timing is None


class TestWhichSpansAreATurn:
    def test_turns_in_one_trace(self) -> None:
        """Each answer from passages is one."""
        spans = [
            span(1, 0, "batch"),
            chat(2, 1, [said("user", PROMPT)], ANSWER),
            chat(3, 1, [said("user", PROMPT.replace("rebuilt?", "opened?"))], "It was opened in 1934."),
        ]
        assert [turn.response for turn in read(spans) if isinstance(turn, Turn)] == [ANSWER, "It was opened in 1934."]

    def test_a_check_of_the_answer_is_no_turn(self) -> None:
        """Its prompt has the answer and the passages."""
        check = f"Is the answer right?\n\nContext:\n{PASSAGE}\n\nQuestion: {QUESTION}\n\nAnswer: {ANSWER}"
        turn = only(
            [span(1, 0, "ask"), chat(2, 1, [said("user", PROMPT)], ANSWER), chat(3, 1, [said("user", check)], "Yes")]
        )
        assert turn.response == ANSWER

    def test_a_rewritten_question_belongs_to_the_turn(self) -> None:
        """The call of a model that has no passages is part of the turn that follows."""
        rewrite = chat(2, 1, [said("user", "Rewrite: lock?")], QUESTION)
        turn = only([span(1, 0, "ask"), rewrite, chat(3, 1, [said("user", PROMPT)], ANSWER)])
        assert (turn.query, turn.response) == (QUESTION, ANSWER)

    def test_the_span_with_the_scores(self) -> None:
        """The application's span around its calls; the call itself where it has several turns inside."""
        one = only([span(1, 0, "ask"), chat(2, 1, [said("user", PROMPT)], ANSWER)])
        assert one.span is not None
        assert (one.span.span_id, one.span.external) == (f"{1:016x}", True)

    def test_two_tracers_at_once(self) -> None:
        """Make one turn of the same call."""
        genai = chat(2, 1, [said("user", PROMPT)], ANSWER, end=80, scope="opentelemetry.instrumentation.openai_v2")
        attributes = {
            "openinference.span.kind": "LLM",
            "llm.input_messages.0.message.role": "user",
            "llm.input_messages.0.message.content": PROMPT,
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": ANSWER,
        }
        theirs = span(3, 1, "ChatCompletion", attributes, scope="openinference.instrumentation.openai")
        assert len([turn for turn in read([span(1, 0, "ask"), genai, theirs]) if isinstance(turn, Turn)]) == 1

    def test_a_conversation(self) -> None:
        """Passages of earlier turns are in the prompt again, and are not those of this one."""
        earlier = [said("user", PROMPT.replace(PASSAGE, "Boats pay 15 euros.")), said("assistant", "15 euros.")]
        turn = only([chat(1, 0, [*earlier, said("user", PROMPT)], ANSWER)])
        assert [passage.text for passage in turn.passages] == [PASSAGE, OTHER]

    def test_what_a_tool_did_is_no_passage(self) -> None:
        """A tool that acts has found nothing."""
        spans, _ = CONVENTIONS["Semantic Kernel"]
        spans = [dict(one, attributes=dict(one["attributes"])) for one in spans]
        spans[1]["attributes"] |= {"gen_ai.tool.name": "send_mail", "gen_ai.tool.call.arguments": "{}"}
        turn = only(spans)
        assert turn.passages == ()
        assert [step.left_out for step in turn.steps if step.kind == "tool"] == ["its name says that it acts"]

    def test_spans_of_an_application_alone(self) -> None:
        """Are no turn."""
        assert read([span(1, 0, "GET /health")]) == []

    def test_tokens_are_counted_once(self) -> None:
        """A call that two tracers see, one inside the other, is one call."""
        tokens = {"gen_ai.usage.input_tokens": 40, "gen_ai.usage.output_tokens": 7}
        outer, inner = chat(2, 1, [said("user", PROMPT)], ANSWER, end=80), chat(3, 2, [said("user", PROMPT)], ANSWER)
        for one in (outer, inner):
            one["attributes"] |= tokens
        turn = only([span(1, 0, "ask"), outer, inner])
        assert turn.usage is not None
        assert (turn.usage.input_tokens, turn.usage.output_tokens) == (40, 7)


_CALL = {"id": "c1", "type": "function", "function": {"name": "search_guide", "arguments": text({"query": QUESTION})}}
_ASKED = {"role": "user", "content": QUESTION}
_CALLED = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
_DUMPED: dict[str, Any] = {"lc": 1, "type": "constructor", "id": ["langchain", "schema", "messages", "HumanMessage"]}
_FUNCTION = {"name": "search_guide", "arguments": text({"query": QUESTION})}
_TEXT_PARTS = [{"type": "text", "text": text([{"id": "1", "text": PASSAGE}])}]


class TestFormsOfMessages:
    @pytest.mark.parametrize(
        ("given", "passages"),
        [
            (
                [
                    _DUMPED | {"kwargs": {"content": QUESTION}},
                    _DUMPED | {"id": ["ToolMessage"], "kwargs": {"content": PASSAGE, "name": "search_guide"}},
                ],
                [PASSAGE],
            ),
            ([{"role": "user", "content": [PROMPT]}], [PASSAGE, OTHER]),
            ([7, {"role": "user", "content": PROMPT}], [PASSAGE, OTHER]),
            ([{"role": "user", "content": {"type": "text", "text": PROMPT}}], [PASSAGE, OTHER]),
            (
                [
                    _ASKED,
                    {"type": "function_call", "call_id": "c1", **_FUNCTION},
                    {"type": "function_call_output", "call_id": "c1", "output": PASSAGE},
                ],
                [PASSAGE],
            ),
            (
                [
                    _ASKED,
                    {"role": "assistant", "content": None, "function_call": _FUNCTION},
                    {"role": "function", "name": "search_guide", "content": PASSAGE},
                ],
                [PASSAGE],
            ),
            (
                [
                    _ASKED,
                    _CALLED,
                    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": _TEXT_PARTS}]},
                ],
                [PASSAGE],
            ),
            ([_ASKED, _CALLED, {"role": "tool", "content": PASSAGE}], [PASSAGE]),
            ([_ASKED, {"role": "tool", "name": "search_guide", "content": PASSAGE}], [PASSAGE]),
            ([_ASKED, _CALLED, {"role": "tool", "tool_call_id": "c1", "content": "[REDACTED]"}], []),
        ],
        ids=[
            "a dump of LangChain",
            "a list of texts",
            "a number",
            "one part",
            "the Responses API",
            "function calls",
            "a result of Anthropic",
            "a result without an id",
            "a result without a call",
            "a hidden result",
        ],
    )
    def test_what_the_model_received(self, given: list[dict[str, Any]], passages: list[str]) -> None:
        """Providers write the same conversation in many forms."""
        turn = only([chat(1, 0, given, ANSWER)])
        assert (turn.query, turn.response) == (QUESTION, ANSWER)
        assert [passage.text for passage in turn.prompt_passages] == passages

    @pytest.mark.parametrize(
        "answer",
        [ANSWER, {"answer": ANSWER, "sources": ["guide.md"]}, [[{"type": "text", "text": ANSWER}]]],
        ids=["a text", "an object", "a list"],
    )
    def test_the_answer_in_an_output(self, answer: Any) -> None:
        """An answer in JSON is shown as the user gets it."""
        shown = answer if isinstance(answer, str) else text(answer)
        assert only([chat(1, 0, [said("user", PROMPT)], shown)]).response == ANSWER

    def test_an_answer_that_is_nested_too_deeply(self) -> None:
        """Stays the JSON that the model wrote."""
        shown = "[" * 20 + text({"answer": ANSWER}) + "]" * 20
        assert only([chat(1, 0, [said("user", PROMPT)], shown)]).response == shown


class TestFormsOfSearches:
    @pytest.mark.parametrize(
        "attributes",
        [
            {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": text([{"id": "1", "text": PASSAGE}])},
            {"openinference.span.kind": "RETRIEVER", "output.value": text([PASSAGE])},
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "search_guide",
                "output.value": text({"lc": 1, "id": ["ToolMessage"], "kwargs": {"content": PASSAGE}}),
            },
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "search_guide",
                "output.value": text({"content": PASSAGE, "type": "tool", "id": "1", "name": "x", "status": "success"}),
            },
            {
                "openinference.span.kind": "TOOL",
                "tool.name": "search_guide",
                "output.value": f'"{PASSAGE}',
                "output.mime_type": "application/json",
            },
        ],
        ids=["documents as JSON", "a list of texts", "a dump of LangChain", "a message of a tool", "no JSON"],
    )
    def test_what_a_search_found(self, attributes: dict[str, Any]) -> None:
        """Its output is a passage of the turn."""
        root = {"openinference.span.kind": "AGENT", "input.value": QUESTION, "output.value": ANSWER}
        turn = only([span(1, 0, "agent", root), span(2, 1, "search_guide", attributes)])
        assert [passage.text.strip('"') for passage in turn.prompt_passages] == [PASSAGE]

    def test_a_search_before_a_function_with_the_model(self) -> None:
        """The application's own span around the model does not separate the two."""
        found = text([{"id": "canal-1", "content": PASSAGE}])
        search = {"gen_ai.operation.name": "retrieval", "gen_ai.retrieval.documents": found}
        model = chat(4, 3, [said("user", PROMPT)], ANSWER)
        turn = only([span(1, 0, "POST /ask"), span(2, 1, "search", search), span(3, 1, "answer", end=60), model])
        assert [(passage.id, passage.text) for passage in turn.passages] == [("canal-1", PASSAGE)]

    @pytest.mark.parametrize(
        ("search", "asked", "prompt", "passages"),
        [
            ({}, QUESTION, QUESTION, []),
            ({}, QUESTION, f"Somebody says: {PASSAGE}", [PASSAGE]),
            ({}, f"{PASSAGE} Is that so?", QUESTION, [PASSAGE]),
            ({"openinference.span.kind": "RETRIEVER", "output.value": text([PASSAGE])}, QUESTION, QUESTION, [PASSAGE]),
        ],
        ids=["a model wrote it", "it repeated its prompt", "it repeated the question", "it repeated a search"],
    )
    def test_a_note_that_a_tool_returns(
        self, search: dict[str, str], asked: str, prompt: str, passages: list[str]
    ) -> None:
        """What a model of the turn wrote is no passage, unless it had the text from elsewhere."""
        root = {"openinference.span.kind": "AGENT", "input.value": asked, "output.value": ANSWER}
        tool = {"openinference.span.kind": "TOOL", "tool.name": "search_notes", "output.value": PASSAGE}
        note = chat(3, 1, [said("user", prompt)], PASSAGE)
        turn = only([span(1, 0, "agent", root), span(2, 1, "step", search), note, span(4, 1, "search_notes", tool)])
        assert sorted({passage.text for passage in turn.passages}) == passages
        left_out = [step.left_out for step in turn.steps if step.kind == "tool"]
        assert left_out == [None if passages else "a model of this turn wrote it"]

    def test_two_rerankers(self) -> None:
        """Only what the last one left are the passages of the turn."""

        def rerank(number: int, *texts: str) -> dict[str, Any]:
            outputs = {f"reranker.output_documents.{at}.document.content": one for at, one in enumerate(texts)}
            return span(number, 1, "rerank", {"openinference.span.kind": "RERANKER", **outputs})

        root = {"openinference.span.kind": "CHAIN", "input.value": QUESTION, "output.value": ANSWER}
        turn = only([span(1, 0, "chain", root), rerank(2, PASSAGE, OTHER), rerank(3, PASSAGE)])
        assert [passage.text for passage in turn.passages] == [PASSAGE]
