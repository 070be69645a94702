"""Patterns of keys, tokens and passwords."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["SECRETS", "Substitution"]

Substitution = tuple[re.Pattern[str], str]
"""A pattern, and what replaces it; ``{mask}`` stands for the mask."""

# Every quantifier is bounded, so that the time grows linearly with the text.
SECRETS: Sequence[Substitution] = (
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
