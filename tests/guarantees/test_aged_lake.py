"""What a night reads does not grow with what was before."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.aged_tables import RECENT, Age, Aged
from benchmarks.volume import Volume
from pipelines.config.loader import load_config
from pipelines.delta.io import read
from pipelines.formats.contract_files import load_contract
from pipelines.ledger.certifications import certified
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.maintain import maintain
from pipelines.steps.nightly import nightly

BENCHMARKS = Path("benchmarks")
TRIGGER = 60
DAYS = 100
MICRO_BATCHES = DAYS * 86_400 // TRIGGER


def night_of(spark: SparkSession, root: Path, days: int) -> tuple[float, int]:
    """Megabytes that a night reads on a lake of so many days, and how many rows its index has."""
    settings = [
        *(f"lake.root={root}", "batch.seal_by=bronze", "speed.watermark_delay=2 days"),
        "kafka.bootstrap_servers=localhost:9092",
    ]
    config = load_config("events", conf_dir=BENCHMARKS / "conf", settings=settings, environ={})
    contract = load_contract(BENCHMARKS / "contracts" / config.contract)
    age = Age(days, 5 if days else 1, TRIGGER, 20)
    Aged(Pipeline(spark, config, contract), age).fill()
    maintain(Pipeline(spark, config, contract), "upkeep", dry_run=False)
    with Volume(spark, root) as volume:
        done = nightly(Pipeline(spark, config, contract), "night", [age.last], "late and missed")
    assert done.days == {age.last: "certified"}
    state = certified(Pipeline(spark, config, contract))
    assert state is not None
    assert len(state.days) == RECENT + days
    index = read(spark, config.ops_table("bronze_index")).where(f"pipeline = '{config.name}'")
    return volume.read_mb, index.where("kind = 'records'").count()


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_a_night_of_an_aged_lake_reads_little_more_than_one_of_a_new_lake(
    spark: SparkSession, tmp_path: Path
) -> None:
    new, _ = night_of(spark, tmp_path / "new", 0)
    aged, rows = night_of(spark, tmp_path / "aged", DAYS)
    # A row for each hour, and those of late and of broken records; the last two days are not folded yet.
    assert rows < MICRO_BATCHES / 10
    assert aged < 1.5 * new
