"""``GroundingGuard`` checks answers against their passages before the user sees them.

Read ``checking`` (from an answer to a decision), ``evidence`` (where the passages come from), ``span`` (the decision in
the trace) and ``streams`` (answers that are held back). ``langchain``, ``middleware`` and ``llama_index`` are the
adapters; each imports its framework.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rageval_hooks.guard.guard import Guard
from rageval_hooks.guard.options import AnswerBlockedError, GuardDecision

if TYPE_CHECKING:
    from rageval_hooks.guard.langchain import RunnableGuard as _Base
else:
    try:
        # A guard is a runnable wherever LangChain is installed: `chain | guard` accepts nothing else.
        from rageval_hooks.guard.langchain import RunnableGuard as _Base
    except ImportError:
        _Base = Guard

__all__ = ["AnswerBlockedError", "GroundingGuard", "GuardDecision"]


class GroundingGuard(_Base):
    """Checks answers against their passages, and decides what the user gets.

    As a plain function: ``guard(answer, passages)`` or ``guard.check(…)``. With LangChain: ``chain | guard``,
    ``guard.wrap(chain)``, ``create_agent(…, middleware=[guard.middleware()])``. With LlamaIndex:
    ``guard.wrap_query_engine(engine)``. Works with and without :func:`rageval_hooks.instrument`.

    The passages are those of the turn that is being captured, else those that the caller or a key of the chain's output
    names. A refusal always passes. Each decision is a span of kind GUARDRAIL below the current span.

    Args:
        metrics: names, classes or instances; ``faithfulness`` and ``unsupported_facts`` by default, with a grounding
            model ``groundedness`` in place of ``faithfulness``.
        threshold: the answer is blocked if any score is worse: one number for all scores from 0 to 1, or numbers by
            score name. By default what was chosen on labelled answers; docs/guides/guard.md has the figures.
        on_fail: what happens to an unsupported answer. ``"flag"``: it passes, and the decision is recorded.
            ``"replace"``: the user gets ``fallback``. ``"raise"``: :class:`AnswerBlockedError`. ``"regenerate"``: the
            model answers again, at most ``max_regenerations`` times, then ``fallback``; in ``wrap()`` and
            ``middleware()`` only.
        fallback: the text that replaces a blocked answer.
        on_error: what happens if the check fails, takes too long or has no passages. ``"open"``: the answer passes.
            ``"closed"``: it is treated like an unsupported one.
        timeout_ms: the longest that a check may add.
        max_regenerations: how often an answer may be written again, 1 to 5.
        passage_keys: keys of a mapping that may hold passages, in order.
        answer_keys: keys of a mapping that may hold the answer, in order.
        question_keys: keys of a mapping that may hold the question, in order.
        models: see :func:`rageval_hooks.instrument`.
        judge: for metrics that ask a judge; see :func:`rageval_hooks.instrument`.
        judge_options: keyword arguments of the judge, if ``judge`` is a name.
        tracer_provider: where the spans go; None for where the captured turn goes, else the global one.
        capture_content: False keeps texts off the spans; None for the setting of the captured turn, else that of the
            environment.
        redact: what is removed from texts before they reach a span or a judge; see :func:`rageval_hooks.instrument`.
            None for the setting of the captured turn, else that of the environment.
        on_decision: called with every :class:`GuardDecision`.

    Raises:
        ConfigurationError: a value is wrong; the message says what is valid.

    Example:
        >>> guard = GroundingGuard(models="lexical", on_fail="replace", fallback="I do not know.")
        >>> guard("The pier was opened in 2019.", ["The new pier was opened in September 2019."])
        'The pier was opened in 2019.'
    """

    if not TYPE_CHECKING and _Base is Guard:

        def _needs_langchain(self, *_: Any, **__: Any) -> Any:
            from rageval_hooks.errors import MissingDependencyError

            raise MissingDependencyError("langchain-core", "langchain", "a guard around a chain or an agent")

        wrap = middleware = invoke = _needs_langchain
