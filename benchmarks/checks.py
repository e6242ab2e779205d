"""The proof that each piece of work did what it should."""

from pathlib import Path

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks import decoding
from benchmarks.given import Work, WrongResult
from benchmarks.month import copy_of_days
from pipelines.delta.io import read


def check_json(work: Work) -> None:
    """Check that each valid record became an event."""
    _check_decoded(work, decoding.from_json(work.pipeline))


def check_avro(work: Work) -> None:
    """Check that each valid record became an event, in Avro, too."""
    _check_decoded(work, decoding.from_avro(work.pipeline))


def _check_decoded(work: Work, events: DataFrame) -> None:
    truth = work.truth
    found = events.agg(F.count(F.lit(1)), F.count_distinct("sequence")).first()
    _expect("events, different events", tuple(found or ()), (truth.records - truth.broken, truth.unique))


def check_raw(work: Work) -> None:
    """Check that the raw append has every record once."""
    _check_envelopes(
        work,
        work.pipeline.spark.read.format("delta").load(f"{work.pipeline.config.root}/raw"),
        "partition",
        "offset",
    )


def check_bronze(work: Work) -> None:
    """Bronze has every record once."""
    _check_envelopes(work, work.table("bronze"), "_partition", "_offset")


def check_speed(work: Work) -> None:
    """Check that the speed layer has every event once, and quarantine every broken record."""
    _check_events(work, "speed")
    _expect("rows of quarantine", work.table("quarantine").count(), work.truth.broken)


def check_both(work: Work) -> None:
    """Bronze, speed layer and quarantine are whole."""
    check_bronze(work)
    check_speed(work)


def check_batch(work: Work) -> None:
    """Check that the batch layer has every event once."""
    _check_events(work, "batch")


def check_month(work: Work) -> None:
    """No event stands twice; those that are held back are not there yet."""
    rows = work.table("batch")
    found = rows.agg(F.count(F.lit(1)), F.count_distinct(*work.pipeline.contract.key)).first()
    count, different = tuple(found or (0, 0))
    _expect("keys of batch", different, count)
    if not work.truth.unique * 0.99 < count < work.truth.unique:
        raise WrongResult(f"rows of batch: found {count}, expected some fewer than {work.truth.unique}")


def check_copy(work: Work) -> None:
    """Check that the copy has what the batch layer has."""
    rows = read(work.pipeline.spark, copy_of_days(work.pipeline.config)).count()
    _expect("rows of the copy", rows, work.table("batch").count())


def check_served(work: Work) -> None:
    """Check that the serving table has what the batch layer has."""
    rows = read(work.pipeline.spark, work.pipeline.config.serving_table).count()
    _expect("rows of the serving table", rows, work.table("batch").count())


def sizes(work: Work) -> dict[str, dict[str, float]]:
    """Return files and megabytes of every table there is."""
    found = {}
    for name in ("raw", "bronze/events", "speed/events", "quarantine/events", "batch/events"):
        path = f"{work.pipeline.config.root}/{name}"
        if Path(path).is_dir():
            detail = (
                DeltaTable.forPath(work.pipeline.spark, path)
                .detail()
                .select("numFiles", "sizeInBytes")
                .first()
            )
            if detail:
                found[name] = {"files": detail[0], "mb": round(detail[1] / 1e6, 1)}
    return found


def _check_envelopes(work: Work, rows: DataFrame, partition: str, offset: str) -> None:
    found = rows.agg(F.count(F.lit(1)), F.count_distinct(partition, offset), F.sum(F.length("value"))).first()
    truth = work.truth
    _expect(
        "records, different records, bytes",
        tuple(found or ()),
        (truth.records, truth.records, truth.value_bytes),
    )


def _check_events(work: Work, layer: str) -> None:
    rows = work.table(layer)
    found = rows.agg(
        F.count(F.lit(1)), F.count_distinct(*work.pipeline.contract.key), F.sum("sequence")
    ).first()
    truth = work.truth
    _expect(
        f"rows, keys, sum of `sequence` of {layer}",
        tuple(found or ()),
        (truth.unique, truth.unique, truth.sequence_sum),
    )


def _expect(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise WrongResult(f"{what}: found {found}, expected {expected}")
