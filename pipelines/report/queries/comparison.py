"""What a rebuild changed in a day, against the version that certified the day before."""

from pyspark.sql import DataFrame

from pipelines.delta.tables import conform, events_schema
from pipelines.delta.time_travel import read_kept
from pipelines.ledger.certifications import Verdict
from pipelines.report.model.history import Comparison
from pipelines.report.queries.row_changes import row_changes
from pipelines.spark.pipeline import Pipeline


def comparison(
    pipeline: Pipeline,
    verdict: Verdict,
    rows: DataFrame,
) -> Comparison | None:
    """What the run changed in the day; None if nobody had certified the day before.

    Args:
        pipeline: The pipeline.
        verdict: the verdict on the day, which names both versions.
        rows: the day's rows in the version that was certified.
    """
    previous = verdict.previous_version
    if previous is None:
        return None
    at = verdict.batch_version
    counted = Comparison(
        previous_version=previous,
        batch_version=at,
        added=verdict.added,
        removed=verdict.removed,
        changed=verdict.changed,
    )
    if verdict.cause == "forgotten":
        return counted.model_copy(update={"gone": "The run forgot events, so none is shown."})
    before = read_kept(pipeline.spark, pipeline.table("batch"), previous, [verdict.day])
    if before is None:
        gone = (
            f"Version {previous} of the batch table is gone: Delta has cleaned its log, or VACUUM its"
            " files. So the rows cannot be compared any more."
        )
        return counted.model_copy(update={"gone": gone})
    columns = events_schema(pipeline.contract)
    found = row_changes(
        conform(before, columns), conform(rows, columns), pipeline.contract, pipeline.config.audit.examples
    )
    return Comparison(
        previous_version=previous,
        batch_version=at,
        added=found.added,
        removed=found.removed,
        changed=found.changed,
        samples=found.samples,
    )
