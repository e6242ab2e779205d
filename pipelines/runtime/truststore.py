"""Let a Java that brings its own certificates trust what the rest of the machine trusts."""

import hashlib
import ssl
import struct
from pathlib import Path

# The password that Java's own file has; it guards nothing, the certificates are public.
_PASSWORD = "changeit"  # noqa: S105
_MAGIC, _VERSION, _TRUSTED = 0xFEEDFEED, 2, 2


def write_truststore(path: Path) -> list[str]:
    """Write the certificate authorities that Python's TLS uses on this machine as a Java key store.

    Behind a proxy with a certificate of its own, pip already works by them (``SSL_CERT_FILE`` or the system's
    folder), while the Java of a Python package knows only the public authorities.

    Args:
        path: the file to write.

    Returns:
        The Java options that make use of it; none, and no file, when the machine has no authorities to give.
    """
    authorities = _authorities()
    if not authorities:
        return []
    body = struct.pack(">III", _MAGIC, _VERSION, len(authorities))
    for number, certificate in enumerate(authorities):
        body += struct.pack(">I", _TRUSTED) + _text(f"authority-{number}") + struct.pack(">Q", 0)
        body += _text("X.509") + struct.pack(">I", len(certificate)) + certificate
    salted = _PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body
    path.write_bytes(body + hashlib.sha1(salted, usedforsecurity=False).digest())
    return [f"-Djavax.net.ssl.trustStore={path}", f"-Djavax.net.ssl.trustStorePassword={_PASSWORD}"]


def _authorities() -> list[bytes]:
    """The certificates in DER; those of a folder too, which OpenSSL itself only reads on demand."""
    context = ssl.create_default_context()
    folder = ssl.get_default_verify_paths().capath
    for file in sorted(Path(folder).glob("*.pem")) if folder else []:
        try:
            context.load_verify_locations(file)
        except (OSError, ssl.SSLError):  # a dangling link or a file of another kind: not an authority
            continue
    return context.get_ca_certs(binary_form=True)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">H", len(encoded)) + encoded
