"""Values that begin with a byte 0 by chance cost few questions to the registry, and no good record."""

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.errors import SourceError
from pipelines.registry.confluent import ConfluentRegistry
from pipelines.registry.wire_format import WriterSchema
from pipelines.steps.serving import read_serving
from pipelines.steps.speed import speed
from tests.support.avro import FIELDS, departure, encoded, framed, record
from tests.support.lake_copies import lake_in
from tests.support.lakes import Lake
from tests.support.nights import ONE, run

SCHEMA = record(FIELDS)
# The same, from elsewhere: one text has one id.
OTHER = {**SCHEMA, "doc": "the same, from elsewhere"}
# More than are asked for at a time, and each more frequent than one good record.
JUNK = [framed(1_000_000_000 + n, b"x") for n in range(300)] * 2
# With a hundred good records more than quarantine.max_share of all, by themselves.
BROKEN = [b"no schema's id"] * 800
# One round of questions.
ASKED_IN_VAIN = 50


def flights(number: int, *which: int) -> list[bytes]:
    return [framed(number, encoded(SCHEMA, departure(flight=flight))) for flight in which]


@dataclass
class History:
    """What became of a lake, and which ids the real registry was asked for meanwhile.

    Attributes:
        lake: the lake.
        common: the schema that a hundred records name.
        rare: the schema that one record among junk names, and later twenty.
        seen: what streams and nights said, by moment.
        asked: the ids that the registry was asked for, by moment.
    """

    lake: Lake
    common: int
    rare: int
    seen: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, list[int]] = field(default_factory=dict)

    def stream(self, moment: str, share: float = 0.5) -> None:
        """Let the stream do what it can, under a limit for broken records."""
        limit = self.lake.config.quarantine.model_copy(update={"max_share": share})
        config = self.lake.config.model_copy(update={"quarantine": limit})
        self.asked[moment] = []
        try:
            self.seen[moment] = speed(replace(self.lake.pipeline, config=config), once=True).counts
        except SourceError as refusal:
            self.seen[moment] = str(refusal)


@pytest.fixture(scope="module")
def lake(
    spark: SparkSession, contract: DataContract, url: str, tmp_path_factory: pytest.TempPathFactory
) -> Lake:
    avro = replace(contract, value_format="avro", day_rules=())
    settings = (f"registry.url={url}", "quarantine.min_records=10")
    return lake_in(tmp_path_factory.mktemp("unknown"), spark, avro, *settings)


@pytest.fixture(scope="module")
def history(lake: Lake, registry: SchemaRegistryClient) -> History:
    common, rare = (
        registry.register_schema(f"unknown-{name}-value", Schema(json.dumps(schema), "AVRO"))
        for name, schema in (("common", SCHEMA), ("rare", OTHER))
    )
    history, ask = History(lake, common, rare), ConfluentRegistry.schema

    def asking(self: ConfluentRegistry, schema_id: str) -> WriterSchema | None:
        list(history.asked.values())[-1].append(int(schema_id))
        return ask(self, schema_id)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ConfluentRegistry, "schema", asking)
        _happens(history)
    return history


def _happens(history: History) -> None:
    lake, rare = history.lake, history.rare
    lake.ingest([*BROKEN, *JUNK, *flights(history.common, *range(1, 101))])
    history.stream("masses are broken")
    history.stream("a good schema among junk", share=0.95)
    # Of its own micro-batch, so that nothing else leads the rebuild of the day to it.
    lake.ingest([*JUNK, *flights(rare, 101)])
    history.stream("junk")
    history.stream("junk is let through", share=1)
    history.asked["a night"] = []
    history.seen["a night"] = run(lake, ONE).days
    history.seen["before"] = read_serving(lake.pipeline).count()
    lake.ingest(flights(rare, *range(102, 122)))
    history.stream("a new schema alone")
    history.asked["another night"] = []
    history.seen["another night"] = run(lake, ONE).days


@pytest.mark.thorough
def test_masses_of_broken_records_are_refused_before_the_registry_is_asked(history: History) -> None:
    assert "break the contract" in history.seen["masses are broken"]
    assert history.asked["masses are broken"] == []


def test_a_new_schema_is_learned_among_junk_by_few_questions(history: History) -> None:
    moment = "a good schema among junk"
    counts, asked = history.seen[moment], history.asked[moment]
    assert (counts.rows, counts.quarantined) == (100, len(BROKEN) + len(JUNK))
    reasons = Counter(row["_reason"] for row in history.lake.table("quarantine").select("_reason").collect())
    # The second lot of junk, and the one record that was passed over with it, came later.
    assert reasons == {"no_schema_id": len(BROKEN), "unknown_schema": 2 * len(JUNK) + 1}
    # The good one is asked for first, as most records name it.
    assert asked[0] == history.common
    assert len(asked) <= 1 + 2 * ASKED_IN_VAIN


@pytest.mark.thorough
def test_junk_is_refused_after_few_questions(history: History) -> None:
    assert "break the contract" in history.seen["junk"]
    assert 0 < len(history.asked["junk"]) <= ASKED_IN_VAIN


@pytest.mark.thorough
def test_a_micro_batch_of_a_new_schema_alone_passes_the_gate(history: History) -> None:
    assert history.seen["a new schema alone"].rows == 20


def test_a_rare_schema_that_was_passed_over_is_made_good_when_it_is_known(history: History) -> None:
    assert history.seen["junk is let through"].quarantined == len(JUNK) + 1
    assert history.rare not in history.asked["junk is let through"] + history.asked["a night"]
    assert history.seen["a night"] == history.seen["another night"] == {ONE: "certified"}
    assert history.seen["before"] == 100
    assert history.rare in history.asked["a new schema alone"]
    flown = [row["flight"] for row in read_serving(history.lake.pipeline).orderBy("flight").collect()]
    assert flown == [*range(1, 122)]
