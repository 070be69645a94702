"""Models after a fork, in whole processes: nothing hangs, and the numbers stay the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny_models
from tests.interpreter import run_script
from tests.local import LOCAL
from tests.online.processes import run_fresh

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


def test_models_and_scores_survive_a_fork(tiny_cross_encoder: Path, tiny_nlp: Path) -> None:
    """A child goes on with what its parent had loaded, loads what it had begun to load, and finds every lock free."""
    output = run_script(
        """
import json, os, sys, threading
import rageval_hooks
from rageval_hooks import Passage, Turn
from rageval_hooks.metrics.support import turn_texts
from rageval_hooks.models import Models
from rageval_hooks.settings import ModelSettings

settings = ModelSettings(cross_encoder=sys.argv[1], nlp=sys.argv[2])
turn = Turn(
    query="Who designed the new pier?",
    response="Anna Berg designed the bridge.",
    passages=(Passage(text="Anna Berg designed the new pier."),),
)

def scores():
    evaluation = rageval_hooks.evaluate(turn, metrics=sys.argv[3:], models=settings)
    return {score.name: score.value for score in evaluation.turn_scores()}

before = scores()
models = Models(settings)
other = Models(ModelSettings(cross_encoder=sys.argv[1], nlp=sys.argv[2], load_timeout=60))
other.load(["nlp"])
holding, done = threading.Event(), threading.Event()

def hold():
    with models.nlp()._lock, models.cache._lock, turn_texts._indexes._lock:
        holding.set()
        done.wait()

threading.Thread(target=hold, daemon=True).start()
assert holding.wait(30), "the locks are not held"
child = os.fork()
if child == 0:
    ok = scores() == before and other.nlp(wait=True) is not models.nlp()
    os._exit(0 if ok else 1)
done.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), scores() == before)
""",
        tiny_cross_encoder,
        tiny_nlp,
        *LOCAL,
        TOKENIZERS_PARALLELISM="false",
    )

    assert output.split() == ["0", "True"]


def test_scores_of_forked_children_are_those_of_the_parent(tmp_path: Path) -> None:
    """Loaded and used before the fork; the libraries' own thread pools do not survive it, ours is created again."""
    evaluations, _ = run_fresh(
        """
handle = rageval_hooks.instrument(metrics=["groundedness", "semantic_grounding"], drain_timeout=60)
lcel().invoke("parent before")
handle.flush(60)
lcel().invoke("parent, models loaded")
pid = os.fork()
if pid == 0:
    import faulthandler
    faulthandler.dump_traceback_later(120, exit=True)
    lcel().invoke("child")
    sys.exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0, status
lcel().invoke("parent after")
""",
        tmp_path,
        timeout=240,
    )

    scores = {
        evaluation["turn"]["query"]: {result["name"]: result.get("value") for result in evaluation["results"]}
        for evaluation in evaluations
        if evaluation["results"]
    }
    assert set(scores) == {"parent before", "parent, models loaded", "child", "parent after"}
    assert scores["child"] == scores["parent after"] == scores["parent before"]
    assert scores["child"]["groundedness"] is not None


_FORK = """
import os, sys
from rageval_hooks.models.embedder import load_embedder
from rageval_hooks.settings import ModelSettings

embedder = load_embedder(ModelSettings(embedder=sys.argv[1], cross_encoder="lexical", nlp="lexical", backend="onnx"))
before = embedder.embed("the pier").vector
child = os.fork()
found = "same" if (embedder.embed("the pier").vector == before).all() else "other"
os.write(1, f" {found}".encode())  # in one piece: there are two who write
if child:
    sys.exit(os.waitpid(child, 0)[1])
"""


def test_a_model_of_onnx_goes_on_in_a_child(tmp_path: Path) -> None:
    """With the same numbers, and both processes end."""
    pytest.importorskip("onnxruntime")
    encoder = tiny_models.build_encoder(tmp_path / "encoder")
    tiny_models.add_graph(encoder, "encoder")
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", _FORK, str(encoder)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    assert (found.returncode, found.stdout.split()) == (0, ["same", "same"]), found.stderr
