"""How what is to be forgotten is found in each layer, by what the layer itself holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import NamedTuple, Protocol

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from pipelines.contracts.contract import DataContract
from pipelines.delta.event_tables import by_clock_since
from pipelines.delta.record_tables import require_table
from pipelines.formats.registered_formats import wire_format_of
from pipelines.ledger.decoding import decode_all
from pipelines.ledger.forgotten import EVENT_TIME, not_emptied
from pipelines.ledger.forgotten_places import forgotten_days, places
from pipelines.lineage import trace
from pipelines.lineage.key_filter import AskedPart, of_key
from pipelines.records.decode import COORDINATES, EVENT_DATE, RECORD_ID, VALID
from pipelines.spark.pipeline import Pipeline
from pipelines.sql import name


class Searched(NamedTuple):
    """What was searched.

    Attributes:
        records: How many records.
        table: The path of their table.
        version: Its version.
    """

    records: int
    table: str
    version: int


class Search(Protocol):
    """What is to be forgotten, as it is found in each layer."""

    @property
    def repeats(self) -> bool:
        """Whether it was forgotten before."""

    def known_days(self) -> Sequence[date]:
        """Return the event days on which it was found before, if it was forgotten before."""

    def records(self, envelopes: DataFrame) -> DataFrame:
        """Return the records among envelopes: their place, and of the valid ones `event_time` and `day`."""

    def rows(self, layer: DataFrame) -> DataFrame:
        """Return the rows of speed or batch layer."""

    def others(self, layer: DataFrame) -> DataFrame:
        """Return the rows of the batch layer that stay."""


@dataclass(frozen=True)
class OfKey:
    """All events of a dedup key, or of some parts of it.

    A broken record is found if the parts that are asked for can be read in it.
    """

    pipeline: Pipeline
    key: Sequence[AskedPart]
    repeats: bool = False

    def known_days(self) -> Sequence[date]:
        """See `Search`."""
        return ()

    def records(self, envelopes: DataFrame) -> DataFrame:
        """See `Search`."""
        decoded = decode_all(self.pipeline, not_emptied(envelopes))
        contract, by_clock = self.pipeline.contract, by_clock_since(self.pipeline)
        wire_format = wire_format_of(self.pipeline.config, contract)
        bronze = trace.records_and_watermarks(decoded, contract, self.key, by_clock, wire_format)
        return _placed(trace.records_of(bronze), contract)

    def rows(self, layer: DataFrame) -> DataFrame:
        """See `Search`."""
        return layer.where(of_key(self.pipeline.contract, self.key))

    def others(self, layer: DataFrame) -> DataFrame:
        """See `Search`."""
        return layer.where(f"NOT coalesce({of_key(self.pipeline.contract, self.key)}, false)")


@dataclass(frozen=True)
class Again:
    """All that was forgotten before, by its place: of whatever key, it came back with a backup.

    Attributes:
        pipeline: The pipeline.
        forgotten: What `places` has found.
        repeats: True.
    """

    pipeline: Pipeline
    forgotten: DataFrame
    repeats: bool = True

    def known_days(self) -> Sequence[date]:
        """See `Search`."""
        return forgotten_days(self.pipeline, self.forgotten)

    def records(self, envelopes: DataFrame) -> DataFrame:
        """See `Search`."""
        rows = self.rows(not_emptied(envelopes))
        return _placed(decode_all(self.pipeline, rows), self.pipeline.contract)

    def rows(self, layer: DataFrame) -> DataFrame:
        """See `Search`."""
        return layer.join(self._places, [*COORDINATES], "left_semi")

    def others(self, layer: DataFrame) -> DataFrame:
        """See `Search`."""
        return layer.join(self._places, [*COORDINATES], "left_anti")

    @property
    def _places(self) -> DataFrame:
        return self.forgotten.select(*COORDINATES)


def again(pipeline: Pipeline) -> Again | None:
    """Return all that was forgotten before; None if nothing ever was.

    Raises:
        SourceError: There is no bronze.
    """
    require_table(pipeline, "bronze")
    forgotten = places(pipeline)
    return None if forgotten is None else Again(pipeline, forgotten)


def _placed(records: DataFrame, contract: DataContract) -> DataFrame:
    moment, day = name(contract.event_time), EVENT_DATE
    return records.groupBy(*RECORD_ID).agg(
        F.max(F.expr(f"CASE WHEN {VALID} THEN {moment} END")).alias(EVENT_TIME),
        F.max(F.expr(f"CASE WHEN {VALID} THEN {day} END")).alias("day"),
    )
