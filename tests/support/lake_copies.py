"""Lakes that are made once, and gone on with in copies: what leads to a test is paid for once."""

import itertools
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.spark.pipeline import Pipeline
from tests.support.lakes import Lake


def lake_in(folder: Path, spark: SparkSession, contract: DataContract, *settings: str) -> Lake:
    """A lake as `make_lake` makes it, in a folder that outlives a test."""
    given = (f"lake.root={folder}/lake", "batch.seal_by=bronze", *settings)
    return Lake(Pipeline(spark, load_config("flights", environ={}, settings=given), contract))


def continued(prepared: Lake, to: Lake) -> Lake:
    """A lake of its own that holds what another one holds, and goes on where that one ended.

    Delta's logs name files by relative paths, so the copied tables are those tables, ids included.

    Args:
        prepared: the lake that is copied; it is left as it is.
        to: a lake that holds nothing yet; its folder, configuration and contract are those of the copy.
    """
    shutil.copytree(prepared.config.root, to.config.root)
    following = {partition: next(numbers) for partition, numbers in prepared._offsets.items()}
    minute = next(prepared._ingested)
    for lake in (prepared, to):
        lake._offsets = {partition: itertools.count(offset) for partition, offset in following.items()}
        lake._ingested = itertools.count(minute)
    return to
