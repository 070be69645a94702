"""Prepares what leaves the process: texts redacted, metadata filtered, ids hashed. Scores are computed before that."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.messages import Message, ToolCall
from rageval_hooks.privacy.redactor import PatternRedactor
from rageval_hooks.runtime.logs import LOG_REDACTION
from rageval_hooks.runtime.selecting import entries_except
from rageval_hooks.score import Failed, Score, Skipped, Target
from rageval_hooks.settings import Settings
from rageval_hooks.turn import ErrorInfo, Passage, SpanReference, Step, Timing, Turn, Usage

__all__ = ["NO_PRIVACY", "REDACTED", "PrivacyPolicy", "Redact"]

_logger = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)

Redact = Callable[[str], str]
"""Returns a text without what must not leave the process."""

REDACTED = "__REDACTED__"
"""Stands for a text that is hidden whole."""

_HASHED = "hashed-"
_HASH_DIGITS = 32
# Smaller integers are counts, pages and years.
_LEAST_LONG_INTEGER = 10**9
_CITATIONS = "citations"

# Fields that are not texts of the application. Every other field is redacted, also one that is added later.
_NOT_TEXTS: Mapping[type[BaseModel], frozenset[str]] = {
    Turn: frozenset({"id", "name", "framework", "model", "status"}),
    Step: frozenset(
        {"id", "parent_id", "kind", "name", "finish_reason", "call_id", "model", "request_model", "response_id"}
        | {"provider", "span_id", "data_source"}
    ),
    SpanReference: frozenset({"trace_id", "span_id", "parent_span_id", "trace_state"}),
    Message: frozenset({"role", "tool_call_id", "name"}),
    ToolCall: frozenset({"id", "name"}),
    ErrorInfo: frozenset({"type"}),
    Usage: frozenset(Usage.model_fields),
    Timing: frozenset(Timing.model_fields),
    Target: frozenset({"kind"}),
    Score: frozenset({"status", "name", "label", "annotator", "model", "version", "metric", "unit", "direction"}),
    Skipped: frozenset({"status", "name", "metric"}),
    Failed: frozenset({"status", "name", "error_type", "annotator", "metric"}),
}


class PrivacyPolicy:
    """Prepares turns and results for judges, spans, files and spools.

    Args:
        redact: a function of a text; True for the ready one; None or False for none. A text for which it fails is
            replaced as a whole. It has to leave its own replacements: a text may come a second time.
        metadata_allow: names of the metadata that may leave; None for all. ``*`` stands for any characters.
        metadata_deny: names of the metadata that must not leave, at any depth.
        id_salt: a secret: user and session ids are replaced by hashes that only its owner can compute; None to keep
            the ids.

    Raises:
        ConfigurationError: ``redact`` is not a function.
    """

    def __init__(
        self,
        redact: Redact | bool | None = None,
        *,
        metadata_allow: Iterable[str] | None = None,
        metadata_deny: Iterable[str] = (),
        id_salt: str | None = None,
    ) -> None:
        self._redact: Callable[[str], object] | None = _function(redact)
        self._allowed = None if metadata_allow is None else [name.casefold() for name in metadata_allow]
        self._denied = [name.casefold() for name in metadata_deny]
        self._salt = id_salt
        self._warned = False
        self._made: WeakValueDictionary[int, Turn] = WeakValueDictionary()
        if self._redact is not None:
            LOG_REDACTION.add(self)

    @classmethod
    def of(cls, settings: Settings, redact: Redact | bool | None = None) -> PrivacyPolicy:
        """Return the policy of the settings; ``redact`` overrides theirs unless it is None."""
        return cls(
            settings.redact if redact is None else redact,
            metadata_allow=settings.metadata_allow,
            metadata_deny=settings.metadata_deny,
            id_salt=None if settings.id_salt is None else settings.id_salt.get_secret_value(),
        )

    @property
    def active(self) -> bool:
        """True if anything is changed."""
        return bool(self._redact or self._denied or self._allowed is not None or self._salt is not None)

    def text(self, text: str) -> str:
        """Return a text without what must not leave."""
        if self._redact is None or not text:
            return text
        try:
            found = self._redact(text)
        except Exception as error:
            # Not the message: it may quote the text.
            self._warn("raised", type(error))
            return REDACTED
        if isinstance(found, str):
            return found
        self._warn("returned", type(found))
        return REDACTED

    def _warn(self, what: str, kind: type) -> None:
        # Once, and not by a logger that redacts: that would call the same function.
        if not self._warned:
            self._warned = True
            _logger.warning(
                "rageval-hooks: redact %s %s: texts are replaced as a whole [RAGEVAL-213]", what, kind.__name__
            )

    def turn(self, turn: Turn, *, for_judge: bool = False) -> Turn:
        """Return a turn as it may leave; one that this policy has returned before is returned unchanged.

        Args:
            turn: the turn.
            for_judge: keep the citations of the framework, which a metric reads from the metadata.
        """
        if not self.active or self._made.get(id(turn)) is turn:
            return turn
        keep = _CITATIONS if for_judge else None
        found = _Walk(self, self._hashes(turn), keep=keep).model(turn)
        self._made[id(found)] = found
        return found

    def without_citations(self, turn: Turn) -> Turn:
        """Return a turn that was prepared for a judge, without citations that must not go anywhere else."""
        if _CITATIONS not in turn.metadata or self.keeps(_CITATIONS):
            return turn
        metadata = entries_except(turn.metadata, _CITATIONS)
        return turn.model_copy(update={"metadata": metadata})

    def result(self, result: M) -> M:
        """Return a result as it may leave. The value of a score stays."""
        return result if self._redact is None else _Walk(self, {}, keep=None).model(result)

    def data(self, value: Any) -> Any:
        """Return plain data, such as a row of a file, as it may leave."""
        return value if self._redact is None else _Walk(self, {}, keep=None).entry(value)

    def keeps(self, name: str) -> bool:
        """Return True if metadata of this name may leave."""
        return self._allowed is None or _matches(name, self._allowed)

    def denies(self, name: str) -> bool:
        """Return True if metadata of this name must not leave, at any depth."""
        return _matches(name, self._denied)

    def _hashes(self, turn: Turn) -> dict[str, str]:
        """Return the ids of a turn's user and session with their hashes."""
        if self._salt is None:
            return {}
        # A turn from the spool has hashed ids already.
        plain = [name for name in (turn.user_id, turn.session_id) if name and not name.startswith(_HASHED)]
        return {name: _HASHED + _digest(self._salt, name) for name in plain}


class _Walk:
    """Copies one turn or result. Equal texts, such as passages in steps and prompts, are redacted once.

    Args:
        policy: the policy.
        ids: id → its hash. Metadata and baggage repeat the ids of users and sessions.
        keep: a name of metadata that is kept in any case.
    """

    def __init__(self, policy: PrivacyPolicy, ids: Mapping[str, str], *, keep: str | None) -> None:
        self._policy = policy
        self._ids = ids
        self._keep = keep
        self._known: dict[str, str] = {}

    def model(self, model: M) -> M:
        skipped = _NOT_TEXTS.get(type(model), frozenset())
        changes: dict[str, Any] = {}
        for name in type(model).model_fields:
            if name in skipped:
                continue
            new = self._field(model, name)
            if new is not getattr(model, name):
                changes[name] = new
        if not changes:
            return model
        return model.model_copy(update=changes)

    def _field(self, model: BaseModel, name: str) -> Any:
        value = getattr(model, name)
        # Only the metadata of a turn and its passages are the application's.
        if name == "metadata" and isinstance(model, Turn | Passage):
            return self._metadata(value)
        return self._value(value)

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, BaseModel):
            return self.model(value)
        if isinstance(value, Mapping):
            return {self._text(key): self.entry(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)([self.entry(item) for item in value])
        return value

    def entry(self, value: Any) -> Any:
        """Return a value of a mapping or a list; an integer may be a phone or card number."""
        if isinstance(value, int) and abs(value) >= _LEAST_LONG_INTEGER:
            text = self._text(str(value))
            return value if text == str(value) else text
        return self._value(value)

    def _metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in metadata.items() if self._keeps(name)}
        found: dict[str, Any] = self._value(self._without_denied(kept))
        return found

    def _keeps(self, name: str) -> bool:
        return name == self._keep or self._policy.keeps(name)

    def _without_denied(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            found = {}
            for name, item in value.items():
                if not self._policy.denies(name):
                    found[name] = self._without_denied(item)
            return found
        if isinstance(value, list):
            return [self._without_denied(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        if text in self._ids:
            return self._ids[text]
        if text not in self._known:
            self._known[text] = self._policy.text(text)
        return self._known[text]


def _function(redact: object) -> Callable[[str], object] | None:
    """Return what ``redact=`` stands for.

    Raises:
        ConfigurationError: it is neither a switch nor a function.
    """
    if redact is None or redact is False:
        return None
    if redact is True:
        return PatternRedactor()
    if callable(redact):
        return redact
    raise ConfigurationError(f"redact must be True or a function of a text, not {type(redact).__qualname__}")


def _digest(salt: str, text: str) -> str:
    return hmac.new(salt.encode(), text.encode(), hashlib.sha256).hexdigest()[:_HASH_DIGITS]


def _matches(name: str, patterns: Iterable[str]) -> bool:
    folded = name.casefold()
    return any(fnmatchcase(folded, pattern) for pattern in patterns)


NO_PRIVACY = PrivacyPolicy()
"""The policy that changes nothing."""
