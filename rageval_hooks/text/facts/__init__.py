"""Facts: what a text states, and whether other texts state it too."""

from rageval_hooks.text.facts.extraction import Fact, find_facts
from rageval_hooks.text.facts.index import FactIndex, index_facts, merge_indexes
from rageval_hooks.text.facts.matching import entity_supported, unsupported_facts

__all__ = ["Fact", "FactIndex", "entity_supported", "find_facts", "index_facts", "merge_indexes", "unsupported_facts"]
