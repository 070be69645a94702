"""Run one unmodified application under ten tracing set-ups, and print where its scores arrive.

Usage::

    python scripts/compat/otel.py [SETUP ...]         # all by default; `make compat-otel` calls this

The application is ``examples/no_code.py``. Its tracing is set up by ``otel_launcher.py``, and ``rageval-hooks launch``
adds the scores. A recording server on this machine takes the place of every vendor. The packages are installed into a
virtual environment in ``.compat/``, unless ``--python`` names one that has them. Exits with 1 if a set-up has more than
one trace per request or more than one span per model call, or if a score is missing.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otlp_recorder import ReceivedSpan

PROJECT = Path(__file__).resolve().parents[2]
LAUNCHER = Path(__file__).with_name("otel_launcher.py")
APPLICATION = PROJECT / "examples" / "no_code.py"
SCORES = ("context_relevance", "groundedness", "unsupported_facts")
SECONDS = 120

REQUIREMENTS = (
    f"{PROJECT}[langchain,distro]",
    "arize-phoenix-otel",
    "langchain",  # Langfuse's handler needs it
    "langfuse",
    "langsmith[otel]",
    "logfire",
    "openinference-instrumentation-langchain",
    "rotel",
    # What Traceloop's SDK imports.
    "aiohttp",
    "colorama",
    "cuid",
    "deprecated",
    "inflection",
    "jinja2",
    "opentelemetry-instrumentation-langchain>=0.62",
    "opentelemetry-instrumentation-logging",
    "opentelemetry-instrumentation-threading",
    "tenacity",
)

WITHOUT_DEPENDENCIES = ("traceloop-sdk>=0.62",)
"""Traceloop's SDK requires an instrumentor for each of some forty libraries. pip takes very long to resolve that."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """One way to trace an application.

    Attributes:
        label: as printed.
        launch: the set-up of ``otel_launcher.py``; None if the application is started directly.
        command: what starts Python.
        variables: further variables; ``{url}`` is that of the server.
        collector: True to send the spans through a collector.
        traced: False if there is no tracing, so that the console shows the scores.
    """

    label: str
    launch: str | None
    command: tuple[str, ...] = ("rageval-hooks", "launch")
    variables: tuple[tuple[str, str], ...] = ()
    collector: bool = False
    traced: bool = True


SETUPS = {
    "sdk": Setup(label="OpenTelemetry SDK", launch="sdk"),
    "openinference": Setup(label="OpenInference", launch="openinference"),
    "phoenix": Setup(label="phoenix.otel.register", launch="phoenix"),
    "openllmetry": Setup(label="OpenLLMetry (Traceloop)", launch="openllmetry"),
    "langfuse": Setup(label="Langfuse", launch="langfuse"),
    "langsmith": Setup(
        label="LangSmith, OTEL mode",
        launch="langsmith",
        variables=(
            ("LANGSMITH_TRACING", "true"),
            ("LANGSMITH_OTEL_ENABLED", "true"),
            ("LANGSMITH_OTEL_ONLY", "true"),
            ("LANGSMITH_API_KEY", "compat"),
            ("LANGSMITH_ENDPOINT", "{url}"),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "{url}"),
        ),
    ),
    "logfire": Setup(label="Logfire", launch="logfire"),
    "opentelemetry-instrument": Setup(
        label="opentelemetry-instrument",
        launch=None,
        command=("opentelemetry-instrument",),
        variables=(
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "{url}"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
            ("OTEL_METRICS_EXPORTER", "none"),
            ("OTEL_LOGS_EXPORTER", "none"),
        ),
    ),
    "collector": Setup(label="a collector in between (rotel)", launch="sdk", collector=True),
    "none": Setup(label="none at all", launch=None, traced=False),
}


# --------------------------------------------------------------------------- running


def run(setup: Setup, url: str, binaries: Path) -> str:
    """Run the application under a set-up; returns its standard error.

    Raises:
        RuntimeError: it failed.
    """
    names = (name for name in os.environ if not name.startswith(("OTEL_", "RAGEVAL_", "LANGSMITH_", "LANGFUSE_")))
    environment = {name: os.environ[name] for name in names}
    environment |= {
        "PATH": f"{binaries}{os.pathsep}{environment.get('PATH', '')}",
        "COMPAT_URL": url,
        "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": _other_instrumentations(),
        "RAGEVAL_METRICS": ",".join(SCORES),
        "RAGEVAL_MODELS": "lexical",
        "RAGEVAL_INLINE_BUDGET_MS": "20000",
        **{name: value.format(url=url) for name, value in setup.variables},
    }
    python = [str(binaries / "python"), "-W", "ignore"]
    program = [APPLICATION] if setup.launch is None else [LAUNCHER, setup.launch, APPLICATION]
    command = [str(binaries / setup.command[0]), *setup.command[1:], *python, *map(str, program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode or "2018" not in done.stdout:
        raise RuntimeError(f"{setup.label}: the application failed\n{done.stdout}\n{done.stderr}")
    return done.stderr


def _other_instrumentations() -> str:
    """Return the names of all instrumentors but ours: ``opentelemetry-instrument`` would activate every one."""
    from importlib.metadata import entry_points

    names = {entry.name for entry in entry_points(group="opentelemetry_instrumentor")}
    return ",".join(sorted(names - {"rageval_hooks"}))


@contextmanager
def collector(url: str) -> Iterator[str]:
    """Run a collector that sends everything to a server; yields its own URL."""
    import rotel

    http, grpc = _free_port(), _free_port()
    program = Path(str(rotel.__file__)).with_name("rotel-agent")
    options = {
        "--otlp-http-endpoint": f"127.0.0.1:{http}",
        "--otlp-grpc-endpoint": f"127.0.0.1:{grpc}",
        "--exporter": "otlp",
        "--otlp-exporter-endpoint": url,
        "--otlp-exporter-protocol": "http",
        "--batch-timeout": "100ms",
    }
    arguments = [text for option in options.items() for text in option]
    process = subprocess.Popen([program, "start", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for_port(http)
        yield f"http://127.0.0.1:{http}"
    finally:
        process.terminate()  # sends what it still has
        process.wait(30)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def _wait_for_port(port: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError("the collector did not start within 30 seconds")


# --------------------------------------------------------------------------- reading


@dataclass(frozen=True, kw_only=True)
class Row:
    """What was found for one set-up.

    Attributes:
        label: the set-up.
        traces: traces per request.
        model_spans: spans per model call.
        scores: the scores that were found.
        place: where they are.
        traced: False if there is no tracing.
    """

    label: str
    traces: int
    model_spans: int
    scores: int
    place: str
    traced: bool

    @property
    def good(self) -> bool:
        """True if everything is as it should be."""
        once = (self.traces, self.model_spans) == (1, 1)
        return self.scores == len(SCORES) and (once or not self.traced)

    @property
    def cells(self) -> tuple[str, ...]:
        """The row of the table."""
        if not self.traced:
            return self.label, "-", "-", f"{self.scores} of {len(SCORES)}", self.place, "ok" if self.good else "WRONG"
        scores = f"{self.scores} of {len(SCORES)}"
        return self.label, str(self.traces), str(self.model_spans), scores, self.place, "ok" if self.good else "WRONG"


def row_of_spans(setup: Setup, spans: list[ReceivedSpan]) -> Row:
    """Read what arrived at the server."""
    calls = [span for span in spans if is_model_call(span.attributes)]
    evaluations = [span for span in spans if span.name.startswith("evaluate") and span.scope == "rageval_hooks"]
    found = {name for name in SCORES for span in evaluations if f"rageval.score.{name}" in span.attributes}
    return Row(
        label=setup.label,
        # A vendor may add spans of its own, for example about its configuration.
        traces=len({span.trace_id for span in (*calls, *evaluations)}),
        model_spans=len(calls),
        scores=len(found),
        place=", ".join(_place(span, spans) for span in evaluations) or "nowhere",
        traced=True,
    )


def is_model_call(attributes: Mapping[str, object]) -> bool:
    """Return True for the span of a model call, in the words of any tracer."""
    # LangSmith calls prompts "chat" too.
    kinds = ("openinference.span.kind", "langsmith.span.kind", "langfuse.observation.type")
    for name in kinds:
        if name in attributes:
            return str(attributes[name]).lower() in ("llm", "generation")
    return attributes.get("gen_ai.operation.name") in ("chat", "text_completion", "generate_content")


def _place(evaluation: ReceivedSpan, spans: list[ReceivedSpan]) -> str:
    parent = next((span for span in spans if span.span_id == evaluation.parent_id), None)
    if parent is None:
        return "below a span that did not arrive"
    return f"below “{parent.name}” of {parent.scope}"


def row_of_console(setup: Setup, output: str) -> Row:
    """Read the summary on standard error."""
    found = [name for name in SCORES if f"\n{name} " in output]
    place = "in the summary on the console" if found else "nowhere"
    return Row(label=setup.label, traces=0, model_spans=0, scores=len(found), place=place, traced=False)


def check(name: str, binaries: Path) -> Row:
    """Run one set-up, and read what arrived."""
    from otlp_recorder import recorder

    setup = SETUPS[name]
    with recorder() as server:
        if setup.collector:
            with collector(server.url) as url:
                output = run(setup, url, binaries)
        else:
            output = run(setup, server.url, binaries)
        return row_of_spans(setup, server.spans) if setup.traced else row_of_console(setup, output)


def print_table(rows: list[Row]) -> None:
    """Print the rows with aligned columns."""
    head = ("set-up", "traces per request", "spans per model call", "scores", "where", "")
    lines = [head, *(row.cells for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


# --------------------------------------------------------------------------- the command


def install(folder: Path) -> Path:
    """Create the virtual environment, and install everything; returns its Python."""
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, *REQUIREMENTS], check=True)
    done = subprocess.run([*pip, "--no-deps", *WITHOUT_DEPENDENCIES], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    return python


def main() -> int:
    """Run the set-ups that are named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("setups", nargs="*", metavar="SETUP", help=f"any of: {', '.join(SETUPS)}")
    parser.add_argument("--folder", type=Path, default=PROJECT / ".compat", help="where everything is installed")
    parser.add_argument("--python", type=Path, help="a Python that has everything; nothing is installed")
    arguments = parser.parse_args()
    names = arguments.setups or list(SETUPS)
    if unknown := sorted(set(names) - set(SETUPS)):
        parser.error(f"unknown set-ups: {', '.join(unknown)}. Valid: {', '.join(SETUPS)}")
    python = arguments.python or install(arguments.folder.resolve() / "otel")
    if Path(sys.executable).parent != python.parent:
        # The rest needs the packages of that environment.
        again = [python, __file__, "--python", python, *names]
        return subprocess.run(again, check=False).returncode
    rows = [check(name, python.parent) for name in names]
    print_table(rows)
    return 0 if all(row.good for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
