"""Prepares what leaves the process: texts redacted, metadata filtered, ids hashed. Scores are computed before that."""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from typing import Any, TypeVar

from pydantic import BaseModel

from rageval_hooks.errors import ConfigurationError
from rageval_hooks.privacy.pieces import mask_pieces, removed
from rageval_hooks.privacy.redactor import PatternRedactor
from rageval_hooks.runtime.logs import REDACTORS
from rageval_hooks.score import ANNOTATED_BY, Failed, Result, Score, Skipped, Target, annotator_of
from rageval_hooks.settings import Settings
from rageval_hooks.turn import (
    ErrorInfo,
    GuardOutcome,
    Message,
    Passage,
    SpanReference,
    Step,
    Timing,
    ToolCall,
    Turn,
    Usage,
)

_logger = logging.getLogger(__name__)
M = TypeVar("M", bound=BaseModel)

Redact = Callable[[str], str]
"""Returns a text without what must not leave the process."""

REDACTED = "__REDACTED__"
"""Stands for a text that is hidden whole."""

_HASHED = "hashed-"
_HASH_DIGITS = 32
# Smaller integers are counts, pages and years.
_MIN_LONG_INTEGER = 10**9
# Passages come several times: in steps, in prompts, in the turn for the judge and in that for the trace.
_REMEMBERED_TEXTS = 512
_RECENT_SECRETS = 200

_FROM_REDACTED = " (from the redacted texts)"
_NOT_SHOWN = "not shown: it may quote redacted texts"

# Fields that are not texts of the application. Every other field is redacted, also one that is added later.
_NOT_TEXTS: Mapping[type[BaseModel], frozenset[str]] = {
    Turn: frozenset({"id", "name", "framework", "model", "status"}),
    Step: frozenset(
        {"id", "parent_id", "kind", "name", "finish_reason", "model", "request_model", "response_id"}
        | {"provider", "span_id", "data_source"}
    ),
    SpanReference: frozenset({"trace_id", "span_id", "parent_span_id", "trace_state"}),
    Message: frozenset({"role", "name"}),
    ToolCall: frozenset({"name"}),
    ErrorInfo: frozenset({"type"}),
    Usage: frozenset(Usage.model_fields),
    Timing: frozenset(Timing.model_fields),
    Target: frozenset({"kind"}),
    Score: frozenset(
        {"status", "name", "label", "cause", "annotator", "model", "version", "metric", "unit", "direction"}
    ),
    Skipped: frozenset({"status", "name", "metric", "label", "cause", "annotator"}),
    GuardOutcome: frozenset({"action", "verdict", "cause"}),
    Failed: frozenset({"status", "name", "error_type", "annotator", "metric"}),
}


class PrivacyPolicy:
    """Prepares turns and results for judges, spans, files and spools.

    Args:
        redact: a function of a text; True for the built-in one; None or False for none. A text for which it fails is
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
        if redact is True:
            redact = PatternRedactor()
        elif redact is not None and redact is not False and not callable(redact):
            raise ConfigurationError(f"redact must be True or a function of a text, not {type(redact).__qualname__}")
        self._redact: Callable[[str], object] | None = redact or None
        self._allowed = None if metadata_allow is None else [name.casefold() for name in metadata_allow]
        self._denied = [name.casefold() for name in metadata_deny]
        self._salt = id_salt
        self._warned = False
        self._redacted = lru_cache(_REMEMBERED_TEXTS)(self._redact_text)
        self._recent: deque[str] = deque(maxlen=_RECENT_SECRETS)
        if self._redact is not None:
            REDACTORS.add(self)

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

    @property
    def redacts(self) -> bool:
        """True if texts are redacted."""
        return self._redact is not None

    def text(self, text: str) -> str:
        """Return a text without what must not leave."""
        return text if self._redact is None or not text else self._redacted(text)[0]

    def line(self, text: str) -> str:
        """Return a line of the log without what must not leave: its messages may quote pieces of recent secrets."""
        return mask_pieces(self.text(text), set(self._recent))

    def _redact_text(self, text: str) -> tuple[str, frozenset[str]]:
        """Return a redacted text, and the secrets that were in it."""
        assert self._redact is not None  # noqa: S101 - only called then
        try:
            found = self._redact(text)
            if isinstance(found, str):
                return found, frozenset(removed(text, found))
            problem = f"returned {type(found).__name__}"
        except BaseException as error:
            # Not the message: it may quote the text.
            problem = f"raised {type(error).__name__}"
        # Once, and not by a logger that redacts: that would call the same function.
        if not self._warned:
            self._warned = True
            _logger.warning("rageval-hooks: redact %s: texts are replaced as a whole [RAGEVAL-213]", problem)
        return REDACTED, frozenset()

    def turn(self, turn: Turn) -> Turn:
        """Return a turn as it may leave."""
        if not self.active:
            return turn
        ids = {}
        if self._salt is not None:
            # A turn from the spool has hashed ids already.
            plain = [name for name in (turn.user_id, turn.session_id) if name and not name.startswith(_HASHED)]
            digests = (hmac.new(self._salt.encode(), name.encode(), hashlib.sha256).hexdigest() for name in plain)
            ids = {name: _HASHED + digest[:_HASH_DIGITS] for name, digest in zip(plain, digests, strict=True)}
        return self._without_pieces(_Copier(self.text, ids, self._allowed, self._denied), turn)

    def with_redacted_texts(self, turn: Turn) -> Turn:
        """Return a turn with redacted texts, and with all its metadata and ids; the same one if nothing is redacted."""
        return turn if self._redact is None else self._without_pieces(_Copier(self.text), turn)

    def _without_pieces(self, copier: _Copier, turn: Turn) -> Turn:
        """Return a copy of a turn, in which messages and quotations have no pieces of its secrets either."""
        secrets: set[str] = set()

        def redact(text: str) -> str:
            shown, found = self._redacted(text) if text else (text, ())
            secrets.update(found)
            return shown

        shown = replace(copier, redact=copier.redact if self._redact is None else redact).model(turn)
        if not secrets:
            return shown
        self._recent.extend(secrets)
        return _Copier(partial(mask_pieces, secrets=secrets)).model(shown)

    def result(self, result: M) -> M:
        """Return a result as it may leave. The value of a score stays."""
        return result if self._redact is None else _Copier(self.text).model(result)

    def feedback(self, result: Result) -> Result:
        """Return what a person says as it may leave. The id of the person is hashed like that of a user."""
        who = self.turn(Turn(user_id=annotator_of(result))).user_id
        shown = self.result(result)
        return shown.model_copy(update={"metadata": {**shown.metadata, ANNOTATED_BY: who}}) if who else shown

    def results(self, results: Iterable[Result], from_redacted: Iterable[Result] = ()) -> tuple[Result, ...]:
        """Return the results of a turn that has something to redact, as they may leave. Values stay.

        Explanations, messages and details hold facts one by one and quotations that are cut, in which no redactor
        recognises a secret. So these texts are not taken from the results themselves.

        Args:
            results: the results, of the original texts.
            from_redacted: what the same metrics say of the redacted texts. Where it is missing, texts are hidden.
        """
        others = {_key(other): other for other in from_redacted}
        return tuple(self.result(_with_texts_of(result, others.get(_key(result)))) for result in results)

    def data(self, value: Any) -> Any:
        """Return plain data, such as a row of a file, as it may leave."""
        return value if self._redact is None else _Copier(self.text).entry(value)


@dataclass
class _Copier:
    """Copies turns, results and plain data as they may leave.

    Attributes:
        redact: redacts a text.
        ids: id → its hash. Metadata and baggage repeat the ids of users and sessions.
        allowed: patterns of names of the metadata of turns and passages that is kept; None for all.
        denied: patterns of names of the metadata that is removed, at any depth.
    """

    redact: Redact
    ids: Mapping[str, str] = field(default_factory=dict)
    allowed: Sequence[str] | None = None
    denied: Sequence[str] = ()

    def model(self, model: M) -> M:
        changes: dict[str, Any] = {}
        for name in type(model).model_fields.keys() - _NOT_TEXTS.get(type(model), frozenset()):
            value = getattr(model, name)
            # Only the metadata of a turn and its passages are the application's.
            if name == "metadata" and isinstance(model, Turn | Passage):
                kept = {key: item for key, item in value.items() if _matches(key, self.allowed)}
                new = self.value(self._without_denied(kept))
            else:
                new = self.value(value)
            if new is not value and new != value:
                changes[name] = new
        return model.model_copy(update=changes) if changes else model

    def value(self, value: Any) -> Any:
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
        """Return a value of a mapping or a list; a number may be a phone or card number, also as 4111111111111111.0."""
        if isinstance(value, int | float) and abs(value) >= _MIN_LONG_INTEGER and value % 1 == 0:
            digits = str(int(value))
            text = self._text(digits)
            return value if text == digits else text
        return self.value(value)

    def _without_denied(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._without_denied(item) for name, item in value.items() if not _matches(name, self.denied)}
        if isinstance(value, list):
            return [self._without_denied(item) for item in value]
        return value

    def _text(self, text: str) -> str:
        return self.ids[text] if text in self.ids else self.redact(text)


def _key(result: Result) -> tuple[type, str, str, int | None]:
    target = result.target if isinstance(result, Score) else Target()
    return type(result), result.name, target.kind, target.index


def _with_texts_of(result: Result, other: Result | None) -> Result:
    """Return a result with the texts of another one of the same class and name, or with hidden ones."""
    if isinstance(result, Skipped):  # reasons quote nothing
        return result
    details = {"judge": result.metadata["judge"]} if "judge" in result.metadata else {}
    changes: dict[str, Any] = {"metadata": details if other is None or isinstance(other, Skipped) else other.metadata}
    if isinstance(result, Failed) and result.message:
        changes["message"] = other.message if isinstance(other, Failed) else _NOT_SHOWN
    elif isinstance(result, Score) and result.explanation:
        changes["explanation"] = _NOT_SHOWN
        if isinstance(other, Score) and other.explanation:
            changes["explanation"] = other.explanation + (_FROM_REDACTED if other.value != result.value else "")
    return result.model_copy(update=changes)


def _matches(name: str, patterns: Iterable[str] | None) -> bool:
    """Return True if a name matches one of some patterns; None stands for all names."""
    folded = name.casefold()
    return patterns is None or any(fnmatchcase(folded, pattern) for pattern in patterns)


NO_PRIVACY = PrivacyPolicy()
"""The policy that changes nothing."""
