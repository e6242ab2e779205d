"""What cannot be written or shown after the verdicts is told, and makes no certified night fail."""

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from pipelines.cli import nightly
from pipelines.contracts.contract import DataContract
from pipelines.delta.tables import ensure_table, shape
from pipelines.errors import AuditFailed
from pipelines.steps.serving import refresh_view, stale_view
from tests.support.lakes import Lake
from tests.support.nights import ONE, on, run


def night(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `nightly_batch --date 2013-01-01` does once there is a session."""
    bodies: list[Any] = []
    with monkeypatch.context() as patched:
        patched.setattr(nightly, "run_job", lambda job, options: bodies.append(job.body))
        words = ["--pipeline", "flights", "--date", ONE.isoformat()]
        CliRunner().invoke(nightly.nightly_batch, words, catch_exceptions=False)
    told: dict[str, Any] = bodies[0](lake.pipeline, "run")
    return told


def test_neither_the_record_of_steps_nor_the_view_makes_it_fail(
    make_lake: Callable[..., Lake],
    small: DataContract,
    contract: DataContract,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lake = make_lake("serving.view=no_such_schema.flights", contract=small)
    ensure_table(lake.spark, lake.config.ops_table("runs"), shape("something string"))
    lake.ingest([on(1, 1), on(2, 2)])
    told = night(lake, monkeypatch)
    assert told["days"] == {"2013-01-01": "certified"}
    of_steps, of_view = told["warnings"]
    assert "the steps of run run are not recorded" in of_steps
    assert of_view.startswith("serving.view: no_such_schema.flights could not be recreated")
    assert of_view.endswith("oncelake maintain --pipeline flights")
    # Nor do they hide why a night has failed: here for want of rows.
    lake.contract = contract
    with pytest.raises(AuditFailed, match="rows: found 1") as failed:
        night(lake, monkeypatch)
    assert len(failed.value.summary["warnings"]) == 2


def test_a_view_of_another_state_is_told(make_lake: Callable[..., Lake], small: DataContract) -> None:
    lake = make_lake("serving.view=stale_flights", contract=small)
    lake.ingest([on(1, 1), on(2, 2)])
    run(lake, ONE)
    refresh_view(lake.pipeline)
    try:
        assert stale_view(lake.pipeline) == []
        lake.ingest([on(1, 3)])
        run(lake, ONE)
        (told,) = stale_view(lake.pipeline)
        assert "stale_flights is stale: found version" in told
        refresh_view(lake.pipeline)
        assert stale_view(lake.pipeline) == []
    finally:
        lake.spark.sql("DROP VIEW stale_flights")
