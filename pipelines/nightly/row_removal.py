"""Remove forgotten events from certified days that can no longer be rebuilt.

Bronze no longer holds all records of such a day, so it can be neither rebuilt nor audited. Its certified rows
are written again without those of the events.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime

from pyspark.sql import DataFrame

from pipelines.delta.fenced_commits import replace_days_fenced
from pipelines.delta.time_travel import commit_hash
from pipelines.ledger.certifications import (
    Verdict,
    certified_in,
    history,
    newest_certified,
    record_verdicts,
)
from pipelines.ledger.leases import Lease
from pipelines.nightly.rebuild import require_alone
from pipelines.nightly.recovery import back_to_certified
from pipelines.spark.pipeline import Pipeline


def cut_days(
    pipeline: Pipeline,
    remaining: DataFrame,
    gone: Mapping[date, int],
    lease: Lease,
) -> None:
    """Take rows out of certified days, as one commit, and certify the days as they are then.

    Args:
        pipeline: The pipeline.
        remaining: The certified rows of these days without those that are to go.
        gone: How many rows go, by day.
        lease: The pipeline's lease.

    Raises:
        StaleEpoch: Another run has taken the lease over. Nothing was written.
        SourceError: Others wrote to the batch table meanwhile.
    """
    ledger = history(pipeline)
    state = certified_in(ledger)
    if state is None or not gone:
        return
    base = back_to_certified(pipeline, state, lease.stamp("undo")).version
    built = replace_days_fenced(remaining, pipeline.table("batch"), sorted(gone), lease.stamp("forget"))
    before, commit = newest_certified(ledger), commit_hash(pipeline.spark, pipeline.table("batch"), built)
    cut = [
        replace(
            _without(before[day], n, state.version),
            run_id=lease.run_id,
            epoch=lease.epoch,
            batch_version=built,
            batch_commit=commit,
        )
        for day, n in sorted(gone.items())
    ]
    require_alone(pipeline, [base, built])
    record_verdicts(pipeline, cut, lease.stamp("certify"))


def _without(verdict: Verdict, gone: int, before: int) -> Verdict:
    """Return the verdict on a day that has lost rows; what was audited of the others holds."""
    return replace(
        verdict,
        base_version=before,
        decided_at=datetime.now(UTC),
        records=verdict.records - gone,
        rows=verdict.rows - gone,
        cause="forgotten",
        came_late=0,
        previous_version=before,
        added=0,
        removed=gone,
        changed=0,
    )
