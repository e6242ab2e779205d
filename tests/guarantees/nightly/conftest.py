"""What the tests of the nightly run share."""

import itertools
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from tests.support.lake_copies import lake_in
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO, on, run
from tests.support.prepared_lakes import Nights, PreparedLake
from tests.support.shared_folders import made_once


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake whose contract allows days of few rows."""
    return make_lake(contract=small)


@pytest.fixture(scope="session")
def prepared_lake(
    spark: SparkSession, small: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> PreparedLake:
    """What `certified_lake` copies."""
    folder = made_once(
        tmp_path_factory,
        "prepared",
        lambda folder: PreparedLake.make(lake_in(folder / "lake", spark, small), folder),
    )
    return PreparedLake(lake_in(folder / "lake", spark, small).pipeline, folder)


@pytest.fixture
def certified_lake(prepared_lake: PreparedLake, tmp_path: Path) -> Callable[[Nights], Lake]:
    """Makes lakes with certified days, of few rows: `certified_lake("one night")`."""
    return partial(prepared_lake.copied, tmp_path / "lake")


@pytest.fixture(scope="session")
def two_days(spark: SparkSession, small: DataContract, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of two certified days, to be copied: the flights 1, 2 and 4 of the first, 3 and 5 of the second.

    They came in two micro-batches, of which `bronze/copy`, beside bronze, holds the first three flights.
    """

    def make(folder: Path) -> None:
        lake = lake_in(folder, spark, small)
        lake.ingest([on(1, 1), on(1, 2), on(2, 3)])
        bronze = Path(lake.config.table("bronze"))
        shutil.copytree(bronze, bronze.with_name("copy"))
        lake.ingest([on(1, 4), on(2, 5)])
        run(lake, ONE, TWO)

    lake = lake_in(made_once(tmp_path_factory, "two-days", make), spark, small)
    return Lake(lake.pipeline, {0: itertools.count(5)}, itertools.count(2))
