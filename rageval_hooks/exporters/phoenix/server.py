"""A Phoenix server's REST API, as far as annotations need it.

``httpx`` and not the package ``arize-phoenix-client``: in an environment that has the server's package too, importing
the client imports the server (8 seconds and 350 MiB, measured with arize-phoenix 20.26), which no application should
have to bear for two POST requests. The key and the headers come from the same variables.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote

from pydantic import SecretStr

from rageval_hooks.exporters.delivery import HttpApi, Item, TargetsMissingError
from rageval_hooks.exporters.otlp_places import header_variable
from rageval_hooks.exporters.phoenix.configs import AnnotationConfigs

__all__ = ["PhoenixServer", "login_headers"]

_logger = logging.getLogger(__name__)

# Ids in the text of an error: 16 hex digits of a span, 32 of a trace.
_ID = re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{16})\b")


class PhoenixServer:
    """Posts annotations to one server.

    Args:
        url: its base URL.
        api_key: for the header ``Authorization``; ``PHOENIX_API_KEY`` by default.
        project: the project that the spans are in, for its annotation configs.
        configs: the configs of the scores; None to register none.

    Raises:
        MissingDependencyError: httpx is not installed.
        ConfigurationError: the key or a header cannot be sent.
    """

    own_queue: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        api_key: SecretStr | None = None,
        *,
        project: str = "default",
        configs: AnnotationConfigs | None = None,
    ) -> None:
        self._project = project
        self._configs = configs
        self._http = HttpApi(
            url,
            backend="Phoenix",
            extra="phoenix",
            credentials="PHOENIX_API_KEY (or PHOENIX_CLIENT_HEADERS)",
            headers=login_headers(api_key),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._http.shown_url!r})"

    def post(self, route: str, bodies: Sequence[Mapping[str, Any]], *, confirmed: bool) -> None:
        """Send annotations. The server keeps one per target, name and identifier: a repeat replaces the first.

        Args:
            route: ``span_annotations``, ``trace_annotations`` or ``document_annotations``.
            bodies: as the API expects them.
            confirmed: True to have them stored before the server answers, which needs their spans to be there. False
                to leave them to the server's queue: it looks for a missing span every 10 seconds, 60 times, and drops
                without notice what does not fit.

        Raises:
            TargetsMissingError: spans have not arrived yet (only with ``confirmed``).
            RejectedError: the server does not accept what was sent.
            UnavailableError: the server cannot be reached, does not work, or wants another key.
        """
        params = {"sync": "true"} if confirmed else None
        answer = self._http.request("POST", f"v1/{route}", body={"data": list(bodies)}, params=params)
        if answer.status == 200:
            self._register_configs(str(body["name"]) for body in bodies)
            return
        targets = {str(body.get("trace_id") or body.get("span_id")) for body in bodies}
        missing = targets.intersection(_ID.findall(answer.text))
        # A 404 without any of the ids is that of a server without this API.
        if answer.status == 404 and missing:
            raise TargetsMissingError(frozenset(missing))
        raise self._http.refusal(answer)

    def has(self, item: Item) -> bool:
        """Return True if the server shows an annotation of a span."""
        path = f"v1/projects/{quote(self._project, safe='')}/span_annotations"
        answer = self._http.request("GET", path, params={"span_ids": str(item.body["span_id"]), "limit": "100"})
        # 404: the project is made when its first span arrives.
        if answer.status == 404:
            return False
        if not answer.ok:
            raise self._http.refusal(answer)
        found = answer.json() or {}
        return any(annotation.get("name") == item.body["name"] for annotation in found.get("data", ()))

    def _register_configs(self, names: Iterable[str]) -> None:
        """Register the configs of new scores. They only add colours, so a failure is not worth a warning."""
        # Only after a post succeeded, so that the project exists.
        if self._configs is None:
            return
        for config in self._configs.take(names):
            path = f"v1/projects/{quote(self._project, safe='')}/annotation_configs/{quote(config['name'], safe='')}"
            try:
                # 409 if the name exists: the user's own stays.
                self._http.request("POST", "v1/annotation_configs", body=config)
                self._http.request("PUT", path)
            except Exception as error:
                _logger.debug("rageval-hooks: no annotation config for %s: %s", config["name"], type(error).__name__)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


def login_headers(api_key: SecretStr | None) -> dict[str, str]:
    """Return the headers as Phoenix's own client has them: ``PHOENIX_CLIENT_HEADERS``, then ``PHOENIX_API_KEY``."""
    headers = header_variable(os.environ.get("PHOENIX_CLIENT_HEADERS", ""), warn_as="PHOENIX_CLIENT_HEADERS")
    if api_key is not None:
        headers["authorization"] = f"Bearer {api_key.get_secret_value().strip()}"
    elif key := os.environ.get("PHOENIX_API_KEY", "").strip():
        headers.setdefault("authorization", f"Bearer {key}")
    return headers
