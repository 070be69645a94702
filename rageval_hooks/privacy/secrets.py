"""Patterns of keys, tokens and passwords: the one list for texts of users and for messages of servers.

The forms of the providers' tokens are those of gitleaks' public rules (2026-11).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_Substitution = tuple[re.Pattern[str], str]
"""A pattern, and what replaces it; ``{mask}`` stands for the mask."""

_SURE = r"token|secret|passw(?:or)?d|passphrase|pwd|credentials?|signature"
_NAMES = rf"(?:key|{_SURE})"
"""Words before a secret, also as the end of a name: "api_key", "AccountKey", "DB_PASSWD"."""

# Every quantifier is bounded, so that the time grows linearly with the text.
_SECRETS: Sequence[_Substitution] = (
    # -----BEGIN RSA PRIVATE KEY----- … -----END RSA PRIVATE KEY-----, also with headers ("Proc-Type: 4,ENCRYPTED"), cut
    # off, or as a "PGP PRIVATE KEY BLOCK"
    (
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----)){0,20000}"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
        ),
        "{mask}",
    ),
    # eyJhbGciOi.eyJzdWIiOi.abcdef12345
    (re.compile(r"\beyJ[\w-]{8,8000}\.[\w-]{8,8000}\.[\w-]{8,2000}"), "{mask}"),
    # sk-proj-abcdef12345, hf_abcdef12345, AIzaabcdef12345
    (
        re.compile(r"\b(?:(?:sk|pk|rk|gsk|xai|hf|npm|pypi)[-_]|AIza)(?=[\w*-]{0,200}[\d*])[A-Za-z0-9_*-]{8,}"),
        "{mask}",
    ),
    # glpat-abcdefgh12345678, xoxb-1234567890-abc, SG.abcdefgh12345678.abc, ya29.a0AfH6SMBabcdef, shpat_0123456789abcdef
    (
        re.compile(
            r"\b(?:gl(?:pat|cbt|dt|ft|imt|oas|ptt|rt|soat|agent|ffct)-|gl(?:c|sa)_|gh[pousr]_|github_pat_|xox[abeoprs]-|"
            r"xapp-|ya29\.|SG\.|GOCSPX-|do[opr]_v1_|dckr_pat_|shp(?:at|ca|pa|ss)_|sq0(?:atp|csp)-|EAAA|ATATT3|AKCp|LTAI|"
            r"PMAK-|NRAK-|NRAL-|pul-|pplx-|nvapi-|r8_|ntn_|lin_api_|hv[sb]\.|dp\.pt\.|dt0c01\.|pscale_[a-z]{2,6}_|"
            r"rubygems_|sntry[su]_|sgp_|tk-us-|xkeysib-|xsmtpsib-|whsec_|HRKU-AA|fo1_|fm[12][ar]?_|ops_eyJ|"
            r"AGE-SECRET-KEY-1|CLOJARS_|duffel_(?:test|live)_|shippo_(?:test|live)_|FLW(?:SEC|PUB)K[_-]|p8e-)"
            r"(?=[\w.+/=~-]{0,200}\d)[\w.+/=~-]{15,2000}[\w+/=-]"
        ),
        "{mask}",
    ),
    # AKIAABCDEFGHIJKLMNOP
    (re.compile(r"\b(?:A3T[A-Z0-9]|A[KSB]IA|ACCA)[0-9A-Z]{16}\b"), "{mask}"),
    # key-, dapi, AC and SK before 32 hexadecimal digits: Mailgun, Databricks, Twilio
    (re.compile(r"\b(?:key-|dapi|AC|SK)[0-9a-f]{32}\b"), "{mask}"),
    # 123456789:AAabcdefghijklmnopqrstuvwxyz0123456, the token of a Telegram bot
    (re.compile(r"\b\d{8,10}:AA[\w-]{32,40}"), "{mask}"),
    # hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX
    (re.compile(r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w+/]{20,200}"), "{mask}"),
    # Bearer abcdef12345
    (re.compile(r"(?i)\b(bearer|basic)\s{1,8}(?=[^\s\"',;]{0,200}[\d=_])[^\s\"',;]{8,}"), r"\1 {mask}"),
    # password: 'x', "client_secret": "two words", api-key="abcdef12345"
    (
        re.compile(
            rf"(?i)((?:{_SURE}|[_-]key|(?:api|access|account|private) ?key|key(?=[\"']))"
            r"[\"']?\s{0,8}(?:=>|:?=|:)\s{0,8})"
            r"([\"'`])(?:(?!\2)[^\n]){1,500}\2"
        ),
        r"\1\2{mask}\2",
    ),
    # pwd=hunter2, api-key=abcdef12345
    (re.compile(rf"(?i)({_NAMES}\s{{0,8}}=\s{{0,8}}[\"']?)[^\s\"'&,;<]+"), r"\1{mask}"),
    # password: hunter2, but not "the key: a word"
    (
        re.compile(rf"(?i)({_NAMES}\s{{0,8}}:\s{{1,8}})(?=[^\s\"'&,;]{{0,200}}[\d_])[^\s\"'&,;<]{{6,}}"),
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
