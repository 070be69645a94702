"""Which tools search: measured on the tools of public applications, and single rules."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rageval_hooks.integrations.capture.evidence import Evidence
from rageval_hooks.integrations.capture.search_tools import searches
from tests.integrations.capture.labelled_tools import FIRST, SECOND, TEXT, THIRD

TOOLS = [*FIRST, *SECOND, *THIRD]


@pytest.mark.parametrize("is_search", [True, False], ids=["searches", "others"])
def test_tools_of_public_applications(is_search: bool) -> None:
    """At least 95 of 100 are right, both ways."""
    labelled = [one for one in TOOLS if one.is_search is is_search]
    wrong = [one.name for one in labelled if searches(*one[1:])[0] is not is_search]

    assert len(wrong) <= 0.05 * len(labelled), wrong


def test_arguments_and_results_may_be_json() -> None:
    """Spans of other frameworks have texts."""
    for one in TOOLS:
        arguments = json.dumps(one.arguments)
        result = one.result if isinstance(one.result, str) else json.dumps(one.result)
        assert searches(one.name, one.description, arguments, result) == searches(*one[1:])


@pytest.mark.parametrize(
    ("name", "description", "arguments", "result", "expected"),
    [
        ("get_article", "", {"id": 7}, TEXT, True),
        ("read_page", "", {"url": "https://a"}, TEXT, True),
        ("run_sql", "", {"statement": "SELECT 1"}, [{"year": 2019}], True),
        ("kb", None, {"question": "When?"}, TEXT, True),
        ("kb", "Searches the handbook.", {"x": "When?"}, TEXT, True),
        ("kb", "Looks up the handbook. Then sends it.", {"x": "When?"}, TEXT, True),
        ("kb", "Sends a page of the handbook. Search first.", {"x": "When?"}, TEXT, False),
        ("kb", None, {}, [{"text": TEXT, "url": "https://a"}], True),
        ("kb", None, {}, TEXT, False),
        (None, None, None, TEXT, False),
        ("saveSearchResults", None, {}, TEXT, False),
        ("searchAndRank", None, {}, TEXT, True),
        ("web_search", None, {"query": "pier"}, {"error": "No results found", "query": "pier"}, False),
        ("web_search", None, {"query": "pier"}, "Error: the server is busy", False),
    ],
)
def test_rules(name: Any, description: Any, arguments: Any, result: Any, expected: bool) -> None:
    assert searches(name, description, arguments, result)[0] is expected


@pytest.mark.parametrize(
    ("search_tools", "expected"),
    [
        ((), True),
        (("web_search",), True),
        (("!web_search",), False),
        (("wiki",), False),
        (("!wiki",), True),
        (("wiki", "!web_search"), False),
    ],
)
def test_the_setting_decides_first(search_tools: tuple[str, ...], expected: bool) -> None:
    assert (
        Evidence((), search_tools).tool_searches(
            "web_search", description=None, arguments={"query": "pier"}, result=TEXT
        )[0]
        is expected
    )


@pytest.mark.parametrize("value", [object(), {"x": {"y": [object()]}}, [[]], b"bytes", float("nan")])
def test_any_value_can_be_a_result(value: Any) -> None:
    assert searches("web_search", "d", value, value)[0] in (True, False)
