"""`oncelake run` evaluates the lag by the command for schedulers, and tells what that one cannot."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.lag import lag
from pipelines.cli.options import CommonOptions
from pipelines.cli.run_alerts import RunAlerts, is_evaluated, repeated, summary_of_alerts
from pipelines.config.loader import load_config
from pipelines.config.model import LagConfig, NotifyConfig, PipelineConfig
from pipelines.supervision.output import ProgramName
from pipelines.supervision.periodic_programs import RunResult

NAME = ProgramName("flights", "lag")
PLACES = (Path("conf"), Path("data_contracts"))
OPTIONS = CommonOptions("flights", "local", *PLACES, ("lake.root=/lake",), "json")
KILLED = RunResult({}, "timed out after 120 s and was killed")


def config_of(notify: NotifyConfig, **lag_settings: Any) -> PipelineConfig:
    settings = {"notify": notify, "lag": LagConfig(**lag_settings)}
    return load_config("flights", environ={}).model_copy(update=settings)


@pytest.fixture
def told_to(tmp_path: Path) -> Path:
    return tmp_path / "told"


@pytest.fixture
def config(told_to: Path) -> PipelineConfig:
    """A pipeline whose hook appends what it is told to a file."""
    command = ("sh", "-c", f"cat >> {told_to}; echo >> {told_to}")
    return config_of(NotifyConfig(command=command), raise_after=3, clear_after=2)


def told(told_to: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in told_to.read_text().splitlines()] if told_to.exists() else []


def test_the_lag_is_evaluated_only_if_somebody_can_be_told() -> None:
    hook = NotifyConfig(command=("true",))
    assert not is_evaluated(load_config("flights", environ={}))
    assert is_evaluated(config_of(hook))
    assert not is_evaluated(config_of(hook, evaluate_every=None))


def test_each_pipeline_has_its_own_time_and_an_evaluation_its_limit(config: PipelineConfig) -> None:
    seldom = config.model_copy(update={"lag": LagConfig(evaluate_every=timedelta(hours=1))})
    found = repeated({"flights": config, "weather": seldom}, {"flights": OPTIONS, "weather": OPTIONS})
    assert [(each.every_s, each.within_s, each.first_after_s) for each in found] == [
        (300, 300, 300),
        (3_600, 3_600, 5_400),
    ]
    often = config.model_copy(update={"lag": LagConfig(evaluate_every=timedelta(seconds=10))})
    assert [each.within_s for each in repeated({"flights": often}, {"flights": OPTIONS})] == [120]


def test_what_is_started_is_the_command_that_a_scheduler_starts(config: PipelineConfig) -> None:
    (each,) = repeated({"flights": config}, {"flights": OPTIONS})
    job, *words = each.program.command[3:]
    assert job == "lag"
    parsed = lag.make_context("lag", words).params
    assert (parsed["is_alerting"], parsed["watch"], parsed["output"]) == (True, None, "json")
    assert (parsed["pipeline"], parsed["settings"]) == ("flights", ("lake.root=/lake",))


def test_an_evaluation_that_kept_its_alerts_is_not_told_of_twice(
    config: PipelineConfig, told_to: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alerts = RunAlerts({"flights": config})
    for _ in range(5):
        alerts.take(NAME, RunResult({"alerts": {"ingest": "2026-01-01T12:00:00+00:00"}}))
    # That Kafka does not answer, for example, is an alert that it has kept.
    for _ in range(5):
        alerts.take(NAME, RunResult({"alerts": {}, "error": "no answer"}, "no answer"))
    assert told(told_to) == []
    assert caplog.text.count("alert: ingest") == 1
    assert caplog.text.count("the lag was not evaluated: no answer") == 5
    assert summary_of_alerts(alerts.evaluations) == {
        "lag": [{"pipeline": "flights", "evaluations": 10, "failed": 5}]
    }
    assert alerts.evaluations["flights"].lines == ["flights: lag evaluated 10 times, 5 failed"]


def test_evaluations_that_kept_nothing_are_an_alert_of_their_own(
    config: PipelineConfig, told_to: Path
) -> None:
    alerts = RunAlerts({"flights": config})
    for _ in range(6):
        alerts.take(NAME, KILLED)
    (raised,) = told(told_to)
    assert (raised["job"], raised["pipeline"], raised["env"]) == ("lag", "flights", "local")
    assert (raised["stage"], raised["alert"], raised["error"]) == ("evaluation", "raised", KILLED.failure)
    for _ in range(3):
        alerts.take(NAME, RunResult({"alerts": {}}))
    assert [each["alert"] for each in told(told_to)] == ["raised", "cleared"]


def test_a_hook_that_failed_gets_the_message_after_the_next_evaluation(
    config: PipelineConfig, told_to: Path
) -> None:
    told_to.mkdir()
    alerts = RunAlerts({"flights": config})
    for _ in range(3):
        alerts.take(NAME, KILLED)
    told_to.rmdir()
    alerts.take(NAME, KILLED)
    assert [each["alert"] for each in told(told_to)] == ["raised"]


def test_nothing_is_told_of_pipelines_whose_lag_nobody_evaluates() -> None:
    assert summary_of_alerts({}) == {}
