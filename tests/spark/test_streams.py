"""A stream whose checkpoint or source is not what it was says so, and ends with exit code 4."""

import shutil
from pathlib import Path

import pytest

from pipelines.errors import SourceError
from pipelines.layers.speed import speed
from tests.support.lakes import Lake, flight


def test_a_checkpoint_without_its_identity_is_refused(lake: Lake) -> None:
    lake.ingest([flight()])
    counts = speed(lake.spark, lake.config, lake.contract, once=True)["counts"]
    assert (counts["records"], counts["rows"]) == (1, 1)
    Path(lake.config.checkpoint("speed"), "metadata").unlink()
    with pytest.raises(SourceError, match="the checkpoint is not the one") as refused:
        speed(lake.spark, lake.config, lake.contract, once=True)
    assert refused.value.exit_code == 4
    assert not lake.spark.streams.active


def test_another_bronze_under_the_same_name_is_refused(lake: Lake) -> None:
    lake.ingest([flight()])
    speed(lake.spark, lake.config, lake.contract, once=True)
    shutil.rmtree(lake.config.table("bronze"))
    lake.ingest([flight(flight=2)])
    with pytest.raises(SourceError, match="the bronze table is not the one"):
        speed(lake.spark, lake.config, lake.contract, once=True)
    assert lake.table("speed").count() == 1
