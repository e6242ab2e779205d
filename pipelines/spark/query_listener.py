"""Listens to streaming queries by few calls between Python and the JVM.

PySpark's own listener reads each metric of a report by a call of its own, and a query with state has many.
Spark has the whole report as JSON.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession


class QueryListener:
    """Is told of the streaming queries of a session, in a thread of Spark's.

    A query's `run_id` is that of `StreamingQuery.runId`, as text.
    """

    def started(self, run_id: str) -> None:
        """Take notice that a query has started, before its `start()` returns."""

    def progressed(self, progress: dict[str, Any]) -> None:
        """Take the report of a micro-batch, Spark's `StreamingQueryProgress` as parsed JSON."""

    def idle(self, run_id: str) -> None:
        """Take notice that a query had nothing to do."""

    def ended(self, run_id: str) -> None:
        """Take notice that a query has ended, whether it failed or not."""


def listen(spark: SparkSession, listener: QueryListener) -> Callable[[], None]:
    """Tell a listener of the session's queries from now on.

    Returns:
        A function that ends it.
    """
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    queries: Any = spark._jsparkSession.streams()
    streaming = gateway.jvm.org.apache.spark.sql.streaming
    listener_of_spark = streaming.PythonStreamingQueryListenerWrapper(_Python(listener))
    queries.addListener(listener_of_spark)
    return lambda: queries.removeListener(listener_of_spark)


@contextmanager
def listening(spark: SparkSession, listener: QueryListener) -> Iterator[None]:
    """Tell a listener of the session's queries while the block runs."""
    end = listen(spark, listener)
    try:
        yield
    finally:
        end()


class _Python:
    """What Spark calls (`PythonStreamingQueryListener`)."""

    def __init__(self, listener: QueryListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._listener.started(str(event.runId().toString()))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._listener.progressed(json.loads(event.progress().json()))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._listener.idle(str(event.runId().toString()))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self._listener.ended(str(event.runId().toString()))

    class Java:
        implements: Final = ["org.apache.spark.sql.streaming.PythonStreamingQueryListener"]
