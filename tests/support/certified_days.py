"""Certified days for what begins with them: as the speed layer has them, by the commits of a nightly run."""

from datetime import UTC, date, datetime

from pipelines.delta.event_tables import ensure_batch
from pipelines.delta.fenced_commits import replace_days_fenced
from pipelines.delta.io import on_days, small_rows
from pipelines.delta.tables import version
from pipelines.delta.time_travel import commit_hash
from pipelines.ledger.certifications import Verdict, record_verdicts
from pipelines.ledger.leases import lease
from tests.support.lakes import Lake


def certify(lake: Lake, *days: date) -> None:
    """Certifies days as the speed layer has them, without the audit of a nightly run.

    The speed layer must hold each valid record that bronze has of them.
    """
    ensure_batch(lake.pipeline)
    batch, bronze = lake.config.table("batch"), lake.config.table("bronze")
    with lease(lake.pipeline, "certify") as held:
        base, rows = version(lake.spark, batch), lake.table("speed").where(on_days([*days]))
        built = replace_days_fenced(rows, batch, [*days], held.stamp("build"))
        by_day = small_rows(rows.groupBy("_event_date").count())
        counts = {row["_event_date"]: row["count"] for row in by_day}
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
                base_version=base,
                epoch=held.epoch,
                batch_commit=batch_commit,
            )
            for day in days
        ]
        record_verdicts(lake.pipeline, verdicts, held.stamp("certify"))
