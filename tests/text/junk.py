"""Generate text that is not prose (markup, symbols, long repetitions), of any length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from hypothesis import strategies as st

__all__ = ["JUNK", "anything"]


def _repeat(piece: str) -> Callable[[int], str]:
    return lambda length: (piece * (length // len(piece) + 1))[:length]


JUNK: Final[dict[str, Callable[[int], str]]] = {
    name: _repeat(piece)
    for name, piece in {
        "spaces": " ",
        "newlines": "\n",
        "one letter": "a",
        "one capital": "A",
        "full stops": ".",
        "spaced full stops": ". ",
        "initials": "A. ",
        "abbreviations": "e.g. ",
        "marks": "?!",
        "quotes": "\"a. 'b. ",
        "brackets": "((([",
        "citations": "[1,2,3",
        "list numbers": "1.\n",
        "bullets": "• ",
        "table": "| 1.5 | abc | 2,000 |\n",
        "digits": "1",
        "decimals": "1.",
        "commas": "1,",
        "codes": "a1",
        "slashes": "1/2/",
        "years": "2020-",
        "dates": "On March 3, 2020 and 2020-03-04 or 3/4/2020. ",
        "number words": "one hundred and twenty two thousand ",
        "tens": "twenty-",
        "hundreds": "hundred ",
        "spaced thousands": "100 ",
        "losses": "fell by -5 and .5, 2½ or 1/2; ",
        "days of months": "March 5 and 7, may 3rd ",
        "function words": "of the ",
        "cited subjects": "It is so. [2] says ",
        "names": "Abc ",
        "acronyms": "U.S.A. ",
        "apostrophes": "a'",
        "hyphens": "a-",
        "addresses": "http://x.y/z ",
        "Chinese": "汉字",
        "Thai": "สวัสดีครับ",
        "Hindi": "यह पहला वाक्य है। ",
        "accents": "\u0301",
        "emoji": "😀",
        "controls": "\x00\x01\x1f\x7f",
        "surrogates": "\ud800 a. b. \udfff",
        "code": "def f(x):\n    return x.y(z) + 3.5  # e.g. this\n\n",
        "prose": "The quick brown fox jumps over the lazy dog, said Dr. Smith at 5 p.m. He did not know why. ",
    }.items()
}
JUNK["binary"] = lambda length: "".join(chr((i * 7919 + i * i * 31) % 0xD000) for i in range(length))

_PIECES: Final = [
    *"a b The Dr. e.g. U.S. 3. 3.5 1,000 2018–19 March 3, 2020 five million GPT-4 's n't".split(" "),
    *". ! ? … 。 ！ । ؟ \" “ ” ' ’ ( ) [ ] [1] « » • - * # | ``` : ; , –".split(" "),
    *"Ünïcödé 汉字 ひらがな 한국어 ไทย हिन्दी العربية http://a.b/c \ud800 😀".split(" "),
    *[" ", " ", " ", "\n", "\n\n", "\t", "\r\n", "\u2028", "\u00a0", "\x1f"],
]


def anything() -> st.SearchStrategy[str]:
    """Texts of pieces that mean something to the rules, mixed with any characters, lone surrogates included."""
    piece = st.sampled_from(_PIECES) | st.text(st.characters(), max_size=3)
    return st.lists(piece, max_size=40).map("".join)
