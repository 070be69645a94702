"""ONNX Runtime: it computes the passes of local encoders on the CPU, on the calling thread and without Python's lock.

The graph of a model is its own ``onnx/model.onnx``. Where it has none, the graph is made once from its weights. For
int8, the graph is quantized once. Both happen in a short-lived process (:mod:`rageval_hooks.models.export`), so that
the application never imports PyTorch for it, and the result is kept in a private folder by the hash of the weights.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal

from rageval_hooks.models.bert_graph import GraphKind, is_bert
from rageval_hooks.models.pytorch import logits_by_torch
from rageval_hooks.models.sources import brief, weight_files
from rageval_hooks.runtime.pool import running_pass
from rageval_hooks.runtime.threads import original, patched_by, sleep
from rageval_hooks.settings import ONNX_FILE, ModelSettings

if TYPE_CHECKING:
    from tokenizers import Encoding

    from rageval_hooks.models.tokenizing import FloatArray, IntArray


_logger = logging.getLogger(__name__)

_EXPORT_VERSION: Final = "4"
"""Changes when the export or the quantization gives another graph."""

_MAX_EXPORT: Final = 600.0
"""Seconds. A model of 1.5 GB takes about a minute."""

_NO_TELEMETRY: Final = "ORT_DISABLE_TELEMETRY"


class Graph:
    """An ONNX file, ready to run.

    It has no threads of its own: a pass runs on the thread that asks for it. Threads of the runtime would be missing in
    a forked process, which would then wait forever.

    Args:
        path: the file.
        kind: which output is read.

    Raises:
        ImportError: onnxruntime is not installed.
        ValueError: the file has no such output.
        Exception: onnxruntime cannot read the file.
    """

    def __init__(self, path: str | Path, kind: GraphKind) -> None:
        onnxruntime = _import_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.use_deterministic_compute = True
        # An arena keeps the memory of the longest text. Memory patterns keep a plan for each length.
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The fused kernel for sums and norms takes several times as long as the two that it replaces.
        self._session = onnxruntime.InferenceSession(
            str(path), options, providers=["CPUExecutionProvider"], disabled_optimizers=["SkipLayerNormFusion"]
        )
        self._inputs = [node.name for node in self._session.get_inputs()]
        outputs = [node.name for node in self._session.get_outputs()]
        # The names that exporters give to the output that is read.
        wanted = ("last_hidden_state", "token_embeddings") if kind == "encoder" else ("logits",)
        self._output = next((name for name in wanted if name in outputs), "")
        if not self._output:
            raise ValueError(f"it has no output {' or '.join(wanted)}, but {', '.join(outputs)}")

    def run(self, inputs: Mapping[str, IntArray]) -> FloatArray:
        """Return the output of one pass.

        Args:
            inputs: token ids, mask and types, each of shape (texts, tokens), without padding. Those that the graph does
                not read are ignored.

        Returns:
            Shape (texts, tokens, d) for ``encoder``, (texts, tokens, labels) for ``tokens`` and (texts, labels) for
            ``pair``.
        """
        [found] = self._session.run([self._output], {name: inputs[name] for name in self._inputs})
        return found  # type: ignore[no-any-return]


def _import_onnxruntime() -> Any:
    """Import onnxruntime with its telemetry disabled.

    The telemetry reports to the vendor, and its thread makes forked processes hang or abort when they end.
    """
    before = os.environ.get(_NO_TELEMETRY)
    os.environ[_NO_TELEMETRY] = "1"
    try:
        import onnxruntime
    finally:
        del os.environ[_NO_TELEMETRY]
        if before is not None:
            os.environ[_NO_TELEMETRY] = before
    return onnxruntime


def onnx_is_wanted(settings: ModelSettings) -> bool:
    """Return True if the settings and this machine allow ONNX Runtime to compute the models."""
    return settings.backend != "torch" and settings.device == "cpu" and find_spec("onnxruntime") is not None


def onnx_file_wanted(settings: ModelSettings) -> str:
    """Return the name of the graph that is read in place of a model's weights; empty if the weights are needed."""
    return settings.onnx_file if onnx_is_wanted(settings) else ""


def shown_name(role: str, settings: ModelSettings, backend: str) -> str:
    """Return a model's name for its scores. Those of a graph that the user chose are not those of the model itself."""
    name: str = getattr(settings, role)
    return name if backend == "torch" or settings.onnx_file == ONNX_FILE else f"{name}, {settings.onnx_file}"


def load_logits(
    role: str, folder: Path, settings: ModelSettings, kind: GraphKind | Literal["seq2seq"]
) -> tuple[Callable[[Encoding], FloatArray], str]:
    """Load a classifier of tokens, texts or pairs of texts: the graph where ONNX Runtime can compute it, else weights.

    Args:
        role: the use of the model, such as ``grounding``.
        folder: its folder.
        settings: backend, precision, device and the graph's file.
        kind: ``seq2seq`` for MiniCheck-Flan-T5, which answers with one token.

    Returns:
        A function that computes the logits of one input (a vector per token, or one vector), and the backend's name.

    Raises:
        ValueError: weights are missing in the file, or the model needs code from its repository.
    """
    # A model that writes text is exported as several files.
    graph = None if kind == "seq2seq" else open_graph(role, folder, settings, kind)
    if graph is None:
        return logits_by_torch(role, folder, settings.device, kind), "torch"
    import numpy as np

    def logits(encoding: Encoding) -> FloatArray:
        ids = np.asarray([encoding.ids], dtype=np.int64)
        types = np.asarray([encoding.type_ids], dtype=np.int64)
        with running_pass():
            inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}
            found: FloatArray = graph.run(inputs)[0]
        return found

    return logits, "onnx"


def open_graph(role: str, folder: Path, settings: ModelSettings, kind: GraphKind) -> Graph | None:
    """Open the graph of a model; export or quantize it before if that is needed. This may take a minute.

    Args: those of :func:`load_logits`.

    Returns:
        None if PyTorch is to compute the model.

    Raises:
        ValueError: there is no graph, and PyTorch may not or cannot compute the model.
    """
    if not onnx_is_wanted(settings):
        return None
    try:
        path = _graph_file(role, folder, settings, kind)
        try:
            return Graph(path, kind)
        except Exception as error:
            raise ValueError(f"{path} cannot be used: {brief(error)}") from error
    except ValueError as error:
        if settings.backend == "onnx" or find_spec("torch") is None:
            raise ValueError(f"ONNX Runtime cannot run it: {error}") from error
        _logger.warning(
            "rageval-hooks: %s: %s is run by PyTorch, which takes two to five times as long: %s. models={'backend': "
            "'torch'} does not try ONNX Runtime. [RAGEVAL-219]", role, getattr(settings, role), error
        )  # fmt: skip
        return None


def _graph_file(role: str, folder: Path, settings: ModelSettings, kind: GraphKind) -> Path:
    """Return the file to open.

    Raises:
        ValueError: there is none, and none can be made; the message says what to do.
    """
    own = folder / settings.onnx_file
    # A file that the user names is used as it is.
    if settings.onnx_file != ONNX_FILE:
        if own.is_file():
            return own
        raise ValueError(f"there is no {own}, which models={{'onnx_file': …}} names")
    # int8 is the default for the embedder only, since its effect was measured there (benchmarks/RESULTS.md).
    is_int8 = settings.precision == "int8" or (settings.precision == "auto" and role == "embedder")
    has_own = own.is_file()
    if has_own and not is_int8:
        return own
    sources = [own] if has_own else weight_files(folder)
    if not sources:
        raise ValueError(f"{folder} has neither {ONNX_FILE} nor model.safetensors")
    digest = hashlib.sha256(f"{_EXPORT_VERSION} {kind}".encode())
    for path in (folder / "config.json", *sources):
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    target = _cache_folder() / f"{digest.hexdigest()[:32]}-{'int8' if is_int8 else 'fp32'}.onnx"
    if not target.is_file():
        if not has_own and find_spec("torch") is None and not is_bert(folder):
            raise ValueError(
                f"it has no {ONNX_FILE}, and PyTorch, which can export it, is not installed. Use a model with that "
                'file, or pip install "rageval-hooks[torch]"'
            )
        _make(target, folder=str(folder), kind=kind, graph=str(own) if has_own else None, int8=is_int8)
    return target


def _cache_folder() -> Path:
    """Return the private folder for graphs that were made on this machine.

    Raises:
        ValueError: there is no place for it.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.environ.get("LOCALAPPDATA")
    user = os.getuid() if hasattr(os, "getuid") else 0
    places = [Path(base) if base else Path("~/.cache").expanduser(), Path(tempfile.gettempdir())]
    for folder in (places[0] / "rageval-hooks" / "onnx", places[1] / f"rageval-hooks-onnx-{user}"):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = folder.lstat()
        except (OSError, RuntimeError):  # read-only, or no home directory
            continue
        # Whoever can write there can change the scores.
        is_ours = os.name == "nt" or (state.st_uid == user and not state.st_mode & 0o077)
        if stat.S_ISDIR(state.st_mode) and is_ours and os.access(folder, os.W_OK):
            return folder
    raise ValueError(f"no private folder for graphs at {places[0]} or {places[1]}: set XDG_CACHE_HOME")


def _make(target: Path, **job: Any) -> None:
    """Make a graph in another process; see :func:`rageval_hooks.models.export.make_graph`.

    Raises:
        ValueError: it could not be made.
    """
    # Isolated and without `site`: a sitecustomize, such as that of opentelemetry-instrument, would instrument the
    # process, which would then load models and start such processes itself.
    code = (
        "import json, sys; job = json.loads(sys.argv[1]); sys.path[:] = job.pop('path'); "
        "from rageval_hooks.models.export import main; main(job)"
    )
    path = [os.path.abspath(entry) for entry in sys.path]
    command = [sys.executable, "-I", "-S", "-c", code, json.dumps({"path": path, "target": str(target), **job})]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", _NO_TELEMETRY: "1"}
    with tempfile.TemporaryFile() as errors:
        try:
            _run(command, environment, errors)
        except (OSError, subprocess.SubprocessError, TypeError) as error:
            raise ValueError(f"no graph could be made: {brief(error)}") from error
        # A server's own SIGCHLD handler may take the exit status away, so the file decides.
        if not target.is_file():
            errors.seek(0)
            lines = errors.read().decode(errors="replace").strip().splitlines() or ["no reason is known"]
            raise ValueError(f"no graph could be made: {lines[-1][:300]}")


def _run(command: list[str], environment: dict[str, str], errors: IO[bytes]) -> None:
    if patched_by() != "gevent":
        nothing = subprocess.DEVNULL
        options: dict[str, Any] = {"stdin": nothing, "stdout": nothing, "stderr": errors, "env": environment}
        subprocess.run(command, timeout=_MAX_EXPORT, check=False, **options)  # noqa: S603 - our own code
        return
    # gevent's `subprocess` starts processes from the application's thread only, and models load on another.
    streams = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
    actions = [*streams, (os.POSIX_SPAWN_DUP2, errors.fileno(), 2)]
    process = original("os", "posix_spawn")(command[0], command, environment, file_actions=actions)
    end = time.monotonic() + _MAX_EXPORT
    with suppress(ChildProcessError):  # gevent's event loop has seen its end
        while not original("os", "waitpid")(process, os.WNOHANG)[0]:
            if time.monotonic() > end:
                os.kill(process, signal.SIGKILL)
            sleep(0.05)
