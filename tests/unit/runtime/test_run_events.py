"""Jobs tell OpenLineage what they read and write, if they are asked to, and never wait long for it."""

import logging
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.jobs import JOBS
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.contracts.contract import DataContract
from pipelines.errors import ConfigError
from pipelines.formats.contract_files import load_contract
from pipelines.runtime import run_events
from pipelines.runtime.run_events import begin_events
from tests.support.lineage_endpoint import LineageEndpoint, ask_for_events, lineage_endpoint


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[LineageEndpoint]:
    with lineage_endpoint() as running:
        ask_for_events(monkeypatch, running.url)
        yield running


@pytest.fixture
def config() -> PipelineConfig:
    settings = ["lake.root=s3a://lake/of", "serving.table=true", "kafka.bootstrap_servers=one:9092,two:9092"]
    return load_config("flights", environ={}, settings=settings)


def run(config: PipelineConfig, contract: DataContract, job: str, status: str, **more: Any) -> None:
    events = begin_events(config, contract, job)
    assert events is not None
    events.end({"status": status, **more})


def test_each_job_begins_and_ends_with_its_datasets(
    config: PipelineConfig, contract: DataContract, endpoint: LineageEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "flights-team")
    for job in JOBS:
        run(config, contract, job, "done")
    assert [event["eventType"] for event in endpoint.events] == ["START", "COMPLETE"] * len(JOBS)
    assert len({event["run"]["runId"] for event in endpoint.events}) == len(JOBS)
    ends = {event["job"]["name"]: event for event in endpoint.events[1::2]}
    assert {event["job"]["namespace"] for event in endpoint.events} == {"flights-team"}

    ingest, night = ends["local.flights.ingest_stream"], ends["local.flights.nightly_batch"]
    assert ingest["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert [named(one) for one in ingest["inputs"]] == ["kafka://one:9092 flights"]
    assert [named(one) for one in ingest["outputs"]] == ["s3://lake of/bronze/flights"]
    assert night["job"]["facets"]["jobType"]["processingType"] == "BATCH"
    assert [named(one) for one in night["outputs"]] == [
        f"s3://lake of/{path}"
        for path in ("batch/flights", "quarantine/flights", "serving/flights", "ops/certifications")
    ]
    batch, _, _, ledger = night["outputs"]
    assert "schema" not in ledger["facets"]
    fields = {column["name"]: column for column in batch["facets"]["schema"]["fields"]}
    assert [*fields] == contract.columns
    assert (fields["distance"]["type"], fields["arrival_delay"]["description"]) == (
        "double",
        "Minutes; negative is early.",
    )


def named(dataset: dict[str, Any]) -> str:
    return f"{dataset['namespace']} {dataset['name']}"


def test_parts_of_a_column_are_in_the_schema(config: PipelineConfig, endpoint: LineageEndpoint) -> None:
    nested = load_contract(Path("tests/support/contracts/orders.odcs.yaml"))
    run(config, nested, "speed_stream", "done")
    speed = endpoint.events[0]["outputs"][0]
    columns = {column["name"]: column for column in speed["facets"]["schema"]["fields"]}
    assert "id" in {part["name"] for part in columns["order"]["fields"]}


@pytest.mark.parametrize(
    ("job", "status", "state"),
    [
        ("nightly_batch", "failed", "FAIL"),
        ("nightly_batch", "stopped", "ABORT"),
        ("speed_stream", "stopped", "COMPLETE"),
        ("speed_stream", "failed", "FAIL"),
    ],
)
def test_how_a_run_ended_is_told(
    config: PipelineConfig,
    contract: DataContract,
    endpoint: LineageEndpoint,
    job: str,
    status: str,
    state: str,
) -> None:
    run(config, contract, job, status, **({"error": "rows: found 3"} if status == "failed" else {}))
    _, end = endpoint.events
    facets = end["run"].get("facets", {})
    assert (end["eventType"], "errorMessage" in facets) == (state, status == "failed")
    if status == "failed":
        assert facets["errorMessage"]["message"] == "rows: found 3"


def test_nothing_is_sent_unless_it_is_asked_for(
    config: PipelineConfig, contract: DataContract, endpoint: LineageEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert begin_events(config, contract, "doctor") is None
    monkeypatch.setenv("OPENLINEAGE_DISABLED", "true")
    assert begin_events(config, contract, "nightly_batch") is None
    monkeypatch.delenv("OPENLINEAGE_DISABLED")
    monkeypatch.delenv("OPENLINEAGE_URL")
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    assert begin_events(config, contract, "nightly_batch") is None
    assert endpoint.events == []


def test_without_the_package_a_job_is_refused(
    config: PipelineConfig, contract: DataContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for_events(monkeypatch, "http://127.0.0.1:9")
    monkeypatch.setitem(sys.modules, "openlineage.client", None)
    with pytest.raises(ConfigError, match=r"OPENLINEAGE_URL: .*pip install 'oncelake\[openlineage\]'"):
        begin_events(config, contract, "nightly_batch")


def test_settings_that_the_client_refuses_are_named(
    config: PipelineConfig, contract: DataContract, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask_for_events(monkeypatch, "me:hush@no-address")
    with pytest.raises(ConfigError, match=r"OPENLINEAGE_URL: found settings that .* refuses") as refused:
        begin_events(config, contract, "nightly_batch")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("fault", ["down", "slow", "refuses", "cannot be described"])
def test_an_endpoint_that_fails_costs_one_warning_and_little_time(
    config: PipelineConfig,
    contract: DataContract,
    endpoint: LineageEndpoint,
    fault: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(run_events, "END_WITHIN_S", 0.5)
    match fault:
        case "down":
            ask_for_events(monkeypatch, "http://127.0.0.1:9")
        case "slow":
            endpoint.answers_when.clear()
        case "refuses":
            endpoint.status = 403
        case "cannot be described":
            contract = replace(contract, path="gone.yaml")
    with caplog.at_level(logging.WARNING):
        run(config, contract, "nightly_batch", "done")
    (warning,) = [record.message for record in caplog.records]
    assert warning.startswith("run events for OpenLineage are missing there; the job continues: ")
