"""Bronze counts the resets of ingest, so that a run which was replaced by one commits nothing any more.

A reset moves the checkpoint of ingest aside, and the next run begins where bronze ends. A run of before may
still be there, as on a machine that stood still. It knows a micro-batch by the id of its own query, which the
other one has not, and would bring the same offsets once more.
"""

from dataclasses import dataclass

from pipelines.config.model import PipelineConfig
from pipelines.delta.epochs import Stamp, application
from pipelines.delta.fenced_commits import number_taken
from pipelines.delta.reader_position_check import versions_read_ahead
from pipelines.delta.tables import exists
from pipelines.delta.transaction import Transaction
from pipelines.errors import SourceError
from pipelines.spark.pipeline import Pipeline


@dataclass
class ResetFence:
    """Which reset of ingest was the last one when a run began.

    Attributes:
        application: Under which bronze counts resets, as `txnAppId`.
        number: Of the last one; -1 before the first.
        passed: The version of bronze up to which there is no later one; None if that is not known.
    """

    application: str
    number: int
    passed: int | None = None

    def guard(self, transaction: Transaction) -> None:
        """Let a commit fail if there is a later reset, or comes one before it.

        Raises:
            SourceError: There is one.
        """
        if transaction.version == self.passed:
            # The usual case: this run has made the newest commit, and nothing has to be read.
            transaction.conflict_with(self.application)
        elif transaction.number_taken(self.application) > self.number:
            raise SourceError(
                f"{transaction.table}: the checkpoint of ingest was reset after this run of it had begun, and"
                " another run continues in its place. Nothing of this micro-batch was written. Leave the"
                " other run at work, and see to it that this one is not started again. See docs/runbook.md,"
                " 'A table and its checkpoint do not match'"
            )


def reset_fence(pipeline: Pipeline) -> ResetFence:
    """Return which reset of ingest is the last one; to be asked before a run looks at its checkpoint."""
    name, bronze = reset_application(pipeline.config), pipeline.table("bronze")
    there = exists(pipeline.spark, bronze)
    return ResetFence(name, number_taken(pipeline.spark, bronze, name) if there else -1)


def next_fence(pipeline: Pipeline, run_id: str) -> Stamp | None:
    """Return the stamp of a commit after which runs of ingest that have begun commit nothing; None for none.

    Claim once their checkpoint is moved: a run that begins later looks at the fence first.

    Args:
        pipeline: The pipeline.
        run_id: The run that resets ingest, which holds the lease of backfills.

    Raises:
        SourceError: The checkpoint of the stream that reads bronze is damaged.
    """
    spark, bronze, name = pipeline.spark, pipeline.table("bronze"), reset_application(pipeline.config)
    # A commit would bring a restored table to versions that its reader has read already; no ingest begins so.
    if not exists(spark, bronze) or versions_read_ahead(pipeline, "bronze"):
        return None
    return Stamp(name, number_taken(spark, bronze, name) + 1, f"reset {run_id}")


def reset_application(config: PipelineConfig) -> str:
    """Return the `txnAppId` under which bronze counts the resets of a cluster's ingest."""
    cluster = config.kafka.cluster
    return application(f"{config.name}@ingest" if cluster is None else f"{config.name}@ingest.{cluster}")
