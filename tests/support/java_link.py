"""The connection to Java, after a test that was ended in the middle of a call."""

from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

_ASKED: Final = 4711


def drop_if_out_of_step() -> None:
    """Closes this thread's connection to Java if it holds the answer to an earlier call.

    Py4J does so after Ctrl-C, but not where a time limit of pytest ends a test. Each later call would get the
    answer to the one before it, and all tests to come would fail for the one that took too long.
    """
    context: Any = SparkContext._active_spark_context
    if context is None:
        return
    try:
        is_in_step = context._jvm.java.lang.Integer.parseInt(str(_ASKED)) == _ASKED
    # What an answer to another call does to Py4J: it looks up types that are none.
    except (Py4JError, LookupError, TypeError, ValueError, AttributeError):
        is_in_step = False
    if not is_in_step and (connection := context._gateway._gateway_client.get_thread_connection()):
        connection.close(reset=True)
