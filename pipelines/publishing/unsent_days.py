"""Certified days that a stream leaves to `oncelake publish`, and what the topic has of them."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from pipelines.config.commands import command
from pipelines.config.model import PipelineConfig
from pipelines.delta.io import small_rows
from pipelines.delta.tables import conform
from pipelines.durations import days_in_a_row
from pipelines.ledger.certifications import history, newest_certified
from pipelines.ledger.ops_tables import PUBLISHED_DAYS
from pipelines.message_texts import first_items
from pipelines.publishing.publications import builds_of_another, publications
from pipelines.spark.checkpoints import query_files
from pipelines.spark.pipeline import Pipeline

_RUNS_TOLD: Final = 3


@dataclass(frozen=True)
class UnsentDays:
    """Days that were certified before a stream began, and that nobody has sent since as a whole.

    Attributes:
        never: No earlier checkpoint has published them to the topic either.
        partly: An earlier checkpoint has published to the topic, and stopped before they were certified or
            rebuilt, or perhaps in its first micro-batch, which had to send them: the topic may have some of
            their events, or those of an earlier build.
    """

    never: tuple[date, ...] = ()
    partly: tuple[date, ...] = ()

    @property
    def days(self) -> list[date]:
        """All of them, in order."""
        return sorted((*self.never, *self.partly))


@dataclass(frozen=True)
class SettledBy:
    """What a query has settled on a topic.

    Attributes:
        last: The newest version of the batch table that the topic followed by it; -1 if that is not known.
        days: Whether it has sent each day that it has settled. Of those that it left when it began, and of
            those that it sent to another topic, it has sent nothing but what was changed later. None where
            nobody knows: for what an earlier release has settled, which kept no topics, and for the first
            micro-batch of a query that has settled nothing since.
    """

    last: int
    days: Mapping[date, bool | None]


def unsent(pipeline: Pipeline, topic_id: str) -> UnsentDays:
    """Return days certified before the stream began, which it does not send, and which nobody has sent.

    Args:
        pipeline: The pipeline.
        topic_id: The cluster's identifier of the topic.

    Raises:
        SourceError: Verdicts are gone, by which it is known what has changed since.
    """
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    if files.query is None or not PUBLISHED_DAYS.exists(pipeline):
        return UnsentDays()
    rows = conform(PUBLISHED_DAYS.rows(pipeline), PUBLISHED_DAYS.schema)
    first = _settled_without_sending(rows.where(F.col("query") == files.query), topic_id)
    left = first.keys() - publications(pipeline, topic_id).keys() if first else set()
    earlier = _settled_by(pipeline, rows.where(F.col("query") != files.query), topic_id) if left else []
    if not earlier:
        return UnsentDays(never=tuple(sorted(left)))
    began_at = max(first.values())
    verdicts = newest_certified(each for each in history(pipeline) if each.batch_version <= began_at)
    return sort_out(left, earlier, {day: verdict.batch_version for day, verdict in verdicts.items()})


def _settled_without_sending(own: DataFrame, topic_id: str) -> dict[date, int]:
    """Return the days of which a query has sent to the topic at most later changes, with their versions.

    It left them when it began, or settled them first with a micro-batch that went to another topic.
    """
    firsts = own.groupBy("day").agg(
        F.min_by(F.struct("batch", "topic_id", "batch_version", "is_left"), "batch").alias("first")
    )
    is_left = _is_left() | (F.col("topic_id") != topic_id)
    return {
        row["day"]: row["batch_version"] for row in small_rows(firsts.select("day", "first.*").where(is_left))
    }


def _is_left() -> Column:
    """Return whether a day was left to be sent; earlier releases left all that the first micro-batch had."""
    return F.coalesce("is_left", F.col("batch") == 0)


def sort_out(
    left: Collection[date], earlier: Iterable[SettledBy], certified_at: Mapping[date, int]
) -> UnsentDays:
    """Return what earlier queries have left of the days that a stream does not send.

    Args:
        left: The days.
        earlier: What they have settled on the topic.
        certified_at: The version of the batch table by which each day was certified when the stream began.
    """
    earlier, never, partly = list(earlier), list[date](), list[date]()
    for day in sorted(left):
        found = {_left_by(each, day, certified_at.get(day)) for each in earlier}
        if "nothing" in found:
            continue
        (partly if "part" in found else never).append(day)
    return UnsentDays(tuple(never), tuple(partly))


def _left_by(query: SettledBy, day: date, certified_at: int | None) -> Literal["nothing", "part", "all"]:
    """Return how much of a day an earlier query has left to be sent."""
    is_sent = query.days.get(day)
    if is_sent is False:
        return "all"
    is_as_certified = is_sent and certified_at is not None and certified_at <= query.last
    return "nothing" if is_as_certified else "part"


def _settled_by(pipeline: Pipeline, rows: DataFrame, topic_id: str) -> list[SettledBy]:
    """Return what queries have settled on a topic; those that published to others alone are left out.

    What they have published of a batch table that was replaced, or restored to before it, says nothing of
    the days as they are certified now.
    """
    is_here = F.col("topic_id") == topic_id
    by_day = rows.groupBy("query", "day").agg(
        F.min_by(_is_left(), "batch").alias("is_left"),
        F.min_by("topic_id", "batch").alias("topic"),
        F.max(F.when(is_here, F.struct("batch_version", "batch_commit"))).alias("last"),
        F.bool_or(is_here | F.isnull("topic_id")).alias("is_here"),
        F.max("batch").alias("newest"),
    )
    found = defaultdict[str, list[dict[str, Any]]](list)
    for row in small_rows(by_day):
        found[row["query"]].append(row)
    builds = {query: _newest_build(days) for query, days in found.items()}
    gone = builds_of_another(pipeline, {*builds.values()})
    return [
        SettledBy(
            -1 if builds[query] in gone else builds[query][0],
            _sent_by(days, topic_id),
        )
        for query, days in found.items()
        if any(row["is_here"] for row in days)
    ]


def _newest_build(days: Iterable[Mapping[str, Any]]) -> tuple[int, str | None]:
    """Return the newest build of the batch table that a query has published, by version and commit."""
    builds = ((row["last"]["batch_version"], row["last"]["batch_commit"]) for row in days if row["last"])
    return max(builds, key=lambda build: build[0], default=(-1, None))


def _sent_by(days: Iterable[Mapping[str, Any]], topic_id: str) -> dict[date, bool | None]:
    """Return whether a query has sent each day that it has settled, see `SettledBy`.

    A micro-batch is known to be done once a later one has begun. Of one that is not, progress tells if it is
    not the first (`pipelines.steps.publish_reset`): before that is done, it does not name the query.
    """
    days = list(days)
    has_gone_on = any(row["newest"] for row in days)
    return {row["day"]: _is_sent(row, topic_id, has_gone_on=has_gone_on) for row in days}


def _is_sent(row: Mapping[str, Any], topic_id: str, *, has_gone_on: bool) -> bool | None:
    if row["is_left"] or row["topic"] not in (None, topic_id):
        return False
    return True if row["topic"] is not None and has_gone_on else None


def how_to_send(config: PipelineConfig, left: UnsentDays) -> list[str]:
    """Say of days that `unsent` has found how they are sent: a line for each kind of them."""
    lines = []
    if left.never:
        lines.append(
            f"{_certified(left.never)} are not on the topic: they were certified before publishing to it"
            f" began, which sends only later changes of them. To send them: {_commands(config, left.never)}"
        )
    if left.partly:
        lines.append(
            f"{_certified(left.partly)} may be on the topic only in part: before this checkpoint began, they"
            " were certified or rebuilt after an earlier one had stopped to publish, or were due with its"
            " first micro-batch, which may not have been sent. To send them:"
            f" {_commands(config, left.partly)}"
        )
    return lines


def _certified(days: Sequence[date]) -> str:
    return f"{len(days)} certified day(s) from {days[0]} to {days[-1]}"


def _commands(config: PipelineConfig, days: Sequence[date]) -> str:
    runs = days_in_a_row(days)
    commands = [command(config, "publish", f"--from {first} --to {last}") for first, last in runs]
    return first_items(commands, _RUNS_TOLD, "ranges of days")
