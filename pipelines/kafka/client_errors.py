"""What a failure of Kafka's client in Java has come from."""

from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from pipelines.spark.failures import first_line

_PBES2: Final = (
    "; the private key is encrypted in a way that this Java does not know: encrypt it with"
    " 'openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES', or leave out the password and ssl.key.password"
)


def advice(said: str) -> str:
    """Return what to do about a failure whose text does not say so; nothing if it does."""
    return _PBES2 if "PBES2" in said else ""


def kafka_error_text(error: Py4JJavaError) -> str:
    """Return what lies at the bottom of a failure of the client."""
    *_, cause = causes(error)
    return first_line(str(cause.toString()))


def kinds(error: Py4JJavaError) -> Iterator[str]:
    """Yield the classes of a failure of the client and of what it came from."""
    return (str(cause.getClass().getName()) for cause in causes(error))


def causes(error: Py4JJavaError) -> Iterator[Any]:
    """Yield a failure of the client and what it came from, as Java has them."""
    cause = error.java_exception
    while cause is not None:
        yield cause
        cause = cause.getCause()
