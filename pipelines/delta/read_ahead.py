"""A table that was put back together with its checkpoint fits it; the stream that reads the table may not.

That stream would pass over what is written under the versions that it has read already.
"""

from typing import Final, Literal

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.delta.stream_check import reset_command
from pipelines.delta.stream_position import first_unread_version
from pipelines.delta.tables import exists, version
from pipelines.errors import SourceError
from pipelines.spark.pipeline import Pipeline

_READER: Final[dict[str, Literal["speed", "publish"]]] = {"bronze": "speed", "speed": "publish"}


def require_not_read_ahead(pipeline: Pipeline, *tables: Literal["bronze", "speed"]) -> None:
    """Make sure that tables have all versions that the stream behind each has read.

    It is asked before anything is written to a table, and before the stream reads on.

    Raises:
        SourceError: one has not; the message has the command that fixes it.
    """
    for table in tables:
        _require(pipeline, table)


def _require(pipeline: Pipeline, table: Literal["bronze", "speed"]) -> None:
    reader, path = _READER[table], pipeline.table(table)
    if not exists(pipeline.spark, path) or (reader == "publish" and pipeline.config.publish is None):
        return
    unread, newest = first_unread_version(pipeline, reader), version(pipeline.spark, path)
    if unread is None or unread <= newest + 1:
        return
    raise SourceError(
        f"{path}: found version {newest}, expected {unread - 1} or later, which {reader}_stream has read by"
        f" {pipeline.checkpoint(reader)}: the table was put back or made anew, and that checkpoint was not."
        " What comes next would take versions that the stream has behind it, and be passed over. Nothing was"
        " read or written. Put back what was there, if you have it; or stop both streams and"
        f" {_way_out(pipeline.config, reader)}."
        " See docs/runbook.md, 'A table and its checkpoint do not go together'"
    )


def _way_out(config: PipelineConfig, reader: Literal["speed", "publish"]) -> str:
    if reader == "speed":
        return f"say: {reset_command(config, 'speed')} (the speed layer is then made anew from bronze)"
    return (
        f"move {config.checkpoint('publish')} aside, then say:"
        f" {command(config, 'publish reset', '--to beginning')} (the days that are not certified are then"
        f" sent once more); certified days go by {command(config, 'publish', '--from DAY --to DAY')}"
    )
