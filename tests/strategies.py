"""Turns, scores and evaluations of every shape, lone surrogates and extreme numbers included."""

from __future__ import annotations

from hypothesis import strategies as st

from rageval_hooks import (
    ErrorInfo,
    Evaluation,
    Failed,
    Message,
    Passage,
    Score,
    Skipped,
    SpanReference,
    Step,
    Target,
    Timing,
    Turn,
    Usage,
)

texts = st.text(st.characters(), max_size=8)
names = st.text(st.characters(), min_size=1, max_size=8)
numbers = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(0, 10**12)
times = st.integers(0, 2 * 10**18)
metadata = st.dictionaries(
    texts,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | texts,
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts, inner, max_size=2),
        max_leaves=5,
    ),
    max_size=2,
)


def maybe(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.none() | strategy


def several(strategy: st.SearchStrategy[object]) -> st.SearchStrategy[tuple[object, ...]]:
    return st.lists(strategy, max_size=2).map(tuple)


def digits(length: int) -> st.SearchStrategy[str]:
    return st.text("0123456789abcdef", min_size=length, max_size=length)


usages = st.builds(
    Usage,
    input_tokens=counts,
    output_tokens=counts,
    cache_read_tokens=maybe(counts),
    source=st.sampled_from(["provider", "tiktoken", "characters"]),
)
errors = st.builds(ErrorInfo, type=texts, message=texts)
messages = st.builds(Message, role=texts, content=texts)
timings = st.builds(
    Timing,
    started_at=times,
    ended_at=times,
    retrieval=maybe(numbers),
    generation=maybe(numbers),
    time_to_first_token=maybe(numbers),
)
references = st.builds(
    SpanReference,
    trace_id=digits(32),
    span_id=digits(16),
    flags=st.integers(0, 255),
    parent_span_id=maybe(digits(16)),
    external=st.booleans(),
)
passages = st.builds(
    Passage,
    text=texts,
    id=maybe(texts),
    score=maybe(numbers),
    metadata=metadata,
    in_prompt=maybe(st.booleans()),
    prompt_share=maybe(st.floats(0, 1)),
)
steps = st.builds(
    Step,
    id=texts,
    parent_id=maybe(texts),
    kind=st.sampled_from(["chain", "agent", "retriever", "reranker", "embedding", "llm", "tool", "prompt", "parser"]),
    name=texts,
    started_at=times,
    ended_at=times,
    input=maybe(texts),
    output=maybe(texts),
    messages=several(messages),
    passages=several(passages),
    model=maybe(texts),
    provider=maybe(texts),
    usage=maybe(usages),
    time_to_first_token=maybe(numbers),
    error=maybe(errors),
    complete=st.booleans(),
)
turns = st.builds(
    Turn,
    id=texts,
    query=texts,
    passages=several(passages),
    response=texts,
    retrieval_queries=several(texts),
    reference=maybe(texts),
    prompt=several(messages),
    usage=maybe(usages),
    model=maybe(texts),
    timing=maybe(timings),
    span=maybe(references),
    steps=several(steps),
    status=st.sampled_from(["ok", "error", "cancelled", "interrupted"]),
    complete=st.booleans(),
    error=maybe(errors),
    name=texts,
    framework=maybe(texts),
    session_id=maybe(texts),
    user_id=maybe(texts),
    metadata=metadata,
)
targets = st.builds(
    Target, kind=st.sampled_from(["turn", "passage", "sentence"]), index=maybe(st.integers(0, 10**6)), id=maybe(texts)
)
annotators = st.sampled_from(["CODE", "LLM", "HUMAN"])
scores = st.builds(
    Score,
    name=names,
    value=numbers,
    label=maybe(texts),
    explanation=maybe(texts),
    annotator=annotators,
    model=maybe(texts),
    version=texts,
    target=targets,
    probability=st.floats(0, 1, exclude_min=True),
    metadata=metadata,
)
results = (
    scores
    | st.builds(Skipped, name=names, reason=texts)
    | st.builds(Failed, name=names, error_type=texts, message=texts, annotator=annotators, metadata=metadata)
)
evaluations = st.builds(
    Evaluation,
    turn=turns,
    results=several(results),
    stage=st.sampled_from(["inline", "background"]),
    duration=numbers,
    durations=st.dictionaries(names, numbers, max_size=2),
)
