"""What a judge's server has shown it cannot do, so that it is asked only once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.client.backend import Request
from rageval_hooks.judges.client.failures import CallFailure
from rageval_hooks.judges.prompts.schema import strict_schema
from rageval_hooks.runtime.executors import ForkSafeLock

__all__ = ["Learned"]

_REFUSING = frozenset({400, 422})
_PERHAPS_REFUSING = frozenset({404, 500, 501})  # some servers, for what they do not support
_REFUSAL = re.compile(
    r"unsupported|not (?:\w+ )?(?:support|implement|permit|allow|accept|recogni|available)|n't support|"
    r"unknown|unrecogni|unexpected|extra|invalid|cannot find|only the default",
    re.IGNORECASE,
)
_FORMAT = re.compile(
    r"response_?format|json.?schema|json.?object|json.?mode|structured.?output|guided|grammar|tool_?choice|\btools?\b",
    re.IGNORECASE,
)
_BAD_SCHEMA = re.compile(
    r"\binvalid (?:json )?schema\b|\bgrammar|schema contains|schema is (?:not |too )", re.IGNORECASE
)
_QUOTED = re.compile(r"""(?<!\w)(?:'(.*?)(?:'(?!\w)|$)|"(.*?)(?:"(?!\w)|$)|`(.*?)(?:`|$)|[“«](.*?)(?:[”»]|$))""")
_WRAPPED = re.compile(r"""["'](?:message|msg|detail|error|reason)["']\s*:\s*["']""")  # an error object in words
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_WORDY_IN_A_ROW = 3  # one odd answer, or one that quotes what a text wants, happens to every server
_CLEAN_PER_WORDY = 4  # more than so many: a server that enforces, and was asked about a few texts that talk to it


@dataclass
class _Shape:
    """How many answers had words beside their object, in a row and in all, and how many had none."""

    row: int = 0
    wordy: int = 0
    clean: int = 0


class Learned:
    """Which parameters a model refuses, and how its answers' form can be asked for. Only ever learns downwards.

    Args:
        modes: the ways to ask for the form, best first.
    """

    def __init__(self, modes: tuple[Mode, ...]) -> None:
        self._modes = modes
        self._lock = ForkSafeLock()
        self._level = 0
        self._levels: dict[type[BaseModel], int] = {}
        self._shapes: dict[Mode, _Shape] = {}
        self._refused: dict[str, str | None] = {}

    @property
    def best_mode(self) -> Mode:
        """The way that is tried for a schema that nothing is known about."""
        return self._modes[self._level]

    @property
    def refused(self) -> list[str]:
        """The parameters that are left out."""
        with self._lock:
            return sorted(self._refused)

    def mode(self, schema: type[BaseModel]) -> Mode:
        """Return how to ask for answers of this form."""
        with self._lock:
            mode = self._modes[max(self._level, self._levels.get(schema, 0))]
        if mode == "json_schema" and strict_schema(schema) is None:
            return self._modes[self._modes.index(mode) + 1]
        return mode

    def parameters(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters, less the refused ones, and under the names that are accepted."""
        with self._lock:
            names = {name: self._refused.get(name, name) for name in wanted}
        return {name: wanted[asked] for asked, name in names.items() if name is not None}

    def from_trouble(self, trouble: CallFailure, request: Request) -> bool:
        """Learn from a request that was refused; returns whether it is worth asking again without what was refused."""
        if trouble.unsupported and request.mode != self._modes[-1]:
            self.lower(request.mode)
            return True
        text = _unquoted(trouble.text)
        refusal = bool(_REFUSAL.search(text))
        if trouble.status not in _REFUSING and not (refusal and trouble.status in _PERHAPS_REFUSING):
            return False
        parameter = self._named(trouble.parameter, text, request, refusal)
        if parameter is not None:
            self._refuse(parameter)
            return True
        if request.mode == self._modes[-1] or not _FORMAT.search(f"{trouble.parameter} {text}"):
            return False
        self.lower(request.mode, request.schema if _BAD_SCHEMA.search(text) else None)
        return True

    def from_answer(self, mode: Mode, *, wordy: bool) -> None:
        """Learn from a first answer: who writes words beside the JSON again and again does not enforce it."""
        with self._lock:
            shape = self._shapes.setdefault(mode, _Shape())
            shape.row = shape.row + 1 if wordy else 0
            shape.wordy += wordy
            shape.clean += not wordy
            ignored = shape.row >= _WORDY_IN_A_ROW and shape.clean <= shape.wordy * _CLEAN_PER_WORDY
        if ignored:
            self.lower(mode)

    def was_clean(self, mode: Mode) -> bool:
        """Whether a first answer in this mode has ever been JSON alone."""
        with self._lock:
            return mode in self._shapes and self._shapes[mode].clean > 0

    def lower(self, mode: Mode, schema: type[BaseModel] | None = None) -> None:
        """Ask in the next way from now on: ``mode`` is not supported, or not for this schema."""
        level = min(self._modes.index(mode) + 1, len(self._modes) - 1)
        with self._lock:
            if schema is None:
                self._level = max(self._level, level)
            elif len(self._levels) < 1000:  # schemas made on the fly must not add up
                self._levels[schema] = max(self._levels.get(schema, 0), level)

    def _named(self, parameter: str, text: str, request: Request, refusal: bool) -> str | None:
        """Return the parameter of the request that the server named, if any; in its text only if that is a refusal."""
        named = parameter.removeprefix("body.").partition(".")[0]
        if named in request.parameters:
            return named
        if not refusal or _FORMAT.search(named):
            return None
        for name in sorted(request.parameters, key=len, reverse=True):
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
                return name
        return None

    def _refuse(self, sent: str) -> None:
        with self._lock:
            asked = next((asked for asked, name in self._refused.items() if name == sent), sent)
            other = _OTHER_NAME.get(sent)
            self._refused[asked] = other if asked == sent and other is not None else None


def _unquoted(text: str) -> str:
    """Return a message without the phrases that it quotes: they may be a judged text's. A single name stays."""

    def name(match: re.Match[str]) -> str:
        quoted = next(group for group in match.groups() if group is not None)
        return f" {quoted} " if re.fullmatch(r"[\w.-]*", quoted) else " "

    return _QUOTED.sub(name, _WRAPPED.sub(": ", text))
