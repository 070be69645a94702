"""``rageval-hooks doctor``: what it finds, what it advises, and its exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from rageval_hooks import Evaluation, Exporter
from rageval_hooks.cli import app
from tests.cli.test_cli import run as run_command
from tests.exporters.collector import http_collector
from tests.exporters.recording import Recorded, recording_server
from tests.exporters.recording import Reply as Answer
from tests.judges.server import JudgeServer, Reply, answer, error, hang_up, raw, silent

SECRET = "sk-very-secret-key-1234"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is set but the key, and no file is left behind."""
    for name in list(os.environ):
        if name.startswith(("RAGEVAL_", "OTEL_", "OPENAI_", "PHOENIX_", "MLFLOW_", "LANGFUSE_", "LANGSMITH_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server() -> Iterator[JudgeServer]:
    with JudgeServer() as server:
        yield server


def doctor(*arguments: str, status: int, **settings: str) -> dict[str, list[dict[str, str]]]:
    """Return the findings by check."""
    settings = {"models": "lexical", "metrics": "groundedness", "exporters": "console", **settings}
    given = [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    done = CliRunner().invoke(app, ["doctor", "--json", "--timeout", "5", *given, *arguments])
    assert done.exit_code == status, done.output
    assert SECRET not in done.output
    return {section["check"]: section["findings"] for section in json.loads(done.stdout)["sections"]}


def problems(findings: list[dict[str, str]]) -> list[dict[str, str]]:
    return [finding for finding in findings if finding["status"] == "problem"]


def messages(findings: list[dict[str, str]]) -> str:
    return "\n".join(f"{finding['status']}: {finding['message']}" for finding in findings)


def with_judge(server: JudgeServer, *arguments: str, status: int, url: str = "") -> list[dict[str, str]]:
    options = f"base_url={url or server.url}"
    found = doctor(*arguments, status=status, judge="openai:judge-model", metrics="trace", judge_options=options)
    return found["judge"]


def test_instrumentors_of_other_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with what its spans have, or the variable without which they have no texts."""
    found = SimpleNamespace(metadata={"Name": "openinference-instrumentation-haystack"}, version="1.0")
    monkeypatch.setattr("rageval_hooks.integrations.opentelemetry.instrumentors.distributions", lambda: [found])
    seen = messages(doctor(status=0)["traced frameworks"])
    monkeypatch.setenv("OPENINFERENCE_HIDE_INPUTS", "true")
    hidden = messages(doctor(status=0)["traced frameworks"])

    assert seen.startswith("ok: openinference-instrumentation-haystack 1.0: its spans have question, answer and")
    assert hidden.endswith("so its turns cannot be evaluated: unset OPENINFERENCE_HIDE_INPUTS")


def test_a_good_setup_has_exit_status_0() -> None:
    found = doctor(status=0)

    # The last section is there if an instrumentor of another framework is installed.
    assert [section for section in found if section != "traced frameworks"] == [
        "versions",
        "settings",
        "models",
        "judge",
        "exporters",
        "clock",
        "a turn",
    ]
    assert "ok: can run: groundedness" in messages(found["models"])


def test_the_judge_is_asked_once(server: JudgeServer) -> None:
    server.otherwise(answer({"number": 7}))

    [finding] = with_judge(server, status=0)

    assert finding["status"] == "ok"
    assert "judge-model-2026-01-01 answered" in finding["message"]
    assert [request.method for request in server.requests].count("POST") == 1


@pytest.mark.parametrize(
    ("reply", "message", "advice"),
    [
        (error(401), "the API key was not accepted", "OPENAI_API_KEY"),
        (error(404), "no such model or URL", "model's name"),
        (error(429), "too many requests", "wait"),
        (raw("I am a page"), "invalid_answer", "structured=json_object"),
        (hang_up(), "no connection", "base_url"),
    ],
    ids=["key", "model", "rate limit", "bad JSON", "connection"],
)
def test_a_failure_of_the_judge_is_explained(server: JudgeServer, reply: Reply, message: str, advice: str) -> None:
    """In words, with what to do, after a single request where a repetition would not help."""
    server.otherwise(reply)

    [finding] = problems(with_judge(server, status=1))

    assert message in finding["message"]
    assert advice in finding["advice"]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://no-such-host.invalid/v1", "is not known"),
        ("https://127.0.0.1:{port}/v1", "no TLS connection"),
    ],
    ids=["DNS", "TLS"],
)
def test_a_server_that_is_not_there_is_explained(server: JudgeServer, url: str, message: str) -> None:
    port = server.url.split(":")[2].partition("/")[0]

    [finding] = problems(with_judge(server, status=1, url=url.format(port=port)))

    assert message in finding["message"]
    assert finding["advice"]


def test_a_judge_that_hangs_costs_a_bounded_time(server: JudgeServer) -> None:
    server.otherwise(silent())

    [finding] = problems(with_judge(server, "--timeout", "0.5", status=1))

    assert finding["message"] == "openai:judge-model: no answer within 0.5 seconds"


def test_the_judge_need_not_be_asked(server: JudgeServer) -> None:
    [finding] = with_judge(server, "--no-judge", status=0)

    assert finding["message"] == "openai:judge-model: not asked (--no-judge)"
    assert [request for request in server.requests if request.method == "POST"] == []


@pytest.mark.parametrize(
    ("settings", "message", "advice"),
    [
        ({"sample_rate": "3"}, "sample_rate: Input should be less than", "correct"),
        ({"jsonl_path": "a.jsonl"}, "jsonl_path is an option of 'jsonl', which is not in use: add it", "correct"),
        ({"judge_budget": "calls_per_day=3"}, "judge_budget needs a judge", "correct"),
        ({"metrics": "trace"}, "trace needs a judge", "correct"),
        (
            {"phoenix_endpoint": "http://user:hunter22@localhost:1"},
            "phoenix_endpoint is an option of 'phoenix'",
            "correct",
        ),
    ],
)
def test_settings_that_contradict_each_other(settings: dict[str, str], message: str, advice: str) -> None:
    found = doctor(status=1, **settings)

    [finding] = problems(found["settings"])
    assert message in finding["message"]
    assert advice in finding["advice"]
    assert "hunter22" not in json.dumps(found)


@pytest.mark.parametrize(
    ("settings", "status", "message"),
    [
        ({"enabled": "false"}, 0, "warning: nothing happens: enabled is false"),
        ({"sample_rate": "0"}, 0, "warning: nothing happens: sample_rate is 0"),
        ({"judge": "openai:m", "metrics": "trace", "judge_sample_rate": "0"}, 0, "warning: judge_sample_rate is 0"),
        ({"dispatch": "spool", "spool_path": "/nowhere/spool.db"}, 1, "problem: the folder of spool_path, /nowhere"),
    ],
)
def test_settings_that_may_be_mistakes(settings: dict[str, str], status: int, message: str) -> None:
    """Some are problems; most may be meant."""
    found = doctor("--no-judge", "--no-send", status=status, **settings)
    assert message in messages([*found["settings"], *found["a turn"]])


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [("OTEL_SDK_DISABLED", "true", "writes no spans"), ("OTEL_TRACES_SAMPLER", "always_off", "are not recorded")],
)
def test_variables_of_opentelemetry(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str) -> None:
    """They switch evaluation off, too."""
    monkeypatch.setenv(variable, value)
    [finding] = problems(doctor("--no-send", status=1)["settings"])
    assert message in finding["message"]


def test_keys_in_settings_are_not_shown() -> None:
    """People paste the output into issues."""
    options = f"base_url=http://me:{SECRET}@127.0.0.1:9/v1"
    found = doctor("--no-judge", status=0, judge="openai:m", metrics="trace", judge_options=options, id_salt=SECRET)

    assert "ok: judge_options = {'base_url': '***'} (option)" in messages(found["settings"])
    assert "ok: id_salt = ********** (option)" in messages(found["settings"])


def test_a_contradiction_is_reported_once() -> None:
    """Although it stops several checks."""
    found = doctor(status=1, metrics="trace")

    assert sum(len(problems(findings)) for findings in found.values()) == 1
    assert messages(found["models"]) == "note: not checked, because of the problem above"


def test_an_unknown_variable_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAGEVAL_SAMPEL_RATE", "0.1")

    [finding] = problems(doctor(status=1)["settings"])

    assert "RAGEVAL_SAMPEL_RATE" in finding["message"]
    assert finding["advice"] == "did you mean RAGEVAL_SAMPLE_RATE?"


@pytest.mark.parametrize(
    ("variable", "status", "lines"),
    [
        (
            "RAGEVAL_XYZZY",
            0,
            ("  warning  the variable RAGEVAL_XYZZY is not a setting and has no effect", "docs/settings.md lists all"),
        ),
        (
            "RAGEVAL_JSONL_PATH",
            1,
            ("  problem  jsonl_path is set, but jsonl is not in use", "add jsonl, or remove jsonl_path"),
        ),
    ],
)
def test_a_variable_without_effect(
    monkeypatch: pytest.MonkeyPatch, variable: str, status: int, lines: tuple[str, str]
) -> None:
    """The text for a terminal: what to do is below the finding, and the last line counts."""
    monkeypatch.setenv(variable, "a.jsonl")
    done = CliRunner().invoke(app, ["doctor", "--no-send", "--set", "models=lexical", "--set", "exporters=console"])
    printed = done.stdout.splitlines()

    assert done.exit_code == status
    place = printed.index(lines[0])
    assert printed[place + 1].split("-> ") == [" " * 11, lines[1]]
    assert printed[-1] == ("1 problem" if status else "no problems, 1 warning")


def test_a_model_that_a_named_metric_needs_is_missing(tmp_path: Path) -> None:
    """A folder without its files, as after an interrupted copy."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "config.json").write_text("{}")
    models = json.dumps({"embedder": str(tmp_path), "nlp": "lexical", "download": False})

    found = doctor(status=1, models=models, metrics="groundedness,latency")

    [finding] = problems(found["models"])
    assert finding["message"].startswith("embedder: ")
    assert str(tmp_path) in finding["message"]
    assert finding["message"].endswith("these are skipped: groundedness")
    assert "ok: can run: latency" in messages(found["models"])
    assert "the rest later: latency" in messages(found["a turn"])


def test_a_file_is_written_and_read(tmp_path: Path) -> None:
    path = tmp_path / "scores.jsonl"

    [finding] = doctor(status=0, exporters="jsonl", jsonl_path=str(path))["exporters"]

    assert finding["message"] == "jsonl: a marked trace was sent and found again"
    assert "rageval_doctor" in path.read_text()


@pytest.mark.parametrize(
    ("post", "get", "status", "message"),
    [
        (200, 200, 1, "langfuse: the marked score was sent to Langfuse, but is not shown there"),
        (200, 403, 0, "langfuse: sent to Langfuse; it cannot be asked for what it has"),
        (401, 401, 1, "answers 401: set LANGFUSE_PUBLIC_KEY"),
    ],
    ids=["not shown", "may not read", "wrong key"],
)
def test_a_score_api_is_asked(monkeypatch: pytest.MonkeyPatch, post: int, get: int, status: int, message: str) -> None:
    monkeypatch.setenv("LANGFUSE_PUBLIC_KEY", "public")
    monkeypatch.setenv("LANGFUSE_SECRET_KEY", SECRET)
    with recording_server(lambda request: Answer(status=post if request.method == "POST" else get)) as server:
        monkeypatch.setenv("LANGFUSE_BASE_URL", server.url)
        [finding] = doctor("--timeout", "1", status=status, exporters="langfuse")["exporters"]

    assert message in finding["message"]


class Broken(Exporter):
    """Raises."""

    name = "broken"

    def export(self, evaluation: Evaluation) -> None:
        raise ValueError("the disk is gone")


def test_an_exporter_that_raises_is_a_problem() -> None:
    """The others are examined all the same."""
    *others, broken = doctor(status=1, exporters="console,tests.cli.test_doctor:Broken")["exporters"]

    assert messages(others) == "ok: console: prints to standard error"
    assert broken["message"] == "broken: the marked trace was not delivered: ValueError: the disk is gone"
    assert "the exporter broken" in broken["advice"]


def test_an_exporter_without_its_key_is_a_problem() -> None:
    [finding] = problems(doctor(status=1, exporters="console,langfuse")["settings"])

    assert "LANGFUSE_PUBLIC_KEY" in finding["message"]


def test_automatic_exporters_without_their_backend_are_not_in_use() -> None:
    """They are on by default, as ``auto``."""
    found = doctor(status=0, exporters="console,auto")

    assert "note: not in use, because spans do not go there: " in messages(found["exporters"])
    assert "phoenix-auto" in messages(found["exporters"])
    assert "note: goes to: console" in messages(found["a turn"])


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "note: phoenix-auto: not in use, because the server that gets the spans is another one"),
        (503, "warning: phoenix-auto: the server that gets the spans does not say whether it is Phoenix"),
    ],
    ids=["another server", "a server that is busy"],
)
def test_an_automatic_exporter_asks_the_server(status: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets scores only if it is that backend."""
    with recording_server(lambda found: Answer(status=status if found.method == "GET" else 200)) as server:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        found = doctor(status=0, exporters="otel,auto")

    assert said in messages(found["exporters"])
    assert server.posted("/v1/traces")


@pytest.mark.parametrize(
    ("variable", "path"), [("OTEL_EXPORTER_OTLP_ENDPOINT", ""), ("PHOENIX_COLLECTOR_ENDPOINT", "/v1/traces")]
)
def test_spans_are_sent_to_the_collector(variable: str, path: str) -> None:
    """In a separate process, as a user runs it: plain text in a pipe, and the span on the wire."""
    with http_collector() as collector:
        settings = {
            variable: collector.url,
            "RAGEVAL_MODELS": "lexical",
            "RAGEVAL_EXPORTERS": "otel",
        }
        said = run_command("doctor", **settings).stdout
        names = [span.name for span in collector.spans]

    assert f"otel: sent to {collector.url}{path}; it cannot be asked for what it has" in said
    assert "no problems" in said
    assert "\x1b" not in said
    assert "rag rageval-hooks doctor" in names


@pytest.mark.parametrize(
    ("variables", "advice"),
    [
        ({"ENDPOINT": "http://127.0.0.1:4317"}, "port 4317, which speaks gRPC, and spans are sent over HTTP"),
        ({"ENDPOINT": "{url}/v1/traces"}, "ends with /v1/traces, which the exporter adds itself"),
        ({"TRACES_ENDPOINT": "{url}/v1/traces/v1/traces"}, "has /v1/traces twice"),
        ({"ENDPOINT": "http://localhost:port"}, "OTEL_EXPORTER_OTLP_ENDPOINT has a port that is not a number"),
        ({"ENDPOINT": "{host}"}, "has no scheme: set it to http://"),
        ({"TRACES_ENDPOINT": "{url}"}, "has no path, and nothing is added to it: append /v1/traces"),
        ({"ENDPOINT": "{url}"}, "the header x-mlflow-experiment-id only: add x-mlflow-experiment-id=0"),
        ({"ENDPOINT": "{url}", "HEADERS": "x-mlflow-experiment-id=99"}, "no experiment with the id '99'"),
    ],
)
def test_a_mistake_in_the_address_of_the_spans_is_named(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], advice: str
) -> None:
    """The server, here an MLflow, answers each with a bare 404 or 422, or not at all."""

    def respond(request: Recorded) -> Answer:
        if request.path == "/version":
            return Answer(body="3.17.0")
        return Answer(status=404)

    with recording_server(respond) as mlflow:
        for name, value in variables.items():
            value = value.format(url=mlflow.url, host=mlflow.url.removeprefix("http://"))
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", value)
        found = doctor("--timeout", "1", status=1, exporters="otel")

    [problem] = problems(found["exporters"])
    assert advice in problem["advice"]


def test_a_clock_that_is_wrong_is_found(server: JudgeServer) -> None:
    """Against the Date header of the judge's server."""
    server.otherwise(Reply(status=404, headers={"Date": "Tue, 01 Jan 2030 00:00:00 GMT"}))

    found = doctor("--no-judge", status=1, judge="openai:m", metrics="trace", judge_options=f"base_url={server.url}")

    [finding] = found["clock"]
    assert finding["status"] == "problem"
    assert "behind" in finding["message"]
    assert "synchronise" in finding["advice"]


def test_what_would_happen_to_a_turn(server: JudgeServer) -> None:
    found = doctor(
        "--no-judge",
        status=0,
        metrics="groundedness,trace",
        judge="openai:m",
        judge_options=f"base_url={server.url}",
        sample_rate="0.5",
        judge_sample_rate="0.1",
        redact="true",
        capture_content="false",
    )

    lines = messages(found["a turn"])
    assert "0.5 of turns are evaluated, chosen by the trace id" in lines
    assert "inline, within 100 ms, the rest later: groundedness" in lines
    assert "judged later, from this process's memory: trace (0.1 of turns)" in lines
    assert "goes to: console" in lines
    assert "redaction is on" in lines
    assert "not on spans or in exports: inputs" in lines


def test_a_check_that_raises_does_not_end_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """For example because the metadata of an installed package is broken."""

    def fail(*_: Any) -> Any:
        raise RuntimeError("unexpected")

    monkeypatch.setattr("platform.python_version", fail)

    found = doctor(status=1)

    assert "RuntimeError: unexpected" in messages(found["versions"])
    assert found["a turn"]


def test_a_package_that_is_too_old_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Against the range that this package declares; packages of its own tests do not matter."""
    for name, version in (("tiktoken", "0.1.0"), ("pytest", "3.0")):
        folder = tmp_path / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    [finding] = problems(doctor(status=1)["versions"])

    assert finding["message"] == "tiktoken 0.1.0 is installed, which is not >=0.9"
    assert finding["advice"] == 'pip install "tiktoken>=0.9"'


def test_without_the_package_that_compares_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "packaging.requirements", None)

    assert "note: the declared ranges are not known" in messages(doctor("--no-send", status=0)["versions"])


def test_spans_without_an_endpoint() -> None:
    """They are printed; that may be meant."""
    [finding] = doctor(status=0, exporters="otel")["exporters"]

    assert finding["status"] == "warning"
    assert "no OTEL_EXPORTER_OTLP_ENDPOINT; evaluations are printed" in finding["message"]


def test_nothing_is_sent(tmp_path: Path) -> None:
    """With --no-send, and without a judge."""
    found = doctor("--no-send", status=0, exporters="jsonl", jsonl_path=str(tmp_path / "a.jsonl"))

    assert messages(found["exporters"]) == "note: jsonl: nothing sent (--no-send)"
    assert not (tmp_path / "a.jsonl").exists()
    assert messages(found["judge"]) == "note: no judge: metrics that ask one do not run"


def test_a_setting_without_a_value(tmp_path: Path) -> None:
    """Its text may hold a key: the message names its position only."""
    done = CliRunner().invoke(app, ["doctor", "--set", f"judge={SECRET}", "--set", SECRET])

    assert "--set number 2 is not of the form NAME=VALUE" in str(done.exception)
    assert SECRET not in str(done.exception)


def test_no_process_writes_its_counters(tmp_path: Path) -> None:
    found = doctor("--no-send", status=0, stats_file=str(tmp_path / "none.json"))["processes"]
    assert messages(found) == f"note: {tmp_path / 'none.json'}: no process writes this file now"


def test_processes_with_spans_that_make_no_turn(tmp_path: Path) -> None:
    """By the instrumentor, and what the spans lack."""
    traced = {name: {"Haystack": 2} for name in ("without_content", "without_end", "search_only")}
    stats = {"without_passages_by_reason": {"text_only_tool": 0}, "traced": traced}
    (tmp_path / "rageval-7.json").write_text(json.dumps({"pid": 7, "written_at": 0, "stats": stats}))

    found = doctor("--no-send", status=0, stats_file=str(tmp_path / "rageval-{pid}.json"))["processes"]
    assert [finding["message"] for finding in found] == [
        "2 turns of Haystack had spans with no texts",
        "2 turns of Haystack had spans with no end",
        "2 turns of Haystack had a search whose answer is not in its trace",
    ]


def test_processes_with_tools_that_do_not_look_like_search(tmp_path: Path) -> None:
    """Their counters are in the files of stats_file; {pid} stands for any process."""
    reasons = {"text_only_tool": 3, "no_retriever": 1}
    stats = {"without_passages_by_reason": reasons, "tool_results_left_out": {"consult: nothing says so": 3}}
    (tmp_path / "rageval-7.json").write_text(json.dumps({"pid": 7, "written_at": 0, "stats": stats}))

    [finding] = doctor("--no-send", status=0, stats_file=str(tmp_path / "rageval-{pid}.json"))["processes"]
    expected = "3 turns had tool results that do not look like search (consult: nothing says so)"
    assert (finding["status"], finding["message"]) == ("warning", expected)
    assert "search_tools" in finding["advice"]
