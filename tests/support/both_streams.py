"""`python -m tests.support.both_streams SETTINGS`: ingest and the speed stream of flights until it is killed.

They are two jobs; here they share a process, and so a Java.
"""

import sys
from pathlib import Path

from pipelines.config.loader import load_config
from pipelines.delta.idempotent_writer import IdempotentWriter
from pipelines.formats.contract_files import load_contract
from pipelines.spark.pipeline import Pipeline
from pipelines.spark.session import spark_session
from pipelines.spark.streams import Trigger, each_batch
from pipelines.steps.ingest import IngestJob, ingest
from pipelines.steps.speed import speed


def main(*settings: str) -> None:
    """Run them.

    Args:
        settings: as `--set` takes them.
    """
    config = load_config("flights", environ={}, settings=settings)
    contract = load_contract(Path("data_contracts") / config.contract)
    pipeline = Pipeline(spark_session(config, "streams"), config, contract)
    # It makes bronze, and begins the checkpoint with which the query goes on.
    ingest(pipeline, once=True)
    job = IngestJob(pipeline, IdempotentWriter(pipeline.table("bronze"), None), once=False)
    trigger, checkpoint = Trigger(False, config.ingest.trigger_interval), pipeline.checkpoint("ingest")
    each_batch(job.plan(), job.write, name="ingest", checkpoint=checkpoint, trigger=trigger)
    speed(pipeline, once=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
