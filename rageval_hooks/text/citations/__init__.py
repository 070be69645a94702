"""Citations: which part of a response cites which passages."""

from rageval_hooks.text.citations.cited_parts import Citations, CitedKey, CitedPart, citation_marks, find_citations

__all__ = ["Citations", "CitedKey", "CitedPart", "citation_marks", "find_citations"]
