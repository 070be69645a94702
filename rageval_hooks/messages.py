"""The messages of a model call: prompts, the templates behind them, and the tool calls that models ask for."""

from __future__ import annotations

from pydantic import Field

from rageval_hooks.runtime.jsonable import Data, Text


class ToolCall(Data):
    """A call of a tool that a model asked for.

    Attributes:
        name: the tool's name.
        arguments: its arguments as JSON.
        id: the provider's id of the call; the message with the tool's result has the same id.
    """

    name: Text
    arguments: Text = "{}"
    id: Text | None = None


class Message(Data):
    """One message of a prompt.

    Attributes:
        role: ``system``, ``user``, ``assistant`` or ``tool``.
        content: its text. For a message with tool calls and no text, the calls as JSON.
        tool_calls: the calls of tools that an earlier answer of the model asked for.
        tool_call_id: which call a message with a tool's result answers.
        name: the name of the tool, for such a message.
    """

    role: Text
    content: Text
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: Text | None = None
    name: Text | None = None


class PromptTemplate(Data):
    """The template of a prompt.

    Attributes:
        text: the template, with the names of its variables.
        variables: their values.
    """

    text: Text
    variables: dict[Text, Text] = Field(default_factory=dict)
