"""A door before the double of S3, which opens to requests that are signed with keys it knows.

It computes each signature (AWS Signature Version 4) again, and refuses as Amazon's store does: with the same
codes, no word in answers to HEAD, and the wrong signature and what was signed in the answer about it.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

import hashlib
import hmac
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

Environ = dict[str, Any]
Application = Callable[[Environ, Callable[..., Any]], Iterable[bytes]]

_SCHEME: Final = "AWS4-HMAC-SHA256"
_AUTHORIZATION: Final = re.compile(
    rf"{_SCHEME} Credential=(?P<key>[^/]+)/(?P<scope>[^,]+), ?SignedHeaders=(?P<headers>[^,]+),"
    r" ?Signature=(?P<signature>[0-9a-f]+)"
)
_NOT_ALLOWED: Final = ("403 Forbidden", "AccessDenied", "Access Denied")
_UNKNOWN: Final = (
    "403 Forbidden",
    "InvalidAccessKeyId",
    "The AWS Access Key Id you provided does not exist in our records.",
)
_MISMATCH: Final = (
    "403 Forbidden",
    "SignatureDoesNotMatch",
    "The request signature we calculated does not match the signature you provided.",
)
_NO_TOKEN: Final = (
    "400 Bad Request",
    "InvalidToken",
    "The provided token is malformed or otherwise invalid.",
)
_EXPIRED: Final = ("400 Bad Request", "ExpiredToken", "The provided token has expired.")


@dataclass(frozen=True)
class Keys:
    """What a client signs with.

    Attributes:
        access: Names who signs; no secret.
        secret: Signs.
        token: Goes along with keys that last for a while, and with no others.
    """

    access: str
    secret: str
    token: str = ""


@dataclass
class Door:
    """Who may come in, and who came.

    Attributes:
        valid: The keys that open it.
        expired: Keys that once did.
        is_readonly: Whether nobody may write.
        entered: By whom requests that were let in were signed: their access keys, in order.
        refused: The code of each refusal.
        signatures: All that has come, right or wrong, for nobody may write them down.
    """

    valid: set[Keys] = field(default_factory=set)
    expired: set[Keys] = field(default_factory=set)
    is_readonly: bool = False
    entered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    signatures: set[str] = field(default_factory=set)

    def expire(self, keys: Keys) -> None:
        """Lets keys open it no more."""
        self.expired.add(keys)
        self.valid.remove(keys)

    def before(self, application: Application) -> Application:
        """An application that only those who may come in get to."""

        def answer(environ: Environ, start_response: Callable[..., Any]) -> Iterable[bytes]:
            # The double's own way to be emptied.
            refusal = None if environ["PATH_INFO"].startswith("/moto-api/") else self._refusal(environ)
            if not refusal:
                return application(environ, start_response)
            status, code, _ = refusal
            self.refused.append(code)
            body = b"" if environ["REQUEST_METHOD"] == "HEAD" else _body(refusal, environ)
            headers = [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))]
            # What the client still sends would be taken for its next request.
            start_response(status, [*headers, ("Connection", "close")])
            return [body]

        return answer

    def _refusal(self, environ: Environ) -> tuple[str, str, str] | None:
        signed = _AUTHORIZATION.fullmatch(environ.get("HTTP_AUTHORIZATION", ""))
        if signed is None:
            return _NOT_ALLOWED
        self.signatures.add(signed["signature"])
        keys = next((keys for keys in self.valid | self.expired if keys.access == signed["key"]), None)
        if keys is None:
            return _UNKNOWN
        found = {
            _MISMATCH: signed["signature"] != _signature(environ, signed, keys.secret),
            _NO_TOKEN: environ.get("HTTP_X_AMZ_SECURITY_TOKEN", "") != keys.token,
            _EXPIRED: keys in self.expired,
            _NOT_ALLOWED: self.is_readonly and environ["REQUEST_METHOD"] not in ("GET", "HEAD"),
        }
        refusal = next((refusal for refusal, is_found in found.items() if is_found), None)
        if refusal is None:
            self.entered.append(keys.access)
        return refusal


def _canonical(environ: Environ, names: str) -> str:
    """What of a request is signed, by the names of its headers that are."""
    url = urlsplit(environ["REQUEST_URI"])
    query = (name if "=" in name else f"{name}=" for name in sorted(filter(None, url.query.split("&"))))
    lines = [f"{name}:{' '.join(_header(environ, name).split())}" for name in names.split(";")]
    digest = environ["HTTP_X_AMZ_CONTENT_SHA256"]
    return "\n".join([environ["REQUEST_METHOD"], url.path, "&".join(query), *lines, "", names, digest])


def _header(environ: Environ, name: str) -> str:
    variable = name.upper().replace("-", "_")
    return str(
        environ[variable if variable.startswith("CONTENT_") and variable in environ else f"HTTP_{variable}"]
    )


def _signature(environ: Environ, signed: "re.Match[str]", secret: str) -> str:
    canonical = hashlib.sha256(_canonical(environ, signed["headers"]).encode()).hexdigest()
    text = "\n".join([_SCHEME, environ["HTTP_X_AMZ_DATE"], signed["scope"], canonical])
    key = f"AWS4{secret}".encode()
    for part in (*signed["scope"].split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


def _body(refusal: tuple[str, str, str], environ: Environ) -> bytes:
    _, code, message = refusal
    further = ""
    signed = _AUTHORIZATION.fullmatch(environ.get("HTTP_AUTHORIZATION", ""))
    if signed and code != "AccessDenied":
        further = f"<AWSAccessKeyId>{escape(signed['key'])}</AWSAccessKeyId>"
    if signed and code == "SignatureDoesNotMatch":
        canonical = escape(_canonical(environ, signed["headers"]))
        further += f"<SignatureProvided>{signed['signature']}</SignatureProvided>"
        further += f"<CanonicalRequest>{canonical}</CanonicalRequest>"
    if code in ("ExpiredToken", "InvalidToken"):
        token = escape(environ.get("HTTP_X_AMZ_SECURITY_TOKEN", ""))
        further += f"<Token-0>{token}</Token-0>"
    text = f"<Error><Code>{code}</Code><Message>{message}</Message>{further}<RequestId>1</RequestId></Error>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}'.encode()
