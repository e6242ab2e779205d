"""Warns if too many of a stream's records come behind the watermark."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from pipelines.config.speed import SpeedConfig
from pipelines.spark.query_listener import QueryListener, listening
from pipelines.spark.stream_progress import micro_batch_of

_log = logging.getLogger(__name__)


@dataclass
class LateShare:
    """The share of late records, in spans of micro-batches that hold enough records to speak of one.

    It is logged once when it exceeds the limit, and once when it has fallen to half of it, so a share around
    the limit does not fill the log.

    Attributes:
        limit: Above which share the log warns.
        enough: How many records a span has at least.
        warnings: The worst span above the limit, in words; empty if there was none.
    """

    limit: float
    enough: int
    warnings: list[str] = field(default_factory=list)
    _records: int = 0
    _late: int = 0
    _worst: float = 0.0
    _is_high: bool = False

    def add(self, records: int, late: int) -> None:
        """Add a micro-batch.

        Args:
            records: All its records.
            late: Those that were dropped, as they came behind the watermark.
        """
        self._records += records
        self._late += late
        if self._records >= max(1, self.enough):
            self._judge(self._records, self._late)
            self._records = self._late = 0

    def _judge(self, records: int, late: int) -> None:
        share = late / records
        share_text = (
            f"{late:,} of {records:,} records came behind the watermark and are not in the speed layer"
        )
        if share > max(self.limit, self._worst):
            self._worst, self.warnings = share, [f"late records: {share_text} until their days are rebuilt"]
        if share > self.limit and not self._is_high:
            self._is_high = True
            _log.warning(
                "%s until their days are rebuilt, which is more than speed.late_warn_share (%g); see"
                " docs/runbook.md, 'Many late records'",
                share_text,
                self.limit,
            )
        elif self._is_high and share <= self.limit / 2:
            self._is_high = False
            _log.info("late records are few again: %s", share_text)


class _Listener(QueryListener):
    def __init__(self, query: str, share: LateShare) -> None:
        self._query = query
        self._share = share

    def progressed(self, progress: dict[str, Any]) -> None:
        if progress["name"] == self._query:
            batch = micro_batch_of(progress)
            self._share.add(batch.records, batch.late)


@contextmanager
def late_share(spark: SparkSession, query: str, config: SpeedConfig) -> Iterator[LateShare]:
    """Watch the share of late records of a query while the block runs.

    Args:
        spark: The session.
        query: The query's name.
        config: Says what is too much.
    """
    share = LateShare(config.late_warn_share, config.late_warn_records)
    with listening(spark, _Listener(query, share)):
        yield share
