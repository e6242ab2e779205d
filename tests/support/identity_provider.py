"""A provider of identities (OpenID Connect) that gives signed tokens to clients who know their secret."""

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Final
from urllib.parse import unquote

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE: Final = "kafka"
ISSUER: Final = "https://login.example.com"
_KEY: Final = "the only one"


@dataclass
class IdentityProvider:
    """A running provider.

    Attributes:
        port: where tokens are given, over TLS.
        keys_port: where the keys are that sign them, without.
        clients: who gets tokens: a secret for each name. The name is the subject.
        lifetime_s: how long tokens are valid; before 0, they have expired.
        audience: for whom they are.
        signatures: the ends of all tokens that were given.
        is_down: whether it answers that it is out of order.
    """

    port: int = 0
    keys_port: int = 0
    clients: dict[str, str] = field(default_factory=dict)
    lifetime_s: float = 3600.0
    audience: str = AUDIENCE
    signatures: list[str] = field(default_factory=list)
    is_down: bool = False
    _key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))

    @property
    def tokens_url(self) -> str:
        """Where clients get tokens."""
        return f"https://127.0.0.1:{self.port}/token"

    @property
    def keys_url(self) -> str:
        """Where brokers get the keys by which they know tokens."""
        return f"http://127.0.0.1:{self.keys_port}/keys"

    def answer(self, authorization: str) -> tuple[int, dict[str, Any]]:
        """What a client is answered, by who it says that it is."""
        if self.is_down:
            return 503, {"error": "temporarily_unavailable"}
        name, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if self.clients.get(unquote(name)) != unquote(secret):
            return 401, {"error": "invalid_client", "error_description": "who are you?"}
        return 200, {"access_token": self._token(unquote(name)), "token_type": "Bearer"}

    def keys(self) -> dict[str, Any]:
        """The keys that sign, as JSON Web Keys."""
        numbers = self._key.public_key().public_numbers()
        key = {"kty": "RSA", "kid": _KEY, "use": "sig", "alg": "RS256"}
        return {"keys": [{**key, "n": _encoded(_bytes(numbers.n)), "e": _encoded(_bytes(numbers.e))}]}

    def _token(self, subject: str) -> str:
        now = time.time()
        claims = {"iss": ISSUER, "aud": self.audience, "sub": subject, "scope": "all"}
        times = {"iat": int(now) - 600, "exp": int(now + self.lifetime_s)}
        parts = ({"alg": "RS256", "typ": "JWT", "kid": _KEY}, {**claims, **times})
        signed = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
        signature = _encoded(self._key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))
        self.signatures.append(signature)
        return f"{signed}.{signature}"


def _bytes(number: int) -> bytes:
    return number.to_bytes((number.bit_length() + 7) // 8)


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@contextmanager
def identity_provider(keys: Path) -> Iterator[IdentityProvider]:
    """Runs a provider for the length of a block.

    Args:
        keys: its own key and certificate.
    """
    provider = IdentityProvider()

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._send(*provider.answer(self.headers.get("Authorization", "")))

        def do_GET(self) -> None:
            self._send(200, provider.keys())

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys)
    with ExitStack() as stack:
        tokens, known = (
            stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Answering)) for _ in range(2)
        )
        tokens.socket = context.wrap_socket(tokens.socket, server_side=True)
        # What clients say of certificates is theirs to tell.
        tokens.handle_error = lambda *_: None  # type: ignore[method-assign]
        provider.port, provider.keys_port = tokens.server_address[1], known.server_address[1]
        for server in (tokens, known):
            Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
            stack.callback(server.shutdown)
        yield provider
