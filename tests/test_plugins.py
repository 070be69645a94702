"""Finding metrics and exporters by name: built in, by entry point, or by where they are defined."""

from __future__ import annotations

import importlib.metadata
from importlib.metadata import EntryPoint
from typing import Any, ClassVar

import pytest

from rageval_hooks import ConfigurationError, Exporter, Metric, Score, UnknownNameError
from rageval_hooks.exporters.base import REGISTRY as EXPORTERS
from rageval_hooks.metrics import metric
from rageval_hooks.metrics.base import REGISTRY as METRICS
from rageval_hooks.metrics.local.groundedness import Groundedness
from rageval_hooks.plugins import Registry


class Custom(Metric):
    """A metric of the application."""

    name: ClassVar[str] = "custom"

    def evaluate(self, analysis: object) -> Score:
        return self.score(1)


class NeedsArguments(Custom):
    name = "needs_arguments"

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold


decorated = metric(lambda turn: 1, name="decorated")
instance = Custom()
something_else = 3


def function(turn: object) -> int:
    """A function that its author forgot to decorate."""
    return 1


@pytest.fixture
def entry_points(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """What other packages have published; by the fixture's users."""
    published: list[EntryPoint] = []
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda group: [entry for entry in published if entry.group == group]
    )
    return published


def test_a_built_in_one_is_found_by_its_name() -> None:
    """Made without arguments."""
    assert isinstance(METRICS.create("groundedness"), Groundedness)


def test_built_in_ones_are_what_the_modules_define() -> None:
    """By the name that each has; classes that are only imported there, or abstract, are not."""
    builtin = METRICS.builtin()

    assert all(name == kind.name for name, kind in builtin.items())
    assert all(kind.__module__.startswith("rageval_hooks.metrics.") for kind in builtin.values())
    assert {"otel", "console", "jsonl"} <= set(EXPORTERS.builtin())


def test_an_instance_or_a_class_needs_no_name() -> None:
    """An instance is returned as it is."""
    own = Groundedness(weak=0.7)

    assert METRICS.create(own) is own
    assert isinstance(METRICS.create(Custom), Custom)


@pytest.mark.parametrize(("name", "found"), [("Custom", "custom"), ("decorated", "decorated"), ("instance", "custom")])
def test_anything_can_be_named_by_where_it_is(name: str, found: str) -> None:
    """As ``package.module:name``: a class, an instance, a decorated function."""
    assert METRICS.create(f"{__name__}:{name}").name == found


def test_what_others_publish_is_found_by_its_name(entry_points: list[EntryPoint]) -> None:
    """As entry points of the group; they are listed with the others."""
    entry_points.append(EntryPoint("theirs", f"{__name__}:Custom", "rageval_hooks.metrics"))
    entry_points.append(EntryPoint("not_for_metrics", f"{__name__}:Custom", "rageval_hooks.exporters"))

    assert isinstance(METRICS.create("theirs"), Custom)
    assert "theirs" in METRICS.names()
    assert "not_for_metrics" not in METRICS.names()


def test_a_built_in_one_comes_before_anothers_of_the_same_name(entry_points: list[EntryPoint]) -> None:
    """An installed package does not change what a name means."""
    entry_points.append(EntryPoint("groundedness", f"{__name__}:Custom", "rageval_hooks.metrics"))

    assert isinstance(METRICS.create("groundedness"), Groundedness)


def test_an_unknown_name_is_answered_with_the_valid_ones() -> None:
    """And the one that was probably meant."""
    with pytest.raises(UnknownNameError) as raised:
        METRICS.create("groundednes")

    message = str(raised.value)
    assert message.startswith("unknown metric 'groundednes'. Did you mean 'groundedness'? Valid: answer_relevance, ")
    assert message.endswith('One of your own is named "package.module:name".')
    assert set(METRICS.names()) == set(raised.value.valid)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("no.such.module:Metric", "metric 'no.such.module:Metric' cannot be imported: No module named 'no'"),
        (f"{__name__}:Nothing", "cannot be imported: module '.*' has no attribute 'Nothing'"),
        (":Custom", "cannot be imported"),
        (f"{__name__}:function", "is not a metric: decorate the function with @rageval_hooks.metric"),
        (f"{__name__}:something_else", "is not a metric: it does not derive from Metric"),
        (3, "int is not a metric: it does not derive from Metric"),
        (Exporter, "Exporter is not a metric"),
        (None, "NoneType is not a metric"),
        (NeedsArguments, "metric NeedsArguments cannot be made without arguments .*: pass an instance"),
        (f"{__name__}:NeedsArguments", "cannot be made without arguments"),
        (Metric, "cannot be made without arguments"),
    ],
)
def test_what_is_no_metric_is_refused(given: Any, message: str) -> None:
    """With the reason."""
    with pytest.raises(ConfigurationError, match=message):
        METRICS.create(given)


def test_an_entry_point_that_is_broken_says_whose_it_is(entry_points: list[EntryPoint]) -> None:
    """The name, and what it points to."""
    entry_points.append(EntryPoint("theirs", "no_such_package:Metric", "rageval_hooks.metrics"))

    with pytest.raises(ConfigurationError, match=r"'theirs' \(entry point no_such_package:Metric\): No module named"):
        METRICS.create("theirs")


def test_a_thing_can_be_made_in_another_way() -> None:
    """Exporters are made from settings."""
    registry: Registry[Metric] = Registry("metric", Metric, (), "rageval_hooks.metrics")  # type: ignore[type-abstract]
    made: list[type[Metric]] = []

    found = registry.create(Custom, make=lambda kind: made.append(kind) or instance)

    assert found is instance
    assert made == [Custom]
