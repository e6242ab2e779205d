"""Asks the registry for the schemas that records name, and keeps in the lake what it answers."""

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.errors import InfrastructureError
from pipelines.formats.registered_formats import format_of_kind, names_schemas
from pipelines.ledger.writer_schemas import (
    NO_ID,
    UNKNOWN,
    UNREADABLE,
    answers,
    fitting,
    keep,
    kept_elsewhere,
    kept_schemas,
    require_same,
)
from pipelines.registry.schema_registry import open_registry, registry_of
from pipelines.registry.wire_format import NO_SCHEMAS, Schemas, WriterSchema, ordered_ids
from pipelines.spark.failures import cause, first_line
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import literal

_ROUND: Final = 50
_MOST_NAMED: Final = 1_000
_MOST_UNKNOWN: Final = 200
_UNUSABLE: Final = frozenset({UNKNOWN, UNREADABLE})

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Named:
    """The schemas that records name, as far as they were looked at.

    Attributes:
        schemas: Schemas that the registry was asked for, and has in the contract's format.
        in_vain: Ids that it was asked for, and has not.
        others: Ids that it was not asked for.
        goes_on: Whether all that were looked at were asked for with success, and there may be more.
    """

    schemas: Schemas
    in_vain: tuple[str, ...]
    others: tuple[str, ...]
    goes_on: bool


def most_named(ids: DataFrame, known_ids: Collection[str]) -> tuple[list[str], list[str]]:
    """Return ids that records name: those that are known, and of others the thousand that most records name.

    Args:
        ids: A column `id`, null for a record that names none.
        known_ids: Ids.

    Returns:
        The known ones; the others, the most frequent first.
    """
    is_known = f"coalesce(id IN ({', '.join(map(literal, known_ids)) or 'NULL'}), false)"
    counted = ids.where("id IS NOT NULL").groupBy("id").count()
    ordered = counted.orderBy(F.expr(is_known).desc(), F.desc("count"), F.length("id"), "id")
    named = [row["id"] for row in small_rows(ordered.limit(len(known_ids) + _MOST_NAMED).select("id"))]
    others = [schema_id for schema_id in named if schema_id not in known_ids]
    return [schema_id for schema_id in named if schema_id in known_ids], others[:_MOST_NAMED]


def learn_named(pipeline: Pipeline, ids: Sequence[str]) -> Named:
    """Learn the schemas that records name, those that most records name first.

    Values that are in the wire format by chance name another id each. So the registry is asked in rounds of
    50 ids, and no more after a round in which it had none.

    Args:
        pipeline: The pipeline.
        ids: The ids, as `most_named` orders them.

    Raises:
        InfrastructureError: The registry does not answer; what it answered before is kept.
    """
    schemas: dict[str, WriterSchema] = {}
    position = 0
    while position < len(ids):
        new = learn(pipeline, ids[position : position + _ROUND])
        schemas.update(new)
        position += _ROUND
        if not new:
            break
    in_vain = tuple(schema_id for schema_id in ids[:position] if schema_id not in schemas)
    if others := tuple(ids[position:]):
        _log.warning(
            "the registry was not asked for %d or more schema ids, because it had none of %d ids that occur"
            " at least as often: the schemas of their records count as unknown",
            len(others),
            _ROUND,
        )
    goes_on = len(ids) >= _MOST_NAMED and not others
    return Named(schemas, in_vain, others, goes_on)


def learn(pipeline: Pipeline, ids: Iterable[str]) -> Schemas:
    """Ask the registry for schemas and keep in the lake what it answers, also that it has none.

    Of ids that the registry has none of the lake keeps 200; they are what the nights ask for again.

    Args:
        pipeline: The pipeline.
        ids: The schemas that are asked for.

    Returns:
        Those that the registry has in the contract's format.

    Raises:
        InfrastructureError: The registry does not answer; what it answered before is kept, if the lake
            takes it.
        SourceError: It is another registry than before, and has another schema with one of these ids.
    """
    contract = pipeline.contract
    requested = ordered_ids(ids)
    if not requested:
        return NO_SCHEMAS
    config = registry_of(pipeline.config, contract)
    registry, elsewhere = open_registry(config), kept_elsewhere(pipeline)
    answered: dict[str, WriterSchema] = {}
    try:
        for schema_id in requested:
            schema = registry.schema(schema_id)
            if schema:
                require_same(schema, config.identity, elsewhere.get(schema_id, {}))
            answered[schema_id] = (
                _checked(pipeline.spark, schema) if schema else WriterSchema(schema_id, UNKNOWN, "")
            )
    except BaseException:
        try:
            _store(pipeline, answered)
        except Exception as error:  # noqa: BLE001 - why the registry does not answer is what has to be told
            _log.warning("what the registry answered is not kept: %s", first_line(str(error)))
        raise
    _store(pipeline, answered)
    usable = fitting(answered, contract)
    _log.info("asked %s for %d schemas, and can read by %d", config.identity, len(requested), len(usable))
    return usable


def _store(pipeline: Pipeline, answered: Schemas) -> None:
    """Keep in the lake what differs from what it has, and no more unknown ids than it has room for."""
    stored = kept_schemas(pipeline)
    changed_answers = {
        schema_id: schema for schema_id, schema in answered.items() if stored.get(schema_id) != schema
    }
    unknown = [schema_id for schema_id, schema in changed_answers.items() if schema.kind == UNKNOWN]
    room = _MOST_UNKNOWN - sum(schema.kind == UNKNOWN for schema in stored.values())
    for schema_id in unknown[max(room, 0) :]:
        del changed_answers[schema_id]
    if changed_answers:
        keep(pipeline, changed_answers)


def ask_again(pipeline: Pipeline) -> None:
    """Ask the registry again for schemas that it did not know, or that Spark could not read by.

    The lake keeps what it answers. If it does not answer, they stay unknown.
    """
    if not names_schemas(pipeline.contract):
        return
    unknown = {schema_id for schema_id, schema in kept_schemas(pipeline).items() if schema.kind in _UNUSABLE}
    try:
        learn(pipeline, unknown)
    except InfrastructureError as error:
        _log.warning("%d ids stay unknown: %s", len(unknown), error)


def learned_late(pipeline: Pipeline) -> tuple[str, ...]:
    """Return the ids by whose schemas values can be read now, and could not always.

    Records that name them may have been put aside before. Either the registry had no such schema once, or
    Spark could not read by it; or it was asked for it first after other ids had been passed over.
    """
    if not names_schemas(pipeline.contract):
        return ()
    kinds: dict[str, list[str]] = {}
    for schema in answers(pipeline):
        # All that is asked for later may have been among those that were passed over.
        before = [UNKNOWN] if NO_ID in kinds else []
        kinds.setdefault(schema.id, before).append(schema.kind)
    return tuple(
        schema_id
        for schema_id in ordered_ids(kinds)
        if _UNUSABLE & {*kinds[schema_id]} and kinds[schema_id][-1] not in _UNUSABLE
    )


def _checked(spark: SparkSession, schema: WriterSchema) -> WriterSchema:
    """Return the schema.

    One that Spark cannot read by counts as of no kind, so that its records are put aside.
    """
    # By its own kind: under a later contract it may be what values are read by.
    value_format = format_of_kind(schema.kind)
    if value_format is None:
        return schema
    try:
        value_format.require_readable(spark, schema)
    except (PySparkException, Py4JJavaError, ValueError, TypeError, AttributeError, RecursionError) as error:
        # Spark has errors of its own for some schemas, hands on those of Avro for others, and a text from
        # elsewhere may have any shape.
        _log.warning("Spark cannot read by schema %s: %s", schema.id, cause(error))
        return replace(schema, kind=UNREADABLE)
    return schema
