"""A query of a suite reads its rows alone, however it spells what it reads."""

from dataclasses import replace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import OwnExpectation
from pipelines.errors import ConfigError
from pipelines.spark.preflight import check_queries
from pipelines.spark.query_reach import reaches_beyond_rows


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT carrier FROM {batch} WHERE arrival_delay > 300 ;\n",
        "SELECT * FROM {batch} AS a JOIN {batch} AS b ON a.flight = b.flight",
        "SELECT * FROM {batch} WHERE flight > (SELECT max(flight) FROM {batch}) -- FROM text.`/etc/passwd`",
        "WITH late AS (SELECT * FROM {batch}), most AS (SELECT * FROM late) SELECT * FROM most",
        "WITH Late AS (SELECT * FROM {batch}) SELECT * FROM late",
        "SELECT * FROM {batch} LATERAL VIEW explode(array(1, 2)) AS x",
        "SELECT '`/etc/passwd`' FROM {batch}",
    ],
)
def test_what_looks_at_the_rows_alone_is_taken(spark: SparkSession, sql: str) -> None:
    assert reaches_beyond_rows(spark, sql) is None


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM text.`/etc/passwd`",
        "SELECT * FROM {batch}, text.`/etc/passwd`",
        "SELECT * FROM {batch}, (text.`/etc/passwd`)",
        "SELECT * FROM {batch} JOIN /* its */ delta.`s3a://elsewhere/x`",
        "SELECT * FROM `text`.`/etc/passwd`",
        "SELECT * FROM {batch} WHERE carrier IN (SELECT value FROM text.`/etc/passwd`)",
        "SELECT (SELECT max(value) FROM text.`/etc/passwd`) FROM {batch}",
        "WITH other AS (SELECT * FROM text.`/etc/passwd`) SELECT * FROM {batch} JOIN other",
        "WITH late AS (SELECT * FROM late) SELECT * FROM {batch} JOIN late",
        "SELECT * FROM late WHERE EXISTS (WITH late AS (SELECT 1) SELECT * FROM late)",
        "TABLE text.`/etc/passwd`",
        "SELECT * FROM {batch}, delta.`/lake/other` VERSION AS OF 0",
        "SELECT IDENTIFIER('refl' || 'ect')('java.lang.System', 'exit', 1) FROM {batch}",
        "SELECT * FROM IDENTIFIER('text.`/etc/passwd`')",
        "SELECT * FROM {batch} UNION SELECT * FROM another_table",
        "SELECT reflect('java.lang.System', 'exit', 1) FROM {batch}",
        "SELECT * FROM {batch} WHERE EXISTS (SELECT input_file_name() FROM {batch})",
        "SELECT * FROM somebody.elses(1)",
    ],
)
def test_what_reaches_beyond_rows_is_refused(spark: SparkSession, sql: str) -> None:
    assert reaches_beyond_rows(spark, sql)


@pytest.mark.parametrize(
    "sql", ["INSERT INTO {batch} SELECT 1", "DROP TABLE {batch}", "SELEC", "ADD JAR '/x'"]
)
def test_what_is_no_query_is_refused(spark: SparkSession, sql: str) -> None:
    with pytest.raises(PySparkException):
        reaches_beyond_rows(spark, sql)


def test_the_refusal_names_the_place_before_a_job_starts(spark: SparkSession, contract: DataContract) -> None:
    def with_sql(argument: str, sql: str) -> DataContract:
        own = OwnExpectation("rows", "rows.json: 3", {"type": "any", "kwargs": {argument: sql}})
        return replace(contract, expectations=(own,))

    check_queries(spark, contract)
    check_queries(spark, with_sql("unexpected_rows_query", "SELECT * FROM {batch}"))
    check_queries(spark, with_sql("row_condition", "carrier = 'UA'"))
    for argument in ("unexpected_rows_query", "base_query", "comparison_query"):
        with pytest.raises(ConfigError, match=rf"rows\.json: 3: kwargs\.{argument}.*path text\./etc"):
            check_queries(spark, with_sql(argument, "SELECT * FROM {batch}, text.`/etc/passwd`"))
    with pytest.raises(ConfigError, match=r"kwargs\.row_condition: .* which has reflect"):
        check_queries(spark, with_sql("row_condition", "`reflect`('a', 'b') = 1"))
    with pytest.raises(ConfigError, match=r"expected SQL, got 'DROP"):
        check_queries(spark, with_sql("unexpected_rows_query", "DROP TABLE {batch}"))
