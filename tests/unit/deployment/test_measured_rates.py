"""Rates for KEDA come from what `oncelake lag` prints, or it is said what is missing."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from pipelines.deployment.measured_rates import Rates, measured_rates
from pipelines.errors import ConfigError


def rates(file: Path) -> Rates:
    return measured_rates(file, "flights", "prod")


def stage(name: str, **figures: Any) -> dict[str, Any]:
    return {"stage": name, "records": 5, "rate_in": 900.0, "capacity": 4_000.0, "executors": 2, **figures}


def lag(tmp_path: Path, *stages: dict[str, Any]) -> Path:
    file = tmp_path / "lag.json"
    file.write_text(json.dumps({"pipeline": "flights", "env": "prod", "stages": stages, "lines": []}))
    return file


def test_an_executor_does_the_work_of_all_stages(tmp_path: Path) -> None:
    found = rates(lag(tmp_path, stage("ingest"), stage("speed", capacity=1_000.0)))
    # 0.5 ms for ingest, 2 ms for the speed layer.
    assert found.rate_in == 900
    assert math.isclose(found.rate_out, 400)
    third = stage("publish", capacity=800.0, executors=4)
    assert math.isclose(rates(lag(tmp_path, stage("ingest"), stage("speed"), third)).rate_out, 1 / 6e-3)


def test_what_comes_from_all_clusters_is_summed_up(tmp_path: Path) -> None:
    clusters = [stage("ingest"), stage("ingest", cluster="eu", rate_in=100.0, executors=4)]
    found = rates(lag(tmp_path, *clusters, stage("speed", rate_in=None)))
    assert found == Rates(1_000.0, found.rate_out)
    # Ingest costs nine records 0.5 ms and the tenth 1 ms; the speed layer costs each 0.5 ms.
    assert math.isclose(found.rate_out, 1 / 1.05e-3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"capacity": None}, "ingest has no figures of micro-batches with records"),
        ({"executors": 0}, "ingest has no executors"),
        ({"executors": None}, "ingest has no executors"),
        ({"rate_in": 0.0}, "found no record that came"),
        ({"rate_in": None}, "what comes to ingest is unknown"),
        ({"rate_in": None, "cluster": "eu"}, "what comes to ingest@eu is unknown"),
        ({"stage": "speed"}, "found no stage ingest"),
        ({"capacity": "many"}, "found something else; expected what lag has printed"),
    ],
)
def test_what_is_missing_is_said(tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    file = lag(tmp_path, {**stage("ingest"), **changed}, stage("speed"))
    with pytest.raises(ConfigError, match=said):
        rates(file)


@pytest.mark.parametrize("content", [b"", b"lines", b"[]", b"{}", b'{"stages": []}', b"\xff\xfe", b"NaN"])
def test_any_other_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(ConfigError, match="--measured"):
        rates(tmp_path / "other")


def test_a_cluster_to_which_nothing_comes_costs_nothing(tmp_path: Path) -> None:
    idle = stage("ingest", cluster="eu", rate_in=0.0, capacity=None, executors=None)
    assert math.isclose(rates(lag(tmp_path, stage("ingest"), idle, stage("speed"))).rate_out, 1_000)


def test_figures_of_another_pipeline_and_those_of_a_failure_are_refused(tmp_path: Path) -> None:
    file = lag(tmp_path, stage("ingest"), stage("speed"))
    with pytest.raises(
        ConfigError, match="found figures of flights in prod, expected those of flights in dev"
    ):
        measured_rates(file, "flights", "dev")
    file.write_text(json.dumps({"pipeline": "flights", "env": "prod", "error": "no answer", "exit_code": 1}))
    with pytest.raises(ConfigError, match="lag has failed: no answer"):
        rates(file)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        rates(tmp_path)
