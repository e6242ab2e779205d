"""Ids of schemas: any text, and the numbers that earlier releases kept."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append
from pipelines.delta.tables import ensure_table, shape, small_frame
from pipelines.errors import SourceError
from pipelines.ledger import schema_lookup
from pipelines.ledger.schema_lookup import learn, most_named
from pipelines.ledger.writer_schemas import keep, keep_passed_over, kept_elsewhere, kept_schemas
from pipelines.registry.wire_format import WriterSchema, ordered_ids
from tests.support.lakes import EPOCH, Lake

UUID = "b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63"
BEFORE = "pipeline string, registry string, id bigint, kind string, text string, fetched_at timestamp"


def test_an_id_may_be_any_text_beside_numbers_of_an_earlier_release(
    make_lake: Callable[..., Lake], contract: DataContract
) -> None:
    lake = make_lake("registry.url=http://registry", contract=replace(contract, value_format="avro"))
    table = lake.config.ops_table("writer_schemas")
    before = shape(BEFORE)
    ensure_table(lake.spark, table, before)
    row = {"pipeline": "flights", "registry": "http://registry", "kind": "AVRO", "text": "{}"}
    append(small_frame(lake.spark, [{**row, "id": 7, "fetched_at": EPOCH}], before), table)
    assert list(kept_schemas(lake.pipeline)) == ["7"]

    keep(lake.pipeline, {UUID: WriterSchema(UUID, "AVRO", "{}"), "12": WriterSchema("12", "AVRO", "{}")})
    keep_passed_over(lake.pipeline)

    assert {*kept_schemas(lake.pipeline)} == {"7", "12", UUID, "-1"}
    numbers = lake.spark.read.format("delta").load(table).select("id").collect()
    assert {row["id"] for row in numbers} == {7, 12, -1, None}


def test_numbers_are_in_the_order_of_numbers_and_the_most_frequent_first(
    make_lake: Callable[..., Lake],
) -> None:
    assert ordered_ids(["10", "9", UUID, "1"]) == ["1", "9", "10", UUID]
    ids = make_lake().spark.createDataFrame([("10",), ("9",), ("3",), ("3",), ("4",), (None,)], "id string")
    assert most_named(ids, {"10", "4"}) == (["4", "10"], ["3", "9"])


def record_of(kind: str) -> str:
    return f'{{"type": "record", "name": "r", "fields": [{{"name": "a", "type": "{kind}"}}]}}'


class OtherRegistry:
    """Has another schema with the id 8."""

    def schema(self, schema_id: str) -> WriterSchema:
        return WriterSchema(schema_id, "AVRO", record_of("string" if schema_id == "7" else "long"))


def test_a_new_registry_with_another_schema_for_an_id_is_not_believed(
    make_lake: Callable[..., Lake], contract: DataContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    avro: Any = replace(contract, value_format="avro")
    old, new = (make_lake(f"registry.url=http://{name}", contract=avro) for name in ("old", "new"))
    assert kept_elsewhere(new.pipeline) == {}
    text = record_of("string")
    answers = {"7": f" {text}", "8": text, "9": ""}
    keep(old.pipeline, {id_: WriterSchema(id_, "AVRO", text) for id_, text in answers.items()})
    keep_passed_over(old.pipeline)
    assert kept_elsewhere(old.pipeline) == {}
    assert kept_elsewhere(new.pipeline) == {
        "7": {"http://old": f" {text}"},
        "8": {"http://old": text},
    }
    monkeypatch.setattr(schema_lookup, "open_registry", lambda _: OtherRegistry())
    with pytest.raises(SourceError, match="schema with the id 8 is another one than the lake keeps"):
        learn(new.pipeline, ["7", "8"])
    assert kept_schemas(new.pipeline) == {"7": WriterSchema("7", "AVRO", text)}
