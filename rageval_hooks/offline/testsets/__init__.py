"""Test sets: documents, chunks and generated questions."""

from rageval_hooks.offline.testsets.chunks import Chunk, ChunkIndex
from rageval_hooks.offline.testsets.testset import GoldenQuestion, read_questions, write_questions

__all__ = ["Chunk", "ChunkIndex", "GoldenQuestion", "read_questions", "write_questions"]
