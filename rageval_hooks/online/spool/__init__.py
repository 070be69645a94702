"""The spool: late scores wait in a file, so that a crash, a deploy or an unreachable judge loses none."""

from rageval_hooks.online.spool.dispatcher import SpoolDispatcher

__all__ = ["SpoolDispatcher"]
