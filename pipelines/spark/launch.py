"""Start the driver's Java. A terminal shows what a job says, and of Spark only errors; `ps`, no secret."""

import os
import shlex
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyspark
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.java_gateway import launch_gateway

from pipelines.errors import ConfigError
from pipelines.resources import resource
from pipelines.runtime.java_properties import property_line

# What spark-submit adds to the options of its Java; options of the user come behind these, and win.
_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
# Options of the spark-submit that PySpark calls.
_ARGUMENTS: Final = "PYSPARK_SUBMIT_ARGS"
_HOME: Final = "SPARK_HOME"
_NO_ARGUMENTS: Final = "pyspark-shell"
_LOG_FILES: Final = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.yml", "log4j2.json")
# Java says so whatever its settings: Spark starts it with that module.
_SAID_OF_MODULES: Final = b"WARNING: Using incubator modules: "
_STANDARD_ERROR: Final = 2
_LAST_WORDS_S: Final = 2


def launch(settings: Mapping[str, str], *, verbose: bool = False) -> None:
    """Start the driver's Java, unless this process has one.

    A session that is made then has this Java. PySpark itself would write all settings on its command line,
    which everyone on the machine can read; here a file has them, which only its user can read, and which is
    removed once Java has read it.

    Args:
        settings: The session's settings.
        verbose: Whether Spark logs as it likes. If not, the log shows errors alone, and a configuration of
            Log4j that the user has given, among the options of Java or in the folder of Spark's
            configuration, is kept.

    Raises:
        ConfigError: A variable of Spark's names another Spark, or none, or options that cannot be read.
        PySparkRuntimeError: Java ended before it was up; it has said why on standard error.
    """
    if SparkContext._gateway is not None:
        return
    require_usable_variables()
    conf = SparkConf(loadDefaults=False)
    for key, value in settings.items():
        conf.set(key, value)
    with _in_a_file(settings):
        gateway = _started({}) if verbose else _started_quietly()
    SparkContext._ensure_initialized(gateway=gateway, conf=conf)


def require_usable_variables() -> None:
    """Refuse what Java could not be started with.

    Raises:
        ConfigError: A variable of Spark's names another Spark, or none, or options that cannot be read.
    """
    _require_same_spark()
    _require_options()


def _require_same_spark() -> None:
    """Refuse a Spark of another version, whose Java would fail over classes that differ."""
    home, version = os.environ.get(_HOME), pyspark.__version__
    if not home:
        return
    cores = [path.name for path in Path(home, "jars").glob("spark-core_*.jar")]
    line = version.rpartition(".")[0]
    if not Path(home, "bin", "spark-submit").is_file():
        actual = "no Spark there"
    elif cores and not any(f"-{line}." in name for name in cores):
        actual = f"{cores[0]} there"
    else:
        return
    raise ConfigError(
        f"${_HOME}: found {home}, and {actual}; expected the folder of Spark {line}, or nothing: unset it,"
        f" since the Python package pyspark {version} brings its own"
    )


def _require_options() -> None:
    try:
        shlex.split(os.environ.get(_ARGUMENTS, ""))
    except ValueError as error:
        raise ConfigError(
            f"${_ARGUMENTS}: found options that cannot be read ({error}); close the quotes, or unset it"
        ) from None


def _started(popen: dict[str, Any]) -> Any:
    """Start Java as PySpark itself does.

    Args:
        popen: Further arguments of its process.
    """
    return launch_gateway(popen_kwargs=popen)  # type: ignore[no-untyped-call]


def _started_quietly() -> Any:
    """Start Java with a standard error of our own, which is closed on this side."""
    read_end, standard_error = os.pipe()
    passing_on = threading.Thread(
        target=_pass_on, args=(os.fdopen(read_end, "rb"),), name="java", daemon=True
    )
    passing_on.start()
    try:
        try:
            with _quiet():
                return _started({"stderr": standard_error})
        finally:
            os.close(standard_error)
    except PySparkRuntimeError:
        passing_on.join(_LAST_WORDS_S)
        raise


@contextmanager
def _in_a_file(settings: Mapping[str, str]) -> Iterator[None]:
    """Let a Java that is started meanwhile find settings in a file, beside Spark's own defaults."""
    with tempfile.NamedTemporaryFile("w", prefix="oncelake-", suffix=".conf", encoding="ascii") as file:
        file.writelines(property_line(key, value) for key, value in settings.items())
        file.flush()
        arguments = os.environ.get(_ARGUMENTS, _NO_ARGUMENTS)
        ours = shlex.join(["--load-spark-defaults", "--properties-file", file.name])
        with _variable(_ARGUMENTS, f"{ours} {arguments}"):
            yield


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Set an environment variable for a while."""
    given = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if given is not None:
            os.environ[name] = given


@contextmanager
def _quiet() -> Iterator[None]:
    """Let a Java that is started meanwhile have our configuration of Log4j, unless there is another."""
    ours = f'"-Dlog4j2.configurationFile={resource("conf/log4j2.properties")}"'
    given = os.environ.get(_OPTIONS, "")
    with nullcontext() if _has_log_file() else _variable(_OPTIONS, f"{ours} {given}".strip()):
        yield


def _has_log_file() -> bool:
    home = os.environ.get(_HOME) or Path(pyspark.__file__).parent
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
