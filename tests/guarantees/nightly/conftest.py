"""What the tests of the nightly run share."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from tests.support.lakes import Lake
from tests.support.prepared_lakes import Nights, PreparedLake, lake_at


@pytest.fixture
def lake(make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake whose contract allows days of few rows."""
    return make_lake(contract=small)


@pytest.fixture(scope="session")
def prepared_lake(
    spark: SparkSession, small: DataContract, tmp_path_factory: pytest.TempPathFactory
) -> PreparedLake:
    """What `certified_lake` copies."""
    folder = tmp_path_factory.mktemp("prepared")
    return PreparedLake.made(lake_at(spark, folder / "lake", small), folder)


@pytest.fixture
def certified_lake(prepared_lake: PreparedLake, tmp_path: Path) -> Callable[[Nights], Lake]:
    """Makes lakes with certified days, of few rows: `certified_lake("one night")`."""
    return partial(prepared_lake.copied, tmp_path / "lake")
