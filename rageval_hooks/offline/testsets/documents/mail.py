"""E-mail, by the standard library: subject, sender, date and the body."""

from __future__ import annotations

import io
from collections.abc import Iterator
from email import policy
from email.parser import BytesParser

from rageval_hooks.offline.records.formats import SourceFile
from rageval_hooks.offline.testsets.documents.base import Document, DocumentReader, UnreadableDocumentError

__all__ = ["Mail"]

_HEADERS = ("Subject", "From", "To", "Date")


class Mail(DocumentReader):
    """Files with one message each. Attachments are ignored."""

    suffixes = (".eml",)

    def read(self, file: SourceFile, name: str) -> Iterator[Document]:
        """Yield the message: its headers that matter, and the plain text or the HTML."""
        message = BytesParser(policy=policy.default).parse(file.binary())
        # The plain text is the sender's; HTML has the layout around it.
        body = message.get_body(("plain", "html"))
        if body is None:
            raise UnreadableDocumentError("it has no text")
        text = str(body.get_content())
        if body.get_content_subtype() == "html":
            text = _without_tags(text)
        headers = [f"{header}: {message[header]}" for header in _HEADERS if message[header]]
        yield Document(name=name, text="\n".join(headers) + "\n\n" + text.strip())


def _without_tags(html: str) -> str:
    from rageval_hooks.errors import requires

    with requires("markitdown", "documents", "reading e-mail in HTML"):
        from markitdown import MarkItDown, StreamInfo
    info = StreamInfo(extension=".html", charset="utf-8")
    return str(MarkItDown(enable_plugins=False).convert_stream(io.BytesIO(html.encode()), stream_info=info).markdown)
