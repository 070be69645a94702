"""Patterns of keys, tokens and passwords: the one list for texts of users and for messages of servers."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["mask_secrets"]

_Substitution = tuple[re.Pattern[str], str]
"""A pattern, and what replaces it; ``{mask}`` stands for the mask."""

# Every quantifier is bounded, so that the time grows linearly with the text.
_SECRETS: Sequence[_Substitution] = (
    # -----BEGIN RSA PRIVATE KEY----- … -----END RSA PRIVATE KEY-----
    (
        re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,20000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"),
        "{mask}",
    ),
    # eyJhbGciOi.eyJzdWIiOi.abcdef12345
    (re.compile(r"\beyJ[\w-]{8,8000}\.[\w-]{8,8000}\.[\w-]{8,2000}"), "{mask}"),
    # sk-proj-abcdef12345, hf_abcdef12345, AIzaabcdef12345
    (re.compile(r"\b(?:(?:sk|pk|rk|gsk|xai|hf|glpat|npm|pypi)[-_]|AIza)[A-Za-z0-9_*-]{8,}"), "{mask}"),
    # ghp_abcdefghij0123456789, github_pat_abcdefghij0123456789, xoxb-1234567890-abc, AKIAABCDEFGHIJKLMNOP
    (
        re.compile(r"\b(?:gh[pousr]_\w{16,255}|github_pat_\w{16,255}|xox[abeprs]-[\w-]{10,255}|A[KS]IA[0-9A-Z]{16}\b)"),
        "{mask}",
    ),
    # Bearer abcdef12345
    (re.compile(r"(?i)\b(bearer|basic)\s{1,8}(?=[^\s\"',;]{0,200}[\d=_])[^\s\"',;]{8,}"), r"\1 {mask}"),
    # api-key=abcdef12345, "client_secret": "abcdef12345"
    (
        re.compile(
            r"(?i)((?:key|token|secret|password|signature))(\s{0,8}=\s{0,8}[\"']?|[\"']\s{0,8}:\s{0,8}[\"'])"
            r"[^\s\"'&,;<]+"
        ),
        r"\1\2{mask}",
    ),
    # password: hunter2, but not "the key: a word"
    (
        re.compile(
            r"(?i)((?:key|token|secret|password|signature)\s{0,8}:\s{1,8})"
            r"(?=[^\s\"'&,;]{0,200}[\d_])[^\s\"'&,;<]{6,}"
        ),
        r"\1{mask}",
    ),
    # https://user:password@host
    (re.compile(r"(?<=://)[^/@\s]{1,1000}@"), "{mask}@"),
)

# A server's message about a refused key quotes it after such a word. In a text of a user, the words are often harmless:
# "bearer bonds", "the key: a word".
_IN_MESSAGES: Sequence[_Substitution] = (
    # Bearer abcdef
    (re.compile(r"(?i)\b(bearer|basic)\s{1,8}[^\s\"',;]+"), r"\1 {mask}"),
    # key: abcdef, "token": abcdef
    (
        re.compile(r"(?i)\b([\w-]{0,40}(?:key|token|secret|password|signature))(\"?\s{0,8}[=:]\s{0,8}\"?)[^\s\"'&,;]+"),
        r"\1\2{mask}",
    ),
)


def mask_secrets(text: str, mask: str, *, is_message: bool = False) -> str:
    """Return a text without what looks like a key, a token or a password.

    Args:
        text: the text.
        mask: what replaces a secret.
        is_message: True for a server's message, where any word after "Bearer" or "key:" counts as a secret.
    """
    patterns = [*_SECRETS, *_IN_MESSAGES] if is_message else _SECRETS
    for pattern, replacement in patterns:
        text = pattern.sub(replacement.format(mask=mask), text)
    return text
