"""Several requests at a time, for APIs that take one score per request."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from typing import Any

from rageval_hooks.exporters.delivery.destination import PostError, TargetsMissingError, UnavailableError
from rageval_hooks.runtime.selecting import instances

__all__ = ["ParallelPosts"]

_REMEMBERED = 20_000
_MOST_FAILURES = 2
"""Failures beyond the successes after which the rest of a batch is not tried: the server is down."""

Body = Mapping[str, Any]


class ParallelPosts:
    """Posts items with one request each, several at a time, and none again that the server has taken.

    Args:
        post: sends one item, and raises a PostError if the server does not take it.
        workers: requests at a time. One by one, at 100 ms each, the ten scores of a turn would take a second.
    """

    def __init__(self, post: Callable[[Body], None], *, workers: int = 8) -> None:
        self._post = post
        self._workers = workers
        # When some of many fail, the queue sends all of them again. Those that were taken are skipped then.
        self._taken: OrderedDict[str, None] = OrderedDict()

    def post_all(self, bodies: Sequence[Body]) -> None:
        """Post items; each has an ``id``. A few that fail among many are tried again at once.

        Raises:
            PostError: an item was not taken. Those that were are remembered, so all of them can be given again.
        """
        waiting = [body for body in bodies if body["id"] not in self._taken]
        errors: list[Exception] = []
        while waiting:
            failed, errors = self._try(waiting)
            progress = len(failed) < len(waiting)
            waiting = failed
            if not progress or not all(map(_may_be_tried_again, errors)):
                break
        self._forget_old()
        if waiting:
            raise _worst(errors)

    def _try(self, bodies: Sequence[Body]) -> tuple[list[Body], list[Exception]]:
        """Post items once; return those that failed, and their errors."""
        batch = _Batch(bodies, self._post)
        batch.run(self._workers)
        for number, body in enumerate(bodies):
            if number not in batch.errors:
                self._taken[body["id"]] = None
        failed = sorted(batch.errors)
        return [bodies[number] for number in failed], [batch.errors[number] for number in failed]

    def _forget_old(self) -> None:
        while len(self._taken) > _REMEMBERED:
            self._taken.popitem(last=False)


class _Batch:
    """Items that are posted by several threads.

    Attributes:
        errors: what went wrong, by the item's position.
    """

    def __init__(self, bodies: Sequence[Body], post: Callable[[Body], None]) -> None:
        self.errors: dict[int, Exception] = {}
        self._bodies = bodies
        self._post = post
        self._waiting = deque(range(len(bodies)))
        self._successes = 0

    def run(self, workers: int) -> None:
        """Post all items, on this thread and on others."""
        helpers = []
        for _ in range(min(workers, len(self._bodies)) - 1):
            # With this thread's context, so that the requests are not traced.
            helper = threading.Thread(target=copy_context().run, args=(self._work,), name="rageval-post", daemon=True)
            try:
                helper.start()
            except RuntimeError:  # the interpreter is exiting: this thread does all of it
                break
            helpers.append(helper)
        self._work()
        for helper in helpers:
            helper.join()

    def _work(self) -> None:
        while True:
            try:
                number = self._waiting.popleft()
            except IndexError:
                return
            try:
                self._post(self._bodies[number])
                self._successes += 1
            except Exception as error:
                self.errors[number] = error
                if self._is_hopeless(error):
                    self._stop(error)

    def _is_hopeless(self, error: Exception) -> bool:
        """Return True if the rest would fail too, each perhaps after a timeout."""
        if not isinstance(error, UnavailableError):
            return False
        return bool(error.retry_after) or len(self.errors) > self._successes + _MOST_FAILURES

    def _stop(self, error: Exception) -> None:
        while True:
            try:
                self.errors[self._waiting.popleft()] = error
            except IndexError:
                return


def _may_be_tried_again(error: Exception) -> bool:
    return isinstance(error, UnavailableError) and not error.retry_after


def _worst(errors: Sequence[Exception]) -> Exception:
    """Return the error that decides what becomes of the items."""
    unavailable = instances(errors, UnavailableError)
    if unavailable:
        # The longest pause that the server asked for.
        return max(unavailable, key=lambda error: error.retry_after or 0.0)
    missing = instances(errors, TargetsMissingError)
    if missing:
        return TargetsMissingError(frozenset().union(*(error.targets for error in missing)))
    # An error that is not from the server is a fault of ours.
    refused = instances(errors, PostError)
    return refused[0] if refused else errors[0]
