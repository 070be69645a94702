"""Text, Markdown and reStructuredText."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.offline.testsets.documents.base import Document, DocumentReader

__all__ = ["PlainText", "with_markdown_headings"]

# A heading of reStructuredText with its underline, with or without the same line above it:
#     Installation
#     ============
_HEADING = re.compile(
    r"^(?:(?P<over>[=\-~^\"'`#*+:.<>_])(?P=over){2,}[ \t]*\n)?"
    r"(?P<title>[^\s].*)\n(?P<under>[=\-~^\"'`#*+:.<>_])(?P=under){2,}[ \t]*$",
    re.MULTILINE,
)


class PlainText(DocumentReader):
    """Text files."""

    suffixes = (".txt", ".text", ".md", ".markdown", ".mdx", ".rst", ".adoc", ".org")

    def read(self, file: SourceFile, name: str) -> Iterator[Document]:
        """Yield the text."""
        text = file.text().read()
        is_rst = ".rst" in [suffix.lower() for suffix in file.path.suffixes]
        yield Document(name=name, text=with_markdown_headings(text) if is_rst else text)


def with_markdown_headings(text: str) -> str:
    """Return reStructuredText with its headings as Markdown has them, so that chunks begin at headings.

    The first style of underline that occurs is the first level, as docutils has it.
    """
    levels: dict[str, int] = {}

    def heading(found: re.Match[str]) -> str:
        # An underline that is shorter than its title is no heading: it may be a list or a transition.
        if len(found[0].rstrip().rpartition("\n")[2].strip()) < len(found["title"].rstrip()):
            return found[0]
        style = (found["over"] or "") + found["under"]
        level = levels.setdefault(style, len(levels) + 1)
        return f"\n{'#' * min(level, 6)} {found['title'].strip()}\n"

    return _HEADING.sub(heading, text.replace("\r\n", "\n"))
