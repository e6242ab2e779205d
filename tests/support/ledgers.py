"""Tables under `ops/` that every nightly run writes to, made once for the lakes of many tests."""

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from pipelines.ledger.ops_tables import BRONZE_INDEX, CERTIFICATIONS, LEASES, RUNS, VALIDATION_RESULTS
from pipelines.spark.pipeline import Pipeline

_OF_EACH_NIGHT = (BRONZE_INDEX, CERTIFICATIONS, LEASES, RUNS, VALIDATION_RESULTS)


@cache
def _folder() -> "TemporaryDirectory[str]":
    """Where they are kept; it goes with this process."""
    return TemporaryDirectory(prefix="oncelake-ledgers-")


def copy_ledgers(pipeline: Pipeline) -> None:
    """Gives a lake without ledgers the empty ones with which a first nightly run would begin.

    That a nightly run makes them itself is tested where lakes are filled by ingest.
    """
    if Path(pipeline.config.root, "ops").exists():
        return
    place = pipeline.config.lake.model_copy(update={"root": _folder().name})
    prepared = replace(pipeline, config=pipeline.config.model_copy(update={"lake": place}))
    for table in _OF_EACH_NIGHT:
        if not Path(table.path(prepared)).exists():
            table.ensure(prepared)
        shutil.copytree(table.path(prepared), table.path(pipeline))
