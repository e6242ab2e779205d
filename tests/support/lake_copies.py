"""Lakes that are made once, and gone on with in copies: what leads to a test is paid for once.

Delta's logs and Spark's checkpoints name files by relative paths, so a copied table is that table, with the
ids that it has.
"""

import itertools
import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import forget_tables
from tests.support.lakes import Lake


def lake_in(root: Path, spark: SparkSession, contract: DataContract, *settings: str) -> Lake:
    """A lake as `make_lake` makes it, for fixtures that outlive a test.

    Args:
        root: the lake's folder.
        spark: the session.
        contract: the contract.
        settings: as `--set` takes them.
    """
    given = (f"lake.root={root}", "batch.seal_by=bronze", *settings)
    return Lake(Pipeline(spark, load_config("flights", environ={}, settings=given), contract))


def copied(lake: Lake, root: Path) -> Lake:
    """Copies a lake to a folder, where it goes on by itself."""
    place = lake.config.lake.model_copy(update={"root": str(root)})
    return continued(lake, Lake(lake.variant(config=lake.config.model_copy(update={"lake": place})).pipeline))


def continued(prepared: Lake, to: Lake) -> Lake:
    """A lake of its own that holds what another one holds, and goes on where that one ended.

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


def put_back(lake: Lake, backup: Lake, *places: str) -> None:
    """Puts tables or checkpoints back as another copy of the lake has them; `speed/flights` is a place."""
    for place in places:
        into = Path(lake.config.root, place)
        if into.exists():
            shutil.rmtree(into)
        shutil.copytree(Path(backup.config.root, place), into)
    # A job is a session of its own, which knows nothing of the tables that were here.
    forget_tables()
