"""Spark drops events that its queue has no room for; a task whose end is lost does not run for ever."""

from typing import Any, Final

import pytest
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

UNTOLD_MS: Final = 120_000
# Small numbers would come to Java as integers, and tasks are counted by longs.
FIRST: Final = 1 << 40
SECOND: Final = FIRST + 1


class Clock:
    """A clock that stands still, in Java as here."""

    def __init__(self) -> None:
        self.ms = 1_000

    def getAsLong(self) -> int:  # noqa: N802 - Java's name
        return self.ms

    class Java:
        implements: Final = ["java.util.function.LongSupplier"]


class Tasks:
    """What tells a meter of tasks, as Spark does."""

    def __init__(self, spark: SparkSession) -> None:
        gateway: Any = spark.sparkContext._gateway
        ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
        self._jvm = gateway.jvm
        self.clock = Clock()
        self.meter = self._jvm.oncelake.watch.TaskMeter(self.clock, UNTOLD_MS)

    @property
    def running(self) -> int:
        return int(self.meter.signs()[1])

    def begin(self, task: int) -> None:
        scheduler = self._jvm.org.apache.spark.scheduler
        self.meter.onTaskStart(scheduler.SparkListenerTaskStart(3, 0, self._info(task)))

    def end(self, task: int) -> None:
        success = getattr(getattr(self._jvm.org.apache.spark, "Success$"), "MODULE$")
        ended = self._jvm.org.apache.spark.scheduler.SparkListenerTaskEnd
        self.meter.onTaskEnd(ended(3, 0, "ResultTask", success, self._info(task), None, None))

    def heartbeat(self, *tasks: int) -> None:
        scala, scheduler = self._jvm.scala, self._jvm.org.apache.spark.scheduler
        listed = self._jvm.java.util.ArrayList()
        for task in tasks:
            listed.add(scala.Tuple4(task, 3, 0, self._seq(self._jvm.java.util.ArrayList())))
        none = getattr(getattr(scala.collection.immutable, "Map$"), "MODULE$").empty()
        self.meter.onExecutorMetricsUpdate(
            scheduler.SparkListenerExecutorMetricsUpdate("1", self._seq(listed), none)
        )

    def _seq(self, listed: Any) -> Any:
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(listed).toSeq()

    def _info(self, task: int) -> Any:
        scheduler = self._jvm.org.apache.spark.scheduler
        place = scheduler.TaskLocality.PROCESS_LOCAL()
        return scheduler.TaskInfo(task, 0, 0, 0, 0, "1", "host", place, False)


@pytest.fixture
def tasks(spark: SparkSession) -> Tasks:
    return Tasks(spark)


def test_a_task_whose_end_is_lost_runs_no_longer_than_its_executor_tells_of_it(tasks: Tasks) -> None:
    tasks.begin(FIRST)
    tasks.begin(SECOND)
    assert tasks.running == 2
    tasks.end(SECOND)
    assert tasks.running == 1
    # For hours, if it takes so long.
    for _ in range(100):
        tasks.clock.ms += UNTOLD_MS
        tasks.heartbeat(FIRST)
        assert tasks.running == 1
    tasks.clock.ms += UNTOLD_MS
    tasks.heartbeat()
    assert tasks.running == 1
    tasks.clock.ms += 1
    assert tasks.running == 0


def test_a_task_whose_begin_is_lost_runs_once_its_executor_has_told_of_it(tasks: Tasks) -> None:
    tasks.heartbeat(FIRST)
    assert tasks.running == 1
    tasks.end(FIRST)
    assert tasks.running == 0


def test_a_heartbeat_that_is_told_of_after_the_end_begins_nothing_anew(tasks: Tasks) -> None:
    tasks.begin(FIRST)
    tasks.end(FIRST)
    tasks.heartbeat(FIRST)
    assert tasks.running == 0


def test_more_ends_than_begins_hide_no_task_that_runs(tasks: Tasks) -> None:
    # The begin of the second one is lost.
    tasks.begin(FIRST)
    tasks.end(SECOND)
    assert tasks.running == 1
