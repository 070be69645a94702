"""From what a user gives to a judge."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from rageval_hooks.errors import ConfigurationError, UnknownNameError
from rageval_hooks.judges.base import Judge, Judgement
from rageval_hooks.judges.fake import FakeJudge
from rageval_hooks.judges.openai import OpenAIJudge
from rageval_hooks.judges.resolve import resolve_judge
from tests.judges.helpers import GOOD, KEY, ask
from tests.judges.server import JudgeServer, answer


class OurJudge(Judge):
    """One from another package."""

    name = "ours"

    def __init__(self, model: str = "default", size: int = 1) -> None:
        self.model = model
        self.size = size

    @classmethod
    def from_model(cls, model: str, **options: Any) -> OurJudge:
        return cls(model, **options)

    async def complete(self, messages: Any, schema: Any, *, parameters: Any = None) -> Judgement[Any]:
        return Judgement(value=schema.model_validate(GOOD), model=self.model)


ready = OurJudge("ready")


def test_a_name_with_a_provider_and_a_model(server: JudgeServer) -> None:
    """Options go to the judge that is made."""
    server.then(answer(GOOD))
    judge = resolve_judge("openai:gpt-5-mini", base_url=server.url, api_key=KEY)
    assert isinstance(judge, OpenAIJudge)
    assert (str(judge), repr(judge)) == ("openai:gpt-5-mini", "<judge openai:gpt-5-mini>")
    ask(judge)
    assert server.requests[0].body["model"] == "gpt-5-mini"


def test_a_models_name_may_have_colons() -> None:
    """As those of Ollama have."""
    assert resolve_judge("openai:llama3:8b", base_url="http://x/v1").model == "llama3:8b"


def test_a_judge_that_is_named_by_its_place_takes_no_options() -> None:
    """It may be an instance."""
    with pytest.raises(ConfigurationError, match=r"the judge 'tests\.judges.*:ready' takes no options, .*timeout"):
        resolve_judge(f"{__name__}:ready", timeout=3)


def test_an_instance_is_returned_unchanged() -> None:
    """It is made already, so it takes no options."""
    judge = FakeJudge()
    assert resolve_judge(judge) is judge
    with pytest.raises(ConfigurationError, match="timeout"):
        resolve_judge(judge, timeout=3)


def test_a_class_is_instantiated() -> None:
    """With the options."""
    judge = resolve_judge(OurJudge, model="m")
    assert isinstance(judge, OurJudge)
    assert judge.model == "m"


@pytest.mark.parametrize(("name", "model"), [("OurJudge", "default"), ("ready", "ready")])
def test_a_judge_of_ones_own_by_its_place(name: str, model: str) -> None:
    """A class without arguments, or an instance."""
    assert resolve_judge(f"tests.judges.test_resolve:{name}").model == model


def test_a_provider_of_another_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its entry point; the model's name and the options go to ``from_model``."""
    entry = EntryPoint("ours", "tests.judges.test_resolve:OurJudge", "rageval_hooks.judges")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry] if group == entry.group else [])
    judge = resolve_judge("ours:large", size=3)
    assert isinstance(judge, OurJudge)
    assert (judge.model, judge.size) == ("large", 3)
    with pytest.raises(ConfigurationError, match="weight"):
        resolve_judge("ours:large", weight=3)


def test_an_unknown_provider_lists_the_valid_ones() -> None:
    """The message suggests a similar name."""
    with pytest.raises(UnknownNameError, match=r"'opnai'. Did you mean 'openai'. Valid: .*openai"):
        resolve_judge("opnai:gpt-5-mini")


def test_another_provider_by_its_name_says_how_to_use_it() -> None:
    with pytest.raises(UnknownNameError, match=r"'anthropic'.*another provider, pass a LangChain chat model"):
        resolve_judge("anthropic:claude-sonnet-4-5")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gpt-5-mini", "provider:model"),
        ("openai:", "provider:model"),
        ("", "provider:model"),
        ("no.such.module:Judge", "cannot be imported"),
        ("tests.judges.helpers:KEY", "not a judge"),
        (7, "int is not a judge"),
        (None, "NoneType is not a judge"),
        (Judge, "cannot be created"),
        (int, "type is not a judge"),
    ],
)
def test_what_is_no_judge_is_refused(given: Any, message: str) -> None:
    """The message says what would be one."""
    with pytest.raises(ConfigurationError, match=message):
        resolve_judge(given)


def test_an_unknown_option_names_the_valid_ones() -> None:
    """A typing error is found at once."""
    with pytest.raises(
        ConfigurationError, match=r"unknown judge option 'retries'. Did you mean 'max_retries'\? Valid: .*max_retries, "
    ):
        resolve_judge("openai:m", base_url="http://x/v1", retries=3)


_LIGHT = """
import sys
import rageval_hooks, rageval_hooks.judges.base, rageval_hooks.judges.langchain, rageval_hooks.judges.llama_index
import rageval_hooks.judges.openai
from rageval_hooks.judges.resolve import resolve_judge
from rageval_hooks.judges.fake import FakeJudge
resolve_judge(FakeJudge())
heavy = {"openai", "langchain_core", "llama_index", "httpx", "httpx2", "genai_prices", "langsmith"}
print(sorted(heavy & {name.partition(".")[0] for name in sys.modules}))
"""


def test_nothing_heavy_is_imported_before_it_is_used() -> None:
    """Neither the client nor a framework: not with the package, not with the modules of the judges."""
    done = subprocess.run([sys.executable, "-c", _LIGHT], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_judge_of_the_application_needs_little() -> None:
    """It is an object, has no name form, and no counters of its own."""

    class Own(Judge):
        async def complete(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    assert Own().stats() == {}
    with pytest.raises(ConfigurationError, match="Own has no name form: pass an instance as judge="):
        Own.from_model("model")
