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
        decided_at: When.
        status: What was decided.
        run_id: The run that decided.
        cause: Why the day was rebuilt, such as `late`.
        batch_version: Version of the batch table that was audited.
        bronze_version: Version of bronze that it was built from.
        previous_version: Version of the batch table that certified the day before; null for the first time.
        rows: Rows of the day.
        records: Records of the day in bronze.
        came_late: Records that came after the day's previous certification.
        added: Rows that the previous version does not have.
        removed: Rows that only the previous version has.
        changed: Rows of keys that both versions have, from another record or with other values.
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
        day: The event day.
        decided_at: When it was certified again.
        run_id: The run that repaired it.
        cause: Why, such as `late`.
        came_late: Records that came after the day's previous certification.
        added: Rows that the repair brought.
        removed: Rows that it took away.
        changed: Rows of keys that were there before, from another record or with other values.
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
        column: Path of the column.
        personal: How its values are shown if they are personal data: `hash` as fingerprints, `drop` not
            at all.
        before: The value in the previous version, as text or null.
        after: The value in this version, as text or null.
    """

    column: Text
    personal: Personal | None = None
    before: Text | None = None
    after: Text | None = None


class ChangedRow(Model):
    """One row that a rebuild added, removed or changed.

    Attributes:
        change: What became of it.
        key: The dedup key.
        before: The record that it was made of in the previous version; null if it was added.
        after: The record that it is made of in this version; null if it was removed.
        columns: Of a changed row the columns that differ, of others those that have a value, without the
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
        added: Rows that only the later version has.
        removed: Rows that only the earlier one has.
        changed: Rows of keys that both have, from another record or with other values.
        samples: The first of each sort, in the order of the key.
    """

    added: int
    removed: int
    changed: int
    samples: tuple[ChangedRow, ...]


class Comparison(Model):
    """What a rebuild changed in the day, against the version that certified it before.

    Attributes:
        previous_version: Version of the batch table that certified the day before.
        batch_version: Version of the batch table that the verdict is about.
        added: Rows that the previous version does not have; null if they cannot be compared.
        removed: Rows that only the previous version has.
        changed: Rows of keys that both versions have, from another record or with other values.
        samples: The first of each sort, by key.
        gone: Why the versions cannot be compared; null if they can.
    """

    previous_version: Count
    batch_version: Count
    added: Count | None = None
    removed: Count | None = None
    changed: Count | None = None
    samples: tuple[ChangedRow, ...] = ()
    gone: Text | None = None
