"""No piece of a secret leaves: explanations list facts one by one, and cut quotations in the middle."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from rageval_hooks import GroundingGuard, Passage, Score, Turn, metric
from rageval_hooks.exporters.otel import OtelExporter
from rageval_hooks.online.pipeline import Pipeline
from rageval_hooks.online.stages import EndedTurn
from rageval_hooks.privacy import PatternRedactor
from rageval_hooks.testing import FakeJudge, InMemoryExporter
from tests.cli.test_cli import run
from tests.metrics.good_judge import by_schema

# Each secret with the form in which a text has it.
SECRETS = {
    "5500-0000-0000-0004": "Card {}",
    "4012 8888 8888 1881": "card {}",
    "4222\u00a02222\u00a02222\u00a02220": "card {}",
    "378282246310005": "amex,{},1229",
    "6011000990139424": "1,{},Ann",
    "DE89 3704 0044 0532 0130 00": "account {}",
    "GB29NWBK60161331926819": "account {}",
    "FR14 2004 1010 0505 0001 3M02 606": "account {}",
    "+49 30 1234567": "phone {}",
    "(415) 555-2671": "phone {}",
    "020 7946 0958": "phone {}",
    "01 23 45 67 89": "phone {}",
    "jane.quill@mail.example.org": "mail {}",
    "2001:db8:85a3::8a2e:370:7334": "host {}",
    "fe80::1ff:fe23:4567:890a": "host {}",
    "198.51.100.23": "host {}",
    "Qwe123Rty456Uio789": "Authorization: Bearer {}",
    "dXNlcjpodW50ZXIyMjIy=": "Authorization: Basic {}",
    "joe:Zx9Kq4Lm7Pw2Rt5Vy8Bn3Hd6Jf1Gs": "postgres://{}@db.example.org/app",
    "admin:Wint3rIsC0ming": "https://{}@example.org/login",
    "sk-proj-Ab12Cd34Ef56Gh78Ij90": "key {}",
    "ghp_abcdefghij0123456789ABCDEFGHIJ012345": "use {}",
    "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuv": "use {}",
    "glpat-x9Yz8Wv7Ut6Sr5Qp4On3": "use {}",
    "xoxb-123456789012-abcdefGHIJKL": "slack {}",
    "xapp-1-A0123456789-1234567890123-abcdef0123456789": "slack {}",
    "SG.ngeVfQFYQlKU0ufo8x5d1A.TwL2iGABf9DHoTf09kqeF8tAmbihYzrnopKc1s5cr": "mailer {}",
    "ya29.a0AfH6SMBx9abcdefghij_kl": "google {}",
    "AIzaSyA1b2C3d4E5f6G7h8I9j0K": "maps {}",
    "AKIAIOSFODNN7EXAMPLE": "aws {}",
    "hf_AbCdEfGhIjKlMnOpQrSt12": "hub {}",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abcdefghij": "session {}",
    "hunter2hunter2": "password={}",
    "Tr0ub4dor&3": "passwd='{}'",
    "correct horse 77 battery": 'password: "{}"',
    "s3cr3tPwd99": "pwd={}",
    "wJalrXUtnFEMIK7MDENGbPxRfiCY": "AccountKey={}",
    "7f3a9c1e5b": '{{"client_secret": "{}"}}',
    "MIIEvQIBADANBgkq9hkiG9w0": "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n{}\n"
    "-----END RSA PRIVATE KEY-----",
    "lQOYBGExample9PgpBody": "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{}\n-----END PGP PRIVATE KEY BLOCK-----",
}
SAID = [form.format(secret) for secret, form in SECRETS.items()]
# Words of a secret that are no secret by themselves.
HARMLESS = {"example", "XAMPLE", "le.org", "mail", "ENCRYPTED"}


def leaked(text: str) -> list[str]:
    """Return every part of a secret that is in a text: words of four or more characters, and longer ends of it."""
    parts = {part for secret in SECRETS for part in re.findall(r"\w{4,}", secret)}
    # "5500-0" and "-0004", whatever is cut off after or before it.
    parts |= {part for secret in SECRETS for part in (secret[:6], secret[-6:])}
    # Ids of traces and spans are random.
    text = re.sub(r"\b(?:0x)?[\da-f]{32}\b|\b0x[\da-f]{16}\b", "", text)
    # "0000" and "8888" are in durations.
    found = {part for part in {*SECRETS, *parts} - HARMLESS if len(set(part)) > 2}
    return sorted(part for part in found if re.search(rf"(?<![\d.]){re.escape(part)}", text, re.IGNORECASE))


def turn(half: int) -> Turn:
    """A turn whose answer has half of the secrets, which no passage has; the passages have the other half."""
    return Turn(
        query=f"What is known? {SAID[0]}",
        response=" ".join(f"The handbook of Tarn says this: {said}." for said in SAID[half::2]),
        passages=tuple(Passage(text=f"The handbook of Tarn says that: {said}.") for said in SAID[1 - half :: 2]),
        reference=f"The handbook says: {SAID[2]}. It costs 41 euros.",
    )


@metric(name="quoting", high=None)
def quoting(turn: Turn) -> Score:
    """A metric of the user's own, which cuts what it quotes."""
    explanation = f"cut: {turn.response[40:60]} … {turn.response[-30:]}"
    metadata = {"words": [turn.response[:49]]}
    return Score(name="quoting", value=turn.response.count("7"), high=None, explanation=explanation, metadata=metadata)


@metric(name="raising")
def raising(turn: Turn) -> float:
    raise ValueError(turn.response[30:55])


LOCAL = [
    *("groundedness", "faithfulness", "unsupported_facts", "context_relevance", "answer_relevance"),
    *("concept_completeness", "entity_consistency", "semantic_grounding", "hallucination", "tokens"),
]


def replace_all(text: str) -> str:
    """A function of the user's own."""
    return PatternRedactor(presidio=False)(text)


@pytest.mark.parametrize(
    ("redact", "dispatch", "half"), [(True, "thread", 0), (replace_all, "spool", 1)], ids=["ready", "function"]
)
def test_no_piece_of_a_secret_leaves_the_process(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    redact: bool | Callable[[str], str],
    dispatch: str,
    half: int,
) -> None:
    """Not into spans, log events, files, the spool, log lines and requests to the judge."""
    spans, events = InMemorySpanExporter(), InMemoryLogRecordExporter()
    provider, loggers = TracerProvider(shutdown_on_exit=False), LoggerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(events))
    exporter = InMemoryExporter()
    spooled: list[str] = []

    def look(call: Any) -> Any:
        spooled.extend(file.read_bytes().decode("latin-1") for file in tmp_path.glob("spool*"))
        return by_schema()._script(call)

    judge = FakeJudge(look)
    pipeline = Pipeline.build(
        metrics=[*LOCAL, quoting, raising, "trace"],
        models="lexical",
        judge=judge,
        exporters=[OtelExporter(provider, logger_provider=loggers), "jsonl", exporter],
        jsonl_path=str(tmp_path / "turns.jsonl"),
        redact=redact,
        dispatch=dispatch,
        spool_path=str(tmp_path / "spool.db"),
        inline_budget_ms=30_000,
    )
    pipeline.submit(EndedTurn.of(turn(half)))
    assert pipeline.flush(60)
    pipeline.shutdown()

    shown = {
        "spans": repr([span.to_json() for span in spans.get_finished_spans()]),
        "events": repr([(event.log_record.body, event.log_record.attributes) for event in events.get_finished_logs()]),
        "file": (tmp_path / "turns.jsonl").read_text(),
        "spool": "".join(spooled),
        "judge": repr(judge.calls),
        "log": re.sub(r'File "[^"]*"', "", caplog.text),  # a folder may be called "proj"
        "exporters": repr(exporter.evaluations),
    }
    assert {name: leaked(text) for name, text in shown.items()} == {name: [] for name in shown}
    assert "<SECRET>" in shown["spans"]
    scores = {score.name: score for found in exporter.evaluations for score in found.scores}
    assert scores["quoting"].value == turn(half).response.count("7")
    assert "unsupported_facts" in shown["events"]


def test_scores_are_those_of_the_original_texts(tmp_path: Path) -> None:
    """The explanation says so where the redacted texts would have another score."""
    exporter = InMemoryExporter()
    original = InMemoryExporter()
    for redact, into in ((None, original), (True, exporter)):
        pipeline = Pipeline.build(metrics=["unsupported_facts"], models="lexical", exporters=[into], redact=redact)
        pipeline.submit(EndedTurn.of(turn(0)))
        assert pipeline.flush(60)
        pipeline.shutdown()
    [score], [before] = exporter.evaluations[0].scores, original.evaluations[0].scores
    assert (score.value, score.label) == (before.value, before.label)
    assert score.explanation
    assert score.explanation.endswith((" (from the redacted texts)", "not shown: it may quote redacted texts"))


def test_files_and_reports_of_commands(tmp_path: Path) -> None:
    """Also a report of scores that were made without redaction."""
    (tmp_path / "answers.jsonl").write_text(turn(0).model_dump_json() + "\n")
    score = ("score", str(tmp_path / "answers.jsonl"), "--models", "lexical", "--metrics", ",".join(LOCAL), "-o")
    run(*score, str(tmp_path / "redacted.jsonl"), RAGEVAL_REDACT="true")
    run(*score, str(tmp_path / "open.jsonl"))
    assert leaked((tmp_path / "open.jsonl").read_text())
    for name in ("redacted", "open"):
        for form in ("markdown", "html", "json"):
            output = tmp_path / f"{name}.{form}"
            report = ("report", str(tmp_path / f"{name}.jsonl"), "--format", form, "-o", str(output))
            run(*report, RAGEVAL_REDACT="true")
            assert leaked(output.read_text()) == []
    assert leaked((tmp_path / "redacted.jsonl").read_text()) == []


def test_the_span_of_a_guard(tmp_path: Path) -> None:
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    guard = GroundingGuard(models="lexical", redact=True, tracer_provider=provider, timeout_ms=30_000)
    for half in (0, 1):
        case = turn(half)
        assert guard.check(case.response, case.passages, question=case.query).answer == case.response
    assert leaked(repr([span.to_json() for span in spans.get_finished_spans()])) == []
