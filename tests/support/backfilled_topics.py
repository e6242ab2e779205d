"""A topic, the lake that is filled from it, and what bronze lacks of it."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from operator import or_

from pyspark.sql import functions as F

from pipelines.kafka.backfill_plan import BackfillSpan
from pipelines.kafka.backfill_run import Backfill, BackfillProgress
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.backfill import backfill
from pipelines.steps.ingest import ingest
from pipelines.steps.reconcile import reconcile
from tests.support.changes_by_hand import change_by_hand
from tests.support.delta_rows import appended_to, rows_in
from tests.support.kafka import ordered_producer
from tests.support.lakes import Lake, flight

MakeLake = Callable[..., Lake]

EVER = BackfillSpan(since=datetime(2000, 1, 1, tzinfo=UTC))
FIRST_SENT = datetime(2013, 1, 1, tzinfo=UTC)


class Source:
    """A topic of two partitions, and the lake that is filled from it."""

    def __init__(self, broker: str, name: str, make_lake: MakeLake, *settings: str) -> None:
        self.producer = ordered_producer(broker)
        self.name = name
        self.sent: Counter[int] = Counter()
        given = (f"kafka.bootstrap_servers={broker}", f"kafka.topic={name}", "backfill.chunk_offsets=100")
        self.lake = make_lake(*given, *settings)
        self.told: list[BackfillProgress] = []

    def send(self, count: int, partition: int = 0) -> None:
        """Sends records, one for each minute since the beginning of 2013."""
        for n in range(count):
            at = FIRST_SENT + timedelta(minutes=self.sent[partition] + n)
            self.producer.produce(
                *(self.name, flight(flight=n + 1)),
                partition=partition,
                timestamp=int(at.timestamp() * 1000),
                headers=[("attempt", b"1")],
            )
        assert self.producer.flush(60) == 0
        self.sent[partition] += count

    def ingest(self) -> int:
        return ingest(self.lake.pipeline, once=True).records

    def backfill(self, asked: BackfillSpan = EVER, *, dry_run: bool = False) -> Backfill:
        return backfill(self.lake.pipeline, "run", asked, self.told.append, dry_run=dry_run)

    def drop(self, condition: str) -> None:
        """Takes records out of bronze, as an accident does."""
        bronze = self.lake.config.table("bronze")
        change_by_hand(self.lake.spark, bronze, lambda rows: rows.delete(condition))

    def held(self) -> Counter[tuple[int, int]]:
        return Counter(rows_in(self.lake.config.table("bronze"), "_partition", "_offset"))

    def exact(self) -> None:
        """Bronze holds what was sent, each record once, and in the order of ingestion; ingest goes on."""
        for partition in self.sent:
            self.send(1, partition)
        self.ingest()
        assert self.held() == Counter((p, n) for p, count in self.sent.items() for n in range(count))
        assert reconcile(self.lake.pipeline).findings == []
        self.in_order()

    def in_order(self) -> None:
        table, first = self.lake.config.table("bronze"), dict[int, datetime]()
        for commit, at in sorted(appended_to(table, "_ingested_at")):
            first.setdefault(commit, at)
        moments = [*first.values()]
        assert moments == sorted(set(moments))
        # Runs read micro-batches by this moment, and skip files by it. The newest that is still there may be
        # of ingest, so those of a backfill are looked for as well.
        newest = sorted({at for (at,) in rows_in(table, "_ingested_at")})[-3:]
        one_of_them = reduce(or_, (F.col("_ingested_at") == F.lit(at) for at in newest))
        found = self.lake.table("bronze").where(one_of_them).select("_ingested_at").distinct()
        assert found.count() == len(newest)


def with_settings(source: Source, section: str, **settings: object) -> Pipeline:
    """The pipeline of a source, with other settings of a section."""
    config = source.lake.config
    changed = getattr(config, section).model_copy(update=settings)
    return replace(source.lake.pipeline, config=config.model_copy(update={section: changed}))
