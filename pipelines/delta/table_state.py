"""What a Delta table knows of itself, and of the queries that write to it, from its log alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from delta.tables import DeltaTable
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from pipelines.delta.epochs import Commit
from pipelines.delta.log import newest_snapshot, snapshot_at
from pipelines.delta.tables import exists
from pipelines.delta.transaction_numbers import last_number, last_numbers
from pipelines.sql import literal

_RESTORE: Final = "RESTORE"
# Operations that bring rows which a stream, or a replay, has to find again.
_WRITES: Final = frozenset({"WRITE", "STREAMING UPDATE", "MERGE"})


@dataclass(frozen=True)
class TableState:
    """A Delta table at its newest version.

    Attributes:
        path: Where it is.
        table_id: Delta's own id of it; a table that is recreated has another.
        batches: Of each query that has written to it, the number of its last micro-batch (the transaction
            identifiers of the Delta protocol, `txn`). RESTORE leaves them as they are.
    """

    path: str
    table_id: str
    batches: Mapping[str, int]


def table_state(spark: SparkSession, path: str) -> TableState | None:
    """Return the state of a Delta table; None if there is none at the path."""
    if not exists(spark, path):
        return None
    snapshot = newest_snapshot(spark, path)
    return TableState(path, snapshot.metadata().id(), last_numbers(spark, path, snapshot))


def last_batch(spark: SparkSession, path: str, query: str) -> int | None:
    """Return the number of the last micro-batch that a query has committed to a table; None if it has not."""
    snapshot = newest_snapshot(spark, path)
    return last_number(spark, path, snapshot, query)


def removed_files(spark: SparkSession, path: str, until: int) -> DataFrame:
    """Return the files that commits have removed and the log still names, and those of the change feed.

    What is in the change feed was committed, unless somebody is changing or deleting rows: hold the lease.

    Args:
        spark: The session.
        path: The path of the table.
        until: The last version whose commits count.

    Returns:
        In the shape of an inventory of Delta's VACUUM: `path string` with its scheme, `length bigint`, `isDir
        boolean`, `modificationTime bigint`. That time is long ago: when a file was removed decides.
    """
    snapshot = snapshot_at(spark, path, until)
    root = snapshot.deltaLog().dataPath().toString()
    # Its log has the path as a URI, below the table.
    place = f"concat({literal(root)}, '/', url_decode(replace(path, '+', '%2B'))) AS path"
    others = {"length": "coalesce(size, 0L)", "isDir": "false", "modificationTime": "0L"}
    # VACUUM asks for columns that may be null.
    nullable = [f"CASE WHEN path IS NOT NULL THEN {value} END AS {name}" for name, value in others.items()]
    removed = DataFrame(snapshot.tombstones().toDF(), spark).selectExpr(place, *nullable)
    try:
        feed = (
            spark.read.format("binaryFile").option("recursiveFileLookup", True).load(f"{root}/_change_data")
        )
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        # Nobody has ever changed rows of it.
        return removed
    return removed.unionByName(feed.selectExpr("path", "length AS size").selectExpr("path", *nullable))


def last_commit_at(spark: SparkSession, path: str) -> datetime | None:
    """Return the time of a table's newest commit; None if there is no table."""
    newest = newest_snapshot(spark, path)
    return None if newest.version() < 0 else datetime.fromtimestamp(newest.timestamp() / 1000, UTC)


def filled_since(spark: SparkSession, path: str) -> datetime | None:
    """Return when a table was made, if it has files, and so rows or had them; None if it has none."""
    if not exists(spark, path):
        return None
    made = F.unix_millis("createdAt").alias("at")
    row = DeltaTable.forPath(spark, path).detail().where("numFiles > 0").select(made).first()
    return datetime.fromtimestamp(row["at"] / 1000, UTC) if row and row["at"] is not None else None


@dataclass(frozen=True)
class StreamCommit(Commit):
    """A commit, as in a table's history, and what the query that made it notes.

    Attributes:
        restored: Of a RESTORE, the version whose rows it brought back; None if it was named by its time.
        removed: How many files a RESTORE took away.
        rows: How many rows it wrote.
        query: The query whose micro-batch it is, if it is one.
        batch: The number of the micro-batch.
        quarantined: What the commit of a speed layer notes: the last micro-batch with broken records.
        asked: What the commit of bronze notes, in milliseconds: a moment before Kafka was asked for the ends
            of its partitions, to which the micro-batch goes; None if it may end before them.
        committed: When it was made, in milliseconds: on an object store by the store's own clock.
    """

    restored: int | None = None
    removed: int = 0
    rows: int = 0
    query: str | None = None
    batch: int | None = None
    quarantined: int | None = None
    asked: int | None = None
    committed: int | None = None


def recent_commits(spark: SparkSession, path: str, most: int) -> list[StreamCommit]:
    """Return the newest commits of a table, the newest first.

    Args:
        spark: The session.
        path: The path of the table.
        most: How many at most: each is a file that is read.
    """
    noted = "get_json_object(userMetadata, '$.{}')"
    history = DeltaTable.forPath(spark, path).history(most)
    # Delta's own sink names its micro-batch otherwise than we do.
    commits = history.selectExpr(
        "version",
        "operation",
        "userMetadata AS note",
        "bigint(operationParameters['version']) AS restored",
        "bigint(operationMetrics['numRemovedFiles']) AS removed",
        "bigint(operationMetrics['numOutputRows']) AS rows",
        f"coalesce({noted.format('query')}, operationParameters['queryId']) AS query",
        f"bigint(coalesce({noted.format('batch')}, operationParameters['epochId'])) AS batch",
        f"bigint({noted.format('quarantined')}) AS quarantined",
        f"bigint({noted.format('asked')}) AS asked",
        "unix_millis(timestamp) AS committed",
    )
    # Sorted here: Spark has the rows in the driver already, and would start two jobs to sort them.
    rows = sorted(commits.collect(), key=lambda row: row["version"], reverse=True)
    return [_commit(row) for row in rows]


def _commit(row: Row) -> StreamCommit:
    values = row.asDict()
    return StreamCommit(**{**values, "removed": values["removed"] or 0, "rows": values["rows"] or 0})


def has_taken_back(commits: Sequence[StreamCommit]) -> bool:
    """Return whether a RESTORE took rows back that had been written, and nothing brought them again.

    Args:
        commits: The newest commits of a table, the newest first.
    """
    by_version = {commit.version: commit for commit in commits}
    at = commits[0].version if commits else -1
    while commit := by_version.get(at):
        at -= 1
        if commit.operation != _RESTORE:
            continue
        if commit.restored is None:
            if commit.removed:
                return True
            continue
        undone = (by_version.get(version) for version in range(commit.restored + 1, commit.version))
        # What is older than the commits at hand may have been anything.
        if any(each is None or each.operation in _WRITES for each in undone):
            return True
        at = commit.restored
    return False
