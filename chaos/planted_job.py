"""`python -m chaos.planted_job NAME ...` is `oncelake ...`, with a fault planted in the jobs."""

import sys
from typing import Any
from unittest.mock import patch

from pyspark.sql import functions as F

from pipelines.cli import main
from pipelines.kafka.source import read_envelopes
from pipelines.records.dedup import first_within_watermark


def _some(*given: Any, **named: Any) -> Any:
    return read_envelopes(*given, **named).where("_offset % 100 <> 7")


def _changed(*given: Any, **named: Any) -> Any:
    power = F.when(F.expr("number % 50 = 7"), F.col("power") + 1).otherwise(F.col("power"))
    return first_within_watermark(*given, **named).withColumn("power", power)


def plant(name: str) -> None:
    """Plant a fault in this process.

    Args:
        name: one of `chaos.planted.PATCHED`.
    """
    if name == "ingest-drops":
        patch("pipelines.steps.ingest.read_envelopes", _some).start()
    else:
        patch("pipelines.steps.speed.first_within_watermark", _changed).start()


if __name__ == "__main__":
    plant(sys.argv[1])
    main(sys.argv[2:])
