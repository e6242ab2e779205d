"""A Delta table that holds some days of another one at a version: a copy of its files, not of its rows."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Final

from pipelines.delta.epochs import Stamp
from pipelines.delta.replaced_rows import File
from pipelines.delta.table_properties import SERVES
from pipelines.delta.transaction import Transaction, version_gone
from pipelines.errors import SourceError
from pipelines.fault_points import Point, reach
from pipelines.spark.files import HadoopFile

_AT_ONCE: Final = 8


@dataclass(frozen=True)
class Days:
    """Days of a table at a version.

    Attributes:
        table: The path of a Delta table partitioned by `_event_date`.
        version: The version.
        days: The days, sorted; at least one.
    """

    table: str
    version: int
    days: tuple[date, ...]


def hold_days(transaction: Transaction, source: Days, owner: str) -> None:
    """Make a table hold days of another one, and nothing else, by one commit, or none if it does.

    Delta gives no name to two files, so a file that the table has under the same path is the same.

    Args:
        transaction: A transaction on the table; the table is made if there is none.
        source: The days.
        owner: The pipeline, which is kept with the table.

    Raises:
        SourceError: The version is gone, or has files that cannot be copied as they are.
        StaleEpoch, DeltaConcurrentModificationException: Others wrote to the table meanwhile.
    """
    lacking, superfluous = transaction.differences_from(source.table, source.version, source.days)
    if not lacking and not superfluous and transaction.version >= 0:
        return
    for file in lacking:
        _require_plain(source.table, file)
    # Each is a request to a store; the bytes go through the driver.
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(partial(_copy, transaction, source), lacking))
    reach(Point.FILES_COPIED)
    transaction.take_columns_from(source.table, source.version, {SERVES: owner})
    actions = [transaction.added(file) for file in lacking]
    actions += [transaction.removed(file) for file in superfluous]
    application = f"oncelake.serving.{owner}"
    note = f"{source.table} VERSION AS OF {source.version}"
    stamp = Stamp(application, transaction.number_taken(application) + 1, note)
    transaction.commit(actions, stamp, "Overwrite", "true")


def _copy(transaction: Transaction, source: Days, file: File) -> None:
    original = HadoopFile.of_url(transaction.spark, file["path"], source.table)
    if not original.exists():
        raise version_gone(source.table, source.version)
    original.copy(HadoopFile.of_url(transaction.spark, file["path"], transaction.table))


def _require_plain(table: str, file: File) -> None:
    """Make sure that a file is one of the table's own, with all of its rows.

    Raises:
        SourceError: It is not.
    """
    if file.get("deletionVector") or "://" in file["path"] or file["path"].startswith("/"):
        raise SourceError(
            f"{table}: found the file {file['path']}, of another table or with deleted rows in it, expected"
            " files as nightly runs write them. The table was changed by hand: let a nightly run rebuild the"
            " day of this file"
        )
