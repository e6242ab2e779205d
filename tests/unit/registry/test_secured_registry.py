"""A registry that demands TLS and a login is asked with them; a wrong login or certificate is told as one."""

import base64
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from pydantic import SecretStr

from pipelines.config.model import RegistryConfig
from pipelines.errors import InfrastructureError
from pipelines.registry.confluent import ConfluentRegistry
from tests.support.secured_broker import Authority

LOGIN = "reader:hush-hush"
ANSWER = json.dumps({"schema": '{"type": "string"}'})


class Secured(BaseHTTPRequestHandler):
    login = LOGIN

    def do_GET(self) -> None:
        expected = f"Basic {base64.b64encode(self.login.encode()).decode()}"
        is_known = self.headers.get("Authorization") == expected
        text = ANSWER if is_known else json.dumps({"error_code": 401, "message": "Unauthorized"})
        self.send_response(200 if is_known else 401)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_request(self, code: Any = "", size: Any = "") -> None:
        pass


@dataclass
class Site:
    """A registry, as clients reach it."""

    url: str
    authority: Path

    def client(self, login: str = LOGIN, authority: Path | None = None) -> ConfluentRegistry:
        config = RegistryConfig(
            url=self.url,
            options={"ssl.ca.location": str(authority or self.authority), "max.retries": "1"},
            secrets={"basic.auth.user.info": SecretStr(login)},
        )
        return ConfluentRegistry(config)


def served(folder: Path, *, has_expired: bool) -> Iterator[Site]:
    authority = Authority(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue(folder / "server.pem", has_expired=has_expired))
    with ThreadingHTTPServer(("127.0.0.1", 0), Secured) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        # What clients say of certificates is theirs to tell.
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Site(f"https://127.0.0.1:{server.server_address[1]}", authority.file)
        server.shutdown()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(Secured, "login", LOGIN)
    yield from served(tmp_path, has_expired=False)


@pytest.fixture
def expired(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "expired"
    folder.mkdir()
    yield from served(folder, has_expired=True)


def refusal(registry: ConfluentRegistry) -> str:
    with pytest.raises(InfrastructureError) as refused:
        registry.schema("1")
    assert "hush" not in str(refused.value)
    assert base64.b64encode(LOGIN.encode()).decode() not in str(refused.value)
    return str(refused.value)


def test_a_login_is_taken_until_it_is_changed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    found = site.client().schema("1")
    assert found is not None
    assert found.text == '{"type": "string"}'
    assert "answers 401: Unauthorized" in refusal(site.client("reader:hush"))
    monkeypatch.setattr(Secured, "login", "reader:hush-rotated")
    assert "answers 401: Unauthorized" in refusal(site.client())
    assert site.client("reader:hush-rotated").schema("1") == found


def test_a_certificate_that_has_expired_or_that_nobody_knows_is_told(
    site: Site, expired: Site, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other").file
    assert "certificate verify failed" in refusal(site.client(authority=other))
    assert "certificate has expired" in refusal(expired.client())
