"""Values that begin with a byte 0 by chance cost few questions to the registry, and no good record."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from pipelines.contracts.contract import DataContract
from pipelines.errors import SourceError
from pipelines.registry.confluent import ConfluentRegistry
from pipelines.registry.wire_format import WriterSchema
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.nightly import nightly
from pipelines.steps.serving import read_serving
from pipelines.steps.speed import speed
from tests.support.avro import FIELDS, departure, encoded, framed, record
from tests.support.lakes import Lake
from tests.support.nights import ONE

SCHEMA = record(FIELDS)
# More than are asked for at a time, and each more frequent than one good record.
JUNK = [framed(1_000_000_000 + n, b"x") for n in range(300)] * 2
# One round of questions.
ASKED_IN_VAIN = 50

MakeLake = Callable[..., Lake]


@pytest.fixture
def lake(make_lake: MakeLake, contract: DataContract, url: str) -> Lake:
    avro = replace(contract, value_format="avro", day_rules=())
    return make_lake(f"registry.url={url}", "quarantine.min_records=10", contract=avro)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids that the real registry is asked for."""
    ids: list[int] = []
    ask = ConfluentRegistry.schema

    def asking(self: ConfluentRegistry, number: int) -> WriterSchema | None:
        ids.append(number)
        return ask(self, number)

    monkeypatch.setattr(ConfluentRegistry, "schema", asking)
    return ids


def register(registry: SchemaRegistryClient, subject: str) -> int:
    return registry.register_schema(subject, Schema(json.dumps(SCHEMA), "AVRO"))


def flights(number: int, *which: int) -> list[bytes]:
    return [framed(number, encoded(SCHEMA, departure(flight=flight))) for flight in which]


def with_share(lake: Lake, share: float) -> Lake:
    quarantine = lake.config.quarantine.model_copy(update={"max_share": share})
    return lake.variant(config=lake.config.model_copy(update={"quarantine": quarantine}))


def test_a_new_schema_is_learned_among_junk_by_few_questions(
    lake: Lake, registry: SchemaRegistryClient, asked: list[int]
) -> None:
    number = register(registry, "among-junk-value")
    lake.ingest([*JUNK, *flights(number, *range(1, 101))])

    counts = speed(Pipeline(lake.spark, with_share(lake, 0.9).config, lake.contract), once=True)["counts"]

    assert (counts["rows"], counts["quarantined"]) == (100, len(JUNK))
    assert {row["_reason"] for row in lake.table("quarantine").toLocalIterator()} == {"unknown_schema"}
    # The good one is asked for first, as most records name it.
    assert asked[0] == number
    assert len(asked) <= 1 + 2 * ASKED_IN_VAIN


def test_a_micro_batch_of_a_new_schema_alone_passes_the_gate(
    lake: Lake, registry: SchemaRegistryClient
) -> None:
    number = register(registry, "alone-value")
    lake.ingest(flights(number, *range(1, 21)))
    assert speed(lake.pipeline, once=True)["counts"]["rows"] == 20


def test_masses_of_broken_records_are_refused_before_the_registry_is_asked(
    lake: Lake, asked: list[int]
) -> None:
    # More than quarantine.max_share of all by themselves.
    lake.ingest([b"no schema's id"] * (len(JUNK) + 1) + JUNK)
    with pytest.raises(SourceError, match="break the contract"):
        speed(lake.pipeline, once=True)
    assert asked == []


def test_junk_is_refused_after_few_questions(lake: Lake, asked: list[int]) -> None:
    lake.ingest(JUNK)
    with pytest.raises(SourceError, match="break the contract"):
        speed(lake.pipeline, once=True)
    assert 0 < len(asked) <= ASKED_IN_VAIN


def test_a_rare_schema_that_was_passed_over_is_made_good_when_it_is_known(
    lake: Lake, registry: SchemaRegistryClient, asked: list[int]
) -> None:
    common, rare = (register(registry, f"passed-over-{name}-value") for name in ("a", "b"))
    if rare == common:  # One text, one id: another text.
        other = Schema(json.dumps({**SCHEMA, "doc": "the same, from elsewhere"}), "AVRO")
        rare = registry.register_schema("passed-over-b-value", other)
    tolerant = with_share(lake, 1.0)
    lake.ingest(flights(common, 1))
    speed(replace(lake.pipeline, config=tolerant.config), once=True)
    # Of its own micro-batch, so that nothing else leads the rebuild of the day to it.
    lake.ingest([*JUNK, *flights(rare, 2)])
    speed(replace(lake.pipeline, config=tolerant.config), once=True)
    nightly(replace(lake.pipeline, config=tolerant.config), "first", [ONE])
    assert rare not in asked
    assert read_serving(lake.pipeline).count() == 1
    night = len(asked)

    lake.ingest(flights(rare, 3, 4))
    speed(replace(lake.pipeline, config=tolerant.config), once=True)
    assert rare in asked[night:]
    done = nightly(replace(lake.pipeline, config=tolerant.config), "second", [ONE])

    assert done["days"] == {ONE.isoformat(): "certified"}
    flown = [row["flight"] for row in read_serving(lake.pipeline).orderBy("flight").collect()]
    assert flown == [1, 2, 3, 4]
