"""What decoding depends on, in one text: an index of decoded records holds as long as it stays the same."""

import hashlib
from datetime import date
from typing import Any, Final

from pipelines.durations import format_interval
from pipelines.ledger.forgotten import forgotten_by
from pipelines.ledger.writer_schemas import ask_again
from pipelines.records.json_types import typed
from pipelines.records.validation import faults_of, wire
from pipelines.registry.wire_format import NO_WRITERS
from pipelines.spark.pipeline import Pipeline

# To be raised whenever the same contract comes to decode otherwise.
_RULES: Final = 5
_SETTINGS: Final = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.legacy.timeParserPolicy",
    "spark.sql.session.timeZone",
)


def decoding_key(pipeline: Pipeline, bronze: tuple[str, date | None]) -> str:
    """A text that is another one when records may be decoded to something else.

    Args:
        pipeline: The pipeline.
        bronze: its id, and the first day of which retention has removed nothing.
    """
    spark, config, contract = pipeline.spark, pipeline.config, pipeline.contract
    jvm: Any = spark.sparkContext._jvm
    decoding = (
        _RULES,
        bronze,
        spark.version,
        [spark.conf.get(setting) for setting in _SETTINGS],
        contract.schema.json(),
        contract.key,
        contract.event_time,
        contract.day_time_zone,
        # A zone changes its rules by a decree, and gets them with another Java.
        jvm.java.time.ZoneId.of(contract.day_time_zone).getRules().hashCode(),
        contract.row_rules,
        contract.conditions,
        contract.value_format,
        format_interval(config.decode.max_future),
        # The rules as this version of Oncelake reads them.
        faults_of(contract, config.decode.max_future, NO_WRITERS),
        [typed(wire(column.name), column.dataType) for column in contract.schema],
        config.registry.url if config.registry else None,
        ask_again(pipeline),
        *forgotten_by(pipeline),
    )
    return hashlib.sha256(repr(decoding).encode()).hexdigest()[:16]
