"""`python -m chaos.planted_job NAME ...` is `oncelake ...`, with a fault planted in the jobs.

`python -m chaos.planted_job NAME serve SOCKET` is the same of what `chaos.desk` runs.
"""

import runpy
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from unittest.mock import patch

from pyspark.sql import functions as F

from chaos.desk import PROGRAM
from pipelines.cli import main
from pipelines.kafka.source import read_envelopes
from pipelines.publishing.corrections import corrections
from pipelines.records.decode import routed
from pipelines.records.dedup import first_within_watermark, order_columns


@dataclass(frozen=True)
class Patch:
    """A fault of the jobs.

    Attributes:
        where: the names that are replaced; modules that import them have them under their own names.
        instead: what takes their place.
    """

    where: tuple[str, ...]
    instead: Any


def _some(*given: Any, **named: Any) -> Any:
    return read_envelopes(*given, **named).where("_offset % 100 <> 7")


def _again(*given: Any, **named: Any) -> Any:
    times = F.expr("explode(CASE WHEN _offset % 100 = 7 THEN array(1, 2) ELSE array(1) END)")
    return read_envelopes(*given, **named).withColumn("_times", times).drop("_times")


def _changed(*given: Any, **named: Any) -> Any:
    power = F.when(F.expr("number % 50 = 7"), F.col("power") + 1).otherwise(F.col("power"))
    return first_within_watermark(*given, **named).withColumn("power", power)


def _twice(*given: Any, **named: Any) -> Any:
    times = F.expr("explode(CASE WHEN number % 50 = 7 THEN array(1, 2) ELSE array(1) END)")
    return first_within_watermark(*given, **named).withColumn("_times", times).drop("_times")


def _without_broken(*given: Any, **named: Any) -> Any:
    return routed(*given, **named).where("_bad IS NULL OR _bad.reason <> 'rule_failed'")


def _added_alone(*given: Any, **named: Any) -> Any:
    return corrections(*given, **named).where("_correction = 'added'")


def _by_offset_first(contract: Any) -> list[str]:
    return [*reversed(order_columns(contract))]


def _nothing(*given: Any, **named: Any) -> Any:
    return None


PATCHES: Final[Mapping[str, Patch]] = {
    "ingest-drops": Patch(("pipelines.steps.ingest.read_envelopes",), _some),
    "ingest-doubles": Patch(("pipelines.steps.ingest.read_envelopes",), _again),
    "speed-changes": Patch(("pipelines.steps.speed.first_within_watermark",), _changed),
    "speed-doubles": Patch(("pipelines.steps.speed.first_within_watermark",), _twice),
    "quarantine-drops": Patch(("pipelines.steps.speed.routed",), _without_broken),
    "corrections-dropped": Patch(("pipelines.publishing.micro_batch.corrections",), _added_alone),
    "winners-changed": Patch(
        (
            "pipelines.records.dedup.order_columns",
            "pipelines.records.kept_copies.order_columns",
            "pipelines.audit.recount.order_columns",
        ),
        _by_offset_first,
    ),
    # In the workers of Spark, which `chaos.planted_site` reaches, and here.
    "publish-repeats": Patch(("pipelines.publishing.slot_writer.what_to_do",), lambda *a, **b: "publish"),
    "serving-forgotten": Patch(("pipelines.cli.nightly.refresh_readers_or_warn",), lambda *given: []),
    "restores-unnoticed": Patch(("pipelines.delta.stream_check.misfit",), _nothing),
    "damage-unspecific": Patch(("pipelines.errors.SourceError.exit_code",), 1),
}
"""By their names, which are those of `chaos.planted.PATCHED`."""


def plant(name: str) -> None:
    """Plant a fault in this process."""
    for place in PATCHES[name].where:
        patch(place, PATCHES[name].instead).start()


if __name__ == "__main__":
    plant(sys.argv[1])
    if sys.argv[2] == "serve":
        sys.argv[:] = [PROGRAM, *sys.argv[2:]]
        runpy.run_path(PROGRAM, run_name="__main__")
    else:
        main(sys.argv[2:])
