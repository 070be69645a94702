"""Tables with layouts of their own: this package's, with scores, and open-rag-eval's."""

from rageval_hooks.offline.records.tables.layouts import LAYOUTS, Closeness, Records, Table, layout_of

__all__ = ["LAYOUTS", "Closeness", "Records", "Table", "layout_of"]
