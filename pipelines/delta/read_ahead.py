"""Refuse a table of which its reader has read later versions than it has.

A table that was restored together with the checkpoint of its writer matches that one. The stream that reads
the table was not restored: it would skip what is now written under versions that it has read already.
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


def versions_read_ahead(pipeline: Pipeline, table: Literal["bronze", "speed"]) -> int:
    """Return how many versions of a table its reader has read that the table does not have."""
    reader, path = _READER[table], pipeline.table(table)
    if not exists(pipeline.spark, path) or (reader == "publish" and pipeline.config.publish is None):
        return 0
    unread = first_unread_version(pipeline, reader)
    return 0 if unread is None else max(0, unread - 1 - version(pipeline.spark, path))


def _require(pipeline: Pipeline, table: Literal["bronze", "speed"]) -> None:
    ahead = versions_read_ahead(pipeline, table)
    if not ahead:
        return
    reader, path = _READER[table], pipeline.table(table)
    newest = version(pipeline.spark, path)
    raise SourceError(
        f"{path}: found version {newest}, expected {newest + ahead} or later, which {reader}_stream has read"
        f" by {pipeline.checkpoint(reader)}: the table was restored or recreated, and that checkpoint was"
        " not. The stream would skip the next versions, because it has read these numbers already. Nothing"
        " was read or written. If you have the newer table, restore it; otherwise stop both streams and"
        f" {_way_out(pipeline.config, reader)}."
        " See docs/runbook.md, 'A table and its checkpoint do not match'"
    )


def _way_out(config: PipelineConfig, reader: Literal["speed", "publish"]) -> str:
    if reader == "speed":
        return f"run: {reset_command(config, 'speed')} (the speed layer is then rebuilt from bronze)"
    return (
        f"move {config.checkpoint('publish')} aside, then run:"
        f" {command(config, 'publish reset', '--to beginning')} (the days that are not certified are then"
        f" sent once more); to send certified days: {command(config, 'publish', '--from DAY --to DAY')}"
    )
