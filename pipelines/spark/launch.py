"""Start the driver's Java so that a terminal shows what a job says, and of Spark only errors."""

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from pipelines.resources import resource

# What spark-submit adds to the options of its Java; options of the user come behind these, and win.
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
_LOG_FILES: Final = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.yml", "log4j2.json")
# Java says so whatever its settings: Spark starts it with that module.
_SAID_OF_MODULES: Final = b"WARNING: Using incubator modules: "
_STANDARD_ERROR: Final = 2
_LAST_WORDS_S: Final = 2


def launch(settings: Mapping[str, str]) -> None:
    """Start the driver's Java, unless this process has one, with a log that shows errors alone.

    A session that is made then has this Java. A configuration of Log4j that the user has given, among the
    options of Java or in the folder of Spark's configuration, is kept.

    Args:
        settings: The session's settings.

    Raises:
        PySparkRuntimeError: Java ended before it was up; it has said why on standard error.
    """
    if SparkContext._gateway is not None:
        return
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    read_end, standard_error = os.pipe()
    passing_on = threading.Thread(
        target=_pass_on, args=(os.fdopen(read_end, "rb"),), name="java", daemon=True
    )
    passing_on.start()
    try:
        gateway = _started(conf, standard_error)
    except PySparkRuntimeError:
        passing_on.join(_LAST_WORDS_S)
        raise
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def _started(conf: SparkConf, standard_error: int) -> Any:
    """Start Java as PySpark itself does, with a standard error of our own, which is closed on this side."""
    try:
        with _quiet():
            popen: dict[str, Any] = {"stderr": standard_error}
            return launch_gateway(conf, popen_kwargs=popen)  # type: ignore[no-untyped-call]
    finally:
        os.close(standard_error)


@contextmanager
def _quiet() -> Iterator[None]:
    """Let a Java that is started meanwhile have our configuration of Log4j, unless there is another."""
    given = os.environ.get(_OPTIONS)
    if not _has_log_file():
        ours = f'"-Dlog4j2.configurationFile={resource("conf/log4j2.properties")}"'
        os.environ[_OPTIONS] = f"{ours} {given or ''}".strip()
    try:
        yield
    finally:
        os.environ.pop(_OPTIONS, None)
        if given is not None:
            os.environ[_OPTIONS] = given


def _has_log_file() -> bool:
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(home, "conf"))
    return any((folder / name).is_file() for name in _LOG_FILES)


def _pass_on(lines: BinaryIO) -> None:
    """Write what Java says to this process' standard error, but for the line about modules."""
    with lines:
        for line in lines:
            if not line.startswith(_SAID_OF_MODULES):
                # Whoever read it may be gone. Java must not wait for it.
                with suppress(OSError):
                    os.write(_STANDARD_ERROR, line)
