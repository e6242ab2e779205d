"""A month of days from the events of one, its rebuild in one run, and the repair of one of its days."""

from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame

from benchmarks.events import DAY
from benchmarks.given import Work
from pipelines.config.model import PipelineConfig
from pipelines.delta.io import append, by_day_and_key, read
from pipelines.delta.record_tables import ensure_bronze
from pipelines.records.decode import EVENT_DATE
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.nightly import nightly
from pipelines.steps.serving_table import refresh_table

DAYS: Final = tuple(DAY + timedelta(days=number) for number in range(30))
LATE_DAY: Final = 10
_LATE: Final = f"nth = {LATE_DAY} AND _offset % 50 = 0"
_TEXT: Final = "CAST(value AS STRING)"
_AT: Final = '"measured_at":"'
_SHIFTED: Final = (
    f"regexp_replace({_TEXT}, '{_AT}[0-9-]+T', concat('{_AT}', date_add(DATE'{DAY}', nth), 'T'))"
)


def fill_month(work: Work) -> None:
    """Fill bronze with the events of the lake beside it, dealt out over the days; one commit for each day.

    All copies of an event go to the same day. A few records of one day are held back, see `come_late`.
    """
    pipeline = work.pipeline
    bronze = read(pipeline.spark, f"{Path(pipeline.config.root).parent}/steps/bronze/{pipeline.config.name}")
    nth = f"CAST(coalesce(get_json_object({_TEXT}, '$.sequence'), '0') AS BIGINT) % {len(DAYS)}"
    dealt = bronze.selectExpr("*", f"CAST({nth} AS INT) AS nth")
    dealt.write.partitionBy("nth").parquet(_dealt(pipeline.config))
    ensure_bronze(pipeline)
    for number in range(len(DAYS)):
        append(_records(pipeline, f"nth = {number} AND NOT ({_LATE})"), pipeline.table("bronze"))


def come_late(work: Work) -> None:
    """Append the records that were held back: a fiftieth of one day, weeks later."""
    append(_records(work.pipeline, _LATE, later=25), work.pipeline.table("bronze"))


def month(work: Work) -> None:
    """One nightly run of thirty days."""
    _rebuild(work, DAYS)


def repair(work: Work) -> None:
    """One nightly run of the day of these thirty for which records came late."""
    _rebuild(work, DAYS[LATE_DAY : LATE_DAY + 1])


def copy(work: Work) -> None:
    """Write the days of the batch layer to another table, as a staging table would ask of each run."""
    rows = by_day_and_key(work.table("batch"), work.pipeline.contract.key)
    rows.write.format("delta").partitionBy(EVENT_DATE).save(copy_of_days(work.pipeline.config))


def copy_of_days(config: PipelineConfig) -> str:
    """Return where `copy_days` writes."""
    return f"{config.root}/copy"


def serve(work: Work) -> None:
    """Make the serving table, which has the files of these days."""
    config = work.pipeline.config
    served = config.model_copy(update={"serving": config.serving.model_copy(update={"table": True})})
    refresh_table(replace(work.pipeline, config=served))


def _rebuild(work: Work, days: tuple[date, ...]) -> None:
    # The topic does not have the records in this form, and those that are held back are gaps.
    batch = work.pipeline.config.batch.model_copy(update={"seal_by": "bronze"})
    audit = work.pipeline.config.audit.model_copy(update={"offset_gaps": "warn"})
    config = work.pipeline.config.model_copy(update={"batch": batch, "audit": audit})
    nightly(replace(work.pipeline, config=config), "benchmark", days)


def _dealt(config: PipelineConfig) -> str:
    return f"{config.root}/dealt"


def _records(pipeline: Pipeline, which: str, later: int = 0) -> DataFrame:
    bronze = read(pipeline.spark, pipeline.table("bronze"))
    changed = {
        "value": f"CAST({_SHIFTED} AS BINARY) AS value",
        "_kafka_timestamp": f"_kafka_timestamp + make_dt_interval(nth + {later}) AS _kafka_timestamp",
        "_ingested_at": f"CAST(date_add(DATE'{DAY}', nth + {later}) AS TIMESTAMP) AS _ingested_at",
    }
    columns = [changed.get(name, name) for name in bronze.columns]
    return pipeline.spark.read.parquet(_dealt(pipeline.config)).where(which).selectExpr(*columns)
