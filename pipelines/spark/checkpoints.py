"""What the files of a streaming query's checkpoint say, without the query."""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from pipelines.errors import SourceError
from pipelines.spark.files import HadoopFile

_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_VERSION: Final = "v1"
_COMMIT_VERSION: Final = re.compile(r"v[0-9]{1,9}")
# Its stream writes no table from which it could be made anew.
_OF_PUBLISH: Final = re.compile(
    r"(?P<folder>.*/ops/checkpoints/[^/]+/publish)(?:/offsets/(?P<batch>[0-9]+)|/.*|\.note\.json)"
)
_OF_KAFKA: Final = "offsets by topic and partition, in JSON"
BEGAN: Final = "began"
"""In the note beside ingest's checkpoint: where ingest began before resets, by partition, as JSON."""
# The year 2286, in milliseconds: far from where Python's dates end.
_LAST_MS: Final = 10**13
_FILE_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager$"


@dataclass(frozen=True)
class QueryFiles:
    """Where a query stands.

    Attributes:
        path: Of its checkpoint.
        query: Its id, which lives as long as the checkpoint; None if there is none.
        next_batch: The number of the first micro-batch that is not recorded as done.
        in_flight: That number, if the micro-batch was begun.
        note: What we have written beside the checkpoint.
    """

    path: str
    query: str | None
    next_batch: int
    in_flight: int | None
    note: Mapping[str, Any] = field(default_factory=dict)


def query_files(spark: SparkSession, path: str) -> QueryFiles:
    """Read the files of a checkpoint, on whatever file system it is.

    Raises:
        SourceError: One of them is damaged.
    """
    metadata = _text(spark, f"{path}/metadata")
    if metadata is None:
        # A damaged note is about a stream whose checkpoint was moved aside for that very reason.
        with suppress(SourceError):
            return QueryFiles(path, None, 0, None, note_beside(spark, path))
        return QueryFiles(path, None, 0, None)
    note = note_beside(spark, path)
    following = max(_numbers(spark, f"{path}/commits"), default=-1) + 1
    planned = _numbers(spark, f"{path}/offsets")
    begun = following in planned
    query = query_in(metadata, f"{path}/metadata")
    if following:
        _require_done(spark, path, following - 1, planned)
    return QueryFiles(path, query, following, following if begun else None, note)


def has_begun(spark: SparkSession, files: QueryFiles) -> bool:
    """Return whether a query with Kafka as its only source knows where it began, and goes on from there.

    A query that died before it knew has an id, and begins where its next start says.
    """
    return files.next_batch > 0 or files.in_flight is not None or bool(first_offsets(spark, files.path))


def offsets_of(spark: SparkSession, path: str, batch: int) -> str | None:
    """Return the text of the offset file of a micro-batch: how far it goes; None if it is gone.

    Raises:
        SourceError: The file is damaged.
    """
    text = _text(spark, f"{path}/offsets/{batch}")
    if text is not None:
        require_offset_file(text, f"{path}/offsets/{batch}")
    return text


def micro_batches(spark: SparkSession, path: str) -> list[int]:
    """Return the numbers of the micro-batches whose end a checkpoint still knows; Spark keeps a hundred."""
    return sorted(_numbers(spark, f"{path}/offsets"))


def first_micro_batch(spark: SparkSession, path: str) -> int | None:
    """Return the oldest micro-batch whose end a checkpoint still knows; Spark keeps a hundred."""
    return next(iter(micro_batches(spark, path)), None)


def first_offsets(spark: SparkSession, path: str) -> dict[str, dict[int, int]]:
    """Return where a query with Kafka as its only source began: offsets by topic and partition, if known.

    Spark writes them once for a checkpoint, to `sources/0/0` (`KafkaSourceInitialOffsetWriter`): a byte 0,
    the version, and the offsets as JSON.

    Raises:
        SourceError: The file is damaged.
    """
    text = _text(spark, f"{path}/sources/0/0")
    if text is None:
        return {}
    return kafka_offsets_in(text[max(text.find("{"), 0) :], f"{path}/sources/0/0")


def sources_of(offsets: str) -> list[str]:
    """Return how far each source goes, a line for each, from the text of `offsets_of`.

    The two lines before them are the version of the format and the query's metadata.
    """
    # By line feeds alone: a text within a line may hold other ends of lines.
    return _lines(offsets)[2:]


def planned_at(offsets: str) -> datetime:
    """Return when a micro-batch was planned, from the text of `offsets_of`.

    Its rows are as of that moment.
    """
    stamp: int = json.loads(_lines(offsets)[1])["batchTimestampMs"]
    return datetime.fromtimestamp(stamp / 1000, UTC)


def reads_more(spark: SparkSession, path: str, batch: int) -> bool:
    """Return whether a micro-batch reads anything: Spark plans some without, to forget old state."""
    previous, current = offsets_of(spark, path, batch - 1), offsets_of(spark, path, batch)
    return previous is None or current is None or sources_of(previous) != sources_of(current)


def write_note(spark: SparkSession, path: str, note: Mapping[str, str | int]) -> None:
    """Write a few words beside a checkpoint, in place of those that are there, all of them or none."""
    replace_file(spark, note_path(path), json.dumps(dict(note)))


def change_kept_setting(spark: SparkSession, path: str, setting: str, values: Mapping[str, str]) -> None:
    """Change a setting that Spark keeps in a checkpoint and would use in place of the session's.

    Spark takes it from the newest micro-batch. No query may run on the checkpoint.

    Args:
        spark: The session.
        path: Of the checkpoint; nothing happens if it has no micro-batch yet.
        setting: Its name.
        values: The new value for each one that may be changed.
    """
    newest = max(_numbers(spark, f"{path}/offsets"), default=None)
    text = None if newest is None else offsets_of(spark, path, newest)
    if text is None:
        return
    version, metadata, *sources = text.split("\n")
    known = json.loads(metadata)
    kept = known.get("conf", {}).get(setting)
    if values.get(kept, kept) != kept:
        known["conf"][setting] = values[kept]
        changed = json.dumps(known, separators=(",", ":"))
        replace_file(spark, f"{path}/offsets/{newest}", "\n".join([version, changed, *sources]))


def replace_file(spark: SparkSession, path: str, text: str) -> None:
    """Write a file in place of the one that is there, the way Spark writes those of checkpoints."""
    jvm: Any = spark.sparkContext._jvm
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    manager = jvm.java.lang.Class.forName(_FILE_MANAGER, True, loader).getField("MODULE$").get(None)
    place = jvm.org.apache.hadoop.fs.Path(path)
    files = manager.create(place, spark.sparkContext._jsc.hadoopConfiguration())
    if not files.exists(place.getParent()):
        files.mkdirs(place.getParent())
    out = files.createAtomic(place, True)
    try:
        out.write(bytearray(text, "utf-8"))
    except BaseException:
        out.cancel()
        raise
    out.close()


def note_path(path: str) -> str:
    """Return where the words beside a checkpoint are."""
    return f"{path.rstrip('/')}.note.json"


def _require_done(spark: SparkSession, path: str, batch: int, planned: set[int]) -> None:
    """Make sure that the files of a micro-batch that is done are there, and the one that says so is whole.

    Spark reads that one before all else. Without the plan it would do another micro-batch again.
    """
    file = f"{path}/commits/{batch}"
    try:
        text = HadoopFile(spark, file).text()
    except Py4JJavaError as error:
        if not _has_other_bytes(error):
            raise
        text = ""
    if text is None:
        # The checkpoint is moved aside at this moment.
        return
    require_commit_file(text, file, is_newest=batch + 1 not in planned)
    if batch not in planned:
        raise damaged_file_error(
            f"{path}/offsets/{batch}",
            f"the plan of micro-batch {batch}, which is done by {file}",
            found="the file is missing",
        )


def note_beside(spark: SparkSession, path: str) -> Mapping[str, Any]:
    """Return what we have written beside a checkpoint; empty if that is nothing.

    Raises:
        SourceError: It is damaged.
    """
    noted = _text(spark, note_path(path))
    return {} if noted is None else note_in(noted, note_path(path))


def _text(spark: SparkSession, path: str) -> str | None:
    try:
        return HadoopFile(spark, path).text()
    except Py4JJavaError as error:
        if _has_other_bytes(error):
            raise damaged_file_error(path, "the bytes of its checksum") from None
        raise


def _has_other_bytes(error: Py4JJavaError) -> bool:
    """Return whether a file could not be read because it does not match its checksum."""
    return "ChecksumException" in error.java_exception.getClass().getName()


def _numbers(spark: SparkSession, folder: str) -> set[int]:
    """Return the micro-batches for which a folder of a checkpoint has a file."""
    return {int(name) for name in HadoopFile(spark, folder).names() if _NUMBER.fullmatch(name)}


def query_in(text: str, path: str) -> str:
    """Return the id of a query, from the text of `metadata` in its checkpoint.

    Raises:
        SourceError: The file, at the path, is damaged.
    """
    match _object(text):
        case {"id": str() as query}:
            return query
        case _:
            raise damaged_file_error(path, "a JSON object with an id")


def note_in(text: str, path: str) -> Mapping[str, Any]:
    """Return the words beside a checkpoint, from the text of their file.

    Raises:
        SourceError: The file, at the path, is damaged.
    """
    note = _object(text)
    if note is None or not all(type(value) in (str, int) for value in note.values()):
        raise damaged_file_error(path, "a JSON object of texts and numbers")
    offsets_by_partition(str(note.get(BEGAN, "{}")), path)
    numbers = [note.get(name, 0) for name in ("since", "partitions")]
    if type(numbers[0]) is not int or not all(_NUMBER.fullmatch(str(number)) for number in numbers):
        raise damaged_file_error(path, "of `since` and `partitions` a number")
    return note


def require_offset_file(text: str, path: str) -> None:
    """Make sure that the text of an offset file is whole, for those who read parts of it.

    A source that has no offset yet is a hyphen; what stands of others is theirs, in JSON.

    Raises:
        SourceError: The file, at the path, is damaged.
    """
    lines = _lines(text)
    sources = [_object(line) for line in lines[2:] if line != "-"]
    plan = (_object(lines[1]) if len(lines) > 2 else None) or {}
    planned_ms, conf = plan.get("batchTimestampMs"), plan.get("conf", {})
    is_planned = type(planned_ms) is int and 0 <= planned_ms < _LAST_MS and isinstance(conf, dict)
    if not is_planned or lines[0] != _VERSION or None in sources:
        raise damaged_file_error(
            path, "a version, the plan of a micro-batch and the offsets of its sources, as lines"
        )


def require_commit_file(text: str, path: str, *, is_newest: bool = True) -> None:
    """Make sure that the text of a file is whole that says that a micro-batch is done.

    Spark takes one without a watermark, and goes on with that of 1970.

    Args:
        text: What is in the file.
        path: Of the file, `CHECKPOINT/commits/NUMBER`.
        is_newest: Whether no later micro-batch is planned.

    Raises:
        SourceError: It is damaged.
    """
    lines = _lines(text)
    end = (_object(lines[1]) if len(lines) > 1 else None) or {}
    if _COMMIT_VERSION.fullmatch(lines[0]) and type(end.get("nextBatchWatermarkMs")) is int:
        return
    if not is_newest:
        # Without the file Spark would go on with the later one, and pass over this one.
        raise damaged_file_error(path, "the watermark of a micro-batch that is done, before a later one")
    folder, _, number = path.rpartition("/")
    raise SourceError(
        f"{path}: the file that says that micro-batch {number} is done is empty, cut off or changed, as after"
        " a crash of the machine or a full disk. Nothing was read or written. Stop the stream, and move this"
        f" file and {folder}/.{number}.crc, if there is one, out of the folder. The stream then does this"
        " micro-batch again; what it had written is recognized. See"
        " docs/runbook.md, 'A table and its checkpoint do not match'"
    )


def kafka_offsets_in(text: str, path: str) -> dict[str, dict[int, int]]:
    """Return offsets by topic and partition, as Kafka's source writes them.

    Args:
        text: The offsets.
        path: The file that they are from, for messages.

    Raises:
        SourceError: The file is damaged.
    """
    topics = _object(text)
    if topics is None or not all(isinstance(offsets, dict) for offsets in topics.values()):
        raise damaged_file_error(path, _OF_KAFKA)
    return {topic: _by_partition(offsets, path) for topic, offsets in topics.items()}


def offsets_by_partition(text: str, path: str) -> dict[int, int]:
    """Return the offsets of one topic by partition, from JSON.

    Raises:
        SourceError: The file that the text is from, at the path, is damaged.
    """
    offsets = _object(text)
    if offsets is None:
        raise damaged_file_error(path, _OF_KAFKA)
    return _by_partition(offsets, path)


def _by_partition(offsets: Mapping[str, Any], path: str) -> dict[int, int]:
    if not all(_NUMBER.fullmatch(number) and type(at) is int for number, at in offsets.items()):
        raise damaged_file_error(path, _OF_KAFKA)
    return {int(number): at for number, at in offsets.items()}


def _lines(offsets: str) -> list[str]:
    return offsets.rstrip("\n").split("\n")


def _object(text: str) -> dict[str, Any] | None:
    """Return a JSON object; None for whatever else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


class DamagedFileError(SourceError):
    """A file of a checkpoint is damaged or gone. Exit code 4."""


def damaged_file_error(
    path: str, expected: str, *, found: str = "the file is empty, cut off or changed"
) -> DamagedFileError:
    """Return the refusal of a file of a checkpoint.

    Args:
        path: The file.
        expected: What ought to be in it.
        found: What is wrong with it.
    """
    return DamagedFileError(
        f"{path}: {found}, as after a crash of the machine or a full disk; expected {expected}."
        f" Nothing was read or written. Restore the folder from a backup, or {_without_it(path)}."
        " See docs/runbook.md, 'A table and its checkpoint do not match'"
    )


def _without_it(path: str) -> str:
    """Return how a stream goes on without a file of its checkpoint."""
    publishing = _OF_PUBLISH.fullmatch(path)
    if publishing is None:
        return "let the stream begin without it"
    folder, batch = publishing["folder"], publishing["batch"]
    if path.endswith(".note.json"):
        return (
            "move this file away, and its .crc: the next start writes another one, and does not compare"
            " the topic's number of partitions and the place of the progress with those of before. Before the"
            " first micro-batch is planned, it counts as the first start"
        )
    beginning = f"move {folder} aside and start publishing from the beginning"
    if batch is None:
        return beginning
    return (
        f"if micro-batch {batch} is the next one and nothing of it is published, move this file and"
        f" {folder}/offsets/.{batch}.crc out of the folder; otherwise {beginning}"
    )
