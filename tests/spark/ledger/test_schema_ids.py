"""Ids of schemas: any text, and the numbers that earlier releases kept."""

from collections.abc import Callable
from dataclasses import replace

from pipelines.contracts.contract import DataContract
from pipelines.delta.io import append
from pipelines.delta.tables import ensure_table, shape, small_frame
from pipelines.ledger.schema_lookup import most_named
from pipelines.ledger.writer_schemas import keep, keep_passed_over, kept_schemas
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
