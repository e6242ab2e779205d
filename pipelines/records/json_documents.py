"""The JSON text of a record, whatever its format, and whether it is sound as a text, as SQL.

What is decoded is always `{"r": VALUE}`. For JSON the wrapper alone would prove nothing: Spark stops at the
end of the first value, and `{}, "x": 1` goes on as a further member. So the text must be the one element of
an array, too. Behind the end of a value an object goes on with a comma and a name with a colon, or ends; an
array goes on with a comma and a value, or ends with another bracket. What is well-formed in both has nothing
behind its end.
"""

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from pipelines.contracts.contract import DataContract
from pipelines.records.avro_to_json import VALUE, as_json, as_read, has_broken_text
from pipelines.registry.wire_format import ID, Writers, WriterSchema, is_framed, payload, schema_id
from pipelines.sql import literal

DOCUMENT: Final = "_document"

_TEXT: Final = "_text"
_BROKEN_TEXT: Final = "_broken_text"
# Escapes but those of halves of a character that have no other half.
_WHOLE: Final = r"\\[^u]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF: Final = r"\\u[dD][89a-fA-F]"


def with_document(envelopes: DataFrame, contract: DataContract, writers: Writers) -> DataFrame:
    """Return the envelopes with their JSON text `{"r": VALUE}` and with what `malformed` and others look at.

    Args:
        envelopes: rows with `_value`.
        contract: names the format.
        writers: the schemas that are known, by id.
    """
    if not is_framed(contract):
        return envelopes.selectExpr("*", f"CAST(_value AS STRING) AS {_TEXT}").selectExpr("*", _wrapped())
    framed = envelopes.selectExpr("*", f"{schema_id()} AS {ID}")
    if contract.value_format == "json_schema":
        text = f"CASE WHEN {knows_schema(writers)} THEN CAST({payload()} AS STRING) END AS {_TEXT}"
        return framed.selectExpr("*", text).selectExpr("*", _wrapped())
    # Each has a column of its own, since each has a type of its own; and a column is computed once.
    read = (
        f"CASE WHEN {ID} = {n} THEN {as_read(s.text, payload())} END AS {_of(n)}" for n, s in writers.items()
    )
    documents = {n: as_json(s.text, _of(n)) for n, s in writers.items()}
    broken = {n: has_broken_text(s.text, _of(n), DOCUMENT) for n, s in writers.items()}
    return (
        framed.selectExpr("*", *read)
        .selectExpr("*", f"CAST({_by_id(documents)} AS STRING) AS {DOCUMENT}")
        .selectExpr("*", f"CAST({_by_id(broken)} AS BOOLEAN) AS {_BROKEN_TEXT}")
    )


def check_readable(spark: SparkSession, schema: WriterSchema) -> None:
    """Ask Spark whether it can read Avro by a schema.

    Raises:
        PySparkException, Py4JJavaError, ValueError, TypeError, AttributeError, RecursionError: it cannot.
    """
    read = (
        spark.range(0).selectExpr("X'' AS _value").selectExpr(f"{as_read(schema.text, payload())} AS _read")
    )
    document = read.selectExpr("*", f"{as_json(schema.text, '_read')} AS {DOCUMENT}")
    document.selectExpr(has_broken_text(schema.text, "_read", DOCUMENT))


def helpers(contract: DataContract, writers: Writers) -> tuple[str, ...]:
    """Return the columns that `with_document` adds."""
    if contract.value_format == "avro":
        return (ID, *map(_of, writers), DOCUMENT, _BROKEN_TEXT)
    return (ID, _TEXT, DOCUMENT) if is_framed(contract) else (_TEXT, DOCUMENT)


def knows_schema(writers: Writers) -> str:
    """Return an SQL condition that is true if the id is that of a known schema, and never null."""
    return f"coalesce({ID} IN ({', '.join(map(str, writers)) or 'NULL'}), false)"


def undecodable() -> str:
    """Return an SQL condition that is true for Avro that its schema, which is known, cannot read."""
    return f"{DOCUMENT} IS NULL OR {_BROKEN_TEXT}"


def malformed() -> str:
    """Return SQL that is true for text other than a JSON document where the wrapper cannot tell."""
    halves = f"regexp_replace({_TEXT}, {literal(_WHOLE)}, ' ') RLIKE {literal(_HALF)}"
    return (
        f"NOT is_valid_utf8({_TEXT})"
        f" OR coalesce(json_array_length(concat('[', {_TEXT}, ']')), 0) != 1"
        f" OR contains({_TEXT}, {literal(chr(92) + 'u')}) AND {halves}"
    )


def _wrapped() -> str:
    return f"""concat('{{"{VALUE}":', {_TEXT}, '}}') AS {DOCUMENT}"""


def _of(number: int) -> str:
    return f"_avro_{number}"


def _by_id(expressions: Mapping[int, str]) -> str:
    """Return SQL for the expression of the id's schema; null for other ids."""
    if not expressions:
        return "NULL"
    return f"CASE {ID} {' '.join(f'WHEN {n} THEN {sql}' for n, sql in expressions.items())} END"
