"""Prompts and answers: delimiters, schemas, instructions and parsing."""
