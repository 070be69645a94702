"""The parameters of a model call, without credentials."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from rageval_hooks.runtime.jsonable import plain_value

__all__ = ["public_parameters"]

# "api_key", "openai_api_key", "access_token", "extra_headers"; not "max_tokens" or "keep_alive".
_SECRET = re.compile(r"(^|[_-])(key|secret|password|token|authorization|credentials?|headers?)$", re.IGNORECASE)


def public_parameters(given: Mapping[str, Any], without: Collection[str] = ()) -> dict[str, Any]:
    """Return the parameters that were set, as JSON-able data.

    Args:
        given: all parameters of the call, as the framework reports them.
        without: names to omit. Names of credentials, and private names such as ``_type``, are always omitted.
    """
    found = {}
    for name, value in given.items():
        name = str(name)
        if value is None or name in without or name.startswith("_") or _SECRET.search(name):
            continue
        # A mapping may hold credentials too: {"extra_body": {"api_key": "…"}}.
        found[name] = public_parameters(value) if isinstance(value, Mapping) else plain_value(value)
    return found
