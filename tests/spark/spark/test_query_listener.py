"""A listener is told of queries what Spark tells: the report of each micro-batch is the one of the query."""

import json
import threading
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from pipelines.spark.query_listener import QueryListener, listening


class Heard(QueryListener):
    """What one listener was told."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.reports: list[dict[str, Any]] = []
        self.gone = threading.Event()

    def started(self, run_id: str) -> None:
        self.begun.append(run_id)

    def progressed(self, progress: dict[str, Any]) -> None:
        self.reports.append(progress)

    def ended(self, run_id: str) -> None:
        self.gone.set()


def run_once(spark: SparkSession, folder: Path) -> Any:
    spark.sql("SELECT 1 AS a").write.mode("append").parquet(str(folder / "in"))
    rows = spark.readStream.schema("a int").parquet(str(folder / "in"))
    counted = rows.groupBy("a").count()
    query = (
        counted.writeStream.format("noop")
        .outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return query


def test_it_is_told_of_start_reports_and_end(spark: SparkSession, tmp_path: Path) -> None:
    heard = Heard()
    with listening(spark, heard):
        query = run_once(spark, tmp_path)
        assert heard.gone.wait(30)
    assert heard.begun == [str(query.runId)]
    reports = [json.loads(report.json) for report in query.recentProgress]
    assert [report for report in heard.reports if report["numInputRows"]] == reports
    assert reports[0]["stateOperators"][0]["numRowsUpdated"] == 1


def test_afterwards_it_is_told_of_nothing(spark: SparkSession, tmp_path: Path) -> None:
    heard, other = Heard(), Heard()
    with listening(spark, heard):
        pass
    with listening(spark, other):
        run_once(spark, tmp_path)
        assert other.gone.wait(30)
    assert not heard.begun
    assert not heard.reports
