"""The score APIs, as far as a test or benchmark that runs against all of them must know."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast
from unittest.mock import patch

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.exporters.base import REGISTRY, Exporter
from rageval_hooks.exporters.score_api import ScoreApiExporter
from tests.exporters.recording import Recorded, Reply

__all__ = ["NAMES", "SECRET", "Backend", "Store", "backend_of"]

SECRET = "sk-do-not-show"


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A score API, as far as these tests differ.

    Attributes:
        name: the exporter's name.
        variables: the credentials, as the vendor's SDK reads them.
        address: the variable with the server's URL.
        place: where spans go that it recognises, and with which headers.
        scores: the scores of a request's body.
        identity: what tells a score from any other, for that backend.
        bad_filter: what finds bad answers there, as the table of docs/backends.md has it.
        filtered: of a request's body, the name of each score, whether the filter finds it, and the explanation.
        replaces: True if the backend replaces a score by one with the same identity.
    """

    name: str
    variables: dict[str, str]
    address: str
    place: tuple[str, str]
    scores: Callable[[Any], list[dict[str, Any]]]
    identity: Callable[[dict[str, Any]], Any]
    bad_filter: str
    filtered: Callable[[Any], list[tuple[str, bool, str]]]
    replaces: bool = True

    @property
    def exporter(self) -> type[ScoreApiExporter]:
        """The exporter's class."""
        return cast("type[ScoreApiExporter]", REGISTRY.builtin()[self.name])

    @property
    def automatic(self) -> type[ScoreApiExporter]:
        """The one that is on by itself."""
        return cast("type[ScoreApiExporter]", REGISTRY.builtin()[f"{self.name}-auto"])


class Store:
    """What a backend has stored.

    Attributes:
        taken: how often it took each score, by what identifies it.
    """

    def __init__(self, backend: Backend) -> None:
        self.taken: Counter[Any] = Counter()
        self._backend = backend

    def respond(self, request: Recorded) -> Reply:
        """Take scores, and say which ones are there."""
        if request.path.endswith("/query"):
            [_, literal] = request.body["query"]["$expr"]["$eq"]
            return Reply(body={"result": [{"id": literal["$literal"]}] if literal["$literal"] in self.taken else []})
        if request.method == "POST":
            self.taken.update(self._backend.identity(score) for score in self._backend.scores(request.body))
        return Reply(status=202)

    @property
    def doubled(self) -> int:
        """How many scores are there more than once."""
        return 0 if self._backend.replaces else sum(times > 1 for times in self.taken.values())


def needs_key(kind: type[Exporter]) -> bool:
    """Return True if an exporter cannot be made without credentials."""
    with patch.dict(os.environ, clear=True):
        try:
            kind()
        except ConfigurationError:
            return True
    return False


NAMES = [
    name
    for name, kind in REGISTRY.builtin().items()
    if issubclass(kind, ScoreApiExporter) and not kind.automatic and needs_key(kind)
]
"""The exporters to score APIs. The contract of those that need no key is in ``test_text_exporters.py``."""


def backend_of(name: str) -> Backend:
    """Return what the tests of an exporter say about its API: ``BACKEND`` in ``test_NAME.py``."""
    tests = import_module(f"tests.exporters.test_{name}")
    assert hasattr(tests, "BACKEND"), f"tests/exporters/test_{name}.py: add BACKEND = Backend(…), as in test_weave.py"
    backend: Backend = tests.BACKEND
    assert backend.name == name
    return backend
