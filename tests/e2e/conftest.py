"""Real servers and a real browser. What is missing is skipped with a reason; CI installs it: see .ci/run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rageval_hooks.demo.phoenix import Phoenix, phoenix_installed, serve_phoenix


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


@pytest.fixture
def out(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Where screenshots go: ``docs/images`` with ``--keep-screenshots``, else nowhere that lasts."""
    if request.config.getoption("--keep-screenshots"):
        return Path(__file__).resolve().parents[2] / "docs" / "images"
    return tmp_path
