"""The alert rules and the dashboard in deploy/ ask for metrics and labels that there are."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import promql_parser
import pytest
import yaml

from pipelines.kafka.offsets_group import CommitCounts
from pipelines.lag.gauges import lag_gauges
from pipelines.lag.stage_facts import PartitionLag, StageFacts, TopicHealth
from pipelines.ledger.certifications import Verdict
from pipelines.racks.traffic import read_bytes
from pipelines.report.render.prometheus import gauges
from pipelines.spark.stream_metrics import stream_metrics
from pipelines.spark.stream_progress import (
    BatchFigures,
    RunTotals,
    StateFigures,
    StreamProgress,
    TaskFigures,
)
from pipelines.spark.stream_server import family_of
from pipelines.steps.speed import quarantined_metric

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/oncelake.rules.yml"
DASHBOARD = ROOT / "deploy/grafana/oncelake.json"
NOW = datetime(2026, 1, 2, 3, tzinfo=UTC)
BATCH = BatchFigures(
    *(1, NOW, 2.5, 1_000),
    {"write": 2.0},
    StateFigures(4_096),
    TaskFigures(8, 0, 6.0, 0.5, 128, 1.0),
    watermark=NOW,
    files_left=7,
)
RUNNING = StreamProgress("speed", "host", 7, NOW, NOW, NOW, 10.0, executors=2, batches=(BATCH,))
VERDICT = Verdict("p", date(2026, 1, 1), "certified", "run", 1, 1, 2, 2, 0, 0, 0, 0, 0, 2, NOW)
OF_STREAM = ("pipeline", "env", "stream", "cluster")
# What Grafana puts in before it asks, by values that mean nothing here.
VARIABLES = {"$pipeline": "p", "$env": "e", "$__rate_interval": "5m", "${datasource}": "d"}


def metrics() -> dict[str, set[str]]:
    """The labels of each metric, by name: of the stream of a further cluster and its lag, and of nights."""
    labels = dict.fromkeys(OF_STREAM, "x")
    totals = RunTotals({"records": 1.0}, {"write": 1.0})
    some = (*CommitCounts(last_at=NOW).metrics(), read_bytes({}), quarantined_metric({}))
    served = {
        sample.name: {*sample.labels}
        for metric in stream_metrics(RUNNING, totals, some)
        for sample in family_of(metric, labels).samples
    }
    behind = PartitionLag(0, 7, 5.0, 2.0, 3.0, 9.0)
    facts = StageFacts("ingest", NOW, (behind,), cluster="eu", health=TopicHealth(retention_s=60.0))
    nights = [
        *lag_gauges([(facts, "slow")]),
        *gauges([VERDICT, replace(VERDICT, day=VERDICT.day + timedelta(1))], {}, ZoneInfo("UTC"), NOW),
    ]
    for gauge in nights:
        own = {name for pairs in gauge.values for name, _ in pairs}
        served[gauge.name] = {"pipeline", "env", *own}
    return served


METRICS = metrics()


def selectors(node: Any) -> Iterator[Any]:
    """What of an expression selects series."""
    match node:
        case promql_parser.VectorSelector():
            yield node
        case promql_parser.MatrixSelector():
            yield node.vector_selector
        case promql_parser.BinaryExpr():
            yield from selectors(node.lhs)
            yield from selectors(node.rhs)
        case promql_parser.Call():
            for argument in node.args:
                yield from selectors(argument)
        case promql_parser.AggregateExpr() | promql_parser.ParenExpr() | promql_parser.UnaryExpr():
            yield from selectors(node.expr)
        case promql_parser.NumberLiteral():
            pass
        case _:
            raise AssertionError(node)


def groupings(node: Any) -> Iterator[set[str]]:
    """The labels that an expression groups by, or matches both sides on, of each place where it does."""
    match node:
        case promql_parser.BinaryExpr():
            if node.modifier and node.modifier.matching:
                yield {*node.modifier.matching.labels}
            yield from groupings(node.lhs)
            yield from groupings(node.rhs)
        case promql_parser.AggregateExpr():
            if node.modifier:
                yield {*node.modifier.labels}
            yield from groupings(node.expr)
        case promql_parser.ParenExpr():
            yield from groupings(node.expr)
        case _:
            pass


def require_metrics(expression: str) -> set[str]:
    """Fails where an expression asks for what there is not; returns the labels that its series have."""
    parsed = promql_parser.parse(_filled(expression))
    found = list(selectors(parsed))
    assert found, expression
    for selector in found:
        assert selector.name in METRICS, selector.name
        assert {matcher.name for matcher in selector.matchers.matchers} <= METRICS[selector.name], expression
    common = set.intersection(*(METRICS[selector.name] for selector in found))
    by = list(groupings(parsed))
    assert set[str]().union(*by) <= common | {"instance"}, expression
    # The ingest of a further cluster is another stream: that of the first must not stand for it.
    assert all("cluster" in labels for labels in by if "stream" in labels), expression
    return common


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_metrics_and_leads_to_a_section(rule: dict[str, Any]) -> None:
    labels = require_metrics(rule["expr"])
    assert {*rule} <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in {"page", "ticket", "info"}
    named = {*re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])}
    assert named <= labels
    assert "cluster" in named or "stream" not in named
    page, anchor = rule["annotations"]["runbook"].split("#")
    headings = re.findall(r"^#+ (.*)$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert rule["alert"] in (ROOT / "docs/runbook.md").read_text()


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_a_panel_asks_for_metrics(panel: dict[str, Any]) -> None:
    assert panel["targets"]
    for target in panel["targets"]:
        labels = require_metrics(target["expr"])
        named = {*re.findall(r"{{(\w+)}}", target["legendFormat"])}
        assert named <= labels
        assert "cluster" in named or "stream" not in named


def test_each_metric_is_on_the_dashboard() -> None:
    asked = {
        selector.name
        for panel in panels()
        for target in panel["targets"]
        for selector in selectors(promql_parser.parse(_filled(target["expr"])))
    }
    # Shown otherwise: the day by its start, the outcome by the alert.
    left_out = {name for name in METRICS if name not in asked}
    assert left_out == {
        "oncelake_days_since_certified",
        "oncelake_failed_days",
        "oncelake_last_run_status",
        "oncelake_last_run_days",
        "oncelake_last_run_timestamp_seconds",
        "oncelake_repairs",
        "oncelake_stream_last_micro_batch_records",
        "oncelake_stream_last_sign_timestamp_seconds",
        "oncelake_stream_micro_batches_total",
        "oncelake_stream_started_timestamp_seconds",
    }


def test_panels_do_not_lie_upon_each_other() -> None:
    places: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not places & own, panel["title"]
        places |= own


def _filled(expression: str) -> str:
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    return expression
