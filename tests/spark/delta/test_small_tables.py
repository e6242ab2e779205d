"""A small table is read as Delta reads it, whatever happened to its folder, and by fewer jobs."""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest
from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from pipelines.delta import small_tables
from pipelines.delta.conflicts import CONFLICTS
from pipelines.delta.epochs import StaleEpoch, Stamp
from pipelines.delta.fenced_commits import claim, replace_partition_fenced
from pipelines.delta.io import append, read, replace_rows
from pipelines.delta.log import newest_snapshot
from pipelines.delta.small_tables import listed_files, read_few_files, read_small
from pipelines.delta.table_properties import set_table_property
from pipelines.fault_points import Point, armed
from pipelines.session_settings import session_settings
from pipelines.spark.session import forget_tables
from tests.support.accidents import once
from tests.support.table_copies import TableCopies

DELETION_VECTORS = "delta.enableDeletionVectors"


def rows_of(spark: SparkSession, pipeline: str, *numbers: int) -> DataFrame:
    values = ", ".join(f"('{pipeline}', {number})" for number in numbers)
    return spark.sql(f"SELECT * FROM VALUES {values} AS _(pipeline, n)")  # noqa: S608 - numbers and a name


def contents(rows: DataFrame) -> list[tuple[str, int]]:
    return sorted((row["pipeline"], row["n"]) for row in rows.collect())


def listed(spark: SparkSession, table: Path) -> set[str] | None:
    files = listed_files(spark, str(table), newest_snapshot(spark, str(table)))
    return None if files is None else {str(file.path()) for file in files}


def files_by_delta(spark: SparkSession, table: Path) -> set[str]:
    return {str(file.path()) for file in newest_snapshot(spark, str(table)).allFiles().collectAsList()}


def commit_by_hand(table: Path, version: int, *actions: Mapping[str, object]) -> None:
    lines = [json.dumps(action) for action in ({"commitInfo": {"operation": "TEST"}}, *actions)]
    (table / f"_delta_log/{version:020d}.json").write_text("\n".join(lines))


def added(path: str) -> dict[str, dict[str, object]]:
    file = {"path": path, "partitionValues": {"pipeline": "a"}, "size": 1, "modificationTime": 1}
    return {"add": {**file, "dataChange": True}}


@pytest.fixture(autouse=True)
def _lists_by_statistics(spark: SparkSession) -> Iterator[None]:
    """Let Delta list files as it does in jobs; sessions of tests have it list them all.

    And let it list them in checksums, as other writers do: some are left behind when a folder is put back.
    """
    lists = "spark.databricks.delta.allFilesInCrc.enabled"
    with session_settings(spark, {"spark.databricks.delta.stats.skipping": "true", lists: "true"}):
        yield


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path, table_copies: TableCopies) -> Path:
    """A table of two partitions."""
    rows = rows_of(spark, "a", *range(6)).unionByName(rows_of(spark, "b", 1))
    make = rows.write.format("delta").partitionBy("pipeline").save
    return table_copies.copy("partitions", tmp_path / "a table%41", make)


def test_any_history_is_read_as_delta_reads_it(spark: SparkSession, table: Path) -> None:
    path, random = str(table), Random(7)  # noqa: S311 - nothing here is secret
    delta = DeltaTable.forPath(spark, path)
    changes: list[Callable[[], object]] = [
        lambda: append(rows_of(spark, random.choice("ab"), random.randrange(99)), path),
        lambda: replace_rows(rows_of(spark, "a", *random.sample(range(99), 3)), path, "pipeline = 'a'"),
        lambda: delta.delete(f"n % 5 = {random.randrange(5)}"),
        lambda: delta.update("n % 4 = 1", {"n": "n + 1"}),
        lambda: delta.optimize().executeCompaction(),
        lambda: delta.restoreToVersion(random.randrange(1, 3)),
        lambda: spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES (p = '{random.random()}')"),
    ]
    set_table_property(spark, path, "delta.checkpointInterval", "5")
    for change in changes:
        change()
        assert listed(spark, table) == files_by_delta(spark, table)
    assert contents(read_small(spark, path)) == contents(read(spark, path))
    newest = newest_snapshot(spark, path).version()
    assert contents(read_small(spark, path, newest)) == contents(read(spark, path))
    assert contents(read_small(spark, path, 2)) == contents(read(spark, path, 2))
    # Of a log with a checkpoint, as of one that nobody has read so far, Delta lists the files.
    assert list((table / "_delta_log").glob("*.checkpoint*.parquet"))
    moved = table.rename(table.with_name("moved"))
    assert listed(spark, moved) == files_by_delta(spark, moved)
    append(rows_of(spark, "a", 100), str(moved))
    assert listed(spark, moved) == files_by_delta(spark, moved)


def test_conditions_on_partitions_choose_the_rows_that_delta_chooses(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    values = (
        "(DATE'2013-01-01', 'b', 1), (DATE'2013-01-02', NULL, 2), (NULL, 'C', 3), (NULL, '', 4),"
        " (DATE'2013-01-02', 'a', NULL)"
    )
    rows = spark.sql(f"SELECT *, coalesce(`No`, 0) AS n FROM VALUES {values} AS _(day, Name, `No`)")  # noqa: S608
    rows.write.format("delta").partitionBy("day", "Name", "No").save(path)
    assert listed_files(spark, path, newest_snapshot(spark, path))
    for condition in (
        "day = DATE'2013-01-02'",
        "day = '2013-01-02' AND name IS NULL",
        "day IS NULL OR no < 2",
        "NAME IN ('a', 'b') AND n >= 0",
        "day BETWEEN DATE'2013-01-01' AND DATE'2013-01-02' AND NOT name <=> 'a'",
        "upper(name) = 'C' AND length(name) = 1",
        "date_add(day, no) > DATE'2013-01-02'",
        "no + n = 3 OR n = 3",
    ):
        expected, found = (
            sorted(row["n"] for row in reading(spark, path).where(condition).collect())
            for reading in (read, read_small)
        )
        assert found == expected, condition
        assert 0 < len(found) < 5, condition


def jobs_of(spark: SparkSession, group: str) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


@pytest.mark.thorough
@pytest.mark.parametrize("interval", ["10", "1"])
def test_a_new_version_is_read_without_listing_files_by_a_job(
    spark: SparkSession, table: Path, interval: str
) -> None:
    """Also of a log with checkpoints, if an earlier version was listed."""
    set_table_property(spark, str(table), "delta.checkpointInterval", interval)
    assert listed(spark, table)
    jobs = []
    for reading in (read_small, read):
        append(rows_of(spark, "a", 7), str(table))
        spark.sparkContext.setJobGroup(reading.__name__, "")
        reading(spark, str(table)).where("pipeline = 'a'").toArrow()
        jobs.append(jobs_of(spark, reading.__name__))
        spark.sparkContext.setJobGroup("", "")
    assert jobs[0] < jobs[1]


def test_a_version_that_was_listed_is_read_by_fewer_jobs_while_others_write(
    spark: SparkSession, table: Path
) -> None:
    path = str(table)
    backup = shutil.copytree(table, table.with_name("backup"))
    append(rows_of(spark, "a", 50), path)
    assert listed(spark, table)
    DeltaTable.forPath(spark, path).delete("n = 50")
    assert listed(spark, table)
    jobs, found = [], []
    for reading in (read_small, read):
        spark.sparkContext.setJobGroup(f"{reading.__name__} at 1", "")
        found.append(contents(reading(spark, path, 1)))
        jobs.append(jobs_of(spark, f"{reading.__name__} at 1"))
        spark.sparkContext.setJobGroup("", "")
    assert found[0] == found[1] == [*(("a", number) for number in (*range(6), 50)), ("b", 1)]
    assert jobs[0] < jobs[1]
    # In a folder that was put back another commit makes the version.
    put_back(backup, table)
    for number in (60, 61):
        append(rows_of(spark, "b", number), path)
    assert contents(read_small(spark, path, 1)) == [
        *(("a", number) for number in range(6)),
        ("b", 1),
        ("b", 60),
    ]


def put_back(backup: Path, table: Path) -> None:
    """Put a backup in the place of a table, but for later checksums, which nobody deletes."""
    checksums = {file: file.read_bytes() for file in (table / "_delta_log").glob("[0-9]*.crc")}
    shutil.rmtree(table)
    shutil.copytree(backup, table)
    for file, text in checksums.items():
        if not file.exists():
            file.write_bytes(text)


@pytest.mark.parametrize(
    ("commits_after", "is_new_process"),
    [
        *((number, False) for number in range(4)),
        (1, True),
        *(pytest.param(number, True, marks=pytest.mark.thorough) for number in (0, 2, 3)),
    ],
)
def test_a_folder_that_was_put_back_is_read_as_it_is(
    spark: SparkSession, table: Path, commits_after: int, is_new_process: bool
) -> None:
    """The versions that were listed are made again by other commits; Delta's checksums are of the first."""
    path = str(table)
    if is_new_process:
        # Its first list is then that of a checkpoint.
        set_table_property(spark, path, "delta.checkpointInterval", "1")
    backup = shutil.copytree(table, table.with_name("backup"))
    for number in (50, 51):
        append(rows_of(spark, "a", number), path)
        assert listed(spark, table) == files_by_delta(spark, table)
    put_back(backup, table)
    if is_new_process:
        forget_tables()
    numbers = range(60, 60 + commits_after)
    for number in numbers:
        append(rows_of(spark, "b", number), path)
    rows = [*(("a", number) for number in range(6)), ("b", 1)]
    assert contents(read_small(spark, path)) == [*rows, *(("b", number) for number in numbers)]
    assert listed(spark, table) == files_by_delta(spark, table)


@pytest.mark.thorough
def test_a_table_that_took_the_place_of_another_is_read(spark: SparkSession, table: Path) -> None:
    append(rows_of(spark, "a", 50), str(table))
    read_small(spark, str(table))
    other = table.with_name("other")
    for mode in ("append", "append", "append"):
        rows_of(spark, "b", 70).write.format("delta").mode(mode).partitionBy("pipeline").save(str(other))
    put_back(other, table)
    forget_tables()
    assert contents(read_small(spark, str(table))) == [("b", 70)] * 3


@pytest.mark.thorough
def test_a_commit_that_was_empty_until_it_was_repaired_is_read(spark: SparkSession, table: Path) -> None:
    """Delta takes it for a commit that does nothing, and others write after it."""
    append(rows_of(spark, "a", 50), str(table))
    append(rows_of(spark, "b", 51), str(table))
    commit = table / f"_delta_log/{1:020d}.json"
    text = commit.read_text()
    commit.with_name(f".{commit.name}.crc").unlink()
    commit.write_text("")
    forget_tables()
    assert contents(read_small(spark, str(table))) == contents(read(spark, str(table)))
    commit.write_text(text)
    forget_tables()
    assert contents(read_small(spark, str(table))) == contents(read(spark, str(table)))
    assert ("a", 50) in contents(read_small(spark, str(table)))


@pytest.mark.parametrize("spelling", ["file:{table}/{path}", "{table}/{path}", "a%40b/{path}"])
def test_a_path_that_has_other_spellings_is_left_to_delta(
    spark: SparkSession, table: Path, spelling: str
) -> None:
    """As an engine may write it."""
    assert listed(spark, table)
    commit_by_hand(table, 1, added(spelling.format(table=table, path="part.parquet")))
    assert listed(spark, table) is None


def test_a_table_with_deletion_vectors_is_read(spark: SparkSession, table: Path) -> None:
    set_table_property(spark, str(table), DELETION_VECTORS, "true")
    DeltaTable.forPath(spark, str(table)).delete("n = 3")
    assert listed(spark, table) is None
    assert contents(read_small(spark, str(table))) == contents(read(spark, str(table)))


def test_many_files_are_left_to_delta(spark: SparkSession, table: Path) -> None:
    commit_by_hand(table, 1, *(added(f"{number}.parquet") for number in range(494)))
    assert listed(spark, table) == files_by_delta(spark, table)
    commit_by_hand(table, 2, *(added(f"further-{number}.parquet") for number in range(9)))
    assert listed(spark, table) is None
    moved = table.rename(table.with_name("moved"))
    assert listed(spark, moved) is None


def test_a_removal_of_an_unknown_file_is_left_to_delta(spark: SparkSession, table: Path) -> None:
    before = listed(spark, table)
    commit_by_hand(table, 1, {"remove": {"path": "x.parquet", "dataChange": True, "deletionTimestamp": 1}})
    assert before == files_by_delta(spark, table) == listed(spark, table)


def test_a_large_table_is_left_to_delta(spark: SparkSession, table: Path) -> None:
    commit_by_hand(table, 1, {"add": {**added("x.parquet")["add"], "size": 64 * 1024 * 1024}})
    assert listed(spark, table) is None


@pytest.mark.parametrize("at", [None, 0])
def test_few_files_are_read_by_fewer_jobs_however_large(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch, at: int | None
) -> None:
    monkeypatch.setattr(small_tables, "MOST_BYTES", 100)
    path, jobs, found = str(table), [], []
    assert listed(spark, table) is None
    assert contents(read_few_files(spark, path))
    if at is not None:
        append(rows_of(spark, "a", 50), path)
    for reading in (read_few_files, read):
        group = f"{reading.__name__} {at}"
        spark.sparkContext.setJobGroup(group, "")
        found.append(contents(reading(spark, path, at)))
        jobs.append(jobs_of(spark, group))
        spark.sparkContext.setJobGroup("", "")
    assert found[0] == found[1] == [*(("a", number) for number in range(6)), ("b", 1)]
    assert jobs[0] < jobs[1]


def test_an_action_that_lacks_what_the_protocol_wants_is_left_to_delta(
    spark: SparkSession, table: Path
) -> None:
    commit_by_hand(table, 1, {"add": {**added("x.parquet")["add"], "size": None}})
    assert listed(spark, table) == files_by_delta(spark, table)


def replace_a(spark: SparkSession, table: Path, number: int) -> None:
    stamp = Stamp("run", number, f"note {number}")
    replace_partition_fenced(rows_of(spark, "a", number), str(table), {"pipeline": "a"}, stamp)


def test_a_row_that_somebody_deletes_meanwhile_is_not_written_again(spark: SparkSession, table: Path) -> None:
    delete = once(lambda: DeltaTable.forPath(spark, str(table)).delete("pipeline = 'a'"))
    with armed(Point.PARTITION_WRITTEN, delete), pytest.raises(CONFLICTS):
        replace_a(spark, table, 10)
    assert contents(read(spark, str(table))) == [("b", 1)]


@pytest.mark.thorough
@pytest.mark.parametrize("partitions", [[], ["pipeline"]])
def test_a_partition_is_replaced_whatever_the_log_calls_it(
    spark: SparkSession, tmp_path: Path, partitions: list[str]
) -> None:
    """A copy that somebody has made: without partitions, or with names of columns that are not in files."""
    path = tmp_path / "copy"
    writer = rows_of(spark, "a", 1, 2).unionByName(rows_of(spark, "b", 1)).write.format("delta")
    mapped = {"delta.columnMapping.mode": "name"} if partitions else {}
    writer.partitionBy(*partitions).options(**mapped).save(str(path))
    for number in (10, 11):
        replace_a(spark, path, number)
    assert contents(read(spark, str(path))) == [("a", 11), ("b", 1)] == contents(read_small(spark, str(path)))


@pytest.mark.parametrize("deletion_vectors", ["false", "true"])
def test_a_partition_is_replaced_and_the_others_stay(
    spark: SparkSession, table: Path, deletion_vectors: str
) -> None:
    path = str(table)
    set_table_property(spark, path, DELETION_VECTORS, deletion_vectors)
    append(rows_of(spark, "a", 6), path)
    # What another writes to its own partition meanwhile is no conflict.
    with armed(Point.PARTITION_WRITTEN, once(lambda: append(rows_of(spark, "b", 2), path))):
        replace_a(spark, table, 10)
    assert contents(read(spark, path)) == [("a", 10), ("b", 1), ("b", 2)]
    before = set(table.rglob("*.parquet"))
    with pytest.raises(StaleEpoch):
        replace_a(spark, table, 10)
    assert set(table.rglob("*.parquet")) == before
    later = once(lambda: claim(spark, path, Stamp("run", 20, "later")))
    for accident in (later, lambda: None):
        with armed(Point.PARTITION_WRITTEN, accident), pytest.raises(StaleEpoch):
            replace_a(spark, table, 11)
    assert contents(read(spark, path)) == [("a", 10), ("b", 1), ("b", 2)]
