"""Test sets: documents, chunks and generated questions."""

from rageval_hooks.offline.testsets.chunks import Chunk
from rageval_hooks.offline.testsets.documents import read_documents
from rageval_hooks.offline.testsets.generation import generate
from rageval_hooks.offline.testsets.linking import ChunkIndex
from rageval_hooks.offline.testsets.testset import GoldenQuestion, read_questions, write_questions

__all__ = [
    "Chunk",
    "ChunkIndex",
    "GoldenQuestion",
    "generate",
    "read_documents",
    "read_questions",
    "write_questions",
]
