"""The parameters of a model call, without credentials."""

from __future__ import annotations

from typing import Any

import pytest

from rageval_hooks.integrations.capture.values import public_parameters


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"temperature": 0.5, "max_tokens": 10}, {"temperature": 0.5, "max_tokens": 10}),
        ({"stop": None, "_type": "openai-chat", "n": 1}, {"n": 1}),
        ({"api_key": "sk-1", "OPENAI_API_KEY": "sk-1", "access_token": "t", "keep_alive": 5}, {"keep_alive": 5}),
        ({"headers": {"a": "b"}, "extra_headers": {"a": "b"}, "password": "p"}, {}),
        ({"extra_body": {"api_key": "sk-1", "user": "u"}}, {"extra_body": {"user": "u"}}),
        ({"stop": ("a", "b")}, {"stop": ["a", "b"]}),
        ({1: 2}, {"1": 2}),
    ],
)
def test_what_is_kept(given: dict[Any, Any], kept: dict[str, Any]) -> None:
    assert public_parameters(given) == kept


def test_names_can_be_omitted() -> None:
    assert public_parameters({"tools": [{}], "n": 1}, without={"tools"}) == {"n": 1}
