"""``--engine ray``, and ``score_dataset`` and ``ScoreBatches`` with Ray, Spark and Dask, each on this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason='no Ray: pip install "rageval-hooks[ray]"')

import pandas
import pyarrow.parquet

import rageval_hooks
from rageval_hooks.offline.records import read_records
from tests.command import invoke
from tests.judges.server import JudgeServer, answer
from tests.online.test_judge_stage import LABELS

# Ray's, about its own settings.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

ROOT = Path(__file__).resolve().parents[2]
LEXICAL = {"models": "lexical"}
COMMAND = [sys.executable, "-c", "from rageval_hooks.cli import main; main()"]


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("PYTHONWARNINGS", "ignore")
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
        yield
        ray.shutdown()


def rows(count: int, start: int = 0) -> list[dict[str, Any]]:
    return [
        {
            "question": f"When was pier {number} opened?",
            "answer": f"Pier {number} was opened in {1900 + number % 120}. It is {number} metres long.",
            "contexts": [f"The pier {number} opened in 19{number % 100:02}, and is long.", "Bridges are long."],
        }
        for number in range(start, start + count)
    ]


def write(path: Path, found: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pandas.DataFrame(found).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in found))
    return path


def lines_in(folder: Path) -> list[str]:
    parts = sorted(folder.glob("part-*.parquet"))
    return [line for part in parts for line in pyarrow.parquet.read_table(part)["rageval_record"].to_pylist()]


def test_score_gives_the_records_of_the_local_engine(tmp_path: Path) -> None:
    """Byte for byte, for every format; the same command again does nothing, and a new file is scored alone."""
    source, output = tmp_path / "in", tmp_path / "out"
    write(source / "a.parquet", rows(1200))
    odd = rows(30)
    odd[7]["answer"] += " A separator\u2028and a line\nbreak."
    write(source / "deep" / "b.jsonl", [*odd, {"question": 3}])
    done = invoke("score", source, "-o", output, engine="ray", **LEXICAL)
    assert done.exit_code == 1, done.output  # a row could not be used
    assert f"scored 1230 turns of {source}: {output}" in done.stdout
    assert "1 row could not be used" in done.stdout

    for name in ("a.parquet", "deep/b.jsonl"):
        local = tmp_path / "local.jsonl"
        invoke("score", source / name, "-o", local, restart=True, workers=1, **LEXICAL)
        assert lines_in(output / name) == local.read_text().removesuffix("\n").split("\n")
    [error] = (output / "deep" / "b.jsonl" / "_errors-00000.jsonl").read_text().splitlines()
    assert json.loads(error)["line"] == 31
    # Scores have columns, and readers of Parquet find all parts of all files.
    frame = pandas.read_parquet(output)
    assert len(frame) == 1230
    record = next(read_records(output / "a.parquet" / "part-00000.parquet"))
    first = frame[frame["query"] == record.turn.query].iloc[0]
    assert first["groundedness"] == {score.name: score.value for score in record.scores()}["groundedness"]

    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.parquet") if path.is_file()}
    assert (
        "is finished: 1230 turns, nothing to do"
        in invoke("score", source, "-o", output, engine="ray", **LEXICAL).stdout
    )
    write(source / "c.jsonl", rows(10))
    again = invoke("score", f"{source}/**/*", "-o", output, engine="ray", **LEXICAL)
    assert f"scored 1240 turns of {source}/**/* (1230 of them before an interruption)" in again.stdout
    assert (
        before.items()
        <= {path: path.stat().st_mtime_ns for path in output.rglob("*.parquet") if path.is_file()}.items()
    )


def test_a_file_on_a_server_is_scored(tmp_path: Path) -> None:
    """Any file that fsspec can open: each actor reads a local copy."""
    source = write(tmp_path / "served" / "in.jsonl", rows(5))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=source.parent))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/in.jsonl"
        done = invoke("score", url, "-o", tmp_path / "out", engine="ray", **LEXICAL)
    finally:
        server.shutdown()
        server.server_close()
    assert done.exit_code == 0, done.output
    assert len(pandas.read_parquet(tmp_path / "out")) == 5


def test_score_does_not_mix_scores(tmp_path: Path) -> None:
    source, output = write(tmp_path / "in.jsonl", rows(5)), tmp_path / "out"
    assert invoke("score", source, "-o", output, engine="ray", metrics="groundedness", **LEXICAL).exit_code == 0
    with pytest.raises(
        rageval_hooks.ConfigurationError, match="another metrics: name another output, or give --restart"
    ):
        invoke("score", source, "-o", output, engine="ray", metrics="faithfulness", **LEXICAL)
    assert (
        invoke("score", source, "-o", output, engine="ray", metrics="faithfulness", restart=True, **LEXICAL).exit_code
        == 0
    )
    assert "faithfulness" in pandas.read_parquet(output)
    with pytest.raises(rageval_hooks.TurnError, match="no column"):
        invoke("score", write(tmp_path / "x.jsonl", [{"a": 1}]), "-o", tmp_path / "other", engine="ray", **LEXICAL)


def test_what_the_budget_of_the_judge_left_out_is_asked_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Turns that have their scores are kept. The file is finished when no score is missing."""
    row = {"question": "When?", "answer": "It was opened in 2019.", "contexts": ["The pier was opened in 2019."]}
    source, output = write(tmp_path / "in.jsonl", [row | {"id": f"q{number}"} for number in range(5)]), tmp_path / "out"
    monkeypatch.setenv("RAGEVAL_JUDGE_BUDGET_STORE", str(tmp_path / "budget.db"))
    with JudgeServer() as server:
        server.otherwise(answer(LABELS))

        def score(calls: int) -> str:
            monkeypatch.setenv("RAGEVAL_JUDGE_BUDGET", f"calls_per_day={calls}")
            options = {"metrics": "trace", "judge": "openai:m", "judge_options": f"base_url={server.url}"}
            done = invoke("score", source, "-o", output, engine="ray", **options, **LEXICAL)
            assert done.exit_code == 0, done.output
            return done.stdout

        score(2)
        assert (len(server.requests), (output / "in.jsonl" / "_SUCCESS").exists()) == (2, False)
        score(20)
        assert (len(server.requests), (output / "in.jsonl" / "_SUCCESS").exists()) == (5, True)
        assert "is finished" in score(20)
    scores = [json.loads(line)["results"] for line in lines_in(output / "in.jsonl")]
    assert all("trace.adherence" in {result["name"] for result in results} for results in scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_calls": 3}, "does not have --max-calls. judge_budget limits all actors"),
        ({"columns": "open-rag-eval", "errors": "e.jsonl"}, "does not have --columns, --errors"),
        ({"dry_run": True}, "does not have --dry-run"),
        ({"o": "scores.jsonl"}, "writes one folder"),
        ({"o": "."}, "is the folder of the input"),
    ],
)
def test_options_that_ray_does_not_have_are_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "in.jsonl", rows(1))
    output = options.pop("o", "out")
    with pytest.raises(rageval_hooks.ConfigurationError, match=message):
        invoke("score", "in.jsonl", "-o", output, engine="ray", **options, **LEXICAL)


def test_without_ray_there_is_a_clear_error(tmp_path: Path) -> None:
    code = "import sys; sys.modules['ray'] = None; from rageval_hooks.cli import main; main()"
    write(tmp_path / "in.jsonl", rows(1))
    command = [sys.executable, "-c", code, "score", "in.jsonl", "-o", "out", "--engine", "ray", "--models", "lexical"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert 'pip install "rageval-hooks[ray]"' in done.stderr


@pytest.mark.timeout(600)  # two clusters of Ray
def test_a_killed_actor_and_a_killed_command_lose_nothing(tmp_path: Path) -> None:
    """The actor dies in the middle of a file, and Ray starts it again. The command dies, and resumes."""
    source, output = write(tmp_path / "in.parquet", rows(6000)), tmp_path / "out"
    # One score per turn: the test is about Ray, and a slow machine takes minutes for all of them.
    options = {"metrics": "groundedness", **LEXICAL}
    command = [*COMMAND, "score", str(source), "-o", str(output), "--engine", "ray", "--models", "lexical"]
    command += ["--metrics", "groundedness"]
    killed = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    wait_for(lambda: lines_in_parts(output) >= 1)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()
    kept = sorted((output / "in.parquet").glob("part-*.parquet"))
    assert len(kept) < 4

    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    wait_for(lambda: actors_below(running.pid))
    os.kill(actors_below(running.pid)[0], signal.SIGKILL)
    printed, _ = running.communicate(timeout=200)
    assert running.returncode == 0, printed
    assert "scored 6000 turns" in printed

    local = tmp_path / "local.jsonl"
    invoke("score", source, "-o", local, **options)
    assert lines_in(output / "in.parquet") == local.read_text().removesuffix("\n").split("\n")


def lines_in_parts(output: Path) -> int:
    return len(list(output.glob("in.parquet/part-*.parquet")))


def wait_for(is_done: Any, seconds: float = 240) -> None:
    end = time.monotonic() + seconds
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.02)


def actors_below(pid: int) -> list[int]:
    import psutil

    return [
        process.pid
        for process in psutil.Process(pid).children(recursive=True)
        if "MapWorker" in process.name() or any("MapWorker" in part for part in process.cmdline())
    ]


def test_a_dataset_of_ray_comes_back_with_scores() -> None:
    import ray

    found = rows(40)
    scored = rageval_hooks.score_dataset(
        ray.data.from_items(found), metrics="groundedness,unsupported_facts", **LEXICAL
    )
    assert isinstance(scored, ray.data.Dataset)
    frame = scored.to_pandas().sort_values("question")
    local = rageval_hooks.score_dataset(found, metrics="groundedness,unsupported_facts", progress=False, **LEXICAL)
    for name in ("groundedness", "groundedness.label", "unsupported_facts"):
        assert list(frame[name]) == list(local.sort_values("query")[name])
    assert [result["name"] for result in json.loads(frame["rageval_results"].iloc[0])][:1] == ["groundedness"]
    with pytest.raises(rageval_hooks.ConfigurationError, match="use judge_budget"):
        rageval_hooks.score_dataset(ray.data.from_items(found), max_calls=1, **LEXICAL)
    with pytest.raises(rageval_hooks.ConfigurationError, match="groundednes"):
        rageval_hooks.score_dataset(ray.data.from_items(found), metrics="groundednes", **LEXICAL)


def test_dask_scores_partitions() -> None:
    dask = pytest.importorskip("dask.dataframe", reason="no Dask: pip install dask[dataframe]")
    frame = pandas.DataFrame(rows(12))
    score = rageval_hooks.ScoreBatches(metrics="groundedness", **LEXICAL)
    scored = dask.from_pandas(frame, npartitions=3).map_partitions(score, meta=score(frame.head(0))).compute()
    assert list(scored["groundedness"]) == list(score(frame)["groundedness"])
    assert list(scored["question"]) == list(frame["question"])


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_spark_scores_partitions(tmp_path: Path) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="no Spark: pip install pyspark")
    pytest.importorskip("pyspark.sql.types")
    if shutil.which("java") is None:
        pytest.skip("no Java: apt-get install default-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.warehouse.dir", str(tmp_path))
        .getOrCreate()
    )
    try:
        found = [*rows(12), {"question": "Why?", "answer": "Because.", "contexts": None}]
        score = rageval_hooks.ScoreBatches(metrics="groundedness", **LEXICAL)
        answers = spark.createDataFrame(found).repartition(3)
        schema = sql.types.StructType([*answers.schema.fields])
        for name, kind in score.columns.items():
            schema = schema.add(name, kind)
        scored = answers.mapInPandas(lambda frames: map(score, frames), schema).toPandas().sort_values("question")
        local = score(pandas.DataFrame(found)).sort_values("question")
        assert list(scored["groundedness"].dropna()) == list(local["groundedness"].dropna())
        assert list(scored["groundedness.reason"].dropna()) == list(local["groundedness.reason"].dropna())
    finally:
        spark.stop()


APP = """
import os

def ask(question):
    return f"{question} {os.getpid()} {os.environ['RAGEVAL_ENABLED']}", ["A passage."]
"""


def test_run_asks_on_actors_that_import_the_application(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "set.jsonl", [{"question": f"Question {number}?"} for number in range(20)])
    (tmp_path / "an_app.py").write_text(APP)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [
        *COMMAND,
        "run",
        "set.jsonl",
        "--app",
        "an_app:ask",
        "-o",
        "out.jsonl",
        "--engine",
        "ray",
        "--repeat",
        "2",
    ]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("40 of 40 questions answered")
    records = list(read_records(tmp_path / "out.jsonl", required=()))
    assert [(record.turn.query, record.run) for record in records] == [
        (f"Question {number}?", run) for number in range(20) for run in (1, 2)
    ]
    answered = [record.turn.response.split() for record in records]
    assert {words[-1] for words in answered} == {"false"}
    assert len({words[-2] for words in answered}) == 2  # processes

    again = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert "finished already" in again.stderr
    missing = [*COMMAND, "run", "set.jsonl", "--app", "no_such_app:ask", "-o", "other.jsonl", "--engine", "ray"]
    done = subprocess.run(
        missing, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "an actor of Ray cannot import the application: --app: no_such_app cannot be imported from" in done.stderr
