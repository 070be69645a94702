"""A local MLflow server that makes no outside connections."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from urllib.request import urlopen

__all__ = ["mlflow_command", "serve_mlflow"]

# Seconds; on a slow machine the first request sets up the database for half a minute.
_START = 240.0


def mlflow_command() -> str | None:
    """Return the command of the server: ``MLFLOW_COMMAND``, or that of the environment next to the tests', or None.

    MLflow has a separate environment, because it brings a hundred packages in versions that it chooses.
    """
    beside = Path(f"{sys.prefix}-mlflow") / "bin" / "mlflow"
    return os.environ.get("MLFLOW_COMMAND") or (str(beside) if beside.exists() else shutil.which("mlflow"))


@contextmanager
def serve_mlflow(command: str, folder: Path, port: int | None = None) -> Iterator[str]:
    """Run a server while the block runs, and yield its base URL.

    Args:
        command: the executable ``mlflow``.
        folder: for the database and the log. A later server with the same folder has the same traces.
        port: a free one by default.
    """
    port = port or _free_port()
    url = f"http://127.0.0.1:{port}"
    database = f"sqlite:///{folder / 'mlflow.db'}"
    arguments = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", "--backend-store-uri", database]
    arguments += ["--artifacts-destination", str(folder / "artifacts")]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "OTEL_", "PYTHON"))}
    log = folder / "mlflow.log"
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [command, "server", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**clean, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
            start_new_session=True,
        )
        try:
            _wait_until_ready(url, process, log)
            yield url
        finally:
            # The server's own workers are in its group.
            os.killpg(process.pid, 15)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, 9)
                process.wait()


def _wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    # The database is set up by the first request that reads it.
    page = f"{url}/api/2.0/mlflow/experiments/get?experiment_id=0"
    end = time.monotonic() + _START
    while process.poll() is None and time.monotonic() < end:
        try:
            with urlopen(page, timeout=60):
                return
        except (OSError, HTTPException):
            time.sleep(0.2)
    raise RuntimeError("the MLflow server does not start:\n" + "\n".join(log.read_text().splitlines()[-20:]))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
