"""Decode records by the schemas that they name, and say when the same records may be decoded otherwise."""

import hashlib
import logging
from datetime import date
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.errors import InfrastructureError
from pipelines.formats.registered_formats import names_schemas, wire_format_of
from pipelines.ledger.forgotten import forgotten_by
from pipelines.ledger.schema_lookup import Named, learn, learn_named, learned_late, most_named
from pipelines.ledger.writer_schemas import (
    NO_ID,
    UNKNOWN,
    UNREADABLE,
    fitting,
    keep_passed_over,
    kept_schemas,
)
from pipelines.records.decode import decode
from pipelines.records.decoder import contract_text
from pipelines.registry.wire_format import NO_SCHEMAS, NO_WRITERS, Writers, ordered_ids
from pipelines.spark.pipeline import Pipeline

# To be raised whenever the same contract comes to decode otherwise.
_RULES: Final = 6
_SETTINGS: Final = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.session.timeZone",
)

_log = logging.getLogger(__name__)


def decoding_key(pipeline: Pipeline) -> str:
    """Return a text that is another one when a valid record may be decoded to something else.

    A schema that is learned late does not make it another one: by it a broken record may become valid, and
    no valid one broken.
    """
    return _hash(_decoding(pipeline, ()))


def decoding_key_of_bronze(pipeline: Pipeline, identity: str, whole_from: date | None) -> str:
    """Return a text that is another one when the records of bronze may be decoded to something else.

    Args:
        pipeline: The pipeline.
        identity: The id of bronze, see `bronze_state.bronze_id`.
        whole_from: The first complete day, if not retention alone has removed records before it, see
            `bronze_state.unexplained_loss`.
    """
    # As numbers where they are some: so they were when indexes that are there were made.
    learned = tuple(int(i) if i.isdigit() else i for i in learned_late(pipeline))
    return _hash((*_decoding(pipeline, (identity, whole_from)), learned, *forgotten_by(pipeline)))


def _hash(decoding: tuple[object, ...]) -> str:
    return hashlib.sha256(repr(decoding).encode()).hexdigest()[:16]


def _decoding(pipeline: Pipeline, table: tuple[object, ...]) -> tuple[object, ...]:
    """Return what decides how records are decoded, in the order in which stored hashes have it."""
    spark, config, contract = pipeline.spark, pipeline.config, pipeline.contract
    jvm: Any = spark.sparkContext._jvm
    return (
        _RULES,
        table,
        spark.version,
        [spark.conf.get(setting) for setting in _SETTINGS],
        contract_text(contract, config.decode.max_future),
        contract.day_time_zone,
        # A zone changes its rules by a decree, and gets them with another Java.
        jvm.java.time.ZoneId.of(contract.day_time_zone).getRules().hashCode(),
        contract.conditions,
        contract.value_format,
        config.registry.identity if config.registry else None,
    )


def decode_all(
    pipeline: Pipeline,
    envelopes: DataFrame,
    *,
    retries_passed_over: bool = False,
) -> DataFrame:
    """Decode a bounded frame of envelopes by the schemas that its values name (`pipelines.records.decode`).

    Args:
        pipeline: The pipeline.
        envelopes: The records.
        retries_passed_over: As `writers_of`.

    Raises:
        InfrastructureError: A schema is neither in the lake nor to be had from the registry.
    """
    writers = writers_of(pipeline, envelopes, retries_passed_over=retries_passed_over)
    return decode(envelopes, pipeline.contract, pipeline.config.decode.max_future, writers)


def writers_of(
    pipeline: Pipeline,
    envelopes: DataFrame,
    *,
    retries_passed_over: bool = False,
) -> Writers:
    """Return the schemas that the values of a bounded frame of envelopes name, those that can be read by.

    What the registry did not know, or Spark could not read by, is asked for again, and nothing waits for it.
    Of new ids not all are asked for, see `learn_named`.

    Args:
        pipeline: The pipeline.
        envelopes: The records.
        retries_passed_over: Whether new ids are asked for also where some were passed over before, by which
            another reading of the same records may come to another verdict. The index of bronze and a replay
            ask; what is compared with the index does not.

    Raises:
        InfrastructureError: One is neither in the lake nor to be had from the registry.
    """
    if not names_schemas(pipeline.contract):
        return NO_WRITERS
    wire_format = wire_format_of(pipeline.config, pipeline.contract)
    ids_of_records = envelopes.withColumnRenamed("value", "_value").select(
        F.expr(wire_format.schema_id).alias("id")
    )
    stored = kept_schemas(pipeline)
    known_ids, unknown_ids = most_named(ids_of_records, stored)
    ids, new = set(known_ids), NO_SCHEMAS
    if retries_passed_over or NO_ID not in stored:
        named = learn_named(pipeline, unknown_ids)
        if named.goes_on:
            return writers_of(pipeline, envelopes, retries_passed_over=retries_passed_over)
        _remember_others(pipeline, named)
        new = named.schemas
    unusable = {
        schema_id for schema_id in ids & stored.keys() if stored[schema_id].kind in (UNKNOWN, UNREADABLE)
    }
    try:
        new = {**new, **learn(pipeline, unusable)}
    except InfrastructureError as error:
        _log.warning("%d ids stay unknown, or unreadable: %s", len(unusable), error)
    usable = {**fitting(stored, pipeline.contract), **new}
    named_ids = ordered_ids((ids | new.keys()) & usable.keys())
    return Writers({schema_id: usable[schema_id] for schema_id in named_ids}, wire_format)


def _remember_others(pipeline: Pipeline, named: Named) -> None:
    """Note, once, that ids were taken for unknown that the lake does not keep as such."""
    if not named.others and not named.in_vain:
        return
    stored = kept_schemas(pipeline)
    if NO_ID not in stored and (named.others or not set(named.in_vain) <= stored.keys()):
        keep_passed_over(pipeline)
