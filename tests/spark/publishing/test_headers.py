"""Headers by name and as a list are the same headers, and have the same digest."""

import random

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.publishing.headers import LISTED, hashed, headers_of, listed

NAMED = "struct<`oncelake.topic`: string, p: int, o: bigint, why: string>"


def rows_by_name(spark: SparkSession) -> DataFrame:
    draw = random.Random(7)  # noqa: S311 - nothing secret
    rows = [
        (
            (
                draw.choice(["flights", "", "ü", None]),
                draw.choice([0, 3, -1, None]),
                draw.randrange(-(2**63), 2**63),
                draw.choice(["removed", None]),
            ),
        )
        for _ in range(200)
    ]
    return spark.createDataFrame(rows, f"headers {NAMED}")


def test_a_micro_batch_that_was_sent_with_lists_has_the_same_digest_by_name(spark: SparkSession) -> None:
    by_name = rows_by_name(spark)
    as_lists = by_name.select(listed(by_name).alias("headers"))
    assert as_lists.schema["headers"].dataType.simpleString() == LISTED.replace(": ", ":").replace(", ", ",")
    hashes = [
        [row[0] for row in frame.select(F.xxhash64(F.lit(1), *hashed(frame))).collect()]
        for frame in (by_name, as_lists)
    ]
    assert hashes[0] == hashes[1]
    assert len({*hashes[0]}) == 200


def test_both_forms_give_producers_the_same(spark: SparkSession) -> None:
    by_name = rows_by_name(spark)
    as_lists = by_name.select(listed(by_name).alias("headers"))
    sent = [
        [pairs for batch in frame.toArrow().to_batches() for pairs in headers_of(batch.column("headers"))]
        for frame in (by_name, as_lists)
    ]
    assert sent[0] == sent[1]
    assert {len(pairs) for pairs in sent[0]} == {1, 2, 3, 4}
