"""The markup of the page of a report. How a browser shows it is tested in tests/e2e."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.offline.report.pages import EVIL, hostile_page, page_of
from tests.offline.scored import judged, record, write


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_page(tmp_path_factory.mktemp("page"))


class TestMarkup:
    def test_the_page_loads_nothing(self, page_file: Path) -> None:
        """No address but that of traces, no picture, no frame; only its own script may run."""
        text = page_file.read_text(encoding="utf-8").replace("http://localhost:6006/{trace_id}", "")

        assert not re.search(r"https?:|<link|<img|<iframe|@import|url\((?!#)", text)
        assert re.search(r"script-src 'sha256-[\w+/=]+'", text)

    def test_ids_are_unique(self, page_file: Path) -> None:
        """Although there are many plots, and each has the same ids by itself."""
        ids = re.findall(r'\bid="([^"]+)"', page_file.read_text(encoding="utf-8"))
        assert len(ids) > 50
        assert len(ids) == len(set(ids))

    def test_the_script_gets_every_turn(self, page_file: Path) -> None:
        """A row per answer, with how many of its sentences are unsupported, and an element with its details."""
        text = page_file.read_text(encoding="utf-8")
        found = dict(re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', text))
        rows = [json.loads(found[f"rows-{file}"]) for file in (0, 1)]
        details = json.loads(found["turn-1-15"])

        assert [len(one) for one in rows] == [16, 16]
        assert rows[0][0][1:3] == [1, f"When? {EVIL}"]
        assert [row[5] for row in rows[0]] == [1] * 16
        assert len([name for name in found if name.startswith("turn-")]) == 32
        assert details["query"] == f"When? {EVIL}"
        assert [passage["is_target"] for passage in details["passages"]] == [True]

    def test_a_declined_answer_has_its_reason(self, tmp_path: Path) -> None:
        """Although its verdict is no number."""
        text = page_of([write(tmp_path / "a.jsonl", [judged("q1", "declined"), judged("q2", "good")])])
        [details] = re.findall('id="turn-0-0">(.*?)</script>', text)
        assert json.loads(details)["reason"] == "“It is q1.” has no support in passage 1"

    def test_control_characters_are_shown_as_pictures(self, tmp_path: Path) -> None:
        """In all texts of a turn, however deep."""
        text = page_of(
            [write(tmp_path / "a.jsonl", [record(query="When\x1b?", passages=["In\x01 2019."], scores={"cost": 1})])]
        )
        found = dict(re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', text))
        details = json.loads(found["turn-0-0"])

        assert details["query"] == json.loads(found["rows-0"])[0][2] == "When␛?"
        assert [passage["text"] for passage in details["passages"]] == ["In␁ 2019."]

    def test_the_same_files_give_the_same_page(self, tmp_path: Path) -> None:
        """Byte for byte."""
        path = write(tmp_path / "a.jsonl", [record(f"q{k}", scores={"cost": k}) for k in range(5)])
        assert page_of([path]) == page_of([path])
