"""Tables are found in a catalog under their names, with what the contract says of them."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.delta.event_tables import ensure_batch, ensure_speed
from pipelines.delta.record_tables import ensure_bronze
from pipelines.delta.tables import version
from pipelines.errors import ConfigError
from pipelines.steps import registration
from pipelines.steps.registration import Registration, register
from pipelines.steps.serving import stale_view
from pipelines.steps.serving_table import refresh_table
from tests.support.engines import rows_of
from tests.support.lakes import Lake
from tests.support.nights import ONE, on, run, stream

DATABASE = "registered"


@pytest.fixture
def filed(lake: Lake) -> Lake:
    """A lake without quarantine, whose tables go to a database."""
    serving = lake.config.serving.model_copy(update={"database": DATABASE})
    lake.config = lake.config.model_copy(update={"serving": serving})
    lake.contract = replace(lake.contract, personal={"tailnum": "hash"})
    for ensure in (ensure_bronze, ensure_speed, ensure_batch):
        ensure(lake.pipeline)
    return lake


def comments_of(lake: Lake, table: str) -> dict[str, str]:
    columns = lake.spark.sql(f"DESCRIBE TABLE {table}").where("comment IS NOT NULL")
    return {row["col_name"]: row["comment"] for row in columns.collect()}


def test_a_catalog_that_ends_with_the_session_is_refused(filed: Lake) -> None:
    with pytest.raises(ConfigError, match=r"found in-memory.*expected hive"):
        register(filed.pipeline)


def test_tables_are_registered_once_with_comments_and_classes(
    filed: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, speed = filed.spark, filed.config.table("speed")
    # The catalog of the tests is in memory.
    monkeypatch.setattr(registration, "IMPLEMENTATION", "spark.app.name")
    with pytest.raises(ConfigError, match=r"serving.database: registered: found .*SCHEMA_NOT_FOUND"):
        register(filed.pipeline)
    spark.sql(f"CREATE DATABASE {DATABASE}")
    try:
        done = register(filed.pipeline)
        names = [f"{DATABASE}.{layer}_flights" for layer in ("bronze", "speed", "batch")]
        assert done == Registration(
            dict.fromkeys(names, "registered"), None, (filed.config.table("quarantine"),)
        )
        at = version(spark, speed)
        again = register(filed.pipeline)
        assert (set(again.entries.values()), version(spark, speed)) == ({"as before"}, at)

        comments = comments_of(filed, f"{DATABASE}.speed_flights")
        assert comments["arrival_delay"] == "Minutes; negative is early."
        assert comments["_offset"] == "Offset of the record in its partition."
        shown = spark.sql(f"SHOW TBLPROPERTIES {DATABASE}.speed_flights").collect()
        properties = {row["key"]: row["value"] for row in shown}
        assert properties["oncelake.personal"] == "tailnum=hash"
        assert properties["oncelake.contract"] == "nyc-flights 1.0.0"

        # Another table has the name.
        spark.sql(f"DROP TABLE {DATABASE}.batch_flights")
        spark.sql(f"CREATE TABLE {DATABASE}.batch_flights (id int) USING DELTA")
        spark.sql(f"DROP TABLE {DATABASE}.bronze_flights")
        with pytest.raises(
            ConfigError, match=r"registered.batch_flights: found .*another table has the name"
        ):
            register(filed.pipeline)
        assert not spark.catalog.tableExists(f"{DATABASE}.bronze_flights")
    finally:
        spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


@pytest.mark.thorough
def test_streams_and_nights_go_on_after_it(
    lake: Lake, small: DataContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.contract = small
    lake.ingest([on(1, 1), on(1, 2)])
    assert stream(lake).counts.rows == 2
    monkeypatch.setattr(registration, "IMPLEMENTATION", "spark.app.name")
    lake.spark.sql(f"CREATE DATABASE {DATABASE}")
    try:
        view = f"{DATABASE}.all_flights"
        asked = {"database": DATABASE, "table": True, "view": view}
        serving = lake.config.serving.model_copy(update=asked)
        lake.config = lake.config.model_copy(update={"serving": serving})
        assert register(lake.pipeline).view is None
        lake.ingest([on(1, 3), on(3, 4)])
        assert stream(lake).counts.rows == 2
        assert run(lake, ONE).days == {ONE: "certified"}
        refresh_table(lake.pipeline)
        done = register(lake.pipeline)
        assert (done.entries[f"{DATABASE}.flights"], done.view) == ("registered", view)
        assert comments_of(lake, view)["arrival_delay"] == "Minutes; negative is early."
        assert stale_view(lake.pipeline) == []
        assert rows_of(lake.config.serving_table) == [(ONE, 1), (ONE, 2), (ONE, 3)]
        assert lake.spark.table(f"{DATABASE}.flights").count() == 3
    finally:
        lake.spark.sql(f"DROP DATABASE {DATABASE} CASCADE")


@pytest.mark.thorough
def test_a_metastore_keeps_them(filed: Lake, tmp_path: Path) -> None:
    metastore = f"{tmp_path}/metastore;create=true"
    session = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"{tmp_path}/warehouse",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={metastore}",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }
    settings = [f"spark.conf.{key}={value}" for key, value in session.items()]
    settings += [f"lake.root={filed.config.root}", "serving.database=default", "spark.master=local[1]"]
    words = [sys.executable, "-m", "pipelines.cli", "catalog", "register", "--pipeline", "flights"]
    words += ["--log-format", "json", *(word for setting in settings for word in ("--set", setting))]

    def registered() -> set[str]:
        done = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return {*json.loads(done.stdout.splitlines()[-1])["tables"].values()}

    # Another process finds what the first has left.
    assert registered() == {"registered"}
    assert registered() == {"as before"}
