"""Which instrumentors are installed, whether their spans have the texts of a turn, and what to set."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import distributions
from typing import Final

_GENAI: Final = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY|SPAN_AND_EVENT",
}
_HIDE: Final = tuple(
    f"OPENINFERENCE_HIDE_{name}"
    for name in (
        "INPUTS",
        "OUTPUTS",
        "INPUT_MESSAGES",
        "OUTPUT_MESSAGES",
        "INPUT_TEXT",
        "OUTPUT_TEXT",
        "RETRIEVAL_DOCUMENTS",
    )
)
_WHOLE, _IN_PROMPT, _IN_TOOLS = "passages", "passages from the prompt and from tools", "passages from tools only"


@dataclass(frozen=True)
class Instrumentor:
    """What the spans of an instrumentor, or of a framework's own tracer, have.

    Attributes:
        distributions: matches the names of its distributions.
        passages: where the passages are; empty if nowhere.
        needs: variables that must be set, and their value, or several with ``|`` in between.
        hidden_by: variables that hide texts if they are true.
        shown_by: variables that hide texts if they are false.
    """

    distributions: str
    passages: str = _WHOLE
    needs: Mapping[str, str] | None = None
    hidden_by: tuple[str, ...] = ()
    shown_by: tuple[str, ...] = ()


_KNOWN: Final = (
    Instrumentor(
        "openinference-instrumentation-(openai|litellm|groq|mistralai|anthropic|bedrock)", _IN_PROMPT, None, _HIDE
    ),
    Instrumentor(
        "openinference-instrumentation-(autogen|openai-agents|google-adk|crewai|smol).*", _IN_TOOLS, None, _HIDE
    ),
    Instrumentor("openinference-instrumentation-(?!openllmetry|openlit).+", _WHOLE, None, _HIDE),
    Instrumentor("opentelemetry-instrumentation-genai-smolagents", "", _GENAI),
    Instrumentor("opentelemetry-instrumentation-genai-openai-agents", _IN_TOOLS, _GENAI),
    Instrumentor("opentelemetry-instrumentation-(genai-.+|openai-v2)", _IN_PROMPT, _GENAI),
    Instrumentor("google-adk", _IN_TOOLS, _GENAI),
    Instrumentor(
        "opentelemetry-instrumentation-(openai|crewai|haystack|openai-agents|anthropic|agno)",
        _IN_PROMPT,
        shown_by=("TRACELOOP_TRACE_CONTENT",),
    ),
    Instrumentor("haystack-ai", _WHOLE, {"HAYSTACK_CONTENT_TRACING_ENABLED": "true"}),
    Instrumentor("pydantic-ai(-slim)?", _IN_TOOLS),
    Instrumentor(
        "semantic-kernel",
        _IN_TOOLS,
        {"SEMANTICKERNEL_EXPERIMENTAL_GENAI_ENABLE_OTEL_DIAGNOSTICS_SENSITIVE": "true"},
    ),
    Instrumentor("agent-framework-core", _IN_TOOLS, {"ENABLE_SENSITIVE_DATA": "true"}),
)


@dataclass(frozen=True)
class Finding:
    """What the spans of an installed instrumentor have.

    Attributes:
        name: its distribution, with the version.
        has: "question, answer and passages", or what there is.
        advice: what to set or to unset; empty if the texts are recorded.
    """

    name: str
    has: str
    advice: str


def installed_instrumentors(environment: Mapping[str, str] = os.environ) -> Iterable[Finding]:
    """Yield what each installed instrumentor records with the variables of this environment."""
    found = {found.metadata["Name"]: found.version for found in distributions() if found.metadata["Name"]}
    for name in sorted(found, key=str.lower):
        plain = re.sub(r"[-_.]+", "-", name.lower())
        known = next((one for one in _KNOWN if re.fullmatch(one.distributions, plain)), None)
        # Callbacks capture these two frameworks, whatever their spans have.
        if known is None or "langchain" in plain or "llama" in plain:
            continue
        texts = f"question, answer and {known.passages}" if known.passages else "question and answer, but no passages"
        yield Finding(f"{name} {found[name]}", texts, _advice(known, environment))


def _advice(known: Instrumentor, environment: Mapping[str, str]) -> str:
    unset = {
        name: value
        for name, value in (known.needs or {}).items()
        if not any(one in environment.get(name, "") for one in value.split("|"))
    }
    if unset:
        return "set " + " and ".join(f"{name}={value.partition('|')[0]}" for name, value in unset.items())
    hiding = [name for name in known.hidden_by if environment.get(name, "").lower() in ("1", "true", "yes")]
    hiding += [name for name in known.shown_by if environment.get(name, "").lower() in ("0", "false", "no")]
    return "unset " + ", ".join(hiding) if hiding else ""
