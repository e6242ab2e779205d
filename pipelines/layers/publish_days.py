"""Publish days: whole certified days to the output topic, each once, for readers who begin."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from pipelines.avro_schemas import AvroValues
from pipelines.config import PipelineConfig
from pipelines.contract import DataContract
from pipelines.corrections import CORRECTION
from pipelines.errors import ConfigError, InfrastructureError
from pipelines.messages import messages
from pipelines.ops.certification import Verdict, history, newest_certified
from pipelines.ops.lease import lease
from pipelines.ops.publish_cluster import asking, make_progress_topic, marks, topic_id
from pipelines.ops.publish_failures import explained
from pipelines.ops.publish_sink import settings_of, sink_of, values_of
from pipelines.ops.published_days import publication, record_publication, unsettled_since
from pipelines.sinks.delta import on_days, read
from pipelines.sinks.kafka_transactional import TransactionalSink, publish_rows
from pipelines.sinks.slots import Mark
from pipelines.sinks.tables import conform, events_schema
from pipelines.sinks.versions import bytes_of

_WHOLE_DAY: Final = "day"

_log = logging.getLogger(__name__)


def publish_days(
    spark: SparkSession,
    config: PipelineConfig,
    contract: DataContract,
    run_id: str,
    days: Sequence[date],
    *,
    again: bool,
) -> dict[str, Any]:
    """Publishes certified days as a whole, unless that is done.

    A run that died is gone on with: what it had committed is not sent again.

    Args:
        spark: the session.
        config: the pipeline's configuration.
        contract: tells the columns and the dedup key.
        run_id: recorded with what is published.
        days: the days, sorted.
        again: publish days that were published before, too.

    Returns:
        `counts`: `days` and `rows` that were published, `days_done_before`; and `lines`.

    Raises:
        ConfigError: a day is not certified, has changed since it was published, or there is no topic.
        InfrastructureError: the stream has not come to what is certified, or the cluster does not answer.
    """
    sink = sink_of(config)
    with lease(spark, config, run_id) as held:
        verdicts = newest_certified(history(spark, config))
        if missing := [day for day in days if day not in verdicts]:
            raise ConfigError(f"{missing[0]} is not certified; run nightly_batch --date {missing[0]} first")
        if waiting := [day for day in unsettled_since(spark, config) if day in days]:
            raise InfrastructureError(
                f"publish_stream has not come to {waiting[0]} as it is certified, and would send older rows"
                " after newer ones: run publish_stream --once first"
            )
        with asking(sink) as cluster:
            topic = topic_id(cluster, sink.topic)
            make_progress_topic(cluster, sink.progress_topic, sink.slots)
        counts, lines = {"days": 0, "rows": 0, "days_done_before": 0}, []
        avro = values_of(spark, config, contract)
        for day in days:
            held.require()
            work = _Day(spark, config, contract, run_id, verdicts[day], topic, avro)
            rows = work.publish(sink, again=again)
            counts["days" if rows is not None else "days_done_before"] += 1
            counts["rows"] += rows or 0
            lines.append(f"{day}: {'published before' if rows is None else f'{rows:,} rows published'}")
    return {"counts": counts, "lines": lines}


@dataclass(frozen=True)
class _Day:
    """A certified day that is to be published."""

    spark: SparkSession
    config: PipelineConfig
    contract: DataContract
    run_id: str
    verdict: Verdict
    topic_id: str
    avro: AvroValues | None

    def publish(self, sink: TransactionalSink, *, again: bool) -> int | None:
        """Publishes the day; returns its rows, or None if it was published before."""
        day, version = self.verdict.day, self.verdict.batch_version
        before = publication(self.spark, self.config, day, self.topic_id)
        if before.count and not again:
            if before.version == version:
                return None
            raise ConfigError(
                f"{day} was published as of version {before.version} of {self.config.table('batch')} and was"
                f" rebuilt since, to version {version}. publish_stream sends what has changed; to send all of"
                " it once more: --again"
            )
        # Its own name, so that its progress is that of this day, at this version, for this time.
        own = replace(sink, name=f"{sink.name}.day.{day}.{version}.{before.count + 1}")
        rows = read(self.spark, self.config.table("batch"), version).where(on_days([day]))
        parts = -(-max(bytes_of(rows), 1) // settings_of(self.config).max_bytes)
        done = Mark(parts, f"{parts} parts", self.topic_id, own.slots)
        shaped = conform(rows, events_schema(self.contract)).withColumn(CORRECTION, F.lit(_WHOLE_DAY))
        self._send(messages(shaped, self.contract, avro=self.avro), own, done)
        record_publication(
            self.spark, self.config, day, version, self.topic_id, self.run_id, datetime.now(UTC)
        )
        return self.verdict.rows

    def _send(self, records: DataFrame, sink: TransactionalSink, done: Mark) -> None:
        """Sends the records in parts, each of which a transaction of each slot can hold."""
        with asking(sink) as cluster:
            known = marks(cluster, sink, is_stable=True)
        begun = min((mark.next_batch for mark in known.values()), default=0)
        part_of = F.pmod(F.hash("key"), F.lit(done.next_batch))
        for part in range(begun if len(known) == sink.slots else 0, done.next_batch):
            _log.info("%s: part %d of %d", sink.name, part + 1, done.next_batch)
            mark = replace(done, next_batch=part + 1)
            try:
                publish_rows(records.where(part_of == part), sink, mark, is_new=not part)
            except PySparkException as error:
                unknown = InfrastructureError(f"{sink.name}: not published: {str(error)[:500]}")
                raise explained(str(error), unknown, sink) from None
