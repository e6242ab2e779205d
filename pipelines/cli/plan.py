"""`oncelake plan`: everything is checked and shown, nothing is run, no Spark is started."""

import json
import os
from collections.abc import Mapping
from typing import Any

import click

from pipelines.cli.job_runner import refuse_unfit_expectations
from pipelines.cli.options import CommonOptions, config_options
from pipelines.cli.terminal import harmless
from pipelines.config.client_templates import SINK_TEMPLATES, SOURCE_TEMPLATES, Template, settings
from pipelines.config.model import NotifyConfig, PipelineConfig
from pipelines.config.output_login import output_login
from pipelines.config.risks import RISKS, refusal
from pipelines.config.secret_masking import HIDDEN
from pipelines.config.taken_risks import require_safe_dead_letters, taken
from pipelines.contracts.contract import DataContract
from pipelines.durations import format_interval
from pipelines.formats.registered_formats import names_schemas
from pipelines.kafka.source import shown_options
from pipelines.runtime.notifications import hooks
from pipelines.spark.plain_endpoints import plain_endpoints
from pipelines.spark.state_store import PROVIDER


@click.command()
@config_options
def plan(**common: Any) -> None:
    """Check configuration and contract, and show what would run."""
    options = CommonOptions(**common)
    config, contract = options.load()
    require_safe_dead_letters(config)
    refuse_unfit_expectations(config, contract)
    if options.log_format == "json":
        click.echo(_as_json(config, contract))
        return
    click.echo(f"pipeline {config.name}, environment {options.env}: valid")
    for title, rows in _sections(config, contract).items():
        click.echo(f"\n{title}")
        width = max(map(len, rows))
        for key, value in rows.items():
            # Never wrapped, so that paths can be copied.
            click.echo(f"  {key:<{width}}  {harmless(value)}")


def _sections(config: PipelineConfig, contract: DataContract) -> dict[str, dict[str, str]]:
    return {
        "contract": {
            "file": contract.path,
            "id and version": f"{contract.id} {contract.version}",
            "dedup key": ", ".join(contract.key),
            "event time": f"{contract.event_time}, days in {contract.day_time_zone}",
            "columns": ", ".join(
                f"{f.name} {f.dataType.simpleString()}{'' if f.nullable else ' required'}"
                for f in contract.schema.fields
            ),
            "values": _values(config, contract),
            "rules": f"{len(contract.row_rules) + len(contract.conditions)} on records,"
            f" {len(contract.day_rules)} on days",
        },
        "ingest_stream: Kafka to bronze": {
            **shown_options(config.kafka),
            "every": format_interval(config.ingest.trigger_interval),
            "table": config.table("bronze"),
            "checkpoint": config.checkpoint("ingest"),
            "offsets committed to": f"group {config.offsets_group}" if config.offsets_group else "no group",
        },
        "speed_stream: bronze to speed layer and quarantine": {
            "every": format_interval(config.speed.trigger_interval),
            "watermark delay": format_interval(config.speed.watermark_delay),
            "state partitions": str(config.speed.state_partitions),
            "keys leave the state": _eviction(config),
            "event times at most": f"{format_interval(config.decode.max_future)} after the Kafka timestamp",
            "tables": f"{config.table('speed')}, {config.table('quarantine')}",
            "checkpoint": config.checkpoint("speed"),
            "dead letters": config.quarantine.dead_letter_topic or "none",
            "stops when broken records are more than": f"{config.quarantine.max_share:.0%} of a micro-batch"
            f" and {config.quarantine.min_records} at least",
        },
        "publish_stream: speed layer to Kafka": _publishing(config),
        "nightly_batch: rebuild, audit, certify": {
            "table": config.table("batch"),
            "copies are one event within": f"{config.batch.dedup_horizon_days} days of each other",
            "a day is sealed by": config.batch.seal_by,
            "earliest": f"{format_interval(config.batch.seal_grace)} after the day's end",
            "rebuilds days with late events": f"up to {config.batch.lookback_days} days back",
            "verdicts": config.ops_table("certifications"),
            "checks": config.ops_table("validation_results"),
            "view": config.serving.view or "none",
            "table for other engines": config.serving_table if config.serving.table else "none",
            "failure notifications": _notified(config.notify),
        },
        **_further_clusters(config) | _templates(config) | _risks(config),
    }


def _further_clusters(config: PipelineConfig) -> dict[str, dict[str, str]]:
    """Return what is shown of the source of each further cluster."""
    return {
        f"cluster {source.cluster}: {source.kafka.source_topic} to bronze": {
            **shown_options(source.kafka),
            "checkpoint": source.checkpoint("ingest"),
            "offsets committed to": f"group {source.offsets_group}" if source.offsets_group else "no group",
            "asked by nightly runs": "no, it is retired" if source.kafka.retired else "yes",
        }
        for source in config.sources()
        if source.cluster
    }


def _templates(config: PipelineConfig) -> dict[str, dict[str, str]]:
    """Return the templates of clients that are used, with the reason for each setting."""
    sections = {}
    if name := config.kafka.template:
        sections[f"kafka.template: {name}"] = _reasons(SOURCE_TEMPLATES[name], config.kafka.options)
    if config.publish and (name := config.publish.template):
        sections[f"publish.template: {name}"] = _reasons(SINK_TEMPLATES[name], config.publish.options)
    return sections


def _reasons(template: Template, options: Mapping[str, str]) -> dict[str, str]:
    return {
        each.name: f"{options[each.name]}, which overrides {each.value}"
        if each.name in options
        else f"{each.value}: {each.reason}"
        for each in template
    }


def _risks(config: PipelineConfig) -> dict[str, dict[str, str]]:
    """Return the risks that the configuration takes: by name, or by setting if nobody has accepted them."""
    accepted = {str(name): RISKS[name].harm for name in config.accept_risks}
    others = {
        each.setting: refusal(each.name, each.found, each.expected)
        for each in (*taken(config), *plain_endpoints(os.environ))
        if each.name not in config.accept_risks
    }
    sections = {"accepted risks": accepted, "risks that are not accepted": others}
    return {title: rows for title, rows in sections.items() if rows}


def _eviction(config: PipelineConfig) -> str:
    if own := config.spark.conf.get(PROVIDER):
        return f"as {own} decides"
    earliest, slack = config.speed.watermark_delay, config.speed.eviction_slack
    latest = f", {format_interval(earliest + slack)} at the latest" if slack else ""
    return f"once the watermark is {format_interval(earliest)} past the event time{latest}"


def _publishing(config: PipelineConfig) -> dict[str, str]:
    publish = config.publish
    if publish is None:
        return {"topic": "none"}
    login = output_login(config)
    return {
        "topic": publish.topic,
        "format": publish.format,
        "retraction": publish.retraction,
        "bootstrap.servers": publish.bootstrap_servers or config.kafka.bootstrap_servers,
        **settings(SINK_TEMPLATES, publish.template),
        **login.options,
        **dict.fromkeys(login.secrets, HIDDEN),
        "slots": str(publish.slots),
        "every": format_interval(publish.trigger_interval),
        "transaction timeout": format_interval(publish.transaction_timeout),
        "checkpoint": config.checkpoint("publish"),
    }


def _notified(config: NotifyConfig) -> str:
    descriptions = [hook.description for hook in hooks(config)]
    return f"{' and '.join(descriptions)}: {', '.join(config.when)}" if descriptions else "nobody"


def _values(config: PipelineConfig, contract: DataContract) -> str:
    where = f", schemas at {config.registry.identity}" if names_schemas(contract) and config.registry else ""
    return f"{contract.value_format}{where}"


def _as_json(config: PipelineConfig, contract: DataContract) -> str:
    sections = _sections(config, contract)
    return json.dumps({"job": "plan", "pipeline": config.name, "status": "done", "exit_code": 0, **sections})
