"""Small PDF files, written by hand."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["GLYPH_NUMBERS", "HELVETICA", "pdf"]


HELVETICA = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
GLYPH_NUMBERS = (
    "<< /Type /Font /Subtype /Type0 /BaseFont /A /Encoding /Identity-H /DescendantFonts "
    "[<< /Type /Font /Subtype /CIDFontType2 /BaseFont /A /CIDSystemInfo "
    "<< /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>] >>"
)
"""A font that does not say which letters its glyphs are."""


def pdf(pages: Sequence[str], *fonts: str) -> bytes:
    """Return a PDF with a line of text on each page, in Helvetica or the page's font; an empty one is a picture."""
    fonts = fonts or (HELVETICA,) * len(pages)
    kids = " ".join(f"{3 + 3 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
    ]
    for number, (text, font) in enumerate(zip(pages, fonts, strict=True)):
        first = 3 + 3 * number
        content = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET" if text else "0 0 10 10 re f"
        used = f"/Resources << /Font << /F1 {first + 2} 0 R >> >>" if text else "/Resources << >>"
        objects += [
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {first + 1} 0 R {used} >>",
            f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
            font,
        ]
    body = "%PDF-1.4\n"
    places = []
    for number, item in enumerate(objects, 1):
        places.append(len(body))
        body += f"{number} 0 obj\n{item}\nendobj\n"
    table = "".join(f"{place:010d} 00000 n \n" for place in places)
    end = f"trailer\n<< /Size {len(objects) + 1} /Root 1 0 R >>\nstartxref\n{len(body)}\n%%EOF\n"
    return f"{body}xref\n0 {len(objects) + 1}\n0000000000 65535 f \n{table}{end}".encode("latin-1")
