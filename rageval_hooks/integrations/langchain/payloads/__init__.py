"""How LangChain's values are read: states, messages, documents and model results, as objects, as copies and as text."""

from rageval_hooks.integrations.langchain.payloads.copying import (
    ATOMS,
    DEPTH,
    DocumentSnapshot,
    MessageSnapshot,
    ResultSnapshot,
    copy_value,
    is_message,
    plain,
)
from rageval_hooks.integrations.langchain.payloads.documents import (
    Found,
    document_lists,
    new_document_lists,
    passage_from,
    passages_of,
)
from rageval_hooks.integrations.langchain.payloads.rendering import (
    as_json,
    as_text,
    content_text,
    is_content,
    message_text,
    role_of,
    tool_text,
)
from rageval_hooks.integrations.langchain.payloads.states import (
    fields_by_name,
    fields_of,
    is_command,
    is_structured_answer,
)

__all__ = [
    "ATOMS",
    "DEPTH",
    "DocumentSnapshot",
    "Found",
    "MessageSnapshot",
    "ResultSnapshot",
    "as_json",
    "as_text",
    "content_text",
    "copy_value",
    "document_lists",
    "fields_by_name",
    "fields_of",
    "is_command",
    "is_content",
    "is_message",
    "is_structured_answer",
    "message_text",
    "new_document_lists",
    "passage_from",
    "passages_of",
    "plain",
    "role_of",
    "tool_text",
]
