"""Fixtures that several folders share. Nothing heavy is imported until a test asks for it."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from tests import tiny_models

if TYPE_CHECKING:
    from rageval_hooks.models import Models

# While modules are imported there is no garbage, and looking for it takes seconds.
gc.disable()

# Tests that are not about the budget must not depend on how busy the machine is.
os.environ.setdefault("RAGEVAL_INLINE_BUDGET_MS", "20000")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read by huggingface_hub when it is imported
# Tests have no network. LlamaIndex ships the ranks of tiktoken.
for root in getattr(find_spec("llama_index"), "submodule_search_locations", None) or ():
    if (ranks := Path(root, "core", "_static", "tiktoken_cache")).is_dir():
        os.environ.setdefault("TIKTOKEN_CACHE_DIR", str(ranks))
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # a worker per core: more threads would only wait for each other
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell's background jobs ignore Ctrl-C, and what they start inherits that: the tests of an interruption too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An exporter of a test that has ended may still be trying: what it logs is no other test's.
logging.getLogger("opentelemetry.exporter.otlp").propagate = False
logging.getLogger("opentelemetry.exporter.otlp").addHandler(logging.NullHandler())

HAS_TORCH = find_spec("torch") is not None

settings.register_profile("rageval", deadline=None, derandomize=True, max_examples=100)
settings.load_profile("rageval")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Screenshots of the tests in a browser are kept on request: they are pictures in the README."""
    parser.addoption("--keep-screenshots", action="store_true", help="write screenshots to docs/images")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return the number of workers for ``-n auto``: three for two cores, if there is enough memory.

    Tests of processes, servers and threads wait for much of their time. More workers would not pay: each imports all
    frameworks. With the models, and the processes that it starts, a worker takes up to 1.5 GB.
    """
    workers = (os.cpu_count() or 1) * 3 // 2
    if hasattr(os, "sysconf"):
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        workers = min(workers, int(memory / 1.5e9))
    return max(1, workers)


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but not among the modules that are imported: they stay, and there are many."""
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip the tests that need PyTorch where it is not installed."""
    if not HAS_TORCH and item.get_closest_marker("needs_torch"):
        pytest.skip("needs the extra torch: make test-torch")


@pytest.fixture(scope="session")
def tiny_cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cross-encoder with random weights and its ONNX graph, on disk."""
    folder = tiny_models.build_cross_encoder(tmp_path_factory.mktemp("models") / "cross-encoder")
    return tiny_models.add_graph(folder, "pair")


@pytest.fixture(scope="session")
def tiny_nlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An English spaCy pipeline that knows a handful of sentences by heart, on disk."""
    return tiny_models.build_nlp(tmp_path_factory.mktemp("models") / "nlp")


@pytest.fixture(scope="session")
def minilm() -> Models:
    """The real all-MiniLM-L6-v2 in fp32, with the numbers of its library; the other two models are lexical."""
    from rageval_hooks.models import Models
    from rageval_hooks.settings import LEXICAL, ModelSettings

    models = Models(ModelSettings(cross_encoder=LEXICAL, nlp=LEXICAL, precision="fp32"))
    models.embedder(wait=True)
    return models


@pytest.fixture(scope="session")
def real_models(tiny_cross_encoder: Path, tiny_nlp: Path) -> Models:
    """The real all-MiniLM-L6-v2, the tiny cross-encoder and the tiny pipeline."""
    from rageval_hooks.models import Models
    from rageval_hooks.settings import ModelSettings

    return Models(ModelSettings(cross_encoder=str(tiny_cross_encoder), nlp=str(tiny_nlp), precision="fp32"))


@pytest.fixture(autouse=True)
def loop_of_the_thread() -> Iterator[None]:
    """Give the thread an event loop: without one, llama-index's ``asyncio_run`` makes one and never closes it."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture(autouse=True)
def log_of_the_test() -> Iterator[None]:
    """Its lines are redacted by policies of this test, and none is held back because of an earlier test."""
    from rageval_hooks.runtime.logs import REDACTORS

    for name, module in sys.modules.copy().items():
        if name.startswith("rageval_hooks.") and hasattr(module, "_limited_log"):
            module._limited_log._last.clear()
    before = set(REDACTORS)
    yield
    for policy in set(REDACTORS) - before:
        REDACTORS.discard(policy)
