"""The page of a report, in a browser."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.offline.report.pages import EVIL, hostile_page, page_of
from tests.offline.scored import judged, record, write


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_page(tmp_path_factory.mktemp("page"))


def opened(browser: Any, path: Path, **options: Any) -> tuple[Any, list[str]]:
    page = browser.new_page(**options)
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("request", lambda request: trouble.append(request.url) if request.url != path.as_uri() else None)
    page.goto(path.as_uri())
    page.wait_for_selector(".opener")
    return page, trouble


class TestBrowser:
    def test_texts_are_texts(self, browser: Any, page_file: Path) -> None:
        """No text of a file runs, nothing is loaded, no error is logged, and texts are shown literally."""
        page, trouble = opened(browser, page_file)
        page.locator(".opener").first.click()
        page.wait_for_selector(".side")

        assert page.title() == "RAG evaluation"
        assert trouble == []
        assert page.locator("img").count() == 0
        assert EVIL in page.locator(".side .answer").first.inner_text()
        page.close()

    def test_the_conclusion_comes_first(self, browser: Any, page_file: Path) -> None:
        """Before any table or plot."""
        page, _ = opened(browser, page_file)
        assert page.locator("main > section").first.get_attribute("id") == "conclusion"
        assert "worse" in page.locator("#conclusion").inner_text()
        page.close()

    def test_bad_answers_come_first_with_the_reason(self, browser: Any, tmp_path: Path) -> None:
        """And can be filtered; between two files, a verdict that changed shows both."""
        verdicts = ["good", "declined", "bad", "doubtful"]
        one = write(tmp_path / "one.jsonl", [judged(f"q{k}", verdict) for k, verdict in enumerate(verdicts)])
        two = write(tmp_path / "two.jsonl", [judged(f"q{k}", "good") for k in range(4)])
        path = tmp_path / "report.html"
        for files, first in (([one], "bad"), ([two, one], "good→ bad")):
            path.write_text(page_of(files), encoding="utf-8")
            page, trouble = opened(browser, path, bypass_csp=True)
            row = page.locator(".questions .q").nth(1)  # the first one is the heading

            assert row.locator("small").text_content().startswith(first)
            assert row.locator(".reason").text_content() == "“It is q2.” has no support in passage 1"
            page.select_option("#status", "declined")
            page.wait_for_function("document.querySelector('#count').textContent.startsWith('1 of 4')")
            assert trouble == []
            page.close()

    def test_a_question_opens_to_its_answer_with_marks(self, browser: Any, page_file: Path) -> None:
        """Both files side by side: unsupported sentences and facts, passages with rank and target, judge's reasons."""
        page, _ = opened(browser, page_file)
        page.locator(".opener").first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".side")

        assert page.locator(".side").count() == 2
        assert "It was 1978." in page.locator(".answer mark.unsupported").first.inner_text()
        assert page.locator(".answer mark.weak").first.inner_text().startswith("It is long.")
        assert "target" in page.locator(".passages > li").first.inner_text()
        assert page.locator(".side").nth(1).locator(".worse").count() >= 1
        page.close()

    def test_questions_are_searched_filtered_and_sorted(self, browser: Any, page_file: Path) -> None:
        """By text, by the kind of change, by score, in both orders."""
        page, _ = opened(browser, page_file, bypass_csp=True)
        count = page.locator("#count")
        assert count.inner_text().startswith("16 of 16")

        page.fill("#search", "q3")
        page.wait_for_function("document.querySelector('#count').textContent.startsWith('2 of')")
        page.fill("#search", "")
        page.select_option("#status", "better")
        page.wait_for_function("document.querySelector('#count').textContent.startsWith('0 of')")
        page.select_option("#status", "worse")
        page.wait_for_function("document.querySelector('#count').textContent.startsWith('16 of')")
        page.select_option("#sort", label="groundedness")
        page.wait_for_function("document.querySelector('.questions .q small').textContent.includes('q7')")
        page.select_option("#order", "best")
        page.wait_for_function("document.querySelector('.questions .q small').textContent.includes('q0')")
        page.close()

    def test_repeats_that_one_file_lacks_are_compared(self, browser: Any, tmp_path: Path) -> None:
        """A question has three answers in one file and one in the other: each of the three is next to the one."""
        scores = {"groundedness": 0.5}
        one = write(tmp_path / "one.jsonl", [record("q1", scores=scores)])
        three = write(tmp_path / "three.jsonl", [record("q1", run, scores=scores) for run in (1, 2, 3)])
        for files, runs in (((one, three), "run 1 → run 3"), ((three, one), "run 3 → run 1")):
            path = tmp_path / "report.html"
            path.write_text(page_of(list(files)), encoding="utf-8")
            page, trouble = opened(browser, path)

            assert page.locator(".questions .q small").all_inner_texts()[-1] == f"q1 · {runs}"
            assert page.locator("#count").inner_text().startswith("3 of 3")
            assert trouble == []
            page.close()

    def test_there_is_a_plot_for_every_score(self, browser: Any, page_file: Path) -> None:
        """Drawn, and with its numbers in words for people who do not see it."""
        page, _ = opened(browser, page_file)
        plots = page.locator("figure svg[role=img]")
        labels = plots.evaluate_all("all => all.map(one => one.getAttribute('aria-label'))")
        sizes = plots.evaluate_all("all => all.map(one => one.getBoundingClientRect().height)")

        assert any(label.startswith("groundedness (higher is better): before") for label in labels)
        assert any(label.startswith("answered") for label in labels)
        assert any("variation over repeats" in label for label in labels)
        assert min(sizes) > 60
        page.close()

    def test_headings_follow_each_other(self, browser: Any, page_file: Path) -> None:
        """One h1, no level skipped; every region that scrolls can be reached by keyboard."""
        page, _ = opened(browser, page_file)
        levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4,h5')].map(one => +one.tagName[1])")

        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert page.evaluate(
            "[...document.querySelectorAll('.scroll')].every(one => one.tabIndex === 0 && one.ariaLabel)"
        )
        page.close()

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_everything_can_be_read(self, browser: Any, page_file: Path, scheme: str) -> None:
        """Contrast of at least 4.5 to 1, the text in the plots and an open question included."""
        page, _ = opened(browser, page_file, color_scheme=scheme)
        page.locator(".opener").first.click()
        page.wait_for_selector(".side")
        assert page.evaluate(LOWEST_CONTRAST) >= 4.5
        page.close()

    def test_it_fits_a_phone(self, browser: Any, page_file: Path) -> None:
        """At 390 pixels nothing is wider than the screen, also with an open question."""
        page, _ = opened(browser, page_file, viewport={"width": 390, "height": 844})
        page.locator(".opener").first.click()
        page.wait_for_selector(".side")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        page.close()

    def test_ten_thousand_questions_stay_usable(self, browser: Any, tmp_path: Path) -> None:
        """One page of the table is drawn at a time; the last question opens."""
        records = (record(f"q{k}", scores={"groundedness": k / 10_000}) for k in range(10_000))
        path = tmp_path / "report.html"
        path.write_text(page_of([write(tmp_path / "a.jsonl", records)]), encoding="utf-8")
        page, trouble = opened(browser, path, bypass_csp=True)

        assert page.locator(".opener").count() == 50
        page.fill("#search", "q9999")
        page.wait_for_function("document.querySelector('#count').textContent.startsWith('1 of 10000')")
        page.locator(".opener").click()
        page.wait_for_selector(".side")
        assert "question q9999" in page.locator(".side").inner_text()
        assert trouble == []
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
