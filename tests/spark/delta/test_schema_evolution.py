"""A contract grows while the stream lives: old and new producers mixed, a restart in between."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.types import DoubleType, FloatType, StringType, StructField, StructType

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import RowRule
from pipelines.delta.io import read
from pipelines.delta.tables import ensure_table, shape
from pipelines.fault_points import Point, armed
from pipelines.steps.serving import read_serving
from tests.support.lakes import Lake
from tests.support.nights import ONE, on, run, stream


def test_old_and_new_producers_share_a_topic_through_an_evolution(
    make_lake: Callable[..., Lake], small: DataContract
) -> None:
    narrow = [
        StructField(field.name, FloatType(), field.nullable) if field.name == "air_time" else field
        for field in small.schema
    ]
    old = make_lake(contract=replace(small, version="1.0.0", schema=StructType(narrow)))
    gate = StructField("gate", StringType())
    rules = (*small.row_rules, RowRule("gate", "pattern", "^[A-Z]"))
    looser = [StructField(f.name, f.dataType, f.nullable or f.name == "dest") for f in small.schema]
    newer = replace(small, version="1.1.0", schema=StructType([*looser, gate]), row_rules=rules)

    # A new producer is there before the contract: what it says more is kept in bronze.
    old.ingest([on(1, 1), on(1, 2, gate="A2")])
    stream(old)
    new = old.variant(contract=newer)
    new.ingest([on(1, 3), on(1, 4, gate="B4"), on(1, 2, gate="A2"), on(1, 5, gate="?")])
    new.ingest([on(3, 9, dest=None)])
    counts = stream(new)["counts"]
    assert (counts["rows"], counts["duplicates"], counts["quarantined"]) == (3, 1, 1)
    rows = {row["flight"]: row["gate"] for row in read_serving(new.pipeline).toLocalIterator()}
    assert rows == {1: None, 2: None, 3: None, 4: "B4", 9: None}
    assert new.table("speed").schema["air_time"].dataType == DoubleType()

    assert run(new, ONE)["days"] == {"2013-01-01": "certified"}
    rows = {row["flight"]: row["gate"] for row in read_serving(new.pipeline).toLocalIterator()}
    assert rows == {1: None, 2: "A2", 3: None, 4: "B4", 9: None}


def test_of_two_that_add_the_same_columns_at_once_both_go_on(spark: SparkSession, tmp_path: Path) -> None:
    table, columns = str(tmp_path / "table"), list[list[str]]()
    ensure_table(spark, table, shape("a int"))

    def the_other_first() -> None:
        columns.append(read(spark, table).columns)
        if len(columns) == 1:
            ensure_table(spark, table, shape("a int, b string"))

    with armed(Point.COLUMNS_COMPARED, the_other_first):
        ensure_table(spark, table, shape("a int, b string"))
    # The first has compared, then the other, and the first once more.
    assert columns == [["a"], ["a"], ["a", "b"]]
    assert read(spark, table).columns == ["a", "b"]
