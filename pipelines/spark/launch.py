"""Start the driver's Java so that a terminal shows what a job says, and of Spark only errors."""

import os
import threading
from collections.abc import Mapping
from typing import BinaryIO, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway

from pipelines.resources import resource

_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOG_SETTING: Final = "log4j2.configurationFile"
# Java says so whatever its settings: Spark starts it with that module.
_SAID_OF_MODULES: Final = b"WARNING: Using incubator modules: "
_STANDARD_ERROR: Final = 2


def launch(settings: Mapping[str, str]) -> None:
    """Start the driver's Java, unless this process has one, with a log that shows errors alone.

    A session that is made then has this Java.

    Args:
        settings: The session's settings. A configuration of Log4j among its Java options is kept.

    Raises:
        PySparkRuntimeError: Java ended before it was up; it has said why on standard error.
    """
    if SparkContext._gateway is not None:
        return
    given = settings.get(_OPTIONS, "")
    log = "" if _LOG_SETTING in given else f'"-D{_LOG_SETTING}={resource("conf/log4j2.properties")}" '
    conf = SparkConf(loadDefaults=False)
    for key, value in {**settings, _OPTIONS: f"{log}{given}".strip()}.items():
        conf.set(key, value)
    said, standard_error = os.pipe()
    threading.Thread(target=_pass_on, args=(os.fdopen(said, "rb"),), name="java-stderr", daemon=True).start()
    try:
        # It is what PySpark itself calls, with a standard error of our own.
        SparkContext._ensure_initialized(
            gateway=launch_gateway(conf, popen_kwargs={"stderr": standard_error}),  # type: ignore[no-untyped-call]
            conf=conf,
        )
    finally:
        os.close(standard_error)


def _pass_on(lines: BinaryIO) -> None:
    """Write what Java says to this process' standard error, but for the line about modules."""
    with lines:
        for line in lines:
            if not line.startswith(_SAID_OF_MODULES):
                os.write(_STANDARD_ERROR, line)
