"""Write quarantine and speed layer, each micro-batch once, so that a checkpoint can be compared with them."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipelines.config.model import PipelineConfig
from pipelines.delta.idempotent_writer import DraftedRows, IdempotentWriter
from pipelines.delta.stream_check import SpeedCheck
from pipelines.spark.checkpoints import reads_more


@dataclass
class SpeedWriter:
    """Writes quarantine and speed layer, in this order.

    Each micro-batch that has read something commits to the speed layer, even without a row, so that the layer
    and the checkpoint know the same last micro-batch. The commit also notes which one wrote to the quarantine
    last.

    Attributes:
        checkpoint: The path of the query's checkpoint.
        events: Writes the speed layer.
        broken: Writes the quarantine.
        quarantined: The last micro-batch that has written to the quarantine.
    """

    checkpoint: str
    events: IdempotentWriter
    broken: IdempotentWriter
    quarantined: int | None

    @classmethod
    def of(cls, config: PipelineConfig, check: SpeedCheck) -> "SpeedWriter":
        """Return what writes the tables of a pipeline, once they have been checked."""
        begun = check.files.in_flight
        return cls(
            check.files.path,
            IdempotentWriter(config.table("speed"), begun, table_id=check.files.note.get("speed")),
            IdempotentWriter(
                config.table("quarantine"),
                begun,
                table_id=check.files.note.get("quarantine"),
                has_few=True,
            ),
            check.quarantined,
        )

    def put_aside(self, rows: DataFrame, batch: int, count: int) -> None:
        """Write the broken records of a micro-batch: at least one.

        Raises:
            SourceError: Another run writes by a copy of the checkpoint.
        """
        self.broken.append(rows, batch, count)
        self.quarantined = batch

    def draft(self, rows: DataFrame, batch: int) -> DraftedRows | None:
        """Write the events of a micro-batch to files that no reader sees before `add`.

        The micro-batch is computed, and its state kept, in any case.

        Returns:
            None if an earlier try has written them.

        Raises:
            SourceError: Another run writes by a copy of the checkpoint.
        """
        if self.events.has(rows.sparkSession, batch):
            rows.write.format("noop").mode("overwrite").save()
            return None
        return self.events.draft(rows)

    def add(self, draft: DraftedRows, batch: int) -> None:
        """Make the events of a micro-batch a part of the speed layer, if it has any or has read anything.

        Raises:
            SourceError: Another run writes by a copy of the checkpoint.
        """
        if draft.rows or reads_more(draft.transaction.spark, self.checkpoint, batch):
            self.events.commit(draft, batch, quarantined=self.quarantined)

    def written(self, until: int) -> tuple[int, int]:
        """Return how many rows speed layer and quarantine took of the micro-batches before one."""
        return self.events.rows_before(until), self.broken.rows_before(until)
