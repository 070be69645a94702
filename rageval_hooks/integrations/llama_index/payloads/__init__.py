"""How LlamaIndex's values are read: inputs, outputs, messages, nodes, token counts, and the kinds of its spans.

By attribute names: the classes are not imported, because importing llama-index-core takes seconds.
"""

from rageval_hooks.integrations.llama_index.payloads.inputs import arguments_of, query_of, tool_input
from rageval_hooks.integrations.llama_index.payloads.kinds import kind_of, method_of, name_of, provider_of
from rageval_hooks.integrations.llama_index.payloads.messages import (
    as_json,
    messages_of,
    model_of,
    refusal_of,
    requested_model_in,
    response_id_of,
    tool_call,
    tool_calls_of,
)
from rageval_hooks.integrations.llama_index.payloads.model_requests import (
    finish_reason_of,
    parameters_of,
    template_in,
    tool_fields,
    tools_in,
)
from rageval_hooks.integrations.llama_index.payloads.nodes import (
    Made,
    Snapshot,
    node_ids,
    nodes_in,
    passages_of,
    snapshot,
)
from rageval_hooks.integrations.llama_index.payloads.outputs import Streamed, answer_of, is_generator, streamed_in
from rageval_hooks.integrations.llama_index.payloads.retrievers import collection_of, top_k_of
from rageval_hooks.integrations.llama_index.payloads.usage import usage_of

__all__ = [
    "Made",
    "Snapshot",
    "Streamed",
    "answer_of",
    "arguments_of",
    "as_json",
    "collection_of",
    "finish_reason_of",
    "is_generator",
    "kind_of",
    "messages_of",
    "method_of",
    "model_of",
    "name_of",
    "node_ids",
    "nodes_in",
    "parameters_of",
    "passages_of",
    "provider_of",
    "query_of",
    "refusal_of",
    "requested_model_in",
    "response_id_of",
    "snapshot",
    "streamed_in",
    "template_in",
    "tool_call",
    "tool_calls_of",
    "tool_fields",
    "tool_input",
    "tools_in",
    "top_k_of",
    "usage_of",
]
