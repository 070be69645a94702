"""Chat messages on spans, as every provider and framework writes them, in one form."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from rageval_hooks.integrations.opentelemetry import conventions as names
from rageval_hooks.integrations.opentelemetry.spans import TracedSpan, nested
from rageval_hooks.runtime.literals import read_repr
from rageval_hooks.runtime.narrowing import items_or_empty, mapping_or_empty, text_or_empty
from rageval_hooks.turn import Message, ToolCall

_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "aimessagechunk": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "tool": "tool",
    "function": "tool",
    "tool-response": "tool",
    "system": "system",
    "developer": "system",
}
_INNER = ("message", "data", "kwargs", "content")
_PARTS = ("parts", "content", "_content", "contents", "text", "blocks")
_LISTS = ("messages", "contents", "replies", "choices", "generations", "tool_messages", "llm_response", "output")
_DEPTH = 6
_CUT = re.compile(
    r"(?:\.\.\.|…)?\s{0,3}[\[(<]{1,2}\s{0,3}(?:\d{1,9} (?:more )?char\w{0,9} )?truncated[^\])>]{0,60}[\])>]{1,2}$"
)
"""``… [truncated]``, at the end of a text."""
_OBJECT = re.compile(
    r"<(?:async_generator|generator|coroutine|function|\w{1,60}(?:\.\w{1,60}){0,9}) ?(?:object\b|\(|at 0x)"
)
"""``<generator object answer at 0x7f3a>``, ``<NodeWithScore(node=…)>``: an object without a text."""


@dataclass(frozen=True, eq=False)
class ToolResult:
    """What a tool returned, in a message or on a span of its own.

    Attributes:
        name: the tool's name; empty if the message does not say.
        call_id: the provider's id of the call.
        value: the result, as JSON or as text.
        arguments: those of the call.
    """

    name: str
    call_id: str
    value: Any
    arguments: Any = None


@dataclass(eq=False)
class Said:
    """One message.

    Attributes:
        role: ``user``, ``assistant``, ``tool`` or ``system``.
        text: its text.
        calls: the calls of tools that it asks for.
        results: the results of tools in it.
    """

    role: str
    text: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)

    @property
    def message(self) -> Message:
        """The message as part of a turn's prompt."""
        content = self.text or "\n".join(str(result.value) for result in self.results)
        call_id = next((result.call_id or None for result in self.results), None)
        return Message(role=self.role, content=content, tool_calls=tuple(self.calls), tool_call_id=call_id)


def is_content(value: Any) -> bool:
    """Return False for a placeholder, an empty value, and a text that was cut."""
    if not isinstance(value, str):
        return value is not None and value != {} and value != []
    text = value.strip()
    if not text or text in names.PLACEHOLDERS or text.startswith("[Scrubbed due to"):
        return False
    # JSON without its end.
    is_cut_json = text[:1] in '{["' and text[:2] in ('{"', "[{", '["') and isinstance(read_repr(text), str)
    return not is_cut_json and _CUT.search(text[-120:]) is None and _OBJECT.match(text[:200]) is None


def messages_in(span: TracedSpan) -> tuple[list[Said], list[Said]]:
    """Return the messages that a model or an agent received, and those that it wrote."""
    given, written = list[Said](), list[Said]()
    for name in names.INSTRUCTIONS:
        given += [Said("system", one.text) for one in _messages(span.attributes.get(name), "system")]
    for name in names.MESSAGES_IN:
        if found := list(_messages(span.attributes.get(name), "user")):
            given += found
            break
    for prefix in names.NUMBERED_IN:
        given = given or list(_messages(nested(span.attributes, prefix), "user"))
    for name in names.MESSAGES_OUT:
        written = written or list(_messages(span.attributes.get(name), "assistant"))
    for prefix in names.NUMBERED_OUT:
        written = written or list(_messages(nested(span.attributes, prefix), "assistant"))
    for name, attributes in span.events:
        key = names.CONTENT_EVENTS.get(name)
        if key is not None:
            into = given if key == "gen_ai.prompt" else written
            into += _messages(attributes.get(key), "user" if into is given else "assistant")
        elif name in names.EVENTS_IN | names.EVENTS_OUT:
            (written if name == "gen_ai.choice" else given).extend(_messages({"event.name": name, **attributes}, ""))
        else:
            given += _messages(attributes.get(names.MESSAGES_IN[0]), "user")
            written += _messages(attributes.get(names.MESSAGES_OUT[0]), "assistant")
    if not written and given and given[-1].role == "assistant":
        # The messages of a whole run, or events in which the choice comes last.
        written = [given.pop()]
    text = span.text("ai.response.text")
    calls = list(_calls(read_repr(span.attributes.get("ai.response.toolCalls"))))
    if not written and (calls or is_content(text)):
        written = [Said("assistant", text, calls)]
    return given, written


def messages_of(value: Any, role: str) -> list[Said]:
    """Return the messages in the input or output of a span: JSON or ``repr`` of messages, or of what holds them."""
    return list(_messages(value, role))


def _messages(value: Any, role: str, depth: int = _DEPTH) -> Iterator[Said]:
    value = read_repr(value) if isinstance(value, str) and is_content(value) else value
    if depth == 0 or not value:
        return
    if isinstance(value, str):
        if role and is_content(value):
            yield Said(role, value)
        return
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _messages(item, role, depth - 1)
        return
    if not isinstance(value, Mapping):
        return
    if (said := _message(value, role)) is not None:
        yield said
        return
    # {"model": "gpt-4o", "messages": [...]}, {"system": "...", "prompt": "..."}, {"choices": [{"message": {...}}]}
    for name in ("system", "config", "prompt", *_LISTS, *_INNER, "response"):
        if name in value:
            inner = value[name]
            if name == "config":
                inner = mapping_or_empty(inner).get("system_instruction")
            one = "system" if name in ("system", "config") else "assistant" if name == "replies" else role
            found = list(_messages(inner, one, depth - 1))
            yield from found
            if found and name in _LISTS:
                return


def _message(value: Mapping[str, Any], default: str) -> Said | None:
    """Return a mapping as a message; None if it is something else."""
    if value.get("type") == "function_call":  # OpenAI's Responses API has calls and results next to messages
        return Said("assistant", calls=list(_calls([value])))
    if value.get("type") == "function_call_output":
        return Said("tool", results=[ToolResult("", str(value.get("call_id") or ""), value.get("output"))])
    event = text_or_empty(value.get("event.name"))
    given = value.get("role") or value.get("_role") or value.get("type") or event.split(".")[1:2] or default
    role = _ROLES.get(str(given[0] if isinstance(given, list) else given).lower(), "")
    identity = value.get("id")
    if not role and isinstance(identity, list) and identity:  # LangChain's dump: ["langchain", …, "HumanMessage"]
        role = _ROLES.get(str(identity[-1]).lower().removesuffix("chunk").removesuffix("message"), "")
    if event == "gen_ai.choice":
        role = "assistant"
    inner = next((value[name] for name in _INNER if isinstance(value.get(name), Mapping)), None)
    if inner is not None and not any(
        isinstance(value.get(name), (str, list)) for name in ("content", "parts", "_content")
    ):
        return _message({**inner, "role": inner.get("role") or role or default}, default)
    # {"model": "m", "contents": [...]} is a request of Google's API.
    keys = (*_PARTS[:4], "tool_calls") if value.get("role") or role != _ROLES.get(default) else _PARTS[:3]
    has_parts = any(name in value for name in keys)
    # A part alone, {"type": "text", "content": "…"}, is a message of instructions or an answer.
    if not role and value.get("type") == "text" and (default == "system" or "text" in value):
        role = default
    if (not role and not default) or (not has_parts and not (role and isinstance(value.get("text"), str))):
        return None
    if not role and not ("parts" in value or "content" in value):
        return None
    said = Said(role or default)
    for name in _PARTS:
        if name in value:
            _add(said, value[name])
            if said.text or said.results or said.calls:
                break
    said.calls += _calls(value.get("tool_calls"))
    if said.role == "tool" and not said.results and said.text:
        call_id = str(value.get("tool_call_id") or value.get("id") or "")
        said.results.append(ToolResult(str(value.get("name") or ""), call_id, said.text))
        said.text = ""
    if said.results:
        said.role = "tool"
    return said


def _add(said: Said, content: Any) -> None:
    """Add the content of a message: a text, or parts of any provider."""
    if isinstance(content, str):
        if is_content(content):
            said.text += content
        return
    texts = []
    for part in items_or_empty(content):
        if isinstance(part, str):
            texts.append(part if is_content(part) else "")
            continue
        part = mapping_or_empty(part)
        part = mapping_or_empty(part.get("message_content")) or part
        kind = text_or_empty(part.get("type") or part.get("part_kind"))
        if (result := _result(part, kind)) is not None:
            said.results.append(result)
        elif calls := list(_calls([part] if "call" in kind or kind == "tool_use" or _CALLS & part.keys() else ())):
            said.calls += calls
        elif kind not in ("reasoning", "thinking"):
            text = next(filter(None, (text_or_empty(part.get(name)) for name in ("text", "content", "_text"))), "")
            texts.append(text if is_content(text) else "")
    said.text += "\n\n".join(filter(None, texts))


_CALLS = frozenset({"tool_call", "function_call", "tool_name", "toolCallId", "functionCall"})
_RESULTS = ("tool_call_result", "function_response", "functionResponse")
_VALUES = ("result", "response", "output", "content", "value")


def _result(part: Mapping[str, Any], kind: str) -> ToolResult | None:
    """Return a part of a message as the result of a tool; None if it is something else."""
    inner = next((part[name] for name in _RESULTS if isinstance(part.get(name), Mapping)), None)
    is_result = inner is not None or "result" in kind or "response" in kind or ("result" in part and "origin" in part)
    if not is_result or kind == "response":
        return None
    inner = mapping_or_empty(inner) or part
    origin = mapping_or_empty(inner.get("origin"))
    value = next((inner[name] for name in _VALUES if inner.get(name) is not None), None)
    # {"result": [...]} of Google's API, {"type": "text", "value": "…"} of Vercel's.
    if isinstance(value, Mapping) and len(value) <= 2:
        value = next((value[name] for name in ("result", "value", "output") if name in value), value)
    ids = ("id", "tool_call_id", "toolCallId", "tool_use_id")
    return ToolResult(
        name=str(inner.get("name") or inner.get("toolName") or origin.get("tool_name") or ""),
        call_id=str(next((inner[name] for name in ids if inner.get(name)), origin.get("id") or "")),
        value=value if is_content(value) else None,
        arguments=origin.get("arguments"),
    )


def _calls(value: Any) -> Iterator[ToolCall]:
    for item in items_or_empty(value):
        item = mapping_or_empty(item)
        for name in ("tool_call", "function_call", "functionCall"):
            item = mapping_or_empty(item.get(name)) or item
        function = mapping_or_empty(item.get("function")) or item
        tool = function.get("name") or function.get("tool_name") or function.get("toolName")
        given = next((function[key] for key in ("arguments", "args", "input") if function.get(key) is not None), "{}")
        if tool:
            arguments = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
            identity = item.get("call_id") or item.get("id") or item.get("toolCallId") or item.get("tool_call_id")
            yield ToolCall(name=str(tool), arguments=arguments, id=identity and str(identity))
