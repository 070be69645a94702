"""The markup of the page of a report. How a browser shows it is tested in tests/e2e."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rageval_hooks import ConfigurationError
from tests.offline.report.render.pages import hostile_page, page_of
from tests.offline.scored import record, write


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

    def test_the_same_files_give_the_same_page(self, tmp_path: Path) -> None:
        """Byte for byte."""
        path = write(tmp_path / "a.jsonl", [record(f"q{k}", scores={"cost": k}) for k in range(5)])
        assert page_of([path]) == page_of([path])

    @pytest.mark.parametrize("url", ["javascript:alert(1)//{trace_id}", "http://localhost:6006/traces"])
    def test_a_trace_url_is_an_address_with_a_place_for_the_trace(self, tmp_path: Path, url: str) -> None:
        """Anything else is an error."""
        path = write(tmp_path / "a.jsonl", [record(scores={"cost": 1})])
        with pytest.raises(ConfigurationError, match="--trace-url"):
            page_of([path], trace_url=url)
