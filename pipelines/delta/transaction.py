"""A transaction of Delta's own classes, for commits that no command of Delta makes.

Neither `RESTORE` nor a commit without rows takes a `txnAppId`, and no command lets a caller look at what it
has written before it commits. What is used of Delta's classes is what its commands are made of, in the
version that conf/jars.lock pins; the tests of fencing fail where it changes.
"""

import json
import re
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from pipelines.delta.commits import leave_files, removed_paths
from pipelines.delta.conflicts import raising_stale_epoch
from pipelines.delta.epochs import Stamp, require_newer
from pipelines.delta.io import read
from pipelines.delta.log import delta_log, files_of, is_divided_by, rows_of_files, scala_seq
from pipelines.delta.replaced_rows import File, ReplacedRows
from pipelines.delta.row_changes import FILE, RowChange
from pipelines.delta.small_tables import listed_files
from pipelines.delta.table_properties import no_earlier_day
from pipelines.delta.transaction_numbers import last_number
from pipelines.errors import ConfigError, SourceError
from pipelines.schema_paths import flat, optional
from pipelines.spark.files import HadoopFile

_METRICS: Final = "spark.databricks.delta.history.metricsEnabled"
_WIDENING: Final = "delta.enableTypeWidening"


class Transaction:
    """A transaction of Delta's own, on the newest version of a table.

    Attributes:
        spark: The session.
        table: The path of the table.
    """

    def __init__(self, spark: SparkSession, table: str) -> None:
        self.spark, self.table = spark, table
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._delta = jvm.org.apache.spark.sql.delta
        self._none = jvm.scala.Option.empty()
        self._log = delta_log(spark, table)
        self._inner = self._log.startTransaction(self._none, self._none)
        self._written: Any = None
        self._removed: Any = None

    @property
    def version(self) -> int:
        """The version of the table that it reads."""
        return int(self._inner.readVersion())

    def table_id(self) -> str:
        """Return the id that Delta gave the table when it was made, see `pipelines.delta.tables.table_id`.

        Raises:
            SourceError: There is none.
        """
        self.require_table()
        return str(self._inner.snapshot().metadata().id())

    def require_table(self) -> None:
        """Make sure that there is a table.

        Raises:
            SourceError: There is none.
        """
        if self.version < 0:
            raise SourceError(f"{self.table}: no such table; restore it, or fix lake.root")

    def number_taken(self, application: str) -> int:
        """Return the last number taken of an application; the commit conflicts with a further one."""
        last = last_number(self.spark, self.table, self._inner.snapshot(), application)
        self.conflict_with(application)
        return -1 if last is None else last

    def conflict_with(self, application: str) -> None:
        """Let the commit conflict with a number of an application that another commits meanwhile."""
        # The other half of what `txnVersion` does.
        self._inner.readTxn().addOne(application)

    def differences(self, at: int | None, days: Sequence[date]) -> tuple[list[File], list[File]]:
        """Return files that only a version has, and those that only the table has now, of some days or all.

        The commit conflicts with whatever others write to the table meanwhile.
        """
        self._inner.readWholeTable()
        if at is not None and leave_files(self.spark, self.table, at, self.version):
            return [], []
        if at is None and listed_files(self.spark, self.table, self._inner.snapshot()) == []:
            return [], []
        now = files_of(self.spark, self._inner.snapshot(), days)
        then = now.limit(0) if at is None else files_of(self.spark, self._snapshot(at), days)
        return _only(then, now), _only(now, then)

    def differences_from(self, source: str, at: int, days: Sequence[date]) -> tuple[list[File], list[File]]:
        """Return files that another table has on some days, and those that only this table has.

        The files of the two are the same if they have the same path within their tables. The commit conflicts
        with whatever others write to this table meanwhile.

        Args:
            source: The path of the other table.
            at: Its version.
            days: The event days, sorted; at least one.
        """
        self._inner.readWholeTable()
        there = files_of(self.spark, self._snapshot_of(source, at), days)
        here = there.limit(0) if self.version < 0 else files_of(self.spark, self._inner.snapshot())
        return _only(there, here), _only(here, there)

    def partition_files(self, partition: Mapping[str, str]) -> list[File]:
        """Return the files of a partition.

        The commit conflicts with what others write to the table only if they remove one of these files.

        Args:
            partition: The values of all partition columns.
        """
        snapshot = self._inner.snapshot()
        listed = listed_files(self.spark, self.table, snapshot)
        if listed is None:
            of_partition = files_of(self.spark, snapshot)
            for column, value in partition.items():
                of_partition = of_partition.where(F.col("partitionValues")[column] == value)
            return _actions(of_partition)
        files = (json.loads(file.json())["add"] for file in listed)
        return [file for file in files if file["partitionValues"] == partition]

    def removed_rows(self, rows: ReplacedRows) -> list[Any] | None:
        """Return the actions by which rows are no longer in the table; None if these are not whole files.

        The commit conflicts with what others change of such rows, as one by `replaceWhere` does.

        Returns:
            None also if the log does not tell which files these are.
        """
        snapshot = self._inner.snapshot()
        listed = listed_files(self.spark, self.table, snapshot)
        if listed is None or not is_divided_by(snapshot, rows.partition_columns):
            return None
        files = [(file, json.loads(file.json())["add"]) for file in listed]
        replaced = [(file, add, rows.are_all(add)) for file, add in files]
        if any(are_all is None for _, _, are_all in replaced):
            return None
        session: Any = self.spark._jsparkSession
        parser = session.sessionState().sqlParser()
        # Each one by itself: of one that names other columns as well, Delta would heed no partition.
        conditions = [parser.parseExpression(condition) for condition in rows.conditions]
        # The defaults of Delta's own `filterFiles`.
        self._inner.trackReadPredicates(scala_seq(self.spark, conditions), False, True)
        self._inner.trackFilesRead(scala_seq(self.spark, [file for file, _, are_all in replaced if are_all]))
        # Least and greatest values of rows that may be removed for good would be written once more.
        return [self.removed({**add, "stats": None}) for _, add, are_all in replaced if are_all]

    def rewrite(self, change: RowChange) -> frozenset[str]:
        """Write the files anew that have rows to change; return the paths of those that they replace.

        Returns:
            Nothing if there are no such rows. Nothing is written then.

        Raises:
            SourceError: The table has files by other names than those by which Spark has read them.
            ConfigError: As `written_rows`.
            ValueError: The change has changed the number of rows by more than it says.
        """
        rows = read(self.spark, self.table, self.version)
        found = change.find(rows.select("*", F.col("_metadata.file_path").alias(FILE)))
        counted = found.groupBy(FILE).count().toLocalIterator()
        counts = {self._name_in_log(row[FILE]): int(row["count"]) for row in counted}
        if not counts:
            return frozenset()
        files = self._files_named(counts)
        if len(files) != len(counts):
            raise SourceError(
                f"{self.table}: found {len(files)} of {len(counts)} files in its log by the names by which"
                " Spark has read them; copy the table to a folder of its own. See docs/runbook.md,"
                " 'After a loss'"
            )
        # Of a file of which all rows go nothing has to be read.
        parts = [f for f in files if not change.deletes or _rows_in(f) != counts[f["path"]]]
        if parts:
            chosen = sum(counts[file["path"]] for file in parts)
            self._write_changed(parts, change, chosen if change.deletes else 0)
        # Now, and not while a commit is under way: each is a call of the JVM. Least and greatest values of
        # rows that may be removed for good would be written once more.
        removed = (self.removed({**file, "stats": None}) for file in files)
        self._removed = scala_seq(self.spark, removed)
        return frozenset(counts)

    def replace_files(self, paths: Collection[str], other: "Transaction") -> bool:
        """Take what another transaction has written in place of files, and remove these, by the commit.

        Returns:
            False if the table may no longer have all of them as they were, or has got other columns since.
        """
        if self._inner.metadata().id() != other._inner.metadata().id():
            return False
        removed = removed_paths(self.spark, self.table, other.version, self.version)
        if removed is None or not removed.isdisjoint(paths) or not self.adopt(other):
            return False
        self._removed = other._removed
        return True

    def _write_changed(self, files: Sequence[File], change: RowChange, fewer: int) -> None:
        rows = rows_of_files(self.spark, self.table, self._inner.snapshot(), map(self.added, files))
        expected = rows.count() - fewer
        self.write(change.changed(rows))
        if (written := self.written_rows()) != expected:
            self.discard()
            raise ValueError(f"{self.table}: {written} rows were written in place of {expected}")

    def _name_in_log(self, url: str) -> str:
        """Return what the log calls a file that Spark has read, if it is below the table."""
        root = str(self._log.dataPath().toUri().toString())
        return _plain(url).removeprefix(_plain(root.rstrip("/") + "/"))

    def _files_named(self, names: Collection[str]) -> list[File]:
        named = self.spark.createDataFrame([(name,) for name in names], "path string")
        return _actions(files_of(self.spark, self._inner.snapshot()).join(F.broadcast(named), "path"))

    def take_columns_from(self, source: str, at: int, properties: Mapping[str, str]) -> None:
        """Give the table the columns of a version of another one, if it has others, or is yet to be made.

        Args:
            source: The path of the other table.
            at: Its version.
            properties: Properties that the table has then, beside those that it has.
        """
        then = json.loads(self._snapshot_of(source, at).metadata().json())["metaData"]
        now = json.loads(self._inner.metadata().json())["metaData"]
        taken = {name: then[name] for name in ("schemaString", "partitionColumns")}
        if self.version < 0:
            now = {"id": str(uuid.uuid4()), "format": then["format"], "createdTime": int(time.time() * 1000)}
        wide = {name: value for name, value in then["configuration"].items() if name == _WIDENING}
        metadata = {**now, **taken, "configuration": {**now.get("configuration", {}), **wide, **properties}}
        if metadata != now:
            action = self._delta.actions.Action.fromJson(json.dumps({"metaData": metadata}))
            self._inner.updateMetadata(action, False)

    def require(self, files: Sequence[File], at: int | None) -> None:
        """Make sure that files of a version are there.

        Raises:
            SourceError: One is gone.
        """
        for file in files:
            if not self._file(file["path"]).exists():
                raise version_gone(self.table, at)

    def added(self, file: File) -> Any:
        """Return the action by which a file becomes one of the table."""
        return self._delta.actions.Action.fromJson(json.dumps({"add": {**file, "dataChange": True}}))

    def removed(self, file: File) -> Any:
        """Return the action by which a file is no longer one of the table, as of now."""
        return self.added(file).removeWithTimestamp(int(time.time() * 1000), True)

    def take_columns_of(self, at: int) -> None:
        """Give the table the columns and properties back that it had at a version."""
        then = self._snapshot(at).metadata()
        if then.schemaString() != self._inner.metadata().schemaString():
            self._inner.updateMetadata(then, False)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Let the table say something of itself, by the commit; its first days never become earlier ones."""
        now = json.loads(self._inner.metadata().json())["metaData"]
        configuration = now.get("configuration", {})
        metadata = {**now, "configuration": {**configuration, **no_earlier_day(configuration, properties)}}
        action = self._delta.actions.Action.fromJson(json.dumps({"metaData": metadata}))
        self._inner.updateMetadata(action, False)

    def write(self, rows: DataFrame) -> None:
        """Write the files of rows that the commit adds to the table; once.

        Raises:
            SourceError: There is no table, or it has not the columns of the rows.
        """
        self.require_table()
        rows = _fitted(rows, self.table, self._inner.metadata().schemaString())
        self._activate(rows)
        self._written = self._inner.writeFiles(rows._jdf)

    def write_few(self, rows: DataFrame, *, with_statistics: bool = False) -> None:
        """Write rows as `write` does; those that the driver has without a job.

        Args:
            rows: The rows, as `pipelines.delta.tables.small_frame` makes them; of others it takes a job.
            with_statistics: Whether the log gets Delta's statistics of them, which a table with partitions
                gets by a job alone.

        Raises:
            As `write`.
        """
        self.require_table()
        self._activate(rows)
        session = rows.sparkSession._jsparkSession
        self._written = self._jvm.oncelake.files.FewRows.write(
            session, self._inner, rows._jdf, with_statistics
        )
        if self._written is None:
            self.write(rows)

    def _activate(self, rows: DataFrame) -> None:
        # Files are written by the settings of the session of the thread.
        self._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(rows.sparkSession._jsparkSession)

    def require_written_in_place_of(self, rows: ReplacedRows) -> None:
        """Make sure that the written files hold only rows that the commit is to replace.

        Args:
            rows: The rows that the commit replaces.

        Raises:
            ValueError: A file has other rows. Nothing is committed.
        """
        actions = (self._written.apply(number) for number in range(self._written.size()))
        files = (json.loads(action.json())["add"] for action in actions)
        others = sorted({str(file["partitionValues"]) for file in files if rows.are_all(file) is False})
        if others:
            expected = " AND ".join(rows.conditions)
            raise ValueError(
                f"{self.table}: rows of {', '.join(others[:3])}, expected only rows with {expected}"
            )

    def written_rows(self) -> int:
        """Return how many rows were written.

        Raises:
            ConfigError: Delta is told not to count what it writes.
        """
        metric = self._inner.getMetric("numOutputRows")
        if not metric.isDefined():
            raise ConfigError(f"{_METRICS}: found false, expected true, by which rows are counted; remove it")
        return int(metric.get().value())

    def adopt(self, other: "Transaction") -> bool:
        """Take the files that another transaction on the table has written, to commit them in its place.

        Returns:
            False if the table has got other columns since. Nothing is taken then.
        """
        if self._inner.metadata().schemaString() != other._inner.metadata().schemaString():
            return False
        self._written = other._written
        return True

    def discard(self) -> None:
        """Delete the files that were written, if the commit is not to be."""
        for number in range(self._written.size() if self._written is not None else 0):
            # What is not deleted here is deleted by VACUUM, as are the files of a run that died.
            with suppress(Py4JJavaError):
                self._file(self._written.apply(number).path()).delete()

    def commit(
        self, actions: Sequence[Any], stamp: Stamp, mode: str = "Append", condition: str | None = None
    ) -> int:
        """Commit actions, what was written, and the stamp; return the version that this made."""
        require_newer(self.table, self.number_taken(stamp.application), stamp)
        now = self._jvm.scala.Option.apply(int(time.time() * 1000))
        self._inner.updateSetTransaction(stamp.application, stamp.number, now)
        return self.commit_unfenced(actions, stamp.note, mode, condition)

    def commit_unfenced(
        self, actions: Sequence[Any], note: str | None, mode: str = "Overwrite", condition: str | None = None
    ) -> int:
        """Commit actions and what was written, whoever has claimed the table; return the version."""
        some, none = self._jvm.scala.Option.apply, self._none
        operation = self._delta.DeltaOperations.Write(
            getattr(self._jvm.org.apache.spark.sql.SaveMode, mode),
            none,
            some(condition),
            some(note),
            *[none] * 5,
        )
        scala_actions = scala_seq(self.spark, actions)
        if self._removed is not None:
            scala_actions = self._removed.appendedAll(scala_actions)
        if self._written is not None:
            scala_actions = self._written.appendedAll(scala_actions)
        with raising_stale_epoch(self.table):
            return int(self._inner.commit(scala_actions, operation))

    def _file(self, url: str) -> HadoopFile:
        """Return a file by its path in the log, which is a URL, mostly relative to the table."""
        return HadoopFile.of_url(self.spark, url, self.table)

    def _snapshot(self, at: int) -> Any:
        return self._snapshot_of(self.table, at)

    def _snapshot_of(self, table: str, at: int) -> Any:
        try:
            return delta_log(self.spark, table).getSnapshotAt(at, self._none, self._none, False)
        except AnalysisException as error:
            raise version_gone(table, at) from error


def _fitted(rows: DataFrame, table: str, schema: str) -> DataFrame:
    """Return rows in the columns of a table, in its order and types; what they lack is null."""
    columns = StructType.fromJson(json.loads(schema))
    there = {path.lower() for path in flat(columns)}
    lacking = [path for path in flat(rows.schema) if path.lower() not in there]
    if lacking:
        raise SourceError(
            f"{table}: found no column {', '.join(lacking)} in it, expected one: the table was changed while"
            " this job was at work. Nothing was written. Start the job again: it adds what is missing"
        )
    # Delta itself holds what may not be null.
    return rows.to(StructType([StructField(field.name, optional(field.dataType)) for field in columns]))


def _only(files: DataFrame, others: DataFrame) -> list[File]:
    """Return the files that are not among others; as many as a run wrote, unless others rewrote the table."""
    same_path = F.col("a.path") == F.col("b.path")
    # One file may be there with and without rows that were deleted since.
    same_rows = F.col("a.deletionVector").eqNullSafe(F.col("b.deletionVector"))
    return _actions(files.alias("a").join(others.alias("b"), same_path & same_rows, "left_anti"))


def _rows_in(file: File) -> int | None:
    """Return how many rows a file has, as its statistics say; None if they do not, or some were deleted."""
    stats = json.loads(file.get("stats") or "{}")
    return None if file.get("deletionVector") else stats.get("numRecords")


def _plain(url: str) -> str:
    """Return the URL of a file with one slash after the scheme, as Hadoop writes it."""
    return re.sub(r"^file:/+", "file:/", url)


def _actions(files: DataFrame) -> list[File]:
    texts = files.select(F.to_json(F.struct("*")).alias("file")).toLocalIterator()
    return [json.loads(row["file"]) for row in texts]


def version_gone(table: str, at: int | None) -> SourceError:
    """Return the error of a version that readers read, or would read, and that is no longer complete."""
    return SourceError(
        f"{table}: the certified version {at} is no longer complete: its log or files of it were deleted, so"
        " what readers have cannot be kept. Restore the folder from a backup; see"
        " docs/runbook.md, 'The certified version is gone'"
    )
