"""Each alert rule fires in the situation that it is for, by Prometheus' own tool, and in no usual one."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here"),
]

RULES = Path(__file__).resolve().parents[2] / "deploy/prometheus/oncelake.rules.yml"
STREAM = '{pipeline="flights",env="prod",stream="speed",instance="a:9465",job="oncelake"}'
# The ingest of the first cluster has no label for it.
FIRST = '{pipeline="flights",env="prod",stream="ingest",instance="a:9464",job="oncelake"}'
FURTHER = '{pipeline="flights",env="prod",stream="ingest",cluster="eu",instance="a:9467",job="oncelake"}'
NIGHT = '{pipeline="flights",env="prod",instance="a:9100",job="node"}'

_LAST_MINUTE = 90


def stream(name: str, values: str, of: str = STREAM, **labels: str) -> tuple[str, str]:
    """Samples of a stream, one a minute."""
    own = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f"oncelake_stream_{name}{of[:-1]}{own}}}", values


def night(name: str, values: str, **labels: str) -> tuple[str, str]:
    """Samples of the figures of nights, one a minute."""
    own = "".join(f',{name}="{value}"' for name, value in labels.items())
    return f"oncelake_{name}{NIGHT[:-1]}{own}}}", values


def usual(of: str) -> tuple[tuple[str, str], ...]:
    """What any stream has."""
    return (
        stream("healthy", "1x90", of),
        stream("trigger_interval_seconds", "10x90", of),
        stream("started_timestamp_seconds", "0x90", of),
        stream("records_total", "0+6000x90", of),
        stream("micro_batches_total", "0+6x90", of),
        stream("last_micro_batch_seconds", "4x90", of),
        stream("task_seconds", "8x90", of),
        stream("gc_seconds", "0.4x90", of),
        stream("spilled_bytes", "0x90", of),
        stream("offset_commits_total", "0+6x90", of, result="made"),
        # One is refused now and then.
        stream("offset_commits_total", "0x40 1x50", of, result="failed"),
    )


USUAL = (
    *usual(STREAM),
    *usual(FIRST),
    *usual(FURTHER),
    stream("late_total", "0+6x90"),
    stream("quarantined_total", "0+6x90", reason="wrong_type"),
    night("last_run_status", "0x90", status="failed"),
    night("last_run_timestamp_seconds", "0x90"),
    night("failed_days", "0x90"),
    night("certified_day_timestamp_seconds", "0x90"),
    night("last_run_checks", "0x90", status="warned"),
)


@dataclass(frozen=True)
class Situation:
    """A change of what is usual.

    Attributes:
        alert: which alert it is for.
        changed: series in place of those of the same name and labels.
        gone: names of metrics that are not there.
        minutes: when it is looked at.
    """

    alert: str
    changed: tuple[tuple[str, str], ...] = ()
    gone: tuple[str, ...] = ()
    minutes: int = 80


SITUATIONS = (
    Situation("OncelakeStreamStuck", (stream("healthy", "1x20 0x70"),)),
    Situation(
        "OncelakeStreamGone",
        (stream("healthy", "1x20 stale"), stream("trigger_interval_seconds", "10x20 stale")),
    ),
    # That of the other cluster goes on.
    Situation(
        "OncelakeStreamGone",
        (
            stream("healthy", "1x20 stale", FURTHER),
            stream("trigger_interval_seconds", "10x20 stale", FURTHER),
        ),
    ),
    Situation(
        "OncelakeStreamGone",
        (stream("healthy", "1x20 stale", FIRST), stream("trigger_interval_seconds", "10x20 stale", FIRST)),
    ),
    Situation("OncelakeStreamRestarts", (stream("started_timestamp_seconds", "0+300x90"),)),
    Situation(
        "OncelakeStreamRepeats",
        (stream("started_timestamp_seconds", "0x15 900x15 1800x15 2700x15 3600x30"),),
        ("oncelake_stream_micro_batches_total",),
    ),
    Situation("OncelakeStreamSlow", (stream("last_micro_batch_seconds", "31x90"),)),
    Situation("OncelakeStreamCollectsGarbage", (stream("gc_seconds", "2x90"),)),
    Situation("OncelakeStreamSpills", (stream("spilled_bytes", "100000000x90"),)),
    Situation("OncelakeManyLate", (stream("late_total", "0+100x90"),)),
    Situation("OncelakeManyQuarantined", (stream("quarantined_total", "0+100x90", reason="wrong_type"),)),
    Situation(
        "OncelakeOffsetsNotCommitted",
        (
            stream("offset_commits_total", "0+6x20 120x70", result="made"),
            stream("offset_commits_total", "0x20 0+2x70", result="failed"),
        ),
    ),
    Situation(
        "OncelakeOffsetsNotCommitted",
        (
            stream("offset_commits_total", "0+6x20 120x70", FURTHER, result="made"),
            stream("offset_commits_total", "0x20 0+2x70", FURTHER, result="failed"),
        ),
    ),
    Situation("OncelakeNightFailed", (night("last_run_status", "1x90", status="failed"),)),
    Situation("OncelakeDaysFailed", (night("failed_days", "1x3000"),), minutes=2_900),
    Situation(
        "OncelakeDayNotCertified",
        (night("certified_day_timestamp_seconds", f"{-60 * 3600}x90"),),
    ),
    # Nothing writes the figures any more.
    Situation(
        "OncelakeDayNotCertified",
        (night("certified_day_timestamp_seconds", f"{-60 * 3600}x2 stale"),),
    ),
    Situation(
        "OncelakeNothingCertified",
        (night("last_run_timestamp_seconds", "0x1500"),),
        ("oncelake_certified_day_timestamp_seconds",),
        1_480,
    ),
    Situation(
        "OncelakeNightsUnknown",
        (
            stream("healthy", "1x3000"),
            stream("healthy", "1x3000", FIRST),
            stream("healthy", "1x3000", FURTHER),
        ),
        (
            "oncelake_last_run_status",
            "oncelake_last_run_timestamp_seconds",
            "oncelake_failed_days",
            "oncelake_certified_day_timestamp_seconds",
            "oncelake_last_run_checks",
        ),
        2_900,
    ),
    Situation("OncelakeCheckWarned", (night("last_run_checks", "1x90", status="warned"),)),
)


def firing(situation: Situation, folder: Path) -> str:
    """What promtool says of the expectation that the alert fires alone; empty if it does."""
    changed = dict(situation.changed)
    series = {**dict(USUAL), **changed}
    kept = {name: values for name, values in series.items() if name.partition("{")[0] not in situation.gone}
    firing = f'ALERTS{{alertstate="firing",alertname="{situation.alert}"}}'
    # Where it is looked at much later, the series of streams have ended.
    gone = "|OncelakeStreamGone" if situation.minutes > _LAST_MINUTE else ""
    others = f'ALERTS{{alertstate="firing",alertname!~"{situation.alert}{gone}"}}'
    at = f"{situation.minutes}m"
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": name, "values": values} for name, values in kept.items()],
                "promql_expr_test": [
                    {
                        "expr": f"count({firing})",
                        "eval_time": at,
                        "exp_samples": [{"labels": "{}", "value": 1}] if situation.alert else [],
                    },
                    {"expr": f"count({others})", "eval_time": at, "exp_samples": []},
                ],
            }
        ],
    }
    path = folder / "situation.yml"
    path.write_text(yaml.safe_dump(document))
    done = subprocess.run(["promtool", "test", "rules", path], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda situation: situation.alert)
def test_an_alert_fires_in_its_situation_and_no_other_does(situation: Situation, tmp_path: Path) -> None:
    assert firing(situation, tmp_path) == ""


def test_no_alert_fires_while_all_is_as_usual(tmp_path: Path) -> None:
    assert firing(Situation(""), tmp_path) == ""


def test_micro_batches_of_one_cluster_do_not_count_for_the_ingest_of_another(tmp_path: Path) -> None:
    idle = (
        stream("micro_batches_total", "6x90", FURTHER),
        stream("last_micro_batch_seconds", "31x90", FURTHER),
        stream("gc_seconds", "2x90", FURTHER),
        stream("spilled_bytes", "100000000x90", FURTHER),
    )
    assert firing(Situation("", idle), tmp_path) == ""


def test_each_alert_has_a_situation() -> None:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    assert {each.alert for each in SITUATIONS} == {
        rule["alert"] for group in groups for rule in group["rules"]
    }


def test_the_file_of_rules_is_whole() -> None:
    done = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
