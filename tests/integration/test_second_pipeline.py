"""A second pipeline is two YAML files and no code: the weather at New York's airports."""

import json
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from pyspark.sql import SparkSession

from demo.source import read_weather
from pipelines.config.loader import load_config
from pipelines.contracts.event_days import days_of
from pipelines.formats.contract_files import load_contract
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.ingest import ingest
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from pipelines.steps.speed import speed
from tests.support.kafka import MakeTopic, ordered_producer

DAYS = [date(2013, 1, 1), date(2013, 1, 2)]


@pytest.mark.thorough
def test_weather_goes_from_kafka_to_certified_days_without_code(
    spark: SparkSession, broker: str, topic: MakeTopic, tmp_path: Path
) -> None:
    name, events = topic(), list(read_weather([*DAYS, date(2013, 1, 3)]))
    producer = ordered_producer(broker)
    for n, event in enumerate(events):
        at = datetime.fromisoformat(str(event["time_hour"])).astimezone(UTC) + timedelta(minutes=5)
        for _ in range(2 if n % 10 == 0 else 1):
            producer.produce(name, json.dumps(event), timestamp=int(at.timestamp() * 1000))
    assert producer.flush(60) == 0

    settings = (f"lake.root={tmp_path}/lake", f"kafka.topic={name}", f"kafka.bootstrap_servers={broker}")
    config = load_config("weather", environ={}, settings=settings)
    contract = load_contract(Path("data_contracts") / config.contract)
    ingest(Pipeline(spark, config, contract), once=True)
    speed(Pipeline(spark, config, contract), once=True)
    done = nightly(Pipeline(spark, config, contract), "run", days_of(DAYS[0], DAYS[-1]))
    assert done.days == dict.fromkeys(DAYS, "certified")

    served = read_serving(Pipeline(spark, config, contract)).select("origin", "time_hour", "temp").toPandas()
    keys = Counter(zip(served["origin"], served["time_hour"].dt.tz_localize("UTC"), strict=True))
    sent = {(e["origin"], pd.Timestamp(str(e["time_hour"])).tz_convert("UTC")) for e in events}
    assert keys == Counter(sent)
