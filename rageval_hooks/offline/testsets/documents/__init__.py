"""Documents from files and folders. Each module here reads some kinds of files, and is found by its file.

To read a further kind, add one module with a subclass of :class:`DocumentReader`. Nothing else names it.
"""

from rageval_hooks.offline.testsets.documents.base import Document, DocumentReader, UnreadableDocumentError
from rageval_hooks.offline.testsets.documents.library import Library, Problem, kinds, read_documents

__all__ = [
    "Document",
    "DocumentReader",
    "Library",
    "Problem",
    "UnreadableDocumentError",
    "kinds",
    "read_documents",
]
