"""The local models: lazy, shared by the whole process, loaded in the background."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

from rageval_hooks.errors import ModelUnavailableError
from rageval_hooks.models.cache import MemoryCache
from rageval_hooks.models.cross_encoder import CrossEncoder, load_cross_encoder
from rageval_hooks.models.embedder import Embedder, Embedding, load_embedder
from rageval_hooks.models.grounding import GroundingModel, load_grounding
from rageval_hooks.models.hhem import Hhem, load_hhem
from rageval_hooks.models.lexical import LexicalEmbedder, LexicalEmbedding, LexicalNlp, LexicalRelevance
from rageval_hooks.models.nlp import Nlp, load_nlp
from rageval_hooks.models.sources import loading
from rageval_hooks.runtime.lazy import BackgroundValue, LoadState
from rageval_hooks.settings import FORMULA, LEXICAL, ModelSettings

__all__ = ["AnyCrossEncoder", "AnyEmbedder", "AnyEmbedding", "AnyGrounding", "AnyNlp", "Models", "Role"]

Role = Literal["embedder", "cross_encoder", "nlp", "hhem", "grounding"]
AnyEmbedder = Embedder | LexicalEmbedder
AnyCrossEncoder = CrossEncoder | LexicalRelevance
AnyGrounding = GroundingModel | Embedder | LexicalEmbedder
AnyNlp = Nlp | LexicalNlp
AnyEmbedding = Embedding | LexicalEmbedding

_LOADERS: dict[Role, Callable[[ModelSettings], Any]] = {
    "embedder": load_embedder,
    "cross_encoder": load_cross_encoder,
    "nlp": load_nlp,
    "hhem": load_hhem,
    "grounding": load_grounding,
}
_LEXICAL: dict[Role, Any] = {
    "embedder": LexicalEmbedder(),
    "cross_encoder": LexicalRelevance(),
    "nlp": LexicalNlp(),
}


class Models:
    """The models that the settings name. Equal settings share their models.

    Args:
        settings: which models.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings

    def needed(self, roles: Iterable[Role]) -> frozenset[Role]:
        """Return the roles whose models have to be loaded: without a grounding model, the embedder takes its role."""
        return frozenset(map(self._role, roles))

    def load(self, roles: Iterable[Role]) -> None:
        """Start loading some models in the background."""
        for value in self._values(roles):
            value.start()

    async def ready(self, roles: Iterable[Role]) -> None:
        """Wait until some models are loaded, or cannot be."""
        for value in self._values(roles):
            await value.settled()

    def state(self, role: Role) -> LoadState:
        """Return the state of a model."""
        value = self._value(role)
        return "ready" if value is None else value.state

    def embedder(self, *, wait: bool = False) -> AnyEmbedder:
        """Return the embedder; see :meth:`BackgroundValue.get`."""
        return self._get("embedder", wait)  # type: ignore[no-any-return]

    def cross_encoder(self, *, wait: bool = False) -> AnyCrossEncoder:
        """Return the cross-encoder; see :meth:`BackgroundValue.get`."""
        return self._get("cross_encoder", wait)  # type: ignore[no-any-return]

    def nlp(self, *, wait: bool = False) -> AnyNlp:
        """Return the NLP pipeline; see :meth:`BackgroundValue.get`."""
        return self._get("nlp", wait)  # type: ignore[no-any-return]

    def hhem(self, *, wait: bool = False) -> Hhem:
        """Return HHEM; see :meth:`BackgroundValue.get`. The lexical tier has no replacement for it."""
        return self._get("hhem", wait)  # type: ignore[no-any-return]

    def grounding(self, *, wait: bool = False) -> AnyGrounding:
        """Return the grounding model, or the embedder, whose vectors the formula uses.

        See :meth:`BackgroundValue.get`.
        """
        return self._get("grounding", wait)  # type: ignore[no-any-return]

    @property
    def cache(self) -> MemoryCache[AnyEmbedding]:
        """The embeddings of passages, by text."""
        key = (self.settings.embedder, self.settings.cache_mb, *_backend(self.settings))
        if key not in _caches:
            _caches.setdefault(key, MemoryCache(int(self.settings.cache_mb * 2**20)))
        return _caches[key]

    def _get(self, role: Role, wait: bool) -> Any:
        role = self._role(role)
        value = self._value(role)
        if value is not None:
            return value.get(wait=wait)
        if role not in _LEXICAL:
            reason = f"the lexical tier has no replacement for it: set models={{{role!r}: 'name or /path'}}"
            raise ModelUnavailableError(role, reason)
        return _LEXICAL[role]

    def _values(self, roles: Iterable[Role]) -> list[BackgroundValue[Any]]:
        return [value for role in self.needed(roles) if (value := self._value(role)) is not None]

    def _role(self, role: Role) -> Role:
        return "embedder" if role == "grounding" and self.settings.grounding == FORMULA else role

    def _value(self, role: Role) -> BackgroundValue[Any] | None:
        role, settings = self._role(role), self.settings
        name = getattr(settings, role)
        if name == LEXICAL:
            return None
        key = (role, name, settings.download, settings.load_timeout, *_backend(settings))
        if key not in _loaded:
            _loaded.setdefault(key, BackgroundValue(role, lambda: load_now(role, settings), settings.load_timeout))
        return _loaded[key]


# The models and caches of the process, by the settings that they depend on. Two threads may make the same one at the
# same time: both use the one that was there first.
_loaded: dict[tuple[Any, ...], BackgroundValue[Any]] = {}
_caches: dict[tuple[Any, ...], MemoryCache[AnyEmbedding]] = {}


def _backend(settings: ModelSettings) -> tuple[str, ...]:
    """Return the settings that all models share, and by which their numbers may differ."""
    return settings.backend, settings.precision, settings.onnx_file, settings.device, settings.grounding_template


def load_now(role: Role, settings: ModelSettings) -> Any:
    """Load a model on this thread, and share it with nobody.

    Raises:
        ModelUnavailableError: it cannot be loaded; the message says why and what to do.
    """
    with loading(role, getattr(settings, role)):
        return _LOADERS[role](settings)
