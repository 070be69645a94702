"""The page of a report, in a browser."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from rageval_hooks import Score
from rageval_hooks.offline.report.render.html import to_html
from rageval_hooks.offline.report import build_report
from tests.offline.scored import record, write

EVIL = '<script>document.title = "taken over"</script><img src=x onerror="document.title = 1">"\'&'


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of two files, full of texts that would like to be markup."""
    folder = tmp_path_factory.mktemp("page")
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
    path.write_text(to_html(build_report(files, worst=3)), encoding="utf-8")
    return path


class TestMarkup:
    def test_the_page_loads_nothing(self, page_file: Path) -> None:
        """No address in it, no script, no picture that is not inside."""
        text = page_file.read_text(encoding="utf-8")

        assert not re.search(r"https?:|<script|<link|<img|<iframe|@import|url\((?!#)", text)
        assert "Content-Security-Policy" in text

    def test_ids_are_unique(self, page_file: Path) -> None:
        """Although there are many plots, and each has the same ids by itself."""
        ids = re.findall(r'\bid="([^"]+)"', page_file.read_text(encoding="utf-8"))
        assert len(ids) > 50
        assert len(ids) == len(set(ids))

    def test_the_same_report_gives_the_same_page(self, tmp_path: Path) -> None:
        """Byte for byte."""
        report = build_report([write(tmp_path / "a.jsonl", [record(f"q{k}", scores={"cost": k}) for k in range(5)])])
        assert to_html(report) == to_html(report)

    def test_a_file_without_values_has_a_page(self, tmp_path: Path) -> None:
        """It says that there is nothing to plot."""
        report = build_report([write(tmp_path / "a.jsonl", [record(target="t", rank=1)])])
        assert "There are no values to plot." in to_html(report)


def opened(browser: Any, path: Path, **options: Any) -> tuple[Any, list[str]]:
    page = browser.new_page(**options)
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: trouble.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    return page, trouble


class TestBrowser:
    def test_texts_are_texts(self, browser: Any, page_file: Path) -> None:
        """Nothing of them ran, nothing was loaded, no error was logged; they are readable as they were."""
        page, trouble = opened(browser, page_file)

        assert page.title() == "RAG evaluation"
        assert trouble == []
        assert page.locator("script, img").count() == 0
        assert EVIL in page.locator("article .sentences").first.inner_text()
        page.close()

    def test_the_evidence_is_there_sentence_by_sentence(self, browser: Any, page_file: Path) -> None:
        """Marked by a word and not by colour alone; the passage unfolds."""
        page, _ = opened(browser, page_file)
        article = page.locator("section#file-1 article").first

        marks = article.locator(".sentences").first.locator(".mark").all_inner_texts()
        assert marks == ["unsupported · 0.100", "weak · 0.400", "supported · 0.900"]
        assert not article.locator("blockquote").first.is_visible()
        article.locator(".sentences summary").first.click()
        assert "The bridge." in article.locator("blockquote").first.inner_text()
        page.close()

    def test_there_is_a_plot_for_every_score(self, browser: Any, page_file: Path) -> None:
        """Drawn, as large as its frame, and with its numbers in words."""
        page, _ = opened(browser, page_file)
        plots = page.locator("figure svg[role=img]")
        labels = plots.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
        sizes = plots.evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")

        assert any(label.startswith("groundedness (higher is better): before") for label in labels)
        assert any(label.startswith("questions answered") for label in labels)
        assert any("variation over repeats" in label for label in labels)
        assert all("mean" in label for label in labels)
        assert min(sizes) > 60
        page.close()

    def test_headings_follow_each_other(self, browser: Any, page_file: Path) -> None:
        """One h1, no level left out; tables have head cells; every region that scrolls can be reached by keyboard."""
        page, _ = opened(browser, page_file)
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(one => +one.tagName[1])")

        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert page.evaluate("[...document.querySelectorAll('table')].every(one => one.querySelector('th[scope=col]'))")
        assert page.evaluate(
            "[...document.querySelectorAll('.scroll')].every(one => one.tabIndex === 0 && one.ariaLabel)"
        )
        page.close()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_everything_can_be_read(self, browser: Any, page_file: Path, scheme: str) -> None:
        """Contrast of at least 4.5 to 1, the text in the plots included, on light and on dark."""
        page, _ = opened(browser, page_file, color_scheme=scheme)
        assert page.evaluate(LOWEST_CONTRAST) >= 4.5
        page.close()

    def test_it_fits_a_phone(self, browser: Any, page_file: Path) -> None:
        """Nothing is wider than the screen; wide tables scroll by themselves."""
        page, _ = opened(browser, page_file, viewport={"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        page.close()

    def test_links_lead_somewhere(self, browser: Any, page_file: Path) -> None:
        """Every one in the list of sections."""
        page, _ = opened(browser, page_file)
        links = page.locator("nav a").evaluate_all("all => all.map(one => one.getAttribute('href'))")
        assert len(links) >= 5
        assert all(page.locator(link).count() == 1 for link in links)
        page.close()


LOWEST_CONTRAST = """() => {
  const parts = colour => colour.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const paper = one => {
    for (; one; one = one.parentElement) {
      const colour = parts(getComputedStyle(one).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  let lowest = 21;
  for (const one of document.querySelectorAll('body *')) {
    if (![...one.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(one);
    const ink = light(parts(one.closest('svg') ? style.fill : style.color)), ground = light(paper(one));
    lowest = Math.min(lowest, (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05));
  }
  return lowest;
}"""
