"""KEDA gets limits and a threshold by which a backlog is worked off in the wanted time."""

import math
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from pipelines.deployment.keda import Workers, keda_files, scale_of
from pipelines.deployment.pods import Place, Pods
from pipelines.errors import ConfigError
from tests.support.deployments import EVERYTHING, WORKERS, described


def trigger(folder: Path | None = None, more: str = "", workers: Workers | None = None) -> dict[str, Any]:
    files = keda_files(Pods(described(folder, more), Place()), workers)
    *_, last = yaml.safe_load_all(files[-1].text)
    (found,) = last["spec"]["triggers"]
    return dict(found)


@given(
    st.integers(1, 5_000),
    st.integers(1, 5_000),
    st.integers(60, 86_400),
    st.integers(0, 10_000_000),
)
def test_any_backlog_is_worked_off_in_the_wanted_time(
    rate_in: int, rate_out: int, catch_up_s: int, backlog: int
) -> None:
    workers = replace(
        WORKERS,
        partitions=10_000,
        rate_in=float(rate_in),
        rate_out=float(rate_out),
        catch_up=timedelta(seconds=catch_up_s),
    )
    least = math.floor(rate_in / rate_out) + 1
    assume(catch_up_s * (rate_out - rate_in / least) >= 1)
    scale = scale_of(workers)
    wanted = max(scale.least, math.ceil(backlog / scale.threshold))
    assume(wanted <= scale.most)
    net = wanted * rate_out - rate_in
    assert net > 0
    assert backlog / net <= catch_up_s * (1 + 1e-9)


def test_an_example_by_hand() -> None:
    scale = scale_of(WORKERS)
    # Three executors process 1,200 records each second, so each has 66.7 to spare for the backlog.
    assert (scale.least, scale.most, scale.threshold) == (3, 12, 240_000)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"most": 13}, "expected at most the number of partitions, 12"),
        ({"cooldown": timedelta(minutes=4)}, "expected 5 minutes at least"),
        ({"rate_in": 4_800.0}, "13 executors only keep up, but the maximum is 12"),
        ({"catch_up": timedelta(milliseconds=1)}, "make it longer"),
    ],
)
def test_figures_that_contradict_a_limit_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        scale_of(replace(WORKERS, **changed))


def test_the_trigger_sees_what_ingest_has_committed(tmp_path: Path) -> None:
    found = trigger()
    assert found["metadata"] == {
        "bootstrapServers": "kafka-1.example.internal:9093,kafka-2.example.internal:9093",
        "topic": "flights",
        "consumerGroup": "oncelake.prod.flights.ingest",
        "lagThreshold": "1",
        "activationLagThreshold": "0",
        "offsetResetPolicy": "earliest",
        "scaleToZeroOnInvalidOffset": "false",
        "allowIdleConsumers": "false",
        "tls": "enable",
        "sasl": "scram_sha512",
    }
    assert found["authenticationRef"] == {"name": "oncelake-kafka-flights"}
    by_variable = trigger(tmp_path, EVERYTHING, WORKERS)["metadata"]
    assert by_variable["bootstrapServersFromEnv"] == "SERVERS"
    assert "bootstrapServers" not in by_variable
    (file,) = keda_files(Pods(described(tmp_path, EVERYTHING), Place()), WORKERS)
    assert "# KEDA takes SERVERS from the workers' container" in file.text
    assert by_variable["lagThreshold"] == "240000"


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("ingest: {offsets_group: null}", "KEDA sees the backlog by its offsets"),
        ("kafka: {options: {security.protocol: SASL_SSL, sasl.mechanism: GSSAPI}}", "got GSSAPI"),
        (
            "kafka: {options: {security.protocol: SSL}, secrets: {ssl.keystore.key: '${KEY}'}}",
            r"kafka\.secrets\.ssl\.keystore\.key: expected none for KEDA",
        ),
    ],
)
def test_what_keda_cannot_see_is_refused(setting: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        trigger(tmp_path, setting)


def test_a_run_takes_the_streams_in_the_order_of_the_data(tmp_path: Path) -> None:
    files = {each.name: each for each in keda_files(Pods(described(tmp_path, EVERYTHING), Place()), None)}
    assert list(files) == ["base.yaml", "first-run.yaml", "scaled-job.yaml"]
    first = yaml.safe_load(files["first-run.yaml"].text)["spec"]["template"]["spec"]
    *_, job = yaml.safe_load_all(files["scaled-job.yaml"].text)
    pod = job["spec"]["jobTargetRef"]["template"]["spec"]
    for each in (first, pod):
        steps = [*each["initContainers"], *each["containers"]]
        assert [step["command"][1] for step in steps] == ["ingest_stream", "speed_stream", "publish_stream"]
        assert all("--once" in step["args"] for step in steps)
