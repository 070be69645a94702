"""The whole offline half, as a user works with it: documents, a test set, two applications, scores, reports, plots.

Every number is worked out by hand from what the judge and the two applications are told to say.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks.cli import main
from tests.judges.server import JudgeServer, Received, Reply, answer
from tests.offline.testsets.test_generation import FACTS, is_draft, writer

pytest.importorskip("langchain_core")
pytest.importorskip("llama_index.core")

CHAIN = '''
"""Knows the first two facts, under the ids of the test set; has nothing to say when it is asked again."""

import json
from collections import Counter
from pathlib import Path

from langchain_core.documents import Document

from tests.integrations.langchain.fakes import lcel

asked = Counter()


def documents():
    rows = [json.loads(line) for line in Path("set.jsonl").read_text(encoding="utf-8").splitlines()]
    return [Document(id=row["chunk_id"], page_content=row["chunk"]) for row in rows[:2]]


def say(messages):
    question = messages[-1].content
    asked[question] += 1
    if asked[question] == 2:
        return "I cannot say, perhaps in 1066."
    return "The pier of Hallay was opened in September 2019 by the mayor."


def make():
    return lcel(say, documents())
'''

ENGINE = '''
"""The application has the same facts under other ids, and always gives the same answer."""

import json
from pathlib import Path

from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from tests.integrations.llama_index.fakes import ScriptedLLM


class Retriever(BaseRetriever):
    def _retrieve(self, bundle):
        rows = [json.loads(line) for line in Path("set.jsonl").read_text(encoding="utf-8").splitlines()]
        return [NodeWithScore(node=TextNode(text=row["chunk"]), score=0.5) for row in rows[:2]]


llm = ScriptedLLM(script=lambda messages: "The pier of Hallay was opened in September 2019 by the mayor.")
engine = RetrieverQueryEngine.from_args(Retriever(), llm=llm)
'''

Run = Callable[..., "tuple[int, str, str]"]


def judge(request: Received) -> Reply:
    """Writes questions, finds all of them good, and says which answers are attempts."""
    if is_draft(request) or "<question 1 " in request.prompt:
        return writer()(request)
    return answer({"explanation": "", "attempted": "I cannot say" not in request.prompt})


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the command line in a folder with documents and two applications; a judge listens."""
    modules = {"workflow_chain": CHAIN, "workflow_engine": ENGINE}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "isles.md").write_text("\n\n".join(FACTS[:2]), encoding="utf-8")
    (documents / "keeper.md").write_text(FACTS[2], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rageval-hooks", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        output, errors = capsys.readouterr()
        return int(ended.value.code or 0), output, errors

    with JudgeServer() as server:
        server.otherwise(judge)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-test")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        yield run
    for name in modules:
        sys.modules.pop(name, None)


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(name).read_text(encoding="utf-8").splitlines()]


def score(name: str, row: dict[str, Any]) -> float:
    [value] = [result["value"] for result in row["results"] if result["name"] == name]
    return float(value)


def spread(report: Any, file: int, name: str) -> Any:
    [found] = [row for row in report["files"][file]["scores"] if row["name"] == name]
    return found


def test_from_documents_to_a_decision(run: Run) -> None:
    """generate, run, score, report and plot hand their files on to each other; what they say is right."""
    status, output, errors = run(
        "generate", "documents", "--judge", "openai:x", "--chunk-size", 70, "-o", "set.jsonl", "-o", "set.csv"
    )
    assert (status, errors) == (0, "")
    assert output.splitlines()[:2] == ["3 of 3 chunks of 2 documents", "3 questions, 0 rejected"]
    assert [row["chunk"] for row in rows("set.jsonl")] == FACTS

    for app, name in (("workflow_chain:make", "chain"), ("workflow_engine:engine", "engine")):
        status, output, errors = run(
            "run", "set.jsonl", "--app", app, "--repeat", 2, "--concurrency", 1, "-o", f"{name}.jsonl"
        )
        assert (status, errors) == (0, "")
        assert output.splitlines()[:2] == [
            "6 of 6 questions answered",
            "the chunk with the answer was retrieved for 4 of 6",
        ]
        # By id in the chain, by text in the engine, whose nodes have other ids.
        assert [(row["run"], row["rank"]) for row in rows(f"{name}.jsonl")] == [
            (1, 1), (2, 1), (1, 2), (2, 2), (1, None), (2, None)
        ]  # fmt: skip
        assert [len(row["turn"]["passages"]) for row in rows(f"{name}.jsonl")] == [2] * 6

        options = (
            "--models",
            "lexical",
            "--judge",
            "openai:x",
            "--metrics",
            "groundedness,unsupported_facts,no_answer",
        )
        outputs = ("-o", f"{name}.scored.jsonl", "-o", f"{name}.scored.csv")
        status, output, errors = run("score", f"{name}.jsonl", *options, *outputs)
        assert (status, errors) == (0, "")
        assert "18 scores, 0 skipped, 0 failed" in output
    judged = rows("chain.scored.jsonl")
    assert [score("no_answer", row) for row in judged] == [1, 0] * 3
    assert [score("unsupported_facts", row) for row in judged] == [0, 1] * 3
    assert [score("groundedness", row) for row in judged][::2] == [1, 1, 1]
    with open("chain.scored.csv", encoding="utf-8", newline="") as file:
        assert [float(row["no_answer"]) for row in csv.DictReader(file)] == [1, 0] * 3

    check_report(run)
    check_gates(run)
    for name, beginning in (("plot.png", b"\x89PNG"), ("plot.svg", b"<?xml")):
        assert run("plot", "engine.scored.jsonl", "chain.scored.jsonl", "-o", name)[0] == 0
        assert Path(name).read_bytes().startswith(beginning)


def check_report(run: Run) -> None:
    """The same report in four forms."""
    files = ("engine.scored.jsonl", "chain.scored.jsonl")
    status, table, errors = run("report", *files)
    assert (status, errors) == (0, "")
    for form in ("md", "json", "html"):
        assert run("report", *files, "-o", f"report.{form}")[0] == 0
    report = json.loads(Path("report.json").read_text(encoding="utf-8"))

    _, chain = report["files"]
    assert (chain["questions"], chain["records"], chain["runs"]) == (3, 6, 2)
    shares = [spread(report, place, "answered")["spread"]["mean"] for place in (0, 1)]
    assert shares == [1.0, 0.5]
    ranks = chain["ranks"]
    assert (ranks["counts"], ranks["missed"], ranks["mrr"]) == ({"1": 2, "2": 2}, 2, 0.5)  # (1 + 1/2 + 0) / 3
    facts = spread(report, 1, "unsupported_facts")
    assert (facts["spread"]["mean"], facts["spread"]["median"]) == (0.5, 0.5)
    assert facts["spread"]["deviation"] == pytest.approx((6 * 0.25 / 5) ** 0.5)
    assert (facts["repeats"]["variance"], facts["repeats"]["coefficient"]) == pytest.approx((0.5, 2**0.5))
    likeness = {item["name"]: item["spread"]["mean"] for item in chain["similarity"]}
    assert likeness["rouge1"] == pytest.approx(2 / (12 + 6))  # one common word, "in", of 12 and 6
    assert likeness["rouge2"] == 0
    documents = {item["document"]: item["records"] for item in chain["documents"]}
    assert documents == {"isles.md": 4, "keeper.md": 2}
    [change] = [item for item in report["comparisons"][0]["scores"] if item["name"] == "unsupported_facts"]
    assert (change["test"]["difference"], change["test"]["p"]) == (0.5, 0.25)  # two of 2^3 signs
    assert change["p_worse"] == pytest.approx(5 / 8)  # one of 2^3 signs, five scores changed

    markdown, page = (Path(f"report.{form}").read_text(encoding="utf-8") for form in ("md", "html"))
    assert re.search(r"^answered +50\.0%", table, re.MULTILINE)
    assert "| answered | 50.0% |" in markdown
    assert "MRR 0.500" in table
    for text in (markdown, page):
        assert "perhaps in 1066" in text, "the worst turn"
    assert "keeper.md" in page
    assert "http://" not in page.replace("http://www.w3.org", ""), "it loads nothing"


def check_gates(run: Run) -> None:
    """What a pipeline of continuous integration sees."""
    bounds = ("--fail-under", "answered=0.6", "--fail-under", "unsupported_facts=0.4")
    assert run("report", "engine.scored.jsonl", *bounds)[0] == 0
    status, _, errors = run("report", "chain.scored.jsonl", *bounds)
    assert status == 1
    assert "answered is 0.500, 0.100 below the bound (at least 0.6; 6 values)" in errors
    assert "unsupported_facts is 0.500, 0.100 above the bound (at most 0.4; 6 values)" in errors

    against = ("chain.scored.jsonl", "--fail-on-regression", "engine.scored.jsonl", "--metrics", "unsupported_facts")
    status, _, errors = run("report", *against)
    assert status == 0
    assert "only 3 questions in common with engine.scored. With alpha = 0.05, at least 5 are needed" in errors
    status, _, errors = run("report", *against, "--alpha", 0.2)
    assert status == 1
    assert "unsupported_facts is worse than in engine.scored: 0.000 → 0.500" in errors
    assert "p = 0.12 (one-sided, adjusted for the number of scores)" in errors
