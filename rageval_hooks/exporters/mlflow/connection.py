"""Where an MLflow server is and how to log in, by the variables of MLflow's own client."""

from __future__ import annotations

import configparser
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

from pydantic import SecretStr

from rageval_hooks.exporters.delivery import basic_auth
from rageval_hooks.exporters.otlp_places import OtlpPlace, otlp_places
from rageval_hooks.runtime.selecting import entries_under

__all__ = [
    "DEFAULT_URL",
    "EXPERIMENT_HEADER",
    "MlflowPlace",
    "endpoint_of_spans",
    "is_mlflow",
    "place_of_spans",
    "tls",
    "tracking_place",
]

DEFAULT_URL = "http://localhost:5000"

EXPERIMENT_HEADER = "x-mlflow-experiment-id"
_WORKSPACE_HEADER = "x-mlflow-workspace"
_VERSION = re.compile(rb"\d{1,9}\.\d{1,9}\.\d{1,9}\S{0,64}")  # for example b"3.17.2"


@dataclass(frozen=True, kw_only=True)
class MlflowPlace:
    """A server. Not in its repr: both fields may hold secrets.

    Attributes:
        url: the base URL.
        headers: the login, and the workspace if there are several.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


def tracking_place(uri: str | None, token: SecretStr | None) -> MlflowPlace | None:
    """Return the server that the user named, or that ``MLFLOW_TRACKING_URI`` does; None if neither is one of HTTP.

    Args:
        uri: the user's own setting.
        token: sent in place of the variables' login.
    """
    url = uri or os.environ.get("MLFLOW_TRACKING_URI", "").strip()
    if not _is_http(url):
        return None
    return MlflowPlace(url=url.rstrip("/"), headers=_headers(token))


def endpoint_of_spans(provider: object = None) -> OtlpPlace | None:
    """Return the endpoint of an MLflow that spans go to; None if they go elsewhere.

    MLflow refuses spans without the header ``x-mlflow-experiment-id``, and nothing else has it.

    Args:
        provider: the tracer provider.
    """
    places = (place for place in otlp_places(provider) if EXPERIMENT_HEADER in place.headers)
    return next((place for place in places if _is_http(place.url)), None)


def place_of_spans(provider: object = None) -> MlflowPlace | None:
    """Return the MLflow that spans go to, with its login; None if they go elsewhere."""
    endpoint = endpoint_of_spans(provider)
    if endpoint is None:
        return None
    base = endpoint.url.rstrip("/").removesuffix("/v1/traces").rstrip("/")
    # What logs in with the spans logs in with their scores.
    names = ("authorization", _WORKSPACE_HEADER)
    login = entries_under(endpoint.headers, names)
    return MlflowPlace(url=base, headers={**_headers(None), **login})


def tls() -> ssl.SSLContext | bool:
    """Return how certificates are checked, by ``MLFLOW_TRACKING_INSECURE_TLS`` and the ``…_CERT_PATH`` variables."""
    if os.environ.get("MLFLOW_TRACKING_INSECURE_TLS", "").strip().lower() in ("true", "1"):
        return False
    server = os.environ.get("MLFLOW_TRACKING_SERVER_CERT_PATH")
    client = os.environ.get("MLFLOW_TRACKING_CLIENT_CERT_PATH")
    if not server and not client:
        return True
    context = ssl.create_default_context(cafile=server or None)
    if client:
        context.load_cert_chain(client)
    return context


def is_mlflow(url: str, timeout: float = 3.0) -> bool | None:
    """Ask a server whether it is an MLflow; None if there is no answer.

    The request carries neither a key nor a header, and uses the standard library: see ``is_phoenix``.
    """
    try:
        with urlopen(f"{url}/version", timeout=timeout) as response:  # noqa: S310 - http or https, see _is_http
            return _VERSION.fullmatch(response.read(80).strip()) is not None
    except HTTPError as error:
        error.close()
        # A gateway in front may want a login for every page: then the header alone decides.
        return error.code in (401, 403) or (None if error.code >= 500 else False)
    except (OSError, HTTPException, ValueError):
        return None


def _headers(token: SecretStr | None) -> dict[str, str]:
    """Return the headers that MLflow's client sends: a user name and a password go before a token."""
    headers = {}
    if workspace := os.environ.get("MLFLOW_WORKSPACE", "").strip():
        headers[_WORKSPACE_HEADER] = workspace
    if token is not None:
        return {**headers, "authorization": f"Bearer {token.get_secret_value().strip()}"}
    stored = _credentials_file()
    user = os.environ.get("MLFLOW_TRACKING_USERNAME") or stored.get("mlflow_tracking_username")
    password = os.environ.get("MLFLOW_TRACKING_PASSWORD") or stored.get("mlflow_tracking_password")
    if user and password:
        headers["authorization"] = basic_auth(user, password)
    elif given := os.environ.get("MLFLOW_TRACKING_TOKEN", "").strip():
        headers["authorization"] = f"Bearer {given}"
    return headers


def _credentials_file() -> Mapping[str, str]:
    """Return the section ``[mlflow]`` of the credentials file; empty without a readable file."""
    config = configparser.ConfigParser(interpolation=None)
    try:
        config.read(Path.home() / ".mlflow" / "credentials")
    except (OSError, RuntimeError, UnicodeError, configparser.Error):
        return {}
    return dict(config["mlflow"]) if "mlflow" in config else {}


def _is_http(url: str) -> bool:
    return urlsplit(url).scheme in ("http", "https")
