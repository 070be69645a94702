"""Keys, logins and addresses of backends, from arguments and from the variables of the vendors' own SDKs."""

from __future__ import annotations

import os
from base64 import b64encode

from pydantic import SecretStr

Secret = str | SecretStr | None
"""A key, or a URL that may hold a password; None for its default."""


def basic_auth(user: str, password: str) -> str:
    """Return the value of the header ``Authorization`` for a user name and a password."""
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


def variable(*names: str) -> str:
    """Return the first environment variable that is set and not blank, without surrounding spaces; else empty."""
    values = (os.environ.get(name, "").strip() for name in names)
    return next(filter(None, values), "")


def as_secret(given: Secret, *names: str) -> SecretStr:
    """Return a key or a URL with a password so that no message and no traceback shows it.

    Args:
        given: the user's value.
        names: the environment variables for its default.
    """
    text = reveal(given) if isinstance(given, SecretStr) else given
    return SecretStr(text or variable(*names))


def reveal(secret: SecretStr | None) -> str:
    """Return the text of a secret; empty for None."""
    return "" if secret is None else secret.get_secret_value()
