"""What a failure of Kafka's client in Java has come from."""

from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError

from pipelines.spark.failures import first_line


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
