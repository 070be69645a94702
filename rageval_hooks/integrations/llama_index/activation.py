"""The module that every application of LlamaIndex imports. ``zero_code`` waits for it, and reads only this file."""

from typing import Final

MODULE: Final = "llama_index_instrumentation"
