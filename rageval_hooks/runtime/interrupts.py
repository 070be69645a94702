"""Interrupts: exceptions that a signal handler or another thread raises in the middle of any code.

Deadlines of the application work in this way, such as Celery's ``soft_time_limit`` and RQ's timeouts. If one comes
while our code runs on the application's thread, it goes on to the application: a job whose deadline was swallowed never
ends.
"""

from __future__ import annotations

import opcode

# Where Python looks for signals and for exceptions of other threads, apart from calls. These instructions raise nothing
# by themselves.
_CHECKS = frozenset(code for name, code in opcode.opmap.items() if name.startswith(("RESUME", "JUMP_BACKWARD")))
_RAISES = frozenset(code for name, code in opcode.opmap.items() if name in ("RAISE_VARARGS", "RERAISE"))


def raise_interrupt(error: BaseException) -> None:
    """Raise an exception again if it is an interrupt; call this where an exception of ours would be swallowed."""
    if not isinstance(error, Exception) or is_interrupt(error):
        raise error


def is_interrupt(error: BaseException) -> bool:
    """Return True if an exception was raised by a signal handler, or by another thread, in the code that it ended."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        interrupted, trace = trace.tb_frame, trace.tb_next
        # A signal handler is given the frame that it interrupts: on_alarm(signum, frame), or on_alarm(*_).
        for given in trace.tb_frame.f_locals.values():
            if given is interrupted or (type(given) is tuple and any(item is interrupted for item in given)):
                return True
    # PyThreadState_SetAsyncExc takes a class, mostly one of the application.
    if trace is None or (type(error).__module__ == "builtins" and type(error) is not TimeoutError):
        return False
    [instruction] = trace.tb_frame.f_code.co_code[trace.tb_lasti : trace.tb_lasti + 1] or [None]
    return instruction in _CHECKS or (not error.args and instruction not in _RAISES)
