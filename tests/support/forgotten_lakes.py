"""Lakes from which events are forgotten, and where something of these still stands."""

import re
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from delta.tables import DeltaTable

from pipelines.cli.forget import summary_of
from pipelines.delta.io import read
from pipelines.delta.table_properties import TOPIC_ID, set_table_property, to_hex
from pipelines.lineage.key_filter import asked_key
from pipelines.lineage.searches import OfKey, again
from pipelines.steps.forget import Forgotten, ForgottenCounts, forget, forget_and_rebuild
from pipelines.steps.serving import read_serving
from tests.support.lakes import Lake, Record
from tests.support.nights import LATER, ONE, on, run, stream

WHO = "N-FORGET-ME"
ASKED = ("carrier=UA", "flight=1")
DECIDED = ("batch/flights", "ops/certifications")
STREAMED = ("speed/flights", "quarantine/flights", "ops/checkpoints/flights")
LAYERS = ("bronze", "quarantine", "speed", "batch")


def forget_key(lake: Lake, *given: str, dry_run: bool = False) -> tuple[Forgotten, dict[str, Any]]:
    search = OfKey(lake.pipeline, asked_key(lake.contract, given))
    result = forget_and_rebuild(lake.pipeline, "forget", search, dry_run=dry_run)
    return result.forgotten, summary_of(lake.config, result, dry_run=dry_run)


def forget_again(lake: Lake) -> ForgottenCounts:
    search = again(lake.pipeline)
    assert search is not None
    return forget(lake.pipeline, "again", search, dry_run=False).counts


def of(day: int, number: int, **changes: Any) -> Record:
    """A departure that is to be forgotten."""
    return on(day, number, tailnum=WHO, **changes)


def fill(lake: Lake) -> None:
    """A certified day and an uncertified one, both with events of flight 1, broken ones among them."""
    forged = Record(None, headers=[("oncelake.forgotten", b"1"), ("_forgotten", b"1")])
    lake.ingest(
        [
            *(of(1, 1), on(1, 2), of(1, 1, sent=LATER), of(1, 1, distance=-1.0)),
            *(Record(b"poison"), forged, of(1, 7)),
        ]
    )
    # As ingest does it with Kafka's id.
    set_table_property(lake.spark, lake.config.table("bronze"), TOPIC_ID, to_hex("the topic's id"))
    lake.ingest([of(2, 1), on(2, 3)])
    stream(lake)
    run(lake, ONE)


def layers(lake: Lake) -> list[int]:
    """How many rows each layer has."""
    return [lake.count(layer) for layer in LAYERS]


def served(lake: Lake) -> list[int]:
    return sorted(row["flight"] for row in read_serving(lake.pipeline).collect())


def checks(lake: Lake, day: date) -> dict[str, str]:
    """The outcome of each integrity check in the newest run on a day."""
    rows = read(lake.spark, lake.config.ops_table("validation_results")).where(f"day = DATE'{day}'")
    ordered = rows.where("kind = 'integrity'").orderBy("checked_at")
    return {row["name"]: row["status"] for row in ordered.collect()}


def values_kept(lake: Lake) -> set[str]:
    """What the results of the night before quote, but for counts."""
    rows = read(lake.spark, lake.config.ops_table("validation_results")).where("run_id = 'run'")
    said = rows.selectExpr("result", "nullif(detail, '') AS detail").collect()
    return {each for row in said for each in row if each is not None}


def who_is_in(lake: Lake, layer: str) -> int:
    """Rows in which the name still stands, as a column or in the bytes of a record."""
    value = "CAST(value AS STRING)" if layer in ("bronze", "quarantine") else "tailnum"
    return lake.table(layer).where(f"contains({value}, '{WHO}')").count()


def files_with(folder: Path) -> list[str]:
    """The data files, those of the change feed among them, in which the name still stands."""
    found = []
    for path in folder.rglob("*.parquet"):
        if path.parent.name != "_delta_log":
            columns = pq.ParquetFile(path).read().to_pydict().values()
            if any(WHO in str(value) for values in columns for value in values):
                found.append(str(path))
    return found


def said_by_commits(lake: Lake, layer: Any) -> set[str]:
    """The operations on a table, and the words of their conditions."""
    history = DeltaTable.forPath(lake.spark, lake.config.table(layer)).history().collect()
    said = set[str]()
    for row in history:
        said |= {row["operation"], *re.findall("[a-z_]+", str(row["operationParameters"].get("predicate")))}
    return said
