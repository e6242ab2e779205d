"""`publish_stream`: the speed layer's events on a topic, and what is refused before anything is sent."""

import json
import os
import random
import shutil
import signal
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from pipelines.config.loader import load_config
from pipelines.contracts.contract import DataContract
from pipelines.delta.event_tables import ensure_speed
from pipelines.errors import ConfigError, InfrastructureError, SourceError
from pipelines.fault_points import Point, armed
from pipelines.ledger.quarantine import Selection
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.maintain import maintain
from pipelines.steps.publish import diagnose_publishing, publish, publishing_status
from pipelines.steps.publish_days import publish_days
from pipelines.steps.publish_reset import reset_publishing
from pipelines.steps.speed import speed
from testbed.waiting import wait_until
from tests.support.accidents import once
from tests.support.cli_calls import outcome
from tests.support.kafka import MakeTopic, make_topic
from tests.support.lake_copies import continued
from tests.support.lakes import Lake, clean_log, compact_and_vacuum, flight
from tests.support.processes import BRIEF_SETTINGS, Job, start_job
from tests.support.published import sent_by
from tests.support.readers import messages_of
from tests.support.replays import replay

FIRST = (1, 2, 3)
TABLES_OF_SPEED: tuple[Literal["speed", "quarantine"], ...] = ("speed", "quarantine")


@pytest.fixture
def output(topic: MakeTopic) -> str:
    return topic(partitions=2, name="events")


@pytest.fixture
def env(output: str) -> str:
    """An environment of this test alone, since sinks of one broker are known by it."""
    return f"env-{output}"


@pytest.fixture
def make(
    spark: SparkSession, contract: DataContract, broker: str, output: str, env: str, tmp_path: Path
) -> Callable[..., Lake]:
    def made(*settings: str, lake: str = "lake") -> Lake:
        return lake_of(spark, contract, broker, output, env, f"lake.root={tmp_path}/{lake}", *settings)

    return made


def lake_of(
    spark: SparkSession, contract: DataContract, servers: str, output: str, env: str, *settings: str
) -> Lake:
    given = (f"kafka.bootstrap_servers={servers}", f"publish.topic={output}", "publish.slots=2", *settings)
    config = load_config("flights", environ={}, settings=given).model_copy(update={"env": env})
    return Lake(Pipeline(spark, config, contract))


@pytest.fixture(scope="module")
def streamed(
    spark: SparkSession, contract: DataContract, broker: str, tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    """A lake whose speed layer has flights 1 to 3, which nobody has published."""
    root = f"lake.root={tmp_path_factory.mktemp('streamed')}/lake"
    lake = lake_of(spark, contract, broker, "nowhere", "local", root)
    stream(lake, *FIRST)
    return lake


@pytest.fixture
def begun(streamed: Lake, make: Callable[..., Lake]) -> Callable[..., Lake]:
    """Makes a copy of it, which is published to a topic of this test alone."""

    def made(*settings: str, lake: str = "lake") -> Lake:
        return continued(streamed, make(*settings, lake=lake))

    return made


def stream(lake: Lake, *numbers: int) -> None:
    """Flights that enter the speed layer, each twice."""
    lake.ingest([flight(flight=number) for number in (*numbers, *numbers)])
    speed(lake.pipeline, once=True)


def enter(lake: Lake, *numbers: int) -> None:
    """Flights that are in the speed layer."""
    lake.enter([flight(flight=number) for number in numbers])


def send(lake: Lake) -> int:
    """Publishes what there is; gives how many rows that were."""
    return publish(lake.pipeline, once=True).rows


def published(broker: str, output: str) -> Counter[int]:
    return Counter(json.loads(message.value or b"")["flight"] for message in messages_of(broker, output))


def test_a_row_that_the_topic_takes_is_sent_and_one_that_it_does_not_take_is_told(
    make: Callable[..., Lake], admin: AdminClient, broker: str, output: str
) -> None:
    lake = make()
    # What is sent is compressed, and this cannot be.
    text = b64encode(random.Random(1).randbytes(825_000)).decode()  # noqa: S311 - nothing secret
    lake.enter([flight(flight=1, tailnum=text[:1_020_000]), flight(flight=2)])
    assert send(lake) == 2
    assert published(broker, output) == Counter({1: 1, 2: 1})
    lake.enter([flight(flight=3, tailnum=text), flight(flight=4)])
    with pytest.raises(InfrastructureError, match=r"a row is larger than the output topic, .* allows"):
        send(lake)
    assert published(broker, output)[3] == 0
    resource = ConfigResource(ConfigResource.Type.TOPIC, output)
    larger = ConfigEntry("max.message.bytes", "2000000", incremental_operation=AlterConfigOpType.SET)
    resource.add_incremental_config(larger)
    admin.incremental_alter_configs([resource])[resource].result(30)
    assert send(lake) == 2
    assert published(broker, output) == Counter({1: 1, 2: 1, 3: 1, 4: 1})


def test_what_enters_the_speed_layer_is_published_once_by_the_job_as_a_process_and_here(
    begun: Callable[..., Lake], broker: str, output: str, tmp_path: Path, jobs: list[Job]
) -> None:
    lake = begun()
    lake.config = lake.config.model_copy(update={"env": "local"})
    settings = (f"lake.root={tmp_path}/lake", f"kafka.bootstrap_servers={broker}", f"publish.topic={output}")
    common = ["--pipeline", "flights", *(f"--set={setting}" for setting in (*settings, "publish.slots=2"))]
    jobs.append(start_job("publish_stream --once", tmp_path, *common, *BRIEF_SETTINGS))
    assert jobs[0].wait() == 0, jobs[0].log.read_text()[-3000:]
    assert jobs[0].summary()["counts"] == {"rows": 3, "batches": 1, "slots_done_before": 0}
    code, status = outcome("publish status", *common)
    assert (code, status["agrees"]) == (0, True)
    code, advice = outcome("publish doctor", *common)
    assert code == 0
    assert advice["limits"]["offsets.retention.minutes"] == "1 week"
    assert advice["limits"]["transaction.max.timeout.ms"] == "15 minutes"
    assert advice["replicas"] == {output: 1, "__consumer_offsets": 1, "__transaction_state": 1}
    (warning,) = advice["warnings"]
    assert f"topic {output}: found cleanup.policy = delete" in warning
    assert warning in jobs[0].log.read_text(), "the stream did not warn"
    code, refused = outcome("publish reset --to beginning", *common)
    assert code == 2
    assert "checkpoint exists" in refused["error"]
    # It goes on from there, whoever runs it.
    enter(lake, 4)
    assert send(lake) == 1
    assert published(broker, output) == Counter([1, 2, 3, 4])
    # Keys go where Java's producers send them.
    java: Any = lake.spark.sparkContext._jvm
    utils = java.org.apache.kafka.common.utils.Utils
    for message in messages_of(broker, output):
        assert utils.toPositive(utils.murmur2(bytearray(message.key or b""))) % 2 == message.partition
    told = publishing_status(lake.pipeline)
    assert (told.problem, told.slots) == (None, {0: 2, 1: 2})
    assert (told.checkpoint.next_batch, told.checkpoint.in_flight) == (2, None)


def test_values_in_avro_by_a_schema_that_the_registry_has(
    make: Callable[..., Lake], streamed: Lake, output: str, registry: SchemaRegistryClient, url: str
) -> None:
    with pytest.raises(ConfigError, match=r"publish: format: avro needs registry\.url"):
        make("publish.format=avro")
    lake = continued(streamed, make("publish.format=avro", f"registry.url={url}"))
    send(lake)
    schema = registry.get_latest_version(f"{output}-value")
    read = AvroDeserializer(registry)
    found = [read(message.value, None) for message in sent_by(lake)]
    assert sorted(each["flight"] for each in found) == [*FIRST]
    assert found[0]["scheduled_departure"] == datetime(2013, 1, 1, 10, 15, tzinfo=UTC)
    # The next start puts nothing into the registry.
    enter(lake, 4)
    assert send(lake) == 1
    assert registry.get_latest_version(f"{output}-value").schema_id == schema.schema_id
    taken = f"{output}-taken"
    registry.register_schema(taken, Schema('{"type": "record", "name": "other", "fields": []}', "AVRO"))
    registry.set_compatibility(taken, level="BACKWARD")
    other = make("publish.format=avro", f"registry.url={url}", f"publish.subject={taken}")
    with pytest.raises(ConfigError, match=f"refuses the schema of subject '{taken}'"):
        send(lake.variant(config=other.config))


def test_a_speed_layer_that_was_put_back_with_its_checkpoint_writes_nothing_that_would_be_passed_over(
    streamed: Lake, begun: Callable[..., Lake], broker: str, output: str
) -> None:
    lake = begun()
    stream(lake, 4)
    assert send(lake) == 4
    for now, before in zip(places_of_speed(lake), places_of_speed(streamed), strict=True):
        shutil.rmtree(now)
        shutil.copytree(before, now)
    upkeep = partial(maintain, lake.pipeline, "upkeep", dry_run=False)
    again = partial(replay, lake.pipeline, "replay", Selection(), dry_run=False)
    for refused in (partial(stream, lake, 5), partial(send, lake), upkeep, again):
        with pytest.raises(
            SourceError, match=r"which publish_stream has read .* publish reset --pipeline"
        ) as no:
            refused()
        assert no.value.exit_code == 4
    # As the message says.
    publishing = Path(lake.config.checkpoint("publish"))
    publishing.rename(publishing.with_name("aside"))
    reset_publishing(lake.pipeline, "beginning", None)
    stream(lake)
    send(lake)
    assert published(broker, output) == Counter({1: 2, 2: 2, 3: 2, 4: 2, 5: 1})


def places_of_speed(lake: Lake) -> list[Path]:
    config = lake.config
    return [*(Path(config.table(name)) for name in TABLES_OF_SPEED), Path(config.checkpoint("speed"))]


@pytest.mark.thorough
def test_another_number_of_slots_between_two_runs(
    make: Callable[..., Lake], broker: str, output: str
) -> None:
    stream(make(), 1, 2, 3)
    send(make())
    stream(make(), 4, 5, 6, 7)
    assert send(make("publish.slots=5")) == 4
    stream(make(), 8)
    assert send(make("publish.slots=1")) == 1
    assert published(broker, output) == Counter(range(1, 9))


def test_a_checkpoint_that_is_lost_or_anothers_and_a_topic_made_anew_are_refused_until_somebody_says_more(
    begun: Callable[..., Lake], admin: AdminClient, broker: str, output: str
) -> None:
    lake, other = begun(), begun(lake="other")
    with pytest.raises(ConfigError, match="there is no checkpoint to continue from"):
        reset_publishing(lake.pipeline, "checkpoint", None)
    send(lake)
    with pytest.raises(ConfigError, match="the checkpoint exists"):
        reset_publishing(lake.pipeline, "beginning", None)
    # Another deployment of the same name has none either.
    shutil.rmtree(lake.config.checkpoint("publish"))
    for each in (other, lake):
        with pytest.raises(SourceError, match=r"its checkpoint .* does not exist"):
            send(each)
    assert publishing_status(lake.pipeline).problem
    reset_publishing(lake.pipeline, "beginning", None)
    assert send(lake) == 3
    assert published(broker, output) == Counter({1: 2, 2: 2, 3: 2})
    admin.delete_topics([output])[output].result(30)
    with pytest.raises(ConfigError, match=f"publish.topic: there is no topic '{output}'"):
        send(lake)
    make_topic(admin, NewTopic(output, 1, 1))
    with pytest.raises(SourceError, match=r"was recreated, or is another.* --to checkpoint --accept-missing"):
        send(lake)
    # What it had sent to the earlier topic has to be done without by name.
    with pytest.raises(ConfigError, match=r"published to another topic: .* may lack micro-batch"):
        reset_publishing(lake.pipeline, "checkpoint", None)
    assert reset_publishing(lake.pipeline, "checkpoint", None, accept_missing=True).missing.start == 0


@pytest.mark.parametrize("lose", [compact_and_vacuum, pytest.param(clean_log, marks=pytest.mark.thorough)])
def test_rows_that_were_lost_before_they_were_published_are_told(
    begun: Callable[..., Lake], broker: str, output: str, lose: Callable[[SparkSession, str], None]
) -> None:
    lake = begun()
    send(lake)
    enter(lake, 4)
    enter(lake, 5)
    lose(lake.spark, lake.config.table("speed"))
    for _ in range(2):
        with pytest.raises(SourceError, match=r"speed.* docs/publishing\.md, 'When versions are gone'"):
            send(lake)
    assert published(broker, output) == Counter(FIRST)


@pytest.mark.thorough
def test_a_contract_that_grows_while_the_stream_runs(
    make: Callable[..., Lake], broker: str, output: str
) -> None:
    old = make("publish.trigger_interval=1 second")
    stream(old, 1)
    gate = StructField("gate", StringType())
    schema = StructType([*old.contract.schema, gate])
    new = old.variant(contract=replace(old.contract, version="1.1.0", schema=schema))

    def grow() -> None:
        try:
            wait_until(lambda: len(messages_of(broker, output)) == 1, "the stream runs")
            ensure_speed(new.pipeline)
        except BaseException:
            # Else nobody would end the stream.
            os.kill(os.getpid(), signal.SIGTERM)
            raise

    with ThreadPoolExecutor(1) as beside:
        growing = beside.submit(grow)
        with pytest.raises(
            InfrastructureError,
            match="were changed while it was read; start again",
        ):
            publish(old.pipeline, once=False)
        growing.result()
    new.ingest([flight(flight=2, gate="B2")])
    speed(new.pipeline, once=True)
    assert send(new) == 1
    values = [json.loads(message.value or b"") for message in messages_of(broker, output)]
    assert sorted((each["flight"], each.get("gate", "none then")) for each in values) == [
        (1, "none then"),
        (2, "B2"),
    ]


@pytest.mark.thorough
def test_somebody_who_takes_the_slots_meanwhile_is_told_and_so_is_a_cluster_that_is_not_there(
    make: Callable[..., Lake], begun: Callable[..., Lake]
) -> None:
    first, other = begun(), begun(lake="other")

    def another() -> None:
        shutil.rmtree(first.config.checkpoint("publish"), ignore_errors=True)
        publish(other.pipeline, once=True)

    with (
        armed(Point.PROGRESS_AGREES, once(another)),
        pytest.raises(SourceError, match=r"progress belongs to another stream: .* publish status"),
    ):
        send(first)
    with pytest.raises(InfrastructureError, match="localhost:1: the cluster of the output topic does not"):
        send(make("publish.bootstrap_servers=localhost:1", "kafka.connect_timeout=2 seconds"))


def test_a_time_out_that_the_cluster_refuses_is_refused_by_all_who_would_publish(
    make: Callable[..., Lake],
) -> None:
    lake = make("publish.transaction_timeout=1 hour")
    all_who_would: tuple[Callable[[], object], ...] = (
        partial(diagnose_publishing, lake.config),
        partial(send, lake),
        partial(publish_days, lake.pipeline, "run", [], again=False),
    )
    for begin in all_who_would:
        with pytest.raises(ConfigError, match=r"transaction_timeout: expected 15 minutes .* got 1 hour"):
            begin()
