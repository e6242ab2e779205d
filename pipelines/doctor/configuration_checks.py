"""Checks of the configuration alone: settings that are allowed, and should not stay."""

from collections.abc import Iterator
from typing import Final

from pipelines.config.clusters import retired
from pipelines.config.commands import command
from pipelines.config.risks import RISKS, RiskName
from pipelines.config.taken_risks import taken
from pipelines.doctor.check_list import CLUSTERS, CheckRegistrar
from pipelines.doctor.findings import Finding, FindingSeverity
from pipelines.doctor.pipeline_facts import PipelineFacts
from pipelines.durations import format_interval

_CHECKS: Final = CheckRegistrar("configuration")
_BEGUN: Final = CheckRegistrar("configuration", ("streams",), scope="cluster")
_INGEST_TRIGGERS: Final = 3


@_CHECKS.check(
    "accepted_risks", "Which risks does the pipeline take?", "info", "Settings that should not stay"
)
def _accepted_risks(facts: PipelineFacts) -> Iterator[Finding]:
    for name in facts.config.accept_risks:
        yield Finding(
            "info",
            f"accept_risks has {name}: {RISKS[name].harm}",
            "only risks that this pipeline means to take",
            "remove it from accept_risks when it is no longer meant",
        )


@_CHECKS.check(
    "settings_for_one_run",
    "Are settings for a single run, which accept a loss, kept in no file?",
    "warning",
    "Settings that should not stay",
)
def _settings_for_one_run(facts: PipelineFacts) -> Iterator[Finding]:
    config = facts.config
    kept = {
        "batch.fewer_records: take": config.batch.fewer_records == "take",
        "batch.seal_by: bronze": config.batch.seal_by == "bronze",
        "audit.layer_differences: warn": config.audit.layer_differences == "warn",
        "quarantine.max_share: 1": config.quarantine.max_share == 1,
    }
    for setting in (name for name, is_kept in kept.items() if is_kept):
        yield Finding(
            "warning",
            f"{setting}: the next loss passes as well",
            "the default, except for the run that needs it",
            "remove it from the files; give it to a single run with --set",
        )


@CheckRegistrar("configuration", page=CLUSTERS).check(
    "clusters_not_looked_at", "Which clusters does this run leave out?", "info", "Commands"
)
def _clusters_not_looked_at(facts: PipelineFacts) -> Iterator[Finding]:
    sources = [each for each in facts.config.sources() if not each.kafka.retired]
    asked = {each.config.cluster for each in facts.sources}
    if facts.sources and (left_out := [each.cluster for each in sources if each.cluster not in asked]):
        yield Finding(
            "info",
            f"--cluster leaves out {', '.join(name or 'the first cluster' for name in left_out)}",
            "each cluster looked at",
            f"run it without --cluster: {command(facts.config, 'doctor')}",
        )
    if retired_clusters := retired(facts.config.kafka):
        yield Finding(
            "info",
            f"retired, so no run asks what they have: {', '.join(retired_clusters)}",
            "clusters that are lost for good, and no others",
            "remove retired when the cluster is back, and let ingest read it; see docs/clusters.md",
        )


@_CHECKS.check(
    "nights_wait_for_ingest",
    "Does a nightly run wait for several micro-batches of ingest?",
    "warning",
    "Bronze is behind",
)
def _nights_wait_for_ingest(facts: PipelineFacts) -> Iterator[Finding]:
    wait, trigger = facts.config.batch.seal_wait, facts.config.ingest.trigger_interval
    if facts.config.batch.seal_by == "kafka" and wait < _INGEST_TRIGGERS * trigger:
        yield Finding(
            "warning",
            f"batch.seal_wait is {format_interval(wait)}, with ingest.trigger_interval"
            f" {format_interval(trigger)}",
            f"{_INGEST_TRIGGERS} trigger intervals at least",
            f"set batch.seal_wait to {format_interval(_INGEST_TRIGGERS * trigger)} or more",
        )


def _check_taken(name: str, question: str, severity: FindingSeverity, risk: RiskName) -> None:
    """Register the check that finds a risk which settings take by themselves."""

    def find(facts: PipelineFacts) -> Iterator[Finding]:
        for each in (*taken(facts.config), *facts.environment):
            if each.name != risk:
                continue
            yield Finding(
                severity,
                f"{each.setting} is {each.found}: {RISKS[risk].harm}",
                each.expected,
                f"{each.fix or f'remove {each.setting}'}; or add {risk} to accept_risks",
            )

    _CHECKS.check(name, question, severity, "Settings that should not stay", risk)(find)


_check_taken(
    "dead_letters_are_acknowledged", "Do all replicas acknowledge dead letters?", "error", "acks_not_all"
)
_check_taken("dead_letters_are_sent_once", "Is each dead letter sent once?", "error", "idempotence_off")
_check_taken(
    "session_outlasts_heartbeats",
    "Is session.timeout.ms three times heartbeat.interval.ms or more?",
    "warning",
    "session_under_three_heartbeats",
)
_check_taken(
    "poll_interval_outlasts_triggers",
    "Is max.poll.interval.ms at least the trigger interval?",
    "warning",
    "poll_interval_too_short",
)
_check_taken(
    "logins_are_encrypted", "Is each login that is sent encrypted?", "warning", "login_in_plain_text"
)


@_BEGUN.check(
    "first_start_reads_all",
    "Will the first start of ingest read what the topic holds?",
    "error",
    "Settings that should not stay",
    "starting_offsets_latest",
)
def _first_start_reads_all(facts: PipelineFacts) -> Iterator[Finding]:
    ingest = (facts.streams or {}).get("ingest")
    if ingest and not ingest.has_begun and facts.config.kafka.starting_offsets == "latest":
        setting = facts.config.kafka.setting("starting_offsets")
        yield Finding(
            "error",
            f"{setting} is latest, and ingest has not begun: it would skip all records that are in the topic",
            "earliest",
            f"set {setting} to earliest; or add starting_offsets_latest to accept_risks",
        )
