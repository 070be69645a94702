"""Test sets: documents, chunks and generated questions."""
