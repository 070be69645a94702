"""A cache bounded by memory."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rageval_hooks.models.cache import MemoryCache


def test_the_most_recently_used_values_are_kept() -> None:
    """The least recently used value is evicted first."""
    cache: MemoryCache[int] = MemoryCache(30)
    for key in range(3):
        cache.put(key, key, 10)
    cache.get(0)

    cache.put(3, 3, 10)

    assert [cache.get(key) for key in range(4)] == [0, None, 2, 3]


def test_a_value_larger_than_the_cache_is_not_kept() -> None:
    """It does not push out the others either, but its older version is gone."""
    cache: MemoryCache[str] = MemoryCache(10)
    cache.put("a", "A", 5)
    cache.put("b", "B", 5)

    cache.put("b", "BB", 11)

    assert (cache.get("a"), cache.get("b"), cache.size) == ("A", None, 5)


def test_without_memory_nothing_is_kept() -> None:
    """A capacity of 0 turns the cache off."""
    cache: MemoryCache[str] = MemoryCache(0)
    cache.put("a", "A", 1)

    assert cache.get("a") is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=40), st.integers(0, 60))
def test_the_cache_never_holds_more_than_it_may(puts: list[tuple[int, int]], capacity: int) -> None:
    """Its size is the sum of what it holds, and the value that was put in last is there if it fits."""
    cache: MemoryCache[tuple[int, int]] = MemoryCache(capacity)
    for key, size in puts:
        cache.put(key, (key, size), size)
        assert cache.size <= capacity
        assert cache.get(key) == ((key, size) if size <= capacity else None)
    held = [value for value in map(cache.get, range(6)) if value is not None]
    assert cache.size == sum(size for _, size in held)


def test_threads_share_a_cache() -> None:
    """Its books stay right."""
    cache: MemoryCache[int] = MemoryCache(100)
    gate = threading.Barrier(8)

    def use(offset: int) -> None:
        gate.wait()
        for number in range(500):
            cache.put((offset + number) % 30, number, 10)
            cache.get(number % 30)

    threads = [threading.Thread(target=use, args=(offset,)) for offset in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert cache.size == 100
    assert sum(cache.get(key) is not None for key in range(30)) == 10


def test_a_value_is_computed_once_for_all_who_ask_at_the_same_time() -> None:
    """The others wait for it and call ``pause`` meanwhile."""
    cache: MemoryCache[str] = MemoryCache(10)
    computing, waiting, may_end = (threading.Event() for _ in range(3))
    found: list[str] = []

    def compute() -> tuple[str, int]:
        computing.set()
        assert may_end.wait(30)
        return "A", 1

    def fail() -> tuple[str, int]:
        raise AssertionError("computed twice")

    first = threading.Thread(target=lambda: found.append(cache.get_or_compute("a", compute)))
    second = threading.Thread(target=lambda: found.append(cache.get_or_compute("a", fail, waiting.set)))
    first.start()
    assert computing.wait(30)
    second.start()
    assert waiting.wait(30)
    may_end.set()
    first.join(30)
    second.join(30)

    assert found == ["A", "A"]


def test_a_value_that_could_not_be_computed_is_computed_by_the_next_who_asks() -> None:
    """An error belongs to the thread that computes; nobody waits for ever."""
    cache: MemoryCache[str] = MemoryCache(0)

    with pytest.raises(ZeroDivisionError):
        cache.get_or_compute("a", lambda: (str(1 // 0), 1))

    assert cache.get_or_compute("a", lambda: ("A", 1)) == "A"
    assert cache.get_or_compute("a", lambda: ("B", 1)) == "B"
