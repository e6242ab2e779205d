"""One Spark session for all tests that need one, and lakes in temporary folders."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract, load_contract
from pipelines.contracts.rules import DayRule
from pipelines.runtime.processes import graceful_shutdown
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import forget_tables, spark_session
from tests.support.brief import BRIEF_SPARK
from tests.support.java_link import drop_if_out_of_step
from tests.support.lakes import Lake
from tests.support.processes import LASTING_JAVA


def pytest_configure(config: pytest.Config) -> None:
    """Ends brokers, registries and jobs with the run that started them, in each of pytest's processes."""
    stack = ExitStack()
    stack.enter_context(graceful_shutdown())
    config.add_cleanup(stack.close)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    config = load_config(
        "flights",
        environ={},
        settings=[
            "spark.master=local[2]",
            # Each plan runs once or twice, which does not pay for compiling it. The tests that start jobs as
            # processes do compile.
            *BRIEF_SPARK,
            f"spark.conf.spark.driver.extraJavaOptions={LASTING_JAVA}",
            # It lives for many tests. Each streaming query clones the session, and threads of Spark's pools
            # keep the clones that they were started from: some 20 MB each.
            "spark.conf.spark.driver.memory=5g",
            "spark.conf.spark.sql.ui.retainedExecutions=10",
            "spark.conf.spark.sql.streaming.stopTimeout=60s",
        ],
    )
    session = spark_session(config, "tests")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _tables_of_other_tests() -> Iterator[None]:
    """Lets go of a test's tables, of which Delta keeps ten thousand for an hour."""
    yield
    drop_if_out_of_step()
    forget_tables()


@pytest.fixture(scope="session")
def contract() -> DataContract:
    return load_contract(Path("data_contracts/flights.odcs.yaml"))


@pytest.fixture(scope="session")
def nested() -> DataContract:
    """The contract of orders: objects, arrays and maps, and a key that lies in an object."""
    return load_contract(Path("tests/support/contracts/orders.odcs.yaml"))


@pytest.fixture(scope="session")
def small(contract: DataContract) -> DataContract:
    """The contract of flights, for days of at most fifty rows."""
    return replace(contract, day_rules=(DayRule("rowCount", None, 0, 50),))


@pytest.fixture(scope="session")
def small_by_flight(small: DataContract) -> DataContract:
    """The same, with a key that leaves the event time out."""
    return replace(small, key=("carrier", "flight", "origin"))


@pytest.fixture
def make_lake(spark: SparkSession, contract: DataContract, tmp_path: Path) -> Callable[..., Lake]:
    """Makes a lake: `make_lake("speed.watermark_delay=2 hours")`."""

    def make(*settings: str, contract: DataContract = contract) -> Lake:
        settings = (f"lake.root={tmp_path}/lake", "batch.seal_by=bronze", *settings)
        return Lake(Pipeline(spark, load_config("flights", environ={}, settings=settings), contract))

    return make


@pytest.fixture
def lake(make_lake: Callable[..., Lake]) -> Lake:
    return make_lake()
