"""What the index counts of offsets, held against the records themselves."""

from collections.abc import Callable
from random import Random

from pipelines.delta.tables import version
from pipelines.ledger.bronze_indexer import index_bronze
from tests.support.lakes import Lake, Record, flight


def test_different_offsets_are_counted_whatever_comes_twice_or_is_missing(
    make_lake: Callable[..., Lake],
) -> None:
    random = Random(0)  # noqa: S311 - nothing here is secret
    lake, held = make_lake(), dict[int, list[int]]()
    for begin in (0, 200, 400):
        records = []
        for partition in range(2):
            # More than a block of offsets, with gaps, and some of them twice within the micro-batch.
            offsets = random.choices(range(begin, begin + 150), k=120)
            records += [Record(flight(), partition, offset) for offset in offsets]
            held.setdefault(partition, []).extend(offsets)
        lake.ingest(records)
    bronze = version(lake.spark, lake.config.table("bronze"))
    counted = {each.partition: each for each in index_bronze(lake.pipeline, bronze).offsets()}
    for partition, offsets in held.items():
        each = counted[partition]
        assert (each.first, each.last) == (min(offsets), max(offsets))
        assert (each.records, each.distinct) == (len(offsets), len({*offsets}))
