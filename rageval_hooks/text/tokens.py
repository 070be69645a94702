"""Token counts by tiktoken, or an estimate if its ranks are not on this machine. Nothing is downloaded."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from tempfile import gettempdir
from typing import TYPE_CHECKING

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.runtime.lazy import BackgroundValue
from rageval_hooks.text.limits import MAX_COUNTED_CHARACTERS
from rageval_hooks.turn import Step, Turn, Usage, UsageSource

if TYPE_CHECKING:
    from tiktoken import Encoding


CHARACTERS_PER_TOKEN = 4
"""Average for English text in current tokenizers."""

_DEFAULT_ENCODING = "o200k_base"
_RANKS = "https://openaipublic.blob.core.windows.net/encodings"
# Seconds.
_TIMEOUT = 60.0
_PIECE = 100_000


@cache
def load_encoding(model: str | None = None) -> BackgroundValue[Encoding]:
    """Return the tiktoken encoding for a model, which may still be loading; o200k_base for an unknown model."""
    # Importing tiktoken takes a moment, which a turn without a model's name need not wait for.
    if model:
        from tiktoken.model import encoding_name_for_model

        with suppress(KeyError):  # another provider's model: an estimate by OpenAI's newest encoding
            return _encoding(encoding_name_for_model(model))
    return _encoding(_DEFAULT_ENCODING)


def count_tokens(texts: Iterable[str], model: str | None = None, *, wait: bool = False) -> tuple[int, UsageSource]:
    """Count the tokens of several texts together.

    Args:
        texts: the texts.
        model: the model that determines the encoding.
        wait: wait for the encoding if it is still loading. Not for a request's thread.

    Returns:
        The count and its source: ``"tiktoken"``, or ``"characters"`` (one token per four characters, rounded up)
        while the encoding loads, if it is not available, or if the texts have more than 2,000,000 characters.
    """
    texts = list(texts)
    value = load_encoding(model)
    value.start()
    is_short = sum(map(len, texts)) <= MAX_COUNTED_CHARACTERS
    if is_short and (wait or value.state == "ready"):
        try:
            encoding = value.get(wait=wait)
        except Exception:  # it is logged where it is loaded
            pass
        else:
            return sum(_count(encoding, text) for text in texts), "tiktoken"
    return sum(-(-len(text) // CHARACTERS_PER_TOKEN) for text in texts), "characters"


def with_estimated_usage(turn: Turn, *, wait: bool = False) -> Turn:
    """Return the turn with estimated usage, marked as such, for every model call without reported usage.

    Args:
        turn: the turn.
        wait: wait for the encoding if it is still loading. Not for a request's thread.
    """
    if not any(map(_lacks_usage, turn.steps)):
        return turn

    def with_usage(step: Step) -> Step:
        if not _lacks_usage(step):
            return step
        read, source = count_tokens((message.content for message in step.messages), step.model, wait=wait)
        written, _ = count_tokens([step.output or ""], step.model, wait=wait)
        usage = Usage(input_tokens=read, output_tokens=written, source=source)
        return step.model_copy(update={"usage": usage})

    steps = tuple(map(with_usage, turn.steps))
    return turn.model_copy(update={"steps": steps, "usage": Usage.of_steps(steps)})


def _lacks_usage(step: Step) -> bool:
    """Return True if a model call needs an estimate. A call that failed before it wrote anything used no tokens."""
    if step.kind != "llm" or step.usage is not None:
        return False
    return bool(step.output) or (step.error is None and bool(step.messages))


def _count(encoding: Encoding, text: str) -> int:
    # tiktoken's regular expressions are quadratic on long runs without a break, so long texts are counted in pieces.
    pieces = (text[start : start + _PIECE] for start in range(0, len(text), _PIECE))
    return sum(len(encoding.encode_ordinary(piece)) for piece in pieces)


@cache
def _encoding(name: str) -> BackgroundValue[Encoding]:
    role = f"tokenizer {name}"

    def load() -> Encoding:
        import tiktoken

        # Where tiktoken keeps a file that it has downloaded.
        file = hashlib.sha1(f"{_RANKS}/{name}.tiktoken".encode(), usedforsecurity=False).hexdigest()
        usual = os.environ.get("TIKTOKEN_CACHE_DIR") or os.environ.get("DATA_GYM_CACHE_DIR")
        if os.path.exists(os.path.join(usual or os.path.join(gettempdir(), "data-gym-cache"), file)):
            return tiktoken.get_encoding(name)
        package = find_spec("llama_index.core") if find_spec("llama_index") else None
        for folder in package.submodule_search_locations or () if package else ():
            copies = os.path.join(folder, "_static", "tiktoken_cache")
            if usual is None and os.path.exists(os.path.join(copies, file)):
                os.environ["TIKTOKEN_CACHE_DIR"] = copies  # as LlamaIndex does
                try:
                    return tiktoken.get_encoding(name)
                finally:
                    os.environ.pop("TIKTOKEN_CACHE_DIR", None)
        raise ModelUnavailableError(role, "its ranks are not on this machine")

    return BackgroundValue(role, load, _TIMEOUT, "Tokens are estimated from the number of characters.")
