"""Pages of reports, for tests with and without a browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rageval_hooks import Score
from rageval_hooks.offline.report import analyze, conclude
from rageval_hooks.offline.report.html import to_html
from tests.offline.scored import record, write

__all__ = ["EVIL", "hostile_page", "page_of"]


def page_of(paths: list[Path], **options: Any) -> str:
    """Return the page of files."""
    report, files = analyze(paths, worst=3)
    return to_html(report.model_copy(update={"conclusion": conclude(report)}), files, **options)


EVIL = '<script>document.title = "taken over"</script><img src=x onerror="document.title = 1">"\'&'


def hostile_page(folder: Path) -> Path:
    """Write the page of two files, full of texts that would like to be markup; return its path."""
    sentences = [
        {"text": f"It was 1978. {EVIL}", "score": 0.1, "passage": 0, "missing": ["1978", EVIL]},
        {"text": "It is long.", "score": 0.4, "passage": 0, "missing": ["long"]},
        {"text": "It is a bridge.", "score": 0.9, "passage": 0, "missing": []},
    ]
    judged = [
        {
            "key": "a",
            "text": EVIL,
            "fully_supported": True,
            "explanation": EVIL,
            "support": [{"passage": 0, "text": EVIL}],
        }
    ]
    files = []
    for name, shift in (("before", 0.0), ("</svg><script>after", 0.2)):
        records = [
            record(
                f"q{k}{EVIL}",
                run,
                Score(
                    name="groundedness", value=0.9 - k / 20 - shift, metadata={"sentences": sentences}, explanation=EVIL
                ),
                Score(name="trace.adherence", value=1.0, metadata={"sentences": judged}),
                Score(name=f"cost {EVIL} $x$", value=0.001 * k),
                Score(name="no_answer", value=1.0),
                query=f"When? {EVIL}",
                response=f"It was 1978. {EVIL} It is long. " + "word" * 60,
                passages=(f"The bridge. {EVIL}",),
                reference=EVIL,
                document=f"doc {EVIL}",
                target="p0",
                rank=1 + k % 3,
            )
            for k in range(8)
            for run in (1, 2)
        ]
        (folder / name.replace("/", "_")).mkdir()
        files.append(write(folder / name.replace("/", "_") / f"{name.replace('/', '_')}.jsonl", records))
    path = folder / "report.html"
    path.write_text(page_of(files, trace_url="http://localhost:6006/{trace_id}"), encoding="utf-8")
    return path
