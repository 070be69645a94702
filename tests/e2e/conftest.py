"""Real servers and a real browser. What is missing is skipped with a reason; CI installs it: see .ci/run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.phoenix_server import Phoenix, phoenix_installed, serve_phoenix


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file in one worker, and all that use the Phoenix server too: it takes a while to start."""
    for item in items:
        group = "phoenix" if "phoenix" in getattr(item, "fixturenames", ()) else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def phoenix(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Phoenix]:
    """The real server, with an empty database."""
    if not phoenix_installed():
        pytest.skip('no Phoenix server: pip install "rageval-hooks[e2e]"')
    with serve_phoenix(tmp_path_factory.mktemp("phoenix")) as server:
        yield server


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start Chromium without a window; it makes no requests of its vendor.

    The scope is one module: while Playwright runs, the thread has a running event loop.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason='no Playwright: pip install "rageval-hooks[e2e]"')
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium: apt-get install chromium")
    arguments = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=arguments)
        yield chromium
        chromium.close()


@pytest.fixture
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where screenshots go: ``docs/images`` with ``--keep-screenshots``, else nowhere that lasts."""
    if request.config.getoption("--keep-screenshots"):
        return Path(__file__).resolve().parents[2] / "docs" / "images"
    return tmp_path
