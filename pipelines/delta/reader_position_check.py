"""Refuse a table of which its reader has read later versions than it has.

A table that was restored together with the checkpoint of its writer matches that one. The stream that reads
the table was not restored: it would skip what is now written under versions that it has read already.
"""

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.config.streams import STREAMS, Layer, TableQuery, reader_of
from pipelines.delta.stream_check import reset_command
from pipelines.delta.stream_position import last_version_read
from pipelines.delta.tables import exists, version
from pipelines.errors import SourceError
from pipelines.spark.checkpoints import DamagedFileError
from pipelines.spark.pipeline import Pipeline


def require_not_read_ahead(pipeline: Pipeline, *tables: Layer) -> None:
    """Make sure that tables have all versions that the stream behind each, if there is one, has read.

    It is asked before anything is written to a table, and before the stream reads on.

    Raises:
        SourceError: One has not, or the file that says so is damaged; the message has the command that fixes
            it.
    """
    for table in tables:
        reader = reader_of(table)
        if reader and (ahead := versions_read_ahead(pipeline, table)):
            raise _refusal(pipeline, table, reader, ahead)


def versions_read_ahead(pipeline: Pipeline, table: Layer) -> int:
    """Return how many versions of a table its reader has read that the table does not have."""
    reader, path = reader_of(table), pipeline.table(table)
    if reader is None or reader not in pipeline.config.streams or not exists(pipeline.spark, path):
        return 0
    try:
        last = last_version_read(pipeline, reader)
    except DamagedFileError as error:
        if reader != "publish":
            raise
        # Its checkpoint is not made anew together with a table, as those of the streams that write one.
        raise DamagedFileError(
            f"{error}. To start publishing from the beginning: {_way_out(pipeline.config, reader)}"
        ) from None
    return 0 if last is None else max(0, last - version(pipeline.spark, path))


def _refusal(pipeline: Pipeline, table: Layer, reader: TableQuery, ahead: int) -> SourceError:
    path = pipeline.table(table)
    newest = version(pipeline.spark, path)
    return SourceError(
        f"{path}: found version {newest}, expected {newest + ahead} or later, which {STREAMS[reader].job} has"
        f" read by {pipeline.checkpoint(reader)}: the table was restored or recreated, and that checkpoint"
        " was not. The stream would skip the next versions, because it has read these numbers already."
        " Nothing was read or written. If you have the newer table, restore it; otherwise stop both streams"
        f" and {_way_out(pipeline.config, reader)}."
        " See docs/runbook.md, 'A table and its checkpoint do not match'"
    )


def _way_out(config: PipelineConfig, reader: TableQuery) -> str:
    match reader:
        case "speed":
            return f"run: {reset_command(config, reader)} (the speed layer is then rebuilt from bronze)"
        case "publish":
            return (
                f"move {config.checkpoint(reader)} aside, then run:"
                f" {command(config, 'publish reset', '--to beginning')} (the days that are not certified are"
                " then sent once more); to send certified days:"
                f" {command(config, 'publish', '--from DAY --to DAY')}"
            )
