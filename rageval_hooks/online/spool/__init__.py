"""The spool: late scores wait in a file, so that a crash, a deploy or an unreachable judge loses none."""

from rageval_hooks.online.spool.confirmation import Confirmation
from rageval_hooks.online.spool.dispatcher import SpoolDispatcher
from rageval_hooks.online.spool.options import SpoolOptions

__all__ = ["Confirmation", "SpoolDispatcher", "SpoolOptions"]
