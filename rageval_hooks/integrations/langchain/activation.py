"""The module that every application of LangChain imports. ``zero_code`` waits for it, and reads only this file."""

from typing import Final

MODULE: Final = "langchain_core"
