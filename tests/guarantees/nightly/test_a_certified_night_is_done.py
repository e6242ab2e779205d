"""What cannot be written or shown after the verdicts is told, and makes no certified night fail."""

import shutil
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from pipelines.cli import nightly
from pipelines.cli.job_runner import JobFailed
from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import ensure_table, shape
from pipelines.errors import AuditFailed
from pipelines.steps.serving import refresh_view, stale_view
from tests.support.lake_copies import continued
from tests.support.lakes import Lake
from tests.support.nights import ONE, on


@pytest.fixture
def lake(two_days: Lake, make_lake: Callable[..., Lake], small: DataContract) -> Lake:
    """A lake of two certified days, in which neither steps can be recorded nor a view be made."""
    lake = continued(two_days, make_lake("serving.view=no_such_schema.flights", contract=small))
    shutil.rmtree(lake.config.ops_table("runs"))
    ensure_table(lake.spark, lake.config.ops_table("runs"), shape("something string"))
    return lake


def night(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `nightly_batch --date 2013-01-01` does once there is a session."""
    bodies: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(nightly, "run_job", lambda job, options: bodies.append(job.body))
        words = ["--pipeline", "flights", "--date", ONE.isoformat()]
        CliRunner().invoke(nightly.nightly_batch, words, catch_exceptions=False)
    told: dict[str, Any] = bodies[0](lake.pipeline, "run")
    return told


def test_neither_the_record_of_steps_nor_the_view_makes_it_fail_and_a_view_of_another_state_is_told(
    lake: Lake, contract: DataContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving = lake.config.serving.model_copy(update={"view": "stale_flights"})
    viewed = lake.variant(config=lake.config.model_copy(update={"serving": serving})).pipeline
    refresh_view(viewed)
    try:
        assert stale_view(viewed) == []
        lake.ingest([on(1, 6)])
        told = night(lake, monkeypatch)
        assert told["days"] == {"2013-01-01": "certified"}
        of_steps, of_view = told["warnings"]
        assert "the steps of run run are not recorded" in of_steps
        assert of_view.startswith("serving.view: no_such_schema.flights could not be recreated")
        assert of_view.endswith("oncelake maintain --pipeline flights")
        (told_of_view,) = stale_view(viewed)
        assert "stale_flights is stale: found version" in told_of_view
        refresh_view(viewed)
        assert stale_view(viewed) == []
    finally:
        lake.spark.sql("DROP VIEW stale_flights")
    # Nor do they hide why a night has failed: here for want of rows.
    lake.contract = contract
    with pytest.raises(JobFailed, match="rows: found 4") as failed:
        night(lake, monkeypatch)
    assert failed.value.exit_code == AuditFailed.exit_code
    assert len(failed.value.summary["warnings"]) == 2
