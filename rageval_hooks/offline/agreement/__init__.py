"""How well scores agree with people's labels."""

from rageval_hooks.offline.agreement.measure import LabelledRow, labelled_rows, measure, to_json, to_markdown, to_text

__all__ = ["LabelledRow", "labelled_rows", "measure", "to_json", "to_markdown", "to_text"]
