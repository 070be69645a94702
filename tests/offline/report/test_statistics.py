"""Means, intervals and tests, against what is known of them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.offline.report.statistics import Resampling, holm, paired, spread, variation

HOW = Resampling()


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def of(
    values: list[float], weights: list[float] | None = None, questions: list[int] | None = None, how: Resampling = HOW
):
    return spread(
        np.array(values, float),
        np.array(weights or [1.0] * len(values)),
        np.array(questions or range(len(values))),
        how,
    )


def test_the_numbers_of_a_small_sample() -> None:
    """As in a textbook."""
    found = of([1.0, 2.0, 3.0, 4.0, 10.0])

    assert (found.mean, found.median, found.minimum, found.maximum) == (4.0, 3.0, 1.0, 10.0)
    assert (found.lower_quartile, found.upper_quartile) == (2.0, 4.0)
    assert found.deviation == pytest.approx(math.sqrt(12.5))
    assert (found.count, found.questions) == (5, 5)


def test_one_value_has_neither_spread_nor_interval() -> None:
    """There is nothing that they could be computed from."""
    found = of([0.5])
    assert (found.mean, found.deviation, found.interval) == (0.5, None, None)


def test_the_interval_covers_the_mean_as_often_as_it_says(random: np.random.Generator) -> None:
    """About 95 % of the time, for shares and for skewed values."""
    how = Resampling(resamples=500)
    for draw, truth in ((lambda: random.beta(5, 2, 50), 5 / 7), (lambda: random.exponential(size=50), 1.0)):
        hits = 0
        for _ in range(100):
            interval = of(draw().tolist(), how=how).interval
            hits += interval is not None and interval.low <= truth <= interval.high
        assert 0.86 <= hits / 100 <= 1.0


def test_repeats_of_a_question_are_not_new_questions(random: np.random.Generator) -> None:
    """Ten copies of each value do not narrow the interval."""
    values = random.normal(size=30)
    once = of(values.tolist()).interval
    copied = of(np.repeat(values, 10).tolist(), questions=np.repeat(np.arange(30), 10).tolist()).interval

    assert once is not None
    assert copied is not None
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high))


def test_the_same_seed_gives_the_same_interval(random: np.random.Generator) -> None:
    """And another one nearly the same."""
    values = random.normal(size=40).tolist()
    assert of(values) == of(values)
    other = of(values, how=Resampling(seed=1)).interval
    first = of(values).interval
    assert first is not None
    assert other is not None
    assert other != first
    assert other.low == pytest.approx(first.low, abs=0.05)


def test_a_sampled_turn_stands_for_all_that_are_like_it() -> None:
    """Selected with 1 in 10, it weighs 10: in the mean, the median and the quartiles."""
    found = of([1.0, 0.0], weights=[10.0, 1.0])
    assert found.mean == pytest.approx(10 / 11)
    assert found.median == 1.0
    assert of([0.0, 1.0, 2.0], weights=[1.0, 1.0, 3.0]).median == 2.0


def test_a_weighted_mean_is_unbiased(random: np.random.Generator) -> None:
    """Good turns are sampled at 10 %, bad ones at 100 %: the plain mean is far off, the weighted one is not."""
    truth = np.array([1.0] * 9000 + [0.0] * 1000)
    probability = np.where(truth == 1, 0.1, 1.0)
    taken = random.random(10_000) < probability
    found = of(truth[taken].tolist(), (1 / probability[taken]).tolist())

    assert truth[taken].mean() < 0.6
    assert found.mean == pytest.approx(0.9, abs=0.01)
    assert found.interval is not None
    assert found.interval.low < 0.9 < found.interval.high


def test_many_questions_take_bounded_time_and_give_the_same_interval(random: np.random.Generator) -> None:
    """200,000 values: the interval is that of the normal approximation."""
    values = np.random.default_rng(1).beta(2, 2, 200_000)
    found = spread(values, np.ones(200_000), np.arange(200_000), Resampling(resamples=1000))
    half = 1.96 * values.std() / math.sqrt(200_000)

    assert found.interval is not None
    assert found.interval.high - found.interval.low == pytest.approx(2 * half, rel=0.1)
    assert found.interval.low < values.mean() < found.interval.high


@pytest.mark.parametrize(("value", "low", "high"), [(0.0, 0.0, 0.522), (1.0, 0.478, 1.0)])
def test_a_share_that_is_the_same_everywhere_is_not_certain(value: float, low: float, high: float) -> None:
    """No failure in five questions: the exact interval of Clopper and Pearson goes up to 52%."""
    values = np.full(5, value)
    found = spread(values, np.ones(5), np.arange(5), Resampling(), is_share=True).interval
    assert found is not None
    assert (found.low, found.high) == pytest.approx((low, high), abs=0.001)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30), st.data())
def test_mean_and_interval_stay_within_the_values(values: list[float], data: st.DataObject) -> None:
    """Whatever the weights."""
    weights = data.draw(st.lists(st.floats(1, 1e4), min_size=len(values), max_size=len(values)))
    found = of(values, weights, how=Resampling(resamples=100))
    slack = 1e-6 + 1e-9 * max(map(abs, values))

    assert min(values) <= found.mean <= max(values)
    assert found.interval is not None
    assert min(values) - slack <= found.interval.low <= found.interval.high <= max(values) + slack


def test_a_turn_that_outweighs_all_the_others() -> None:
    """It leaves nothing to the rest, and every number is one."""
    found = of([0.2, 0.4, 0.9], weights=[1e30, 1.0, 1.0])
    assert found.mean == pytest.approx(0.2)
    assert found.interval is not None
    assert found.interval.low == pytest.approx(0.2)
    assert found.interval.high <= 0.9


def _all_patterns(differences: np.ndarray) -> tuple[float, float, float]:
    """The p-values by counting, in whole numbers, how many patterns of signs give each sum."""
    patterns = {0: 1}
    for size in map(int, np.abs(differences)):
        grown: dict[int, int] = {}
        for total, number in patterns.items():
            for other in (total + size, total - size):
                grown[other] = grown.get(other, 0) + number
        patterns = grown
    found, whole = int(differences.sum()), 2 ** len(differences)
    both, low, high = (
        sum(number for total, number in patterns.items() if hit(total)) / whole
        for hit in (lambda s: abs(s) >= abs(found), lambda s: s <= found, lambda s: s >= found)
    )
    return both, low, high


class TestPaired:
    def test_few_questions_are_tested_exactly(self) -> None:
        """Five of five worse: 2 of 32 patterns of signs are as extreme, 1 of 32 as low."""
        before, after = np.array([0.9, 0.8, 0.7, 0.9, 0.8]), np.array([0.5, 0.4, 0.6, 0.2, 0.3])
        found = paired(before, after, np.ones(5), HOW)

        assert found.difference == pytest.approx(-0.42)
        assert (found.p, found.p_lower, found.p_higher) == (2 / 32, 1 / 32, 1.0)
        assert found.interval is not None
        assert found.interval.high < 0

    @pytest.mark.parametrize(("count", "shift"), [(1, -1), (12, -0.5), (13, 0.4), (14, -0.5), (30, -0.2)])
    def test_it_agrees_with_a_count_of_all_patterns(
        self, random: np.random.Generator, count: int, shift: float
    ) -> None:
        """Exactly up to 13 questions, else to the precision of 9,999 permutations."""
        differences = np.round(random.normal(shift, 1, count) * 20)
        found = paired(np.zeros(count), differences, np.ones(count), HOW)
        for p, truth in zip((found.p, found.p_lower, found.p_higher), _all_patterns(differences), strict=True):
            if count <= 13:
                assert p == pytest.approx(truth)
            else:
                assert p == pytest.approx(truth, abs=4 * math.sqrt(truth / 1e4) + 3e-4)

    @pytest.mark.parametrize(("count", "p"), [(1, 0.5), (5, 2.0**-5), (13, 2.0**-13), (100, 2e-5), (1000, 2e-5)])
    def test_a_change_of_every_question_is_significant(self, count: int, p: float) -> None:
        """One pattern of 2^n is as low; no probability is below one in 50,000 permutations."""
        found = paired(np.ones(count), np.linspace(0.1, 0.5, count), np.ones(count), HOW)
        assert found.p_lower == pytest.approx(p)

    def test_nothing_changed(self) -> None:
        """Then there is nothing to find."""
        found = paired(np.ones(9), np.ones(9), np.ones(9), HOW)
        assert (found.difference, found.p, found.p_lower, found.changed) == (0.0, 1.0, 1.0, 0)

    def test_false_alarms_are_as_rare_as_stated(self, random: np.random.Generator) -> None:
        """Without an effect, p is below 0.1 about one time in ten."""
        alarms = 0
        for _ in range(100):
            differences = random.standard_t(3, 10)
            alarms += paired(np.zeros(10), differences, np.ones(10), Resampling(resamples=100)).p < 0.1
        assert 0.03 <= alarms / 100 <= 0.2

    def test_many_questions_take_bounded_time(self) -> None:
        """And a small true difference is found."""
        random = np.random.default_rng(1)
        before = random.normal(size=100_000)
        found = paired(before, before + random.normal(-0.02, 1, 100_000), np.ones(100_000), Resampling(resamples=200))
        assert found.p < 0.001


def test_holm_adjusts_for_the_number_of_tests() -> None:
    """The example of the textbooks."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.7, 0.9]) == [1.0, 1.0]


def test_variation_between_answers_to_one_question() -> None:
    """Mean, variance and CV over the runs; mean 0 has no CV; a question asked once does not count."""
    values = np.array([1.0, 3.0, 0.0, 0.0, 5.0])
    found = variation(values, np.array([0, 0, 1, 1, 2]), HOW)

    assert found is not None
    assert (found.questions, found.mean, found.variance) == (2, 1.0, 1.0)
    assert found.coefficient == pytest.approx(math.sqrt(2) / 2)
    assert found.undefined == 1
    assert variation(np.array([1.0, 2.0]), np.array([0, 1]), HOW) is None
    nothing = variation(np.zeros(2), np.zeros(2, int), HOW)
    assert nothing is not None
    assert nothing.coefficient is None
