"""A local Phoenix server that makes no outside connections, and the demo with it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from urllib.request import urlopen

from rageval_hooks.demo.run import run_demo
from rageval_hooks.errors import MissingDependencyError, RagevalError

# Seconds; the first start on a slow machine takes half a minute.
_START = 180.0

# No connections but loopback: no usage statistics, no fonts or images from other hosts, no assistant.
_QUIET = {
    "PHOENIX_TELEMETRY_ENABLED": "false",
    "PHOENIX_ALLOW_EXTERNAL_RESOURCES": "false",
    "PHOENIX_DISABLE_AGENT_ASSISTANT": "true",
    "PHOENIX_AGENTS_DISABLE_WEB_ACCESS": "true",
    "PHOENIX_ENABLE_MCP_SERVER": "false",
}


@dataclass(frozen=True)
class Phoenix:
    """A running server.

    Attributes:
        url: base URL of its pages, its REST API and OTLP over HTTP.
        grpc_port: port of OTLP over gRPC.
        log: the file with its output.
    """

    url: str
    grpc_port: int
    log: Path


def phoenix_installed() -> bool:
    """Return True if the package of the server is installed. It is not imported, which would take seconds."""
    # A namespace package without an origin belongs to the client alone.
    spec = find_spec("phoenix")
    return spec is not None and spec.origin is not None


@contextmanager
def serve_phoenix(
    folder: Path, *, port: int | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[Phoenix]:
    """Run a server while the block runs.

    Args:
        folder: the folder for its database and its log.
        port: the port for HTTP; a free one by default.
        environment: further environment variables for the server.

    Raises:
        MissingDependencyError: the server's package is not installed.
        RagevalError: the server does not start; the message has the end of its log.
    """
    if not phoenix_installed():
        raise MissingDependencyError("arize-phoenix", "demo-phoenix", "a Phoenix server")
    port, grpc_port = port or _free_port(), _free_port()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PHOENIX_", "OTEL_"))}
    own = {
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc_port),
    }
    phoenix = Phoenix(f"http://127.0.0.1:{port}", grpc_port, folder / "phoenix.log")
    with open(phoenix.log, "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "phoenix.server.main", "serve"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**inherited, **_QUIET, **own, **(environment or {})},
            # Ctrl-C must reach this process only, which then stops the server.
            start_new_session=True,
        )
        try:
            _wait_until_ready(phoenix, process)
            yield phoenix
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait_until_ready(phoenix: Phoenix, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + _START
    while process.poll() is None and time.monotonic() < end:
        try:
            with urlopen(f"{phoenix.url}/readyz", timeout=5):
                return
        except (OSError, HTTPException):
            time.sleep(0.1)
    why = f"ended with status {process.returncode}" if process.returncode is not None else f"not ready in {_START:g} s"
    last = "\n".join(phoenix.log.read_text(errors="replace").splitlines()[-20:])
    raise RagevalError(f"the Phoenix server does not start ({why}):\n{last}")


def _free_port(wanted: int = 0) -> int:
    """Return a free port: the wanted one if it is free."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    """Start a server, run the demo, and serve until Ctrl-C. The data of the server is deleted at the end."""
    try:
        with tempfile.TemporaryDirectory(prefix="rageval-phoenix-") as folder:
            print("starting Phoenix …", file=sys.stderr, flush=True)  # noqa: T201
            with serve_phoenix(Path(folder), port=_free_port(6006)) as phoenix:
                run_demo(otlp=phoenix.url)
                print(f"\nPhoenix: {phoenix.url}/redirects/projects/rageval-demo\nCtrl-C ends it.", flush=True)  # noqa: T201
                while True:
                    time.sleep(3600)
    except KeyboardInterrupt:
        pass
    except RagevalError as error:
        print(f"rageval-hooks: {error}", file=sys.stderr)  # noqa: T201
        sys.exit(2)


if __name__ == "__main__":
    main()
