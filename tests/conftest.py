"""What tests share: a Spark session, a broker with fresh topics, a registry, lakes in temporary folders."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from hypothesis import settings
from pyspark.sql import SparkSession

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import DayRule
from pipelines.formats.contract_files import load_contract
from pipelines.runtime.processes import graceful_shutdown
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import forget_tables, spark_session
from testbed.schema_registry import schema_registry
from testbed.short_lived_settings import BRIEF_SPARK
from tests.support.java_link import drop_if_out_of_step
from tests.support.kafka import MakeTopic, brief_broker, fresh_topics
from tests.support.lakes import Lake, lake_that_publishes
from tests.support.processes import LASTING_JAVA, Job


def pytest_configure(config: pytest.Config) -> None:
    """Ends brokers, registries and jobs with the run that started them, in each of pytest's processes."""
    stack = ExitStack()
    stack.enter_context(graceful_shutdown())
    config.add_cleanup(stack.close)
    # On a machine that has other work an example takes longer than Hypothesis allows.
    settings.register_profile("unhurried", deadline=None)
    settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    config = load_config(
        "flights",
        environ={},
        settings=[
            "spark.master=local[2]",
            # See the fixture `two_partitions`.
            "speed.state_partitions=1",
            # Each plan runs once or twice, which does not pay for compiling it. The tests that start jobs as
            # processes do compile.
            *BRIEF_SPARK,
            # Spark looks at each plan after each of its rules, which takes time. It does in the jobs that
            # tests start as processes.
            "spark.conf.spark.sql.lightweightPlanChangeValidation=false",
            f"spark.conf.spark.driver.extraJavaOptions={LASTING_JAVA}",
            # It lives for many tests. Each streaming query clones the session, and threads of Spark's pools
            # keep the clones that they were started from: some 20 MB each.
            "spark.conf.spark.driver.memory=3g",
            "spark.conf.spark.sql.ui.retainedExecutions=10",
            # Files have few rows, and a reader makes room for so many at once.
            "spark.conf.spark.sql.parquet.columnarReaderBatchSize=256",
            "spark.conf.spark.sql.streaming.stopTimeout=60s",
        ],
    )
    session = spark_session(config, "tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def two_partitions(spark: SparkSession) -> Iterator[None]:
    """Let state and shuffles have two partitions. Otherwise one task does all, since there are few rows."""
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    yield
    spark.conf.set("spark.sql.shuffle.partitions", "1")


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


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """Bootstrap servers of a running broker."""
    with brief_broker() as servers:
        yield servers


@pytest.fixture(scope="session")
def admin(broker: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker})


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    """Where a real schema registry answers."""
    with schema_registry() as address:
        yield address


@pytest.fixture(scope="session")
def registry(url: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url})


@pytest.fixture
def topic(admin: AdminClient) -> Iterator[MakeTopic]:
    """Make topics with names of their own: `topic(partitions=3, name="flights", **{"retention.ms": "1"})`."""
    with fresh_topics(admin) as make:
        yield make


@pytest.fixture
def publishing_lake(spark: SparkSession, broker: str, tmp_path: Path) -> Callable[..., Lake]:
    """Makes a lake that publishes to a topic in two slots: `publishing_lake(contract, output, "a.b=c")`."""

    return partial(lake_that_publishes, spark, broker, tmp_path)


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    """Jobs that a test starts; they end with it at the latest."""
    started: list[Job] = []
    yield started
    for job in started:
        job.kill()
