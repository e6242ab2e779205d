"""What Spark logs of an error has no stack trace, also where Python has raised it."""

from typing import Any

from pyspark.sql import SparkSession

from pipelines.resources import resource

OF_PYTHON = (
    'An exception was raised: Traceback (most recent call last):\n  File "x.py", line 1\n\tat X.y(X.java:1)'
)


def logged(jvm: Any, thrown: str | None) -> list[str]:
    """The lines of an error, by the layout of our configuration."""
    configured = jvm.java.util.Properties()
    reader = jvm.java.io.FileReader(str(resource("conf/log4j2.properties")))
    configured.load(reader)
    reader.close()
    core, layout = jvm.org.apache.logging.log4j.core, "appender.console.layout."
    builder = core.layout.PatternLayout.newBuilder().withPattern(configured.getProperty(f"{layout}pattern"))
    always = configured.getProperty(f"{layout}alwaysWriteExceptions") != "false"
    message = jvm.org.apache.logging.log4j.message.SimpleMessage("Query terminated")
    event = core.impl.Log4jLogEvent.newBuilder().setLoggerName("a.b.Executor").setMessage(message)
    if thrown is not None:
        event = event.setThrown(jvm.java.lang.RuntimeException(thrown))
    text = builder.withAlwaysWriteExceptions(always).build().toSerializable(event.build())
    return str(text).splitlines()


def test_an_error_has_its_message_and_the_first_line_of_its_exception(spark: SparkSession) -> None:
    jvm = spark.sparkContext._jvm
    (plain,) = logged(jvm, None)
    assert plain.endswith("Spark: Executor: Query terminated")
    for thrown in ("no such file", OF_PYTHON):
        _, exception = logged(jvm, thrown)
        assert exception == f"java.lang.RuntimeException: {thrown.splitlines()[0]}"
