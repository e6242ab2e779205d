"""The tables of a lake that is years old: what its streams and nights would have left, written at once."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.contracts.event_days import days_of
from pipelines.delta.event_tables import ensure_batch, ensure_speed, events_schema
from pipelines.delta.io import append, read
from pipelines.delta.record_tables import BRONZE, QUARANTINE, ensure_bronze, ensure_quarantine, first_try
from pipelines.delta.tables import shape, version
from pipelines.ledger.bronze_index import OFFSETS, RECORDS
from pipelines.ledger.bronze_state import bronze_id, bronze_state
from pipelines.ledger.certifications import ensure_ledger
from pipelines.ledger.decoding import decoding_key_of_bronze
from pipelines.ledger.ops_tables import BRONZE_INDEX, CERTIFICATIONS, RUNS, VALIDATION_RESULTS, TableSpec
from pipelines.records.decode import broken_of, decode, events_of, routed
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.nightly import nightly

RECENT: Final = 8
"""Days that hold events, the last of them yesterday."""
_PARTITIONS: Final = 8
_LATE_EVERY: Final = 50
_BROKEN_EVERY: Final = 200
_REPAIR_EVERY: Final = 30
_REPAIR_AFTER: Final = 5
_CHECKS: Final = 30
_COMMITS_A_NIGHT: Final = 5
_NIGHT: Final = timedelta(hours=2)
_DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Age:
    """How old a lake is, and how busy.

    Attributes:
        days: before the days that hold events.
        pipelines: that share its ledgers.
        trigger: seconds from one micro-batch to the next.
        records: of each micro-batch of the last days.
    """

    days: int
    pipelines: int
    trigger: int
    records: int

    @property
    def a_day(self) -> int:
        """Micro-batches of a day."""
        return 86_400 // self.trigger

    @property
    def batches(self) -> int:
        """Micro-batches before the days that hold events."""
        return self.days * self.a_day

    @property
    def first(self) -> date:
        """The first day that holds events."""
        return self.last - (RECENT - 1) * _DAY

    @property
    def last(self) -> date:
        """The day of the night that is measured."""
        # Right after midnight no night seals yesterday yet (`batch.seal_grace`).
        return (datetime.now(UTC) - timedelta(hours=1)).date() - _DAY

    @property
    def begin(self) -> datetime:
        """When the first micro-batch was ingested."""
        return datetime.combine(self.first, time(), UTC) - self.days * _DAY


@dataclass(frozen=True)
class Aged:
    """A lake that is made.

    Attributes:
        pipeline: The pipeline.
        age: how old it becomes.
    """

    pipeline: Pipeline
    age: Age

    def fill(self) -> None:
        """Write the tables, and let a night decide on all days but the last."""
        self.write()
        days = days_of(self.age.first, self.age.last - _DAY)
        nightly(self.pipeline, "fill", days)

    def write(self) -> None:
        """Write the tables as the streams would have left them, and as nights of old days would have."""
        ensure_bronze(self.pipeline)
        ensure_quarantine(self.pipeline)
        ensure_speed(self.pipeline)
        ensure_ledger(self.pipeline)
        if self.age.days:
            self._old()
        self._recent()

    def _old(self) -> None:
        """Write what was before the days that hold events."""
        append(self._cast(self._micro_batches(), BRONZE), self.pipeline.table("bronze"))
        # Each micro-batch was a commit; their log is cleaned up.
        renumber(self.pipeline.spark, self.pipeline.table("bronze"), self.age.batches)
        broken = self._micro_batches().where("is_broken").select("*", F.lit("null_value").alias("_reason"))
        append(self._cast(first_try(broken), QUARANTINE), self.pipeline.table("quarantine"))
        self._index()
        self._layers()
        self._verdicts()
        self._others()

    def _micro_batches(self) -> DataFrame:
        """Return the micro-batches of before, of one record each: `n`, its `day`, and columns of bronze."""
        age = self.age
        moment = f"TIMESTAMP'{age.begin:%Y-%m-%d %H:%M:%S}Z' + make_dt_interval(0, 0, 0, n * {age.trigger})"
        came = f"date_add(DATE'{age.begin.date()}', int(n div {age.a_day}))"
        day = (
            f"CASE WHEN n % {_REPAIR_EVERY * age.a_day} = {age.a_day // 2} THEN {came} - {_REPAIR_AFTER}"
            f" WHEN n % {_LATE_EVERY} = 3 THEN {came} - 1 ELSE {came} END"
        )
        return (
            self.pipeline.spark.range(0, age.batches, 1, 36)
            .selectExpr("id AS n")
            .selectExpr(
                "n",
                f"{day} AS day",
                f"n % {_BROKEN_EVERY} = 7 AS is_broken",
                f"CASE WHEN n % {_BROKEN_EVERY} <> 7 THEN encode('{{}}', 'UTF-8') END AS value",
                f"'{self.pipeline.config.kafka.topic}' AS _topic",
                f"int(n % {_PARTITIONS}) AS _partition",
                f"n div {_PARTITIONS} AS _offset",
                f"{moment} AS _kafka_timestamp",
                "0 AS _kafka_timestamp_type",
                f"{moment} + INTERVAL 2 SECONDS AS _ingested_at",
                f"least(bigint(n div {age.a_day} + 1) * {age.a_day} + {self._night}, {age.batches}) AS until",
            )
        )

    @property
    def _night(self) -> int:
        """After how many micro-batches of a day its night begins."""
        return int(_NIGHT.total_seconds()) // self.age.trigger

    def _index(self) -> None:
        pipeline = self.pipeline
        table = pipeline.ops_table("bronze_index")
        BRONZE_INDEX.ensure(pipeline)
        state = bronze_state(pipeline, self.age.batches)
        name = bronze_id(state, None, is_same=False)
        made = {
            "pipeline": pipeline.config.name,
            "made_for": decoding_key_of_bronze(pipeline, name, None),
            "bronze_id": name,
            "until_commit": state.commit,
        }
        batches = self._micro_batches()
        records = batches.selectExpr(
            f"'{RECORDS}' AS kind",
            "until",
            "n + 1 AS commit",
            "_ingested_at AS ingested_at",
            "CASE WHEN NOT is_broken THEN day END AS day",
            "CASE WHEN is_broken THEN 'null_value' END AS reason",
            "1L AS records",
            "CASE WHEN NOT is_broken THEN _kafka_timestamp END AS newest",
            "CASE WHEN NOT is_broken THEN _kafka_timestamp END AS clock",
        )
        pieces = batches.groupBy("until", "_topic", "_partition").agg(
            F.min("_offset").alias("first"),
            F.max("_offset").alias("last"),
            *(F.count(F.lit(1)).alias(counted) for counted in ("records", "distinct")),
            F.max("_kafka_timestamp").alias("sent"),
        )
        renamed = pieces.withColumnsRenamed({"_topic": "topic", "_partition": "partition"})
        kinds = records.unionByName(renamed.withColumn("kind", F.lit(OFFSETS)), allowMissingColumns=True)
        named = kinds.withColumns({name: F.lit(value) for name, value in made.items()})
        append(self._cast(named, BRONZE_INDEX.ddl), table)

    def _layers(self) -> None:
        """Write a row for each day in speed and batch layer; the latter as after so many nights."""
        begin, names = f"TIMESTAMP'{self.age.begin:%Y-%m-%d %H:%M:%S}Z'", ("site", "device", "status")
        rows = self.pipeline.spark.range(0, self.age.days, 1, 8).selectExpr(
            *(f"'x' AS {name}" for name in names),
            "-1 - id AS sequence",
            f"{begin} + make_dt_interval(int(id)) AS measured_at",
            "1D AS voltage",
            f"date_add(DATE'{self.age.begin.date()}', int(id)) AS _event_date",
            f"'{self.pipeline.config.kafka.topic}' AS _topic",
            "0 AS _partition",
            "id AS _offset",
            f"{begin} + make_dt_interval(int(id)) AS _kafka_timestamp",
            f"{begin} + make_dt_interval(int(id)) AS _ingested_at",
        )
        ensure_batch(self.pipeline)
        schema = (
            events_schema(self.pipeline.contract).simpleString().removeprefix("struct<").removesuffix(">")
        )
        for layer in ("speed", "batch"):
            append(self._cast(rows, schema), self.pipeline.table(layer))
        renumber(self.pipeline.spark, self.pipeline.table("batch"), _COMMITS_A_NIGHT * self.age.days)

    def _verdicts(self) -> None:
        """Write the verdicts on all days, and on those that were repaired, of all pipelines."""
        counts = ("records", "rows", "duplicates", "conflicts", "late", "quarantined", "other_days", "bronze")
        bronze = bronze_id(bronze_state(self.pipeline, self.age.batches), None, is_same=False)
        begin = f"TIMESTAMP'{self.age.begin:%Y-%m-%d %H:%M:%S}Z'"
        columns = {
            "day": f"date_add(DATE'{self.age.begin.date()}', int(day))",
            "status": "'certified'",
            "run_id": "concat('night ', night)",
            "batch_version": f"(night + 1) * {_COMMITS_A_NIGHT}",
            "base_version": f"CASE WHEN night = 0 THEN -1 ELSE night * {_COMMITS_A_NIGHT} END",
            "bronze_version": f"least((night + 1) * {self.age.a_day} + {self._night}, {self.age.batches})",
            "bronze_id": f"'{bronze}'",
            "decided_at": f"{begin} + make_dt_interval(int(night) + 1)",
            **dict.fromkeys(counts, "1L"),
        }
        nights = self.pipeline.spark.range(self.age.days).selectExpr("id AS night")
        repairs = nights.where(f"night > 0 AND night % {_REPAIR_EVERY} = 0")
        days = nights.selectExpr("night", "night AS day").unionByName(
            repairs.selectExpr("night", f"night - {_REPAIR_AFTER} AS day")
        )
        rows = days.selectExpr(*(f"{text} AS {name}" for name, text in columns.items()))
        self._for_all(rows, CERTIFICATIONS)

    def _others(self) -> None:
        """Write what nights have written of themselves, and the indices of the other pipelines."""
        for spec in (VALIDATION_RESULTS, RUNS):
            spec.ensure(self.pipeline)
        nights = self.pipeline.spark.range(self.age.days).selectExpr(
            "id AS night", f"date_add(DATE'{self.age.begin.date()}', int(id)) AS day"
        )
        said = "concat('{\"success\": true, \"observed\": ', night, repeat('.', 300), '}') AS result"
        checks = nights.withColumn("nth", F.explode(F.sequence(F.lit(1), F.lit(_CHECKS)))).selectExpr(
            "day",
            "concat('night ', night) AS run_id",
            "concat('check ', nth) AS name",
            "'integrity' AS kind",
            "'passed' AS status",
            said,
        )
        self._for_all(checks, VALIDATION_RESULTS)
        step = F.explode(F.array(*map(F.lit, ("seal", "build", "audit", "certify")))).alias("step")
        self._for_all(
            nights.select(F.expr("concat('night ', night) AS run_id"), "day", step).selectExpr(
                "run_id", "step", "'done' AS status", "day AS first_day", "day AS last_day", "1 AS days"
            ),
            RUNS,
        )
        hours = nights.withColumn("hour", F.explode(F.sequence(F.lit(0), F.lit(23)))).selectExpr(
            f"'{RECORDS}' AS kind",
            "night * 24 + hour AS commit",
            "night * 24 + hour AS until",
            "timestamp(day) + make_dt_interval(0, hour) AS ingested_at",
            "day",
            "360L AS records",
        )
        self._for_all(hours, BRONZE_INDEX, own=False)

    def _for_all(self, rows: DataFrame, ledger: TableSpec, *, own: bool = True) -> None:
        """Append the same rows for each pipeline to a ledger, a file for each."""
        others = [f"pipeline_{n:03}" for n in range(1, self.age.pipelines)]
        named = [self.pipeline.config.name, *others] if own else others
        names = self.pipeline.spark.createDataFrame([(name,) for name in named], "pipeline string")
        every = self._cast(names.crossJoin(F.broadcast(rows)), ledger.ddl)
        append(every.repartition("pipeline"), ledger.path(self.pipeline))

    def _recent(self) -> None:
        """Write the events of the last days, as the streams would have written them."""
        contract = self.pipeline.contract
        for nth in range(RECENT):
            append(self._cast(self._events(nth), BRONZE), self.pipeline.table("bronze"))
        after = f"_ingested_at >= TIMESTAMP'{self.age.first} 00:00:00Z'"
        rows = read(self.pipeline.spark, self.pipeline.table("bronze")).where(after)
        routes = routed(decode(rows, contract, self.pipeline.config.decode.max_future), contract)
        events = events_of(routes, contract).dropDuplicates(["sequence"])
        append(events.repartition("_event_date"), self.pipeline.table("speed"))
        append(first_try(broken_of(routes, contract)), self.pipeline.table("quarantine"))

    def _events(self, nth: int) -> DataFrame:
        """Return the records of a day: a tenth are copies, some come a day late, some are broken."""
        age = self.age
        a_day = age.a_day * age.records
        begin = f"TIMESTAMP'{age.first + nth * _DAY} 00:00:00Z'"
        moment = f"{begin} + make_dt_interval(0, 0, 0, (n % {a_day}) div {age.records} * {age.trigger})"
        sequence = "n - int(n % 10 = 9)"
        late = f"INTERVAL '1' DAY * int({nth > 0} AND ({sequence}) % 100 = 48)"
        measured = f"date_format({moment} - {late}, \"yyyy-MM-dd'T'HH:mm:ss\")"
        json = (
            'format_string(\'{"site":"berlin-01","device":"meter-%06d","sequence":%d,"measured_at":"%sZ",'
            f'"status":"ok","voltage":230.0}}\', ({sequence}) % 5000, {sequence}, {measured})'
        )
        return (
            self.pipeline.spark.range(nth * a_day, (nth + 1) * a_day, 1, 4)
            .selectExpr("id AS n")
            .selectExpr(
                f"encode(CASE WHEN n % 1000 = 500 THEN 'broken' ELSE {json} END, 'UTF-8') AS value",
                f"'{self.pipeline.config.kafka.topic}' AS _topic",
                f"int(n % {_PARTITIONS}) AS _partition",
                f"n div {_PARTITIONS} + {age.batches // _PARTITIONS} AS _offset",
                f"{moment} AS _kafka_timestamp",
                "0 AS _kafka_timestamp_type",
                f"{moment} + INTERVAL 2 SECONDS AS _ingested_at",
            )
        )

    @staticmethod
    def _cast(rows: DataFrame, ddl: str) -> DataFrame:
        """Return rows in a shape; columns that they lack are empty."""
        known = {*rows.columns}
        return rows.select(
            *(
                (F.col(field.name) if field.name in known else F.lit(None))
                .cast(field.dataType)
                .alias(field.name)
                for field in shape(ddl)
            )
        )


def renumber(spark: SparkSession, table: str, to: int) -> None:
    """Give the newest version of a Delta table another number, as if its earlier log were cleaned up."""
    at, log = version(spark, table), Path(table) / "_delta_log"
    jvm: Any = spark.sparkContext._jvm
    delta = jvm.org.apache.spark.sql.delta.DeltaLog
    found = delta.forTable(spark._jsparkSession, table)
    # Scala's default arguments are methods of their own.
    snapshot = found.update(*(getattr(found, f"update$default${nth}")() for nth in (1, 2, 3)))
    found.checkpoint(snapshot, getattr(found, "checkpoint$default$2")())
    kept = re.compile(rf"{at:020d}\.(json|checkpoint.*parquet)")
    for file in list(log.iterdir()):
        if kept.fullmatch(file.name):
            file.rename(log / file.name.replace(f"{at:020d}", f"{to:020d}"))
        elif file.is_file():
            file.unlink()
    delta.clearCache()
