"""Record the spans of small RAG applications, each made with a real framework.

    python scripts/record_traces.py FRAMEWORK INSTRUMENTOR FOLDER

Tests read the recordings, and scripts/traced_tables.py makes a table of them. The script needs the framework and the
instrumentor only, not this package: frameworks have conflicting requirements, so each has an environment of its own. A
scripted server on this machine plays the model. Recordings have no paths and no host names.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

QUESTION = "When was the Tessel canal lock rebuilt?"
SEARCH = "Tessel canal lock rebuilt"
PASSAGES = {
    "canal-1": "The Tessel canal lock was rebuilt in 1934 and is 64 metres long.",
    "canal-4": "In May 2018 the gates of the lock were replaced after 84 years.",
}
ANSWER = "It was last rebuilt in 1934."
RULES = "Answer the question about the canal in one sentence, only from what the search returns."
MODEL = "gpt-4o-mini"

os.environ |= {
    "OPENAI_API_KEY": "none",
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
    "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS": "true",
    "SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE": "true",
    "ENABLE_SENSITIVE_DATA": "true",
    "HAYSTACK_CONTENT_TRACING_ENABLED": "true",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
}


def prompt(passages: list[str]) -> str:
    """Return a prompt with passages."""
    context = "\n\n".join(passages)
    return f"{RULES}\n\nContext:\n{context}\n\nQuestion: {QUESTION}"


def search_canal_guide(query: str) -> str:
    """Search the canal guide.

    Args:
        query: what to look for.
    """
    del query
    return PASSAGES["canal-1"]


# --------------------------------------------------------------------------- the scripted model


class Model(BaseHTTPRequestHandler):
    """Calls the first tool of a request once, and then answers."""

    def do_POST(self) -> None:
        """Answer a chat completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        messages, tools = body.get("messages", []), body.get("tools") or []
        wanted = [tool["function"]["name"] for tool in tools if "search" in tool["function"]["name"].lower()]
        has_result = any(one["role"] == "tool" or PASSAGES["canal-1"] in str(one.get("content")) for one in messages)
        text = str(messages)
        message: dict[str, Any] = {"role": "assistant", "content": ANSWER}
        if wanted and not has_result:
            call = {"name": wanted[0], "arguments": json.dumps({"query": SEARCH})}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c1", "type": "function", "function": call}],
            }
        elif final := [tool["function"]["name"] for tool in tools if tool["function"]["name"] == "final_answer"]:
            call = {"name": final[0], "arguments": json.dumps({"answer": ANSWER})}
            message = {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c2", "type": "function", "function": call}],
            }
        elif "[[ ## next_tool_name ## ]]" in text:
            name, arguments = ("finish", {}) if has_result else ("search_canal_guide", {"query": SEARCH})
            message["content"] = (
                f"[[ ## next_thought ## ]]\nI search.\n\n[[ ## next_tool_name ## ]]\n{name}\n\n"
                f"[[ ## next_tool_args ## ]]\n{json.dumps(arguments)}\n\n[[ ## completed ## ]]"
            )
        elif "[[ ## " in text:
            message["content"] = (
                f"[[ ## reasoning ## ]]\nThe guide says so.\n\n[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]"
            )
        elif "Thought:" in text and "Action Input" in text and not has_result:
            message["content"] = (
                f'Thought: I search.\nAction: search_canal_guide\nAction Input: {{"query": "{SEARCH}"}}'
            )
        elif "Final Answer" in text:
            message["content"] = f"Thought: I now know the final answer\nFinal Answer: {ANSWER}"
        usage = {"prompt_tokens": 50, "completion_tokens": 7, "total_tokens": 57}
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": "tool_calls" if message.get("tool_calls") else "stop",
        }
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1700000000, "model": MODEL, "usage": usage}
        if not body.get("stream"):
            self._send("application/json", json.dumps({**whole, "choices": [choice]}))
            return
        calls = [{"index": 0, **call} for call in message.get("tool_calls", [])]
        delta = {"role": "assistant", "content": message["content"], **({"tool_calls": calls} if calls else {})}
        chunk = {**whole, "object": "chat.completion.chunk", "usage": None}
        chunks = [
            {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
            {**chunk, "choices": [], "usage": usage},
        ]
        self._send("text/event-stream", "".join(f"data: {json.dumps(one)}\n\n" for one in chunks) + "data: [DONE]\n\n")

    def _send(self, kind: str, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


# --------------------------------------------------------------------------- applications, by framework


def openai(url: str) -> dict[str, Callable[[], Any]]:
    """A client of OpenAI's."""
    client = import_module("openai").OpenAI(base_url=url)
    messages = [{"role": "user", "content": prompt(list(PASSAGES.values()))}]

    def stream() -> None:
        list(client.chat.completions.create(model=MODEL, messages=messages, stream=True))

    return {"right": lambda: client.chat.completions.create(model=MODEL, messages=messages), "stream": stream}


def litellm(url: str) -> dict[str, Callable[[], Any]]:
    """LiteLLM."""
    module = import_module("litellm")
    messages = [{"role": "user", "content": prompt(list(PASSAGES.values()))}]
    return {"right": lambda: module.completion(model=f"openai/{MODEL}", api_base=url, messages=messages)}


def dspy(url: str) -> dict[str, Callable[[], Any]]:
    """DSPy: a module with context, and an agent."""
    module = import_module("dspy")
    module.configure(lm=module.LM(f"openai/{MODEL}", api_base=url, api_key="none", cache=False))

    class Rag(module.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.answer = module.ChainOfThought("context: list[str], question -> answer")

        def forward(self, question: str) -> Any:
            return self.answer(context=list(PASSAGES.values()), question=question)

    agent = module.ReAct("question -> answer", tools=[search_canal_guide], max_iters=2)
    return {"right": lambda: Rag()(question=QUESTION), "agent": lambda: agent(question=QUESTION)}


def smolagents(url: str) -> dict[str, Callable[[], Any]]:
    """An agent of smolagents that calls tools."""
    module = import_module("smolagents")
    model = module.OpenAIServerModel(MODEL, api_base=url, api_key="none")
    agent = module.ToolCallingAgent(tools=[module.tool(search_canal_guide)], model=model, verbosity_level=0)
    return {"agent": lambda: agent.run(QUESTION)}


def google_adk(url: str) -> dict[str, Callable[[], Any]]:
    """An agent of Google's ADK."""
    agents, runners = import_module("google.adk.agents"), import_module("google.adk.runners")
    model = import_module("google.adk.models.lite_llm").LiteLlm(model=f"openai/{MODEL}", api_base=url, api_key="none")
    agent = agents.Agent(name="canal", model=model, instruction=RULES, tools=[search_canal_guide])
    types = import_module("google.genai.types")

    async def run() -> None:
        runner = runners.InMemoryRunner(agent=agent, app_name="canal")
        session = await runner.session_service.create_session(app_name="canal", user_id="u")
        message = types.Content(role="user", parts=[types.Part(text=QUESTION)])
        async for _ in runner.run_async(user_id="u", session_id=session.id, new_message=message):
            pass

    return {"agent": lambda: asyncio.run(run())}


def crewai(url: str) -> dict[str, Callable[[], Any]]:
    """A crew with one agent."""
    module = import_module("crewai")
    tool = import_module("crewai.tools").tool("search_canal_guide")(search_canal_guide)
    llm = module.LLM(model=f"openai/{MODEL}", base_url=url, api_key="none")
    agent = module.Agent(role="guide", goal="Answer questions", backstory="You know the canal.", tools=[tool], llm=llm)
    task = module.Task(description="{question}", expected_output="one sentence", agent=agent)
    crew = module.Crew(agents=[agent], tasks=[task])
    return {"agent": lambda: crew.kickoff(inputs={"question": QUESTION})}


def openai_agents(url: str) -> dict[str, Callable[[], Any]]:
    """An agent of the OpenAI Agents SDK."""
    module = import_module("agents")
    client = import_module("openai").AsyncOpenAI(base_url=url)
    model = module.OpenAIChatCompletionsModel(model=MODEL, openai_client=client)
    agent = module.Agent(
        name="canal", instructions=RULES, model=model, tools=[module.function_tool(search_canal_guide)]
    )
    return {"agent": lambda: module.Runner.run_sync(agent, QUESTION)}


def haystack(url: str) -> dict[str, Callable[[], Any]]:
    """A pipeline of Haystack with BM25."""
    module = import_module("haystack")
    document = module.Document
    store = import_module("haystack.document_stores.in_memory").InMemoryDocumentStore()
    store.write_documents([document(id=name, content=text) for name, text in PASSAGES.items()])
    retriever = import_module("haystack.components.retrievers.in_memory").InMemoryBM25Retriever(store, top_k=2)
    template = prompt(["{% for one in documents %}{{ one.content }}\n\n{% endfor %}"]).replace(
        QUESTION, "{{ question }}"
    )
    message = import_module("haystack.dataclasses").ChatMessage.from_user(template)
    pipeline = module.Pipeline()
    pipeline.add_component("retriever", retriever)
    builder = import_module("haystack.components.builders").ChatPromptBuilder(
        template=[message], required_variables=["question", "documents"]
    )
    pipeline.add_component("prompt_builder", builder)
    llm = import_module("haystack.components.generators.chat").OpenAIChatGenerator(model=MODEL, api_base_url=url)
    pipeline.add_component("llm", llm)
    pipeline.connect("retriever.documents", "prompt_builder.documents")
    pipeline.connect("prompt_builder.prompt", "llm.messages")
    asked = {"retriever": {"query": QUESTION}, "prompt_builder": {"question": QUESTION}}
    return {"right": lambda: pipeline.run(asked)}


def semantic_kernel(url: str) -> dict[str, Callable[[], Any]]:
    """An agent of Semantic Kernel."""
    agents = import_module("semantic_kernel.agents")
    service = import_module("semantic_kernel.connectors.ai.open_ai").OpenAIChatCompletion(
        ai_model_id=MODEL, async_client=import_module("openai").AsyncOpenAI(base_url=url)
    )
    function = import_module("semantic_kernel.functions").kernel_function

    class Guide:
        @function(name="search_canal_guide", description="Searches the canal guide.")  # type: ignore[untyped-decorator]
        def search_canal_guide(self, query: str) -> str:
            return search_canal_guide(query)

    agent = agents.ChatCompletionAgent(service=service, name="canal", instructions=RULES, plugins=[Guide()])
    return {"agent": lambda: asyncio.run(agent.get_response(messages=QUESTION))}


def pydantic_ai(url: str) -> dict[str, Callable[[], Any]]:
    """An agent of Pydantic AI, with its own tracer."""
    module = import_module("pydantic_ai")
    provider = import_module("pydantic_ai.providers.openai").OpenAIProvider(base_url=url, api_key="none")
    models = import_module("pydantic_ai.models.openai")
    model = (getattr(models, "OpenAIChatModel", None) or models.OpenAIModel)(MODEL, provider=provider)
    module.Agent.instrument_all()
    agent = module.Agent(model, instructions=RULES, tools=[search_canal_guide], name="canal")
    return {"agent": lambda: agent.run_sync(QUESTION)}


def agent_framework(url: str) -> dict[str, Callable[[], Any]]:
    """An agent of Microsoft's Agent Framework."""
    module = import_module("agent_framework.openai")
    kind = getattr(module, "OpenAIChatCompletionClient", None) or module.OpenAIChatClient
    client = kind(model=MODEL, base_url=url, api_key="none")
    core = import_module("agent_framework")
    agent = (getattr(core, "Agent", None) or core.ChatAgent)(client, instructions=RULES, tools=[search_canal_guide])
    return {"agent": lambda: asyncio.run(agent.run(QUESTION))}


def autogen(url: str) -> dict[str, Callable[[], Any]]:
    """An assistant of AutoGen."""
    agents = import_module("autogen_agentchat.agents")
    client = import_module("autogen_ext.models.openai").OpenAIChatCompletionClient(
        model=MODEL, base_url=url, api_key="none"
    )

    async def run() -> None:
        agent = agents.AssistantAgent(
            "canal", client, tools=[search_canal_guide], system_message=RULES, reflect_on_tool_use=True
        )
        await agent.run(task=QUESTION)

    return {"agent": lambda: asyncio.run(run())}


APPLICATIONS = {
    function.__name__: function
    for function in (
        *(openai, litellm, dspy, smolagents, google_adk, crewai, semantic_kernel, agent_framework, autogen),
        *(openai_agents, haystack, pydantic_ai),
    )
}

# --------------------------------------------------------------------------- instrumentors


def switch_on(name: str, provider: Any) -> None:
    """Switch an instrumentor on: ``openinference.instrumentation.dspy:DSPyInstrumentor``, or a framework's own."""
    if name == "litellm":
        import_module("litellm").callbacks = ["otel"]
    elif name == "agent_framework":
        observability = import_module("agent_framework.observability")
        for enable in ("enable_instrumentation", "setup_observability"):
            if hasattr(observability, enable):
                getattr(observability, enable)(enable_sensitive_data=True)
                break
    elif ":" in name:
        module, _, kind = name.partition(":")
        getattr(import_module(module), kind)().instrument(tracer_provider=provider, skip_dep_check=True)


def main() -> None:
    """Run the applications of a framework, and write a recording for each."""
    framework, instrumentor, folder = sys.argv[1:]
    shown = [one.partition(":")[0] for one in instrumentor.split("+")] if instrumentor != framework else ["own"]
    trace, sdk = import_module("opentelemetry.trace"), import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    memory = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    trace.set_tracer_provider(provider)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for one in instrumentor.split("+"):
        switch_on(one, provider)
    applications = APPLICATIONS[framework](f"http://127.0.0.1:{server.server_port}/v1")
    for name, run in applications.items():
        memory.clear()
        run()
        provider.force_flush()
        used = PASSAGES if name in ("right", "stream") else {"canal-1": PASSAGES["canal-1"]}
        spans = [
            {**json.loads(span.to_json()), "scope": span.instrumentation_scope.name}
            for span in memory.get_finished_spans()
        ]
        recording = {
            "framework": _distribution(framework),
            "instrumentor": re.sub(r"[._]", "-", " + ".join(shown)),
            "versions": {_distribution(framework): version(_distribution(framework))},
            # The spans have every text, wherever it is.
            "recorded": all(text in json.dumps(spans) for text in (QUESTION, ANSWER, *used.values())),
            "truth": {"question": QUESTION, "passages": list(used.values()), "answer": ANSWER},
            "spans": [{name: value for name, value in span.items() if name != "resource"} for span in spans],
        }
        text = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:20000", json.dumps(recording, indent=1))
        text = re.sub(r"0x[0-9a-f]{12}\b", "0xADDR", text).replace(sys.prefix, "env")
        text = text.replace(str(Path.home()), "~").replace(os.getcwd(), ".")
        label = re.sub(r"\W+", "_", shown[0].replace(".instrumentation", ""))
        path = Path(folder) / f"{framework}_{label}_{name}.json"
        path.write_text(text)
        print(path, len(spans), "spans")


def _distribution(framework: str) -> str:
    names = {
        "haystack": "haystack-ai",
        "agent_framework": "agent-framework-core",
        "autogen": "autogen-agentchat",
        "pydantic_ai": "pydantic-ai-slim",
    }
    return names.get(framework, framework.replace("_", "-"))


if __name__ == "__main__":
    main()
    os._exit(0)  # frameworks leave threads behind
