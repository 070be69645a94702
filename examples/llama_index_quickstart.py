"""The one line in a LlamaIndex app. Runs without a key: python examples/llama_index_quickstart.py"""

from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.llms.callbacks import llm_completion_callback
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

import rageval_hooks

NODES = [
    TextNode(id_="pier", text="The new pier was opened in September 2019 and is 96 metres long."),
    TextNode(id_="ferry", text="The ferry to Quern takes 18 minutes and leaves every half hour."),
]


class Handbook(BaseRetriever):
    """Your retriever, for example VectorStoreIndex.from_documents(...).as_retriever()."""

    def _retrieve(self, query_bundle):
        return [NodeWithScore(node=node, score=score) for node, score in zip(NODES, (0.9, 0.3), strict=True)]


class Model(CustomLLM):
    """Your model, for example llama_index.llms.openai.OpenAI(...)."""

    @property
    def metadata(self):
        return LLMMetadata(model_name="canned")

    @llm_completion_callback()
    def complete(self, prompt, formatted=False, **kwargs):
        return CompletionResponse(text="The pier was opened in September 2018. It is 96 metres long.")

    @llm_completion_callback()
    def stream_complete(self, prompt, formatted=False, **kwargs):
        yield self.complete(prompt)


# The one line. models="lexical" needs no weights: leave it out for the real models.
rageval_hooks.instrument(models="lexical")

engine = RetrieverQueryEngine.from_args(Handbook(), llm=Model())
print(engine.query("When was the pier opened?"))
# Without a tracing backend the turn and its scores are printed. For spans:
#   pip install "rageval-hooks[otlp]"; export OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318
