"""A cached property that never makes one instance wait for another."""

from __future__ import annotations

import threading

from rageval_hooks.runtime.lazy import cached_property


class Slow:
    """Has an attribute that takes until it is released."""

    def __init__(self, release: threading.Event) -> None:
        self.release = release
        self.computed = 0

    @cached_property
    def value(self) -> int:
        """The answer."""
        assert self.release.wait(30)
        self.computed += 1
        return 42


def test_a_value_is_computed_once() -> None:
    """Later reads return the stored value."""
    released = threading.Event()
    released.set()
    slow = Slow(released)

    assert (slow.value, slow.value, slow.computed) == (42, 42, 1)
    assert Slow.value.__doc__ == "The answer."


def test_instances_do_not_wait_for_each_other() -> None:
    """``functools.cached_property`` of Python 3.11 holds one lock for all instances while it computes."""
    blocked, released = Slow(threading.Event()), threading.Event()
    released.set()
    thread = threading.Thread(target=lambda: blocked.value)
    thread.start()
    other = threading.Thread(target=lambda: Slow(released).value)
    other.start()
    other.join(10)
    finished = not other.is_alive()
    blocked.release.set()
    thread.join(10)
    other.join(10)

    assert finished
