"""The days that were published as a whole, at which version, and those of which that was begun."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime

from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.tables import conform, version
from pipelines.delta.time_travel import commit_hashes
from pipelines.ledger.certifications import Verdict
from pipelines.ledger.ops_tables import BEGUN_PUBLICATIONS, PUBLICATIONS
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class Publication:
    """How a day was published as a whole.

    Attributes:
        count: How often.
        version: The newest version of the batch table that it had; -1 if it was not published, or if the
            batch table no longer has such a version, since it is another one.
    """

    count: int = 0
    version: int = -1


@dataclass(frozen=True)
class Begun:
    """A day that a run has begun to publish as a whole: any of its rows may be on the topic.

    Attributes:
        day: The event day.
        version: The version of the batch table whose rows are sent; -1 if the batch table no longer has it,
            since it is another one.
        commit: The hash of the commit that made the version; None if unknown.
        number: Which time it is that the day is published to the topic, from 1.
        sink: The name under which its progress is kept.
        certified_version: The newest certified version of the batch table when it began.
    """

    day: date
    version: int
    commit: str | None
    number: int
    sink: str
    certified_version: int


def publications(pipeline: Pipeline, topic_id: str, at: int | None = None) -> dict[date, Publication]:
    """Return how days were published to a topic as a whole.

    Args:
        pipeline: The pipeline.
        topic_id: The cluster's identifier of the topic.
        at: The newest version of the batch table that counts; None for any.
    """
    if not PUBLICATIONS.exists(pipeline):
        return {}
    rows = conform(PUBLICATIONS.rows(pipeline), PUBLICATIONS.schema).where(F.col("topic_id") == topic_id)
    if at is not None:
        rows = rows.where(F.col("batch_version") <= at)
    newest = F.max(F.struct("batch_version", "batch_commit")).alias("newest")
    newest_rows = small_rows(
        rows.groupBy("day").agg(F.count("*").alias("count"), newest).select("day", "count", "newest.*")
    )
    builds = {row["day"]: (row["batch_version"], row["batch_commit"]) for row in newest_rows}
    gone = builds_of_another(pipeline, {*builds.values()})
    return {
        row["day"]: Publication(row["count"], -1 if builds[row["day"]] in gone else row["batch_version"])
        for row in newest_rows
    }


def unfinished(
    pipeline: Pipeline, topic_id: str, done: Mapping[date, Publication], at: int | None = None
) -> list[Begun]:
    """Return what runs have begun to publish to a topic, and neither they nor others have finished.

    Args:
        pipeline: The pipeline.
        topic_id: The cluster's identifier of the topic.
        done: What was published, as `publications` gives it.
        at: The newest version of the batch table that counts; None for any.
    """
    if not BEGUN_PUBLICATIONS.exists(pipeline):
        return []
    rows = BEGUN_PUBLICATIONS.rows(pipeline).where(F.col("topic_id") == topic_id)
    if at is not None:
        rows = rows.where(F.col("batch_version") <= at)
    begun = [
        Begun(
            *(row["day"], row["batch_version"], row["batch_commit"]),
            *(row["number"], row["sink"], row["certified_version"]),
        )
        for row in small_rows(rows.orderBy("begun_at"))
        # What was published then, for the same time, has sent or retracted all that this one had sent.
        if row["number"] > done.get(row["day"], Publication()).count
    ]
    gone = builds_of_another(pipeline, {(each.version, each.commit) for each in begun})
    return [replace(each, version=-1) if (each.version, each.commit) in gone else each for each in begun]


def builds_of_another(
    pipeline: Pipeline, builds: Collection[tuple[int, str | None]]
) -> set[tuple[int, str | None]]:
    """Return the builds, by version and commit, that the batch table does not have.

    A version that is no longer in the log is accepted, and so is one whose commit is unknown.
    """
    spark, table = pipeline.spark, pipeline.table("batch")
    known = {at for at, commit in builds if commit is not None}
    if not known:
        return set()
    newest = version(spark, table)
    hashes = commit_hashes(spark, table, {at for at in known if at <= newest})
    return {
        (at, commit)
        for at, commit in builds
        if commit is not None and (at > newest or hashes.get(at, commit) != commit)
    }


def last_partitions(pipeline: Pipeline, topic_id: str) -> int | None:
    """Return how many partitions a topic had when a day was sent to it last; None if nobody has noted that.

    Args:
        pipeline: The pipeline.
        topic_id: The cluster's identifier of the topic.
    """
    found = list[tuple[datetime, int]]()
    for table, at in ((PUBLICATIONS, "published_at"), (BEGUN_PUBLICATIONS, "begun_at")):
        if table.exists(pipeline):
            rows = conform(table.rows(pipeline), table.schema)
            known = rows.where((F.col("topic_id") == topic_id) & F.col("partitions").isNotNull())
            newest = known.agg(F.max(F.struct(at, "partitions")).alias("newest"))
            newest_rows = small_rows(newest.where("newest IS NOT NULL").select("newest.*"))
            found += [(row[at], row["partitions"]) for row in newest_rows]
    return max(found)[1] if found else None


def record_begin(pipeline: Pipeline, begun: Begun, topic_id: str, run_id: str, partitions: int) -> None:
    """Record that a day is about to be published as a whole, before anything of it is sent."""
    row = {
        "day": begun.day,
        "batch_version": begun.version,
        "batch_commit": begun.commit,
        "topic_id": topic_id,
        "number": begun.number,
        "sink": begun.sink,
        "certified_version": begun.certified_version,
        "run_id": run_id,
        "begun_at": datetime.now(UTC),
        "partitions": partitions,
    }
    BEGUN_PUBLICATIONS.append(pipeline, [row])


def record_publication(
    pipeline: Pipeline, verdict: Verdict, topic_id: str, run_id: str, partitions: int
) -> None:
    """Record that a day was published as a whole, as a verdict has certified it."""
    row = {
        "day": verdict.day,
        "batch_version": verdict.batch_version,
        "batch_commit": verdict.batch_commit,
        "topic_id": topic_id,
        "run_id": run_id,
        "published_at": datetime.now(UTC),
        "partitions": partitions,
    }
    PUBLICATIONS.append(pipeline, [row])
