"""The module that every application of LangChain imports. ``zero_code`` waits for it, and reads only this file."""

from typing import Final

__all__ = ["MODULE"]

MODULE: Final = "langchain_core"
