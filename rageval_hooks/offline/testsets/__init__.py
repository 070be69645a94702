"""Test sets: documents, chunks and generated questions."""

from rageval_hooks.offline.testsets.chunks import Chunk, chunks_of, shared_ids, spread, unique_chunks
from rageval_hooks.offline.testsets.documents import read_documents
from rageval_hooks.offline.testsets.generation import Generated, GenerationPlan, Unanswered, generate, plan_of, work_of
from rageval_hooks.offline.testsets.linking import ChunkIndex
from rageval_hooks.offline.testsets.question_tasks import Mix, QuestionTask, tasks_of
from rageval_hooks.offline.testsets.questions import STYLES, resolve_styles
from rageval_hooks.offline.testsets.stores import chunks_of_store
from rageval_hooks.offline.testsets.testset import GoldenQuestion, read_questions, write_questions

__all__ = [
    "STYLES",
    "Chunk",
    "ChunkIndex",
    "Generated",
    "GenerationPlan",
    "GoldenQuestion",
    "Mix",
    "QuestionTask",
    "Unanswered",
    "chunks_of",
    "chunks_of_store",
    "generate",
    "plan_of",
    "read_documents",
    "read_questions",
    "resolve_styles",
    "shared_ids",
    "spread",
    "tasks_of",
    "unique_chunks",
    "work_of",
    "write_questions",
]
