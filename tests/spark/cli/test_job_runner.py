"""What runs a job tells OpenLineage of it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.cli_calls import outcome
from tests.support.lineage_endpoint import ask_for_events, lineage_endpoint


def test_a_job_that_fails_has_begun_and_failed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lineage_endpoint() as endpoint:
        ask_for_events(monkeypatch, endpoint.url)
        settings = ("--pipeline", "flights", "--set", f"lake.root={tmp_path}/lake")
        code, summary = outcome("validate", *settings, "--date", "2013-01-01")
    assert (code, summary["status"]) == (4, "failed")
    start, end = endpoint.events
    assert (start["eventType"], end["eventType"]) == ("START", "FAIL")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["run"]["facets"]["errorMessage"]["message"] == summary["error"]
    assert [dataset["name"] for dataset in end["outputs"]] == [f"{tmp_path}/lake/ops/validation_results"]
