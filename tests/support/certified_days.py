"""Certified days for what begins with them: by the commits of a nightly run, and without its audit."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from pyspark.sql import DataFrame

from pipelines.audit.audit import Audit
from pipelines.audit.recount import BronzeDay, BronzeFacts
from pipelines.contracts.event_days import days_of
from pipelines.delta.event_tables import ensure_batch
from pipelines.delta.fenced_commits import replace_days_fenced
from pipelines.delta.io import on_days, read, small_rows
from pipelines.delta.tables import version
from pipelines.delta.time_travel import commit_hash
from pipelines.ledger.certifications import Verdict, certified, record_verdicts
from pipelines.ledger.leases import lease
from pipelines.nightly.commit_order import steps
from pipelines.nightly.night_run import NightRun, NightTables
from pipelines.nightly.rebuild_plan import RepairScope
from pipelines.steps.nightly import Night
from tests.support.lakes import Lake


def certify(lake: Lake, *days: date, changed: Callable[[DataFrame], DataFrame] = lambda rows: rows) -> None:
    """Certifies days as the speed layer has them.

    The speed layer must hold each valid record that bronze has of them.

    Args:
        lake: the lake.
        days: the days.
        changed: what the batch table gets of the rows of the speed layer.
    """
    ensure_batch(lake.pipeline)
    batch, bronze = lake.config.table("batch"), lake.config.table("bronze")
    with lease(lake.pipeline, "certify") as held:
        before, rows = certified(lake.pipeline), lake.table("speed").where(on_days([*days]))
        built = replace_days_fenced(changed(rows), batch, [*days], held.stamp("build"))
        counts = _rows_by_day(lake, built)
        bronze_version, batch_commit = version(lake.spark, bronze), commit_hash(lake.spark, batch, built)
        verdicts = [
            Verdict(
                pipeline=lake.config.name,
                day=day,
                status="certified",
                run_id="certify",
                batch_version=built,
                bronze_version=bronze_version,
                records=counts.get(day, 0),
                rows=counts.get(day, 0),
                duplicates=0,
                conflicts=0,
                late=0,
                quarantined=0,
                other_days=0,
                bronze=0,
                decided_at=datetime.now(UTC),
                base_version=before.version if before else -1,
                epoch=held.epoch,
                batch_commit=batch_commit,
            )
            for day in days
        ]
        record_verdicts(lake.pipeline, verdicts, held.stamp("certify"))


def rebuild(lake: Lake, days: Sequence[date], repair: RepairScope = "nothing") -> None:
    """Rebuilds and certifies days as a nightly run does that finds nothing wrong with them.

    Args:
        lake: the lake.
        days: the days, sorted.
        repair: which days before them are rebuilt as well.
    """
    tables = _Unaudited(lake, Night(lake.pipeline, "rebuild", days, repair).tables)
    for _ in steps(NightRun(lake.config.name, "rebuild", tables, lake.config.table("batch"))):
        pass


@dataclass(frozen=True)
class _Unaudited:
    """The tables of a nightly run that audits nothing."""

    lake: Lake
    tables: NightTables

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tables, name)

    def audit(self, built: int) -> Audit:
        """Count the rows of each day, and find nothing wrong."""
        rows = _rows_by_day(self.lake, built)
        days = defaultdict(BronzeDay, {day: BronzeDay(records=count) for day, count in rows.items()})
        facts = BronzeFacts(total=sum(rows.values()), quarantined=0, broken=0, days=days)
        return Audit(checks=(), bronze=facts, rows=rows, differences={}, expectations_s=0.0)


def _rows_by_day(lake: Lake, at: int) -> dict[date, int]:
    """The rows of each day in a version of the batch table."""
    by_day = read(lake.spark, lake.config.table("batch"), at).groupBy("_event_date").count()
    return {row["_event_date"]: row["count"] for row in small_rows(by_day)}


def late_night(lake: Lake, first: date, last: date | None = None) -> None:
    """Rebuilds and certifies days, and those before them that got late events."""
    rebuild(lake, days_of(first, last or first), "late")
