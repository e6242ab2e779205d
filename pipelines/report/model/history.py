"""What became of a day over time, as a report shows it: its verdicts, repairs, and what a rebuild changed.

A *repair* is a rebuild of a day that was certified before. Counts of rows are null where nobody counted
them, as in verdicts of earlier versions of Oncelake.
"""

from dataclasses import dataclass
from datetime import date
from typing import Literal, TypeAlias

from pydantic import AwareDatetime

from pipelines.contracts.custom_properties import Personal
from pipelines.report.model.records import Coordinates, Count, KeyPart, Model, Text

RowDifference: TypeAlias = Literal["added", "removed", "changed"]
Withheld: TypeAlias = Literal["forgotten", "version_gone"]
"""Why no rows are shown: the run forgot events, or the version before is gone."""


class PastVerdict(Model):
    """One verdict on the day.

    Attributes:
        decided_at: when.
        status: what was decided.
        run_id: the run that decided.
        cause: why the day was rebuilt, such as `late`.
        batch_version: version of the batch table that was audited.
        bronze_version: version of bronze that it was built from.
        previous_version: version of the batch table that certified the day before; null for the first time.
        rows: rows of the day.
        records: records of the day in bronze.
        came_late: records that came after the day's previous certification.
        added: rows that the previous version does not have.
        removed: rows that only the previous version has.
        changed: rows of keys that both versions have, from another record or with other values.
    """

    decided_at: AwareDatetime
    status: Literal["certified", "failed"]
    run_id: Text
    cause: Text | None = None
    batch_version: Count
    bronze_version: Count
    previous_version: Count | None = None
    rows: Count
    records: Count
    came_late: Count | None = None
    added: Count | None = None
    removed: Count | None = None
    changed: Count | None = None


class Repair(Model):
    """One repair of one of the days of the trend.

    Attributes:
        day: the event day.
        decided_at: when it was certified again.
        run_id: the run that repaired it.
        cause: why, such as `late`.
        came_late: records that came after the day's previous certification.
        added: rows that the repair brought.
        removed: rows that it took away.
        changed: rows of keys that were there before, from another record or with other values.
    """

    day: date
    decided_at: AwareDatetime
    run_id: Text
    cause: Text | None = None
    came_late: Count | None = None
    added: Count | None = None
    removed: Count | None = None
    changed: Count | None = None


class ChangedColumn(Model):
    """One column of a row that a rebuild changed.

    Attributes:
        column: path of the column.
        personal: how its values are shown if they are personal data: `hash` as fingerprints, `drop` not
            at all.
        before: the value in the previous version, as text or null.
        after: the value in this version, as text or null.
    """

    column: Text
    personal: Personal | None = None
    before: Text | None = None
    after: Text | None = None


class ChangedRow(Model):
    """One row that a rebuild added, removed or changed.

    Attributes:
        change: what became of it.
        key: the dedup key.
        before: the record that it was made of in the previous version; null if it was added.
        after: the record that it is made of in this version; null if it was removed.
        columns: of a changed row the columns that differ, of others those that have a value, without the
            key; in the contract's order. None if only the record is another one.
    """

    change: RowDifference
    key: tuple[KeyPart, ...]
    before: Coordinates | None = None
    after: Coordinates | None = None
    columns: tuple[ChangedColumn, ...] = ()


@dataclass(frozen=True)
class SampledChanges:
    """How the rows of a day differ between two versions, with samples.

    Attributes:
        added: rows that only the later version has.
        removed: rows that only the earlier one has.
        changed: rows of keys that both have, from another record or with other values.
        samples: the first of each sort, in the order of the key.
    """

    added: int
    removed: int
    changed: int
    samples: tuple[ChangedRow, ...]


class Comparison(Model):
    """What a rebuild changed in the day, against the version that certified it before.

    Attributes:
        previous_version: version of the batch table that certified the day before.
        batch_version: version of the batch table that the verdict is about.
        added: rows that the previous version does not have; null if they cannot be compared.
        removed: rows that only the previous version has.
        changed: rows of keys that both versions have, from another record or with other values.
        samples: the first of each sort, by key.
        gone: why the versions cannot be compared; null if they can.
    """

    previous_version: Count
    batch_version: Count
    added: Count | None = None
    removed: Count | None = None
    changed: Count | None = None
    samples: tuple[ChangedRow, ...] = ()
    gone: Text | None = None
