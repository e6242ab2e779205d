"""A ledger of verdicts that was restored from a copy, and a stream that has read on in the one before."""

import logging
from typing import Final

from pipelines.delta.fenced_commits import commit_nothing
from pipelines.delta.stream_position import last_begun
from pipelines.delta.tables import table_id, version
from pipelines.ledger.ops_tables import CERTIFICATIONS
from pipelines.publishing.micro_batch import source_positions
from pipelines.publishing.published_days import waiting
from pipelines.spark.checkpoints import query_files
from pipelines.spark.pipeline import Pipeline

_NOTE: Final = "publish_stream: brings a restored ledger to the version that it has read"

_log = logging.getLogger(__name__)


def bring_ledger_forward(pipeline: Pipeline) -> None:
    """Give a ledger the versions that the stream has read of it, by commits without rows.

    The stream reads the ledger at the version to which it has come, and does not look at earlier ones again.
    That loses nothing: a micro-batch settles all verdicts that the ledger has by then. If some have come
    under numbers that it has passed, a further commit begins a micro-batch.

    Args:
        pipeline: The pipeline; no other run may publish it.

    Raises:
        SourceError: The ledger lacks verdicts that the batch table knows of.
    """
    files = query_files(pipeline.spark, pipeline.checkpoint("publish"))
    batch = last_begun(files)
    position = source_positions(pipeline, batch)[1] if batch >= 0 else None
    path = CERTIFICATIONS.path(pipeline)
    if position is None or position.table_id != table_id(pipeline.spark, path):
        # Spark refuses to read another table.
        return
    newest = version(pipeline.spark, path)
    if newest > position.last:
        return
    # One in flight settles what there is.
    is_passed = bool(waiting(pipeline)) and files.in_flight is None
    if newest < position.last:
        _log.warning(
            "%s: found version %d, expected %d or later, which publish_stream has read: the table was"
            " restored from a copy. It gets these versions by commits without rows",
            *(path, newest, position.last),
        )
    for _ in range(newest, position.last + is_passed):
        commit_nothing(pipeline.spark, path, _NOTE)
