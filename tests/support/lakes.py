"""Lakes in temporary folders, whose bronze is filled by hand."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.delta.event_tables import ensure_speed
from pipelines.delta.io import append, read
from pipelines.delta.record_tables import BRONZE, ensure_bronze
from pipelines.delta.tables import shape, small_frame
from pipelines.delta.upkeep import compact, vacuum
from pipelines.records.decode import decode, valid
from pipelines.spark.pipeline import Pipeline
from tests.support.ledgers import copy_ledgers

EPOCH = datetime(2013, 1, 1, 12, tzinfo=UTC)
FLIGHT = {
    "carrier": "UA",
    "flight": 1545,
    "origin": "EWR",
    "scheduled_departure": "2013-01-01T05:15:00-05:00",
    "dest": "IAH",
    "tailnum": "N14228",
    "departure_delay": 2.0,
    "arrival_delay": 11.0,
    "air_time": 227.0,
    "distance": 1400.0,
}


def flight(**changes: Any) -> bytes:
    """The JSON of one departure, with some fields changed; a field set to `...` is left out."""
    fields = {name: value for name, value in {**FLIGHT, **changes}.items() if value is not ...}
    return json.dumps(fields).encode()


@dataclass
class Record:
    """One Kafka record: a value and, where they matter, its coordinates and times."""

    value: bytes | None
    partition: int = 0
    offset: int | None = None
    sent: datetime = EPOCH
    topic: str = "flights"
    key: bytes | None = b"k"
    headers: Sequence[tuple[str, bytes | None]] = (("attempt", b"1"),)


@dataclass
class Lake:
    """A lake in a temporary folder, whose bronze is filled by hand."""

    pipeline: Pipeline
    _offsets: dict[int, "itertools.count[int]"] = field(default_factory=dict)
    _ingested: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def spark(self) -> SparkSession:
        """The session."""
        return self.pipeline.spark

    @property
    def config(self) -> PipelineConfig:
        """The configuration."""
        return self.pipeline.config

    @config.setter
    def config(self, config: PipelineConfig) -> None:
        self.pipeline = replace(self.pipeline, config=config)

    @property
    def contract(self) -> DataContract:
        """The contract."""
        return self.pipeline.contract

    @contract.setter
    def contract(self, contract: DataContract) -> None:
        self.pipeline = replace(self.pipeline, contract=contract)

    def variant(self, **changes: Any) -> "Lake":
        """The same lake under another contract or configuration."""
        return replace(self, pipeline=replace(self.pipeline, **changes))

    def envelopes(self, records: Sequence[Record | bytes | None]) -> DataFrame:
        """Records as one micro-batch of ingest would write them."""
        ingested = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=next(self._ingested))
        rows = []
        for item in records:
            record = item if isinstance(item, Record) else Record(item)
            numbers = self._offsets.setdefault(record.partition, itertools.count())
            rows.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "headers": [{"key": key, "value": value} for key, value in record.headers],
                    "_topic": record.topic,
                    "_partition": record.partition,
                    "_offset": next(numbers) if record.offset is None else record.offset,
                    "_kafka_timestamp": record.sent,
                    "_kafka_timestamp_type": 0,
                    "_ingested_at": ingested,
                }
            )
        return small_frame(self.spark, rows, shape(BRONZE))

    def ingest(self, records: Sequence[Record | bytes | None]) -> None:
        """Appends one micro-batch to bronze."""
        self._begin()
        append(self.envelopes(records), self.config.table("bronze"))

    def enter(self, records: Sequence[Record | bytes | None]) -> None:
        """Appends events to the speed layer as its stream would, without that stream."""
        self._enter(self.envelopes(records))

    def ingest_and_enter(self, records: Sequence[Record | bytes | None]) -> None:
        """Appends one micro-batch to bronze, and its events to the speed layer, without its stream.

        None of them may be a copy of another, or of an event that is there: the stream would drop it.
        """
        envelopes = self.envelopes(records)
        self._begin()
        append(envelopes, self.config.table("bronze"))
        self._enter(envelopes)

    def _begin(self) -> None:
        ensure_bronze(self.pipeline)
        copy_ledgers(self.pipeline)

    def _enter(self, envelopes: DataFrame) -> None:
        ensure_speed(self.pipeline)
        decoded = decode(envelopes, self.contract, self.config.decode.max_future)
        append(valid(decoded, self.contract).coalesce(1), self.config.table("speed"))

    def count(self, layer: Any) -> int:
        """The rows of a table; none if there is no table yet."""
        table = self.config.table(layer)
        return DeltaTable(table).to_pyarrow_dataset().count_rows() if DeltaTable.is_deltatable(table) else 0

    def table(self, layer: Any) -> DataFrame:
        """One of the pipeline's tables."""
        return read(self.spark, self.config.table(layer))


def lake_that_publishes(
    spark: SparkSession, servers: str, folder: Path, contract: DataContract, output: str, *settings: str
) -> Lake:
    """A lake that publishes to a topic in two slots.

    Args:
        spark: the session.
        servers: of the cluster.
        folder: where it is.
        contract: its contract.
        output: the topic.
        settings: more of them, such as `publish.slots=3`.
    """
    given = (
        f"lake.root={folder}/lake",
        "batch.seal_by=bronze",
        f"kafka.bootstrap_servers={servers}",
        f"publish.topic={output}",
        "publish.slots=2",
        *settings,
    )
    config = load_config("flights", environ={}, settings=given)
    # All tests share a cluster, on which a sink is known by its pipeline and environment.
    return Lake(Pipeline(spark, config.model_copy(update={"env": output}), contract))


def clean_log(spark: SparkSession, table: str) -> None:
    """Leaves of a Delta table's log a checkpoint and the newest commit, as Delta does after some time."""
    java: Any = spark.sparkContext._jvm
    java.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, table).checkpoint()
    *before, _ = sorted(Path(table, "_delta_log").glob("*.json"))
    for commit in before:
        commit.unlink()


def compact_and_vacuum(spark: SparkSession, table: str) -> None:
    """Leaves of a Delta table the files of now alone, and those few."""
    compact(spark, table)
    vacuum(spark, table, timedelta())
