"""Lakes that several tests begin with: made once, of which each test gets a copy of its own."""

import copy
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import forget_tables
from tests.support.lakes import Lake


def lake_in(folder: Path, spark: SparkSession, contract: DataContract, *settings: str) -> Lake:
    """A lake of flights in a folder, sealed by what bronze holds."""
    given = (f"lake.root={folder}", "batch.seal_by=bronze", *settings)
    return Lake(Pipeline(spark, load_config("flights", environ={}, settings=given), contract))


def copied(lake: Lake, folder: Path) -> Lake:
    """Copies a lake to a folder; tables and checkpoints keep their ids, and name no folder."""
    shutil.copytree(lake.config.root, folder)
    place = lake.config.lake.model_copy(update={"root": str(folder)})
    copy_of_it = lake.variant(config=lake.config.model_copy(update={"lake": place}))
    # Each of them goes on with its own records.
    copy_of_it._offsets, copy_of_it._ingested = copy.deepcopy((lake._offsets, lake._ingested))
    return copy_of_it


def put_back(lake: Lake, backup: Lake, *places: str) -> None:
    """Puts tables or checkpoints back as another copy of the lake has them; `speed/flights` is a place."""
    for place in places:
        into = Path(lake.config.root, place)
        if into.exists():
            shutil.rmtree(into)
        shutil.copytree(Path(backup.config.root, place), into)
    # A job is a session of its own, which knows nothing of the tables that were here.
    forget_tables()
