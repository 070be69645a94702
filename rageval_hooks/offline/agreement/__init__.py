"""How well scores agree with people's labels."""

from rageval_hooks.offline.agreement.measure import Agreement, LabelledRow, labelled_rows, measure
from rageval_hooks.offline.agreement.render import to_json, to_markdown, to_text

__all__ = ["Agreement", "LabelledRow", "labelled_rows", "measure", "to_json", "to_markdown", "to_text"]
