"""The days that were published as a whole, at which version."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

from pyspark.sql import functions as F

from pipelines.delta.io import small_rows
from pipelines.delta.tables import conform
from pipelines.delta.time_travel import commit_hash
from pipelines.ledger.certifications import Verdict
from pipelines.ledger.ops_tables import PUBLICATIONS
from pipelines.spark.pipeline import Pipeline


@dataclass(frozen=True)
class Publication:
    """How a day was published as a whole.

    Attributes:
        count: how often.
        version: the newest version of the batch table that it had; -1 if it was not published, or if the
            batch table no longer has such a version, since it is another one.
    """

    count: int = 0
    version: int = -1


def publications(pipeline: Pipeline, topic_id: str, at: int | None = None) -> dict[date, Publication]:
    """Return how days were published to a topic as a whole.

    Args:
        pipeline: The pipeline.
        topic_id: the cluster's identifier of the topic.
        at: the newest version of the batch table that counts; None for any.
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
    gone = _of_another(pipeline, {row["batch_version"]: row["batch_commit"] for row in newest_rows})
    return {
        row["day"]: Publication(row["count"], -1 if row["batch_version"] in gone else row["batch_version"])
        for row in newest_rows
    }


def _of_another(pipeline: Pipeline, commits: Mapping[int, str | None]) -> set[int]:
    """Return the versions that the batch table no longer has, or has by other commits than these."""
    gone = set()
    for version, commit in sorted(commits.items(), reverse=True):
        if commit is None:
            continue
        if commit_hash(pipeline.spark, pipeline.table("batch"), version) == commit:
            # A table that holds this commit holds those before it.
            break
        gone.add(version)
    return gone


def record_publication(pipeline: Pipeline, verdict: Verdict, topic_id: str, run_id: str) -> None:
    """Record that a day was published as a whole, as a verdict has certified it."""
    row = {
        "day": verdict.day,
        "batch_version": verdict.batch_version,
        "batch_commit": verdict.batch_commit,
        "topic_id": topic_id,
        "run_id": run_id,
        "published_at": datetime.now(UTC),
    }
    PUBLICATIONS.append(pipeline, [row])
