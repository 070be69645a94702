"""Values that are made when they are first needed: models that load in the background, and cached attributes."""

from rageval_hooks.runtime.lazy.attribute import cached_property
from rageval_hooks.runtime.lazy.background_value import BackgroundValue, LoadState

__all__ = ["BackgroundValue", "LoadState", "cached_property"]
