"""Before a stream starts: do its tables match its checkpoint?"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from pipelines.config.commands import command, of_pipeline
from pipelines.config.model import PipelineConfig
from pipelines.config.streams import STREAMS, LakeQuery, Layer
from pipelines.delta.checkpoint_fit import BEGIN, StreamTable, misfit
from pipelines.delta.small_tables import read_small
from pipelines.delta.stream_position import first_unread_version
from pipelines.delta.table_state import TableState, has_taken_back, recent_commits, table_state
from pipelines.delta.tables import exists
from pipelines.errors import SourceError
from pipelines.spark.checkpoints import QueryFiles, query_files, reads_more, write_note
from pipelines.spark.pipeline import Pipeline

_SINCE: Final = "since"
_LOOK_BACK: Final = 200

_log = logging.getLogger(__name__)


def check_ingest(pipeline: Pipeline) -> QueryFiles:
    """Compare bronze with the checkpoint of ingest; change nothing.

    Returns:
        What the checkpoint says.

    Raises:
        SourceError: They do not match; the message has the command that fixes it.
    """
    spark = pipeline.spark
    files, path = query_files(spark, pipeline.checkpoint("ingest")), pipeline.table("bronze")
    state = table_state(spark, path)
    has_rows = partial(_has_rows, spark, files, path, _of_source(pipeline))
    require_ingest_fit(pipeline.config, files, state, has_rows)
    return files


def require_ingest_fit(
    config: PipelineConfig, files: QueryFiles, state: TableState | None, has_rows: Callable[[], bool]
) -> None:
    """Compare the state of bronze with what the checkpoint of ingest says.

    Args:
        config: The pipeline's configuration.
        files: What the checkpoint says.
        state: The state of bronze; None if there is none.
        has_rows: Whether bronze has rows, and no micro-batch was ever finished.

    Raises:
        SourceError: They do not match; the message has the command that fixes it.
    """
    # Rows that were appended by hand, and no stream, may be there before the stream.
    is_filled = bool(state and state.batches) and has_rows()
    noted = files.note.get("bronze")
    table = StreamTable(config.table("bronze"), state, is_filled, noted, files.next_batch - 1)
    require_fit(config, "ingest", misfit(files, table))


@dataclass(frozen=True)
class SpeedCheck:
    """What the check of the speed stream has found.

    Attributes:
        files: What the checkpoint says.
        quarantined: The last micro-batch that has written to the quarantine.
    """

    files: QueryFiles
    quarantined: int | None


def check_speed(pipeline: Pipeline) -> SpeedCheck:
    """Compare speed layer and quarantine with the checkpoint of the speed stream; change nothing.

    Raises:
        SourceError: They do not match, or bronze is gone; the message has the command that fixes it.
    """
    spark = pipeline.spark
    files = query_files(spark, pipeline.checkpoint("speed"))
    _require_bronze(pipeline, files)
    paths = {layer: pipeline.table(layer) for layer in STREAMS["speed"].writes}
    states = {layer: table_state(spark, path) for layer, path in paths.items()}
    has_begun = files.next_batch > 0
    commits = {
        layer: recent_commits(spark, paths[layer], _LOOK_BACK) if state and has_begun else []
        for layer, state in states.items()
    }
    noted = (c.quarantined for c in commits["speed"] if c.query == files.query and c.quarantined is not None)
    quarantined = next(noted, None)
    required: dict[Layer, int | None] = {
        "speed": _last_of_speed(pipeline, files, states),
        "quarantine": quarantined,
    }
    for layer, path in paths.items():
        table = StreamTable(
            path,
            states[layer],
            _has_rows(spark, files, path),
            files.note.get(layer),
            required[layer],
            has_taken_back(commits[layer]),
        )
        require_fit(pipeline.config, "speed", misfit(files, table))
    if quarantined is None and states["quarantine"] and files.query:
        quarantined = states["quarantine"].batches.get(files.query)
    return SpeedCheck(files, quarantined)


def refuse_lost_speed(pipeline: Pipeline) -> None:
    """See to it that no job beside the speed stream makes an empty speed layer in the place of a lost one.

    Raises:
        SourceError: The table is gone, and the stream has written to it.
    """
    path = pipeline.table("speed")
    if not exists(pipeline.spark, path):
        files = query_files(pipeline.spark, pipeline.checkpoint("speed"))
        require_fit(pipeline.config, "speed", misfit(files, StreamTable(path, None)))


def _last_of_speed(
    pipeline: Pipeline, files: QueryFiles, states: Mapping[Layer, TableState | None]
) -> int | None:
    """Return the last micro-batch that the speed layer must know: each that reads anything commits to it.

    Earlier versions of this code committed only those with rows: of them the table must know some one, unless
    bronze was empty.
    """
    last = files.next_batch - 1
    while last >= 0 and not reads_more(pipeline.spark, files.path, last):
        last -= 1
    if last >= files.note.get(_SINCE, files.next_batch):
        return last
    is_known = any(state and files.query in state.batches for state in states.values())
    return None if is_known or last < 0 or not _has_read(pipeline) else last


def _has_read(pipeline: Pipeline) -> bool:
    """Return whether there were rows in what the speed stream has read of bronze.

    True where that is not seen.
    """
    first = first_unread_version(pipeline)
    if not first:
        return True
    try:
        return not read_small(pipeline.spark, pipeline.table("bronze"), first - 1).isEmpty()
    except (PySparkException, Py4JJavaError):
        # That version, or a file of it, no longer exists.
        return True


def note_tables(
    pipeline: Pipeline, query: LakeQuery, files: QueryFiles, kept: Mapping[str, str] | None = None
) -> None:
    """Write beside a checkpoint which tables it writes to, if that is not there yet.

    Args:
        pipeline: The pipeline.
        query: The stream.
        files: What its checkpoint says, before it starts; its tables are there.
        kept: Further entries of the note, by their names.
    """
    states = {layer: table_state(pipeline.spark, pipeline.table(layer)) for layer in STREAMS[query].writes}
    note: dict[str, str | int] = {layer: state.table_id for layer, state in states.items() if state}
    if query == "speed":
        note[_SINCE] = files.note.get(_SINCE, files.next_batch) if files.next_batch else 0
    if not files.next_batch and BEGIN in files.note:
        note[BEGIN] = files.note[BEGIN]
    note |= kept or {}
    if note != files.note:
        write_note(pipeline.spark, files.path, note)


def reset_command(config: PipelineConfig, query: LakeQuery) -> str:
    """Return the command that lets a stream go on without the checkpoint that it has."""
    if query == "ingest":
        return command(config, "checkpoint reset", "--query ingest")
    # Of all clusters together.
    return f"oncelake checkpoint reset {of_pipeline(config)} --query {query}"


def require_fit(config: PipelineConfig, query: LakeQuery, problem: str | None) -> None:
    """Refuse to start a stream whose tables do not match its checkpoint.

    Args:
        config: The pipeline's configuration.
        query: The stream.
        problem: What does not match; None if all does.

    Raises:
        SourceError: There is a problem; the message has the command that fixes it.
    """
    if problem:
        raise SourceError(
            f"{problem}. Nothing was read or written. If you have what was moved or lost, restore it;"
            f" otherwise stop {STREAMS[query].job} and run: {reset_command(config, query)}"
            f" ({_outcome(query)}). See docs/runbook.md, 'A table and its checkpoint do not match'"
        )


def _outcome(reset: LakeQuery) -> str:
    match reset:
        case "ingest":
            return "ingest then continues after the last records in bronze: nothing is lost or duplicated"
        case "speed":
            return "the speed layer and the quarantine are then rebuilt from bronze"


def _require_bronze(pipeline: Pipeline, files: QueryFiles) -> None:
    """Make sure that no empty bronze is made in the place of one that is gone."""
    bronze = pipeline.table("bronze")
    if exists(pipeline.spark, bronze):
        return
    for source in pipeline.sources():
        ingested = query_files(pipeline.spark, source.checkpoint("ingest"))
        if ingested.next_batch:
            require_fit(source.config, "ingest", misfit(ingested, StreamTable(bronze, None)))
    if files.next_batch:
        problem = f"{bronze}: there is no such table, but the checkpoint {files.path} says that it was read"
        require_fit(pipeline.config, "speed", problem)


def _of_source(pipeline: Pipeline) -> Column:
    """Return which rows of bronze are of the pipeline's source: with one cluster all of them."""
    kafka = pipeline.config.kafka
    return F.col("_topic") == kafka.source_topic if kafka.has_others else F.lit(True)


def _has_rows(spark: SparkSession, files: QueryFiles, path: str, which: Column | None = None) -> bool:
    """Return whether a table has rows; asked only where no micro-batch was ever finished."""
    if files.next_batch or not exists(spark, path):
        return False
    rows = read_small(spark, path)
    return not (rows if which is None else rows.where(which)).isEmpty()
