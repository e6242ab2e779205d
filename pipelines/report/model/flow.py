"""Where the records of a day went, in counts, for its report."""

from datetime import date

from pipelines.ledger.bronze_index import RecordCounts
from pipelines.ledger.certifications import Verdict
from pipelines.report.model.report import Flow


def flow_of(verdict: Verdict, speed: int) -> Flow:
    """Return what a verdict counted, and the rows that the speed layer has now."""
    return Flow(
        bronze=verdict.bronze,
        other_days=verdict.other_days,
        quarantined=verdict.quarantined,
        day_records=verdict.records,
        duplicates=verdict.duplicates,
        conflicts=verdict.conflicts,
        batch=verdict.rows,
        speed=speed,
        late=verdict.late,
    )


def flow_so_far(counts: RecordCounts, day: date, speed: int) -> Flow:
    """Return what bronze has of a day that was never rebuilt.

    Args:
        counts: Records in bronze.
        day: The day.
        speed: The rows that the speed layer has of it.
    """
    valid, of_day = sum(counts.valid.values()), counts.valid.get(day, 0)
    return Flow(
        bronze=valid + counts.broken,
        other_days=valid - of_day,
        quarantined=counts.broken,
        day_records=of_day,
        duplicates=0,
        conflicts=0,
        batch=0,
        speed=speed,
        late=0,
    )
