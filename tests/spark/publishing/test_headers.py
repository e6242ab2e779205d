"""Headers by name and as a list are the same headers, and have the same digest."""

import random

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.errors import ConfigError
from pipelines.publishing.headers import LISTED, hashed, headers_of, listed
from pipelines.publishing.transactional_sink import TransactionalSink, in_slots

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


def test_a_header_whose_text_could_differ_is_refused(spark: SparkSession) -> None:
    for kind in ("double", "timestamp", "binary", "boolean", "struct<a: int>"):
        rows = spark.createDataFrame([], f"headers struct<h: string, x: {kind}>")
        for use in (listed, hashed):
            with pytest.raises(ConfigError, match=r"headers\.x: found .*, expected text or an integer"):
                use(rows)


def test_a_micro_batch_begun_by_code_that_sent_lists_is_finished_by_names(spark: SparkSession) -> None:
    by_name = rows_by_name(spark)

    def pair(name: str) -> Column:
        value = F.col("headers").getField(name).cast("string").cast("binary")
        return F.struct(F.lit(name).alias("key"), value.alias("value"))

    # As that code made them: coordinates are never null, and a correction is appended where there is one.
    whole = by_name.where("headers.`oncelake.topic` IS NOT NULL AND headers.p IS NOT NULL")
    first = F.array(pair("oncelake.topic"), pair("p"), pair("o"))
    why = F.col("headers").getField("why")
    former = F.when(why.isNull(), first).otherwise(F.array_append(first, pair("why")))
    named = whole.withColumns({"key": F.lit(b"k"), "value": F.lit(b"v")})
    sink = TransactionalSink("s", "t", 2, {})
    contents = [
        sorted(in_slots(rows, sink, partitions).select("_hash_1", "_hash_2").collect())
        for partitions in (0, 4)
        for rows in (named, named.withColumn("headers", former))
    ]
    assert contents[0] == contents[1]
    assert contents[2] == contents[3]
    assert len({*contents[0]}) > 100
