"""Remembers what a judge's server refuses, so that each refusal costs one request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rageval_hooks.judges.base import Mode
from rageval_hooks.judges.failures import CallFailure
from rageval_hooks.runtime.fork import ForkSafeLock

_REFUSING = frozenset({400, 422})
# Some servers answer with these when they do not support a field. Then the message must say so, too.
_PERHAPS_REFUSING = frozenset({404, 500, 501})
# For example "Unsupported parameter: 'temperature'" or "seed is not permitted".
_REFUSAL = re.compile(
    r"unsupported|not (?:\w+ )?(?:support|implement|permit|allow|accept|recogni|available)|n't support|"
    r"unknown|unrecogni|unexpected|extra|invalid|cannot find|only the default",
    re.IGNORECASE,
)
# Words for the answer's format, for example "response_format", "json schema" or "grammar".
_FORMAT = re.compile(
    r"response_?format|json.?schema|json.?object|json.?mode|structured.?output|guided|grammar|tool_?choice|\btools?\b",
    re.IGNORECASE,
)
# A quoted part of a message, for example 'temperature' in "Unsupported parameter: 'temperature'".
_QUOTED = re.compile(r"""(?<!\w)(?:'(.*?)(?:'(?!\w)|$)|"(.*?)(?:"(?!\w)|$)|`(.*?)(?:`|$)|[“«](.*?)(?:[”»]|$))""")
# The start of an error object that was printed as text, for example {'message': '
_WRAPPED = re.compile(r"""["'](?:message|msg|detail|error|reason)["']\s*:\s*["']""")
_OTHER_NAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}


class Capabilities:
    """Which parameters a server refuses, and which mode it supports. A mode that failed is not tried again.

    Args:
        modes: the modes, best first.
    """

    def __init__(self, modes: tuple[Mode, ...]) -> None:
        self._modes = modes
        self._lock = ForkSafeLock()
        self._refused: dict[str, str | None] = {}

    @property
    def modes(self) -> tuple[Mode, ...]:
        """The modes that did not fail, best first."""
        return self._modes

    @property
    def refused(self) -> list[str]:
        """The parameters that the server refused, sorted."""
        return sorted(dict(self._refused))

    def parameters(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters without the refused ones, under the names that the server accepts."""
        names = {name: self._refused.get(name, name) for name in wanted}
        return {name: wanted[asked] for asked, name in names.items() if name is not None}

    def learn_from_failure(self, failure: CallFailure, mode: Mode, parameters: Mapping[str, Any]) -> bool:
        """Learn from a refused request.

        Args:
            failure: how it failed.
            mode: the mode of the request.
            parameters: its parameters.

        Returns:
            True if the request should be repeated without what was refused.
        """
        text = _unquoted(failure.text)
        refusal = bool(_REFUSAL.search(text))
        can_be_lowered = mode != self._modes[-1]
        if not (failure.unsupported and can_be_lowered):
            # Some servers answer a refused parameter with a status that usually means something else.
            if failure.status not in (_REFUSING | _PERHAPS_REFUSING if refusal else _REFUSING):
                return False
            parameter = _named(failure.parameter, text, parameters, refusal)
            if parameter is not None:
                self._refuse(parameter)
                return True
            if not (can_be_lowered and _FORMAT.search(f"{failure.parameter} {text}")):
                return False
        self.lower(mode)
        return True

    def lower(self, mode: Mode) -> None:
        """Never use a mode again that the server does not support, unless it is the last one."""
        with self._lock:
            if mode != self._modes[-1]:
                self._modes = tuple(other for other in self._modes if other != mode)

    def _refuse(self, sent: str) -> None:
        """Leave out a parameter from now on, or send it under its other name if it has one."""
        with self._lock:
            asked = next((asked for asked, name in self._refused.items() if name == sent), sent)
            self._refused[asked] = _OTHER_NAME.get(sent) if asked == sent else None


def _named(parameter: str, text: str, parameters: Mapping[str, Any], refusal: bool) -> str | None:
    """Return the request's parameter that the server named.

    The server's message counts only if it is a refusal: it may name parameters for other reasons.
    """
    named = parameter.removeprefix("body.").partition(".")[0]
    if named in parameters:
        return named
    if not refusal or _FORMAT.search(named):
        return None
    # The longest name first: "max_tokens" is a part of other names.
    for name in sorted(parameters, key=len, reverse=True):
        if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text):
            return name
    return None


def _unquoted(text: str) -> str:
    """Return a message without quoted phrases, which may come from a judged text. A quoted single name stays."""

    def name(match: re.Match[str]) -> str:
        quoted = next(group for group in match.groups() if group is not None)
        return f" {quoted} " if re.fullmatch(r"[\w.-]*", quoted) else " "

    return _QUOTED.sub(name, _WRAPPED.sub(": ", text))
