"""Certificates that the system does not know."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from rageval_hooks.errors import JudgeRejectedError
from tests.judges.helpers import GOOD, StillClock, ask, failure, judge_of
from tests.judges.server import JudgeServer, answer


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for 127.0.0.1; its key is next to it, in ``key.pem``."""
    directory = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a judge of our own")])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), True)
    )
    path = directory / "certificate.pem"
    path.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    (directory / "key.pem").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[JudgeServer]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with JudgeServer(tls=context) as server:
        server.otherwise(answer(GOOD))
        yield server


def test_a_self_signed_certificate_is_a_clear_failure(secure: JudgeServer, clock: StillClock) -> None:
    """Not tried again, and the message says what can be done about it."""
    found = failure(judge_of(secure, clock=clock), JudgeRejectedError)
    assert f"the certificate of {secure.url} is not trusted (self-signed certificate)" in found.message
    assert "pass ca_bundle, set SSL_CERT_FILE, or pass an http_client" in found.message
    assert found.details["attempts"] == 1


def test_a_ca_bundle_makes_it_trusted(secure: JudgeServer, certificate: Path) -> None:
    """The certificate itself serves as the bundle."""
    assert ask(judge_of(secure, ca_bundle=certificate)).value.grade == 3


def test_the_environments_bundle_makes_it_trusted(
    secure: JudgeServer, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``SSL_CERT_FILE`` holds for the whole process."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    assert ask(judge_of(secure)).value.grade == 3


def test_a_custom_http_client_can_trust_the_certificate(secure: JudgeServer, certificate: Path) -> None:
    """A custom client covers every other TLS setting."""
    context = ssl.create_default_context(cafile=certificate)
    assert ask(judge_of(secure, http_client=lambda: openai.DefaultAsyncHttpxClient(verify=context))).value.grade == 3


def test_https_to_a_plain_server_is_a_connection_error(server: JudgeServer, clock: StillClock) -> None:
    """The message distinguishes a wrong scheme from a wrong certificate."""
    from rageval_hooks.errors import JudgeUnavailableError

    judge = judge_of(server, base_url=server.url.replace("http:", "https:"), clock=clock, max_retries=0)
    assert "no TLS connection" in failure(judge, JudgeUnavailableError).message
