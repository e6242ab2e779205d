"""The jobs: the commands that spark-submit can start, each by the script of its name in `jobs/`.

A new job is a command in this list, and a script.
"""

from typing import Final

import click

from pipelines.cli.maintain import maintain_tables
from pipelines.cli.nightly import nightly_batch, validate_day
from pipelines.cli.publish import publish_stream
from pipelines.cli.report import write_day_report
from pipelines.cli.streams import ingest_stream, speed_stream

JOBS: Final[tuple[click.Command, ...]] = (
    ingest_stream,
    speed_stream,
    publish_stream,
    nightly_batch,
    validate_day,
    write_day_report,
    maintain_tables,
)
