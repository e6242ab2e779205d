"""Each of several clusters is looked at: what is wrong with one is told of it, and hides no other."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from pipelines.config.clusters import ClusterConfig
from pipelines.config.model import PipelineConfig
from pipelines.doctor.check_list import CheckResult
from pipelines.doctor.check_report import ALL_CHECKS, CheckReport, run_checks
from pipelines.doctor.pipeline_facts import Failure, PipelineFacts, StreamFacts
from tests.support.doctor_cases import CASES, Case
from tests.support.doctor_facts import EU, HOUR, NOW, STREAMS, configured, run, several, source

SCOPES = {check.name: check.scope for check in ALL_CHECKS}
OF_EACH = {check.name for check in ALL_CHECKS if check.scope == "cluster"}
# Sound clusters with racks that are used.
CONFIG = configured(EU, "kafka.rack.mode=client").config
FIRST, SECOND = CONFIG.sources()


def of(report: CheckReport, cluster: str | None) -> Iterator[CheckResult]:
    """The results of a cluster; None for the first."""
    return (each for each in report.results if each.cluster and each.cluster.name == cluster)


def statuses(report: CheckReport, cluster: str | None) -> dict[str, str]:
    return {each.check.name: each.status for each in of(report, cluster)}


def test_of_sound_clusters_nothing_is_found_and_each_is_looked_at() -> None:
    report = run_checks(several(CONFIG, source(FIRST), source(SECOND)))
    assert not list(report.findings())
    for cluster in (None, "eu"):
        assert {*statuses(report, cluster)} >= OF_EACH
        lacking = {name for name, status in statuses(report, cluster).items() if status != "passed"}
        assert lacking == set()
    assert {each.cluster.servers for each in of(report, "eu") if each.cluster} == {"eu:1"}
    # What is of the pipeline as a whole is looked at once.
    names = [each.check.name for each in report.results if not each.cluster]
    assert len({*names}) == len(names)
    assert {*names} == {check.name for check in ALL_CHECKS} - OF_EACH


def sick(case: Case) -> tuple[PipelineConfig, PipelineFacts]:
    """The configuration of a case for two clusters, and what the case says of the second of these."""
    kafka = case.found.config.kafka
    eu = ClusterConfig(
        bootstrap_servers="eu:1",
        options=kafka.options,
        rack=kafka.rack,
        starting_offsets=kafka.starting_offsets,
    )
    kafka = kafka.model_copy(update={"clusters": {"eu": eu}, "starting_offsets": "earliest"})
    config = case.found.config.model_copy(update={"kafka": kafka})
    streams = {query: facts for query, facts in (case.found.streams or {}).items() if query == "ingest"}
    lost = {"streams": None} if "streams" in case.found.failures else {"streams": streams}
    facts = source(
        config.source("eu"),
        topic=case.found.topic,
        tables=case.found.tables,
        failures=case.found.failures,
        **lost,
    )
    return config, facts


OF_CLUSTERS = [
    case
    for case in CASES
    if SCOPES[case.check] != "pipeline"
    # Of streams that clusters have none of, and of parts that are of the pipeline.
    and "speed" not in case.words
    and "publish" not in case.words
    and not {"logs", "nights", "lateness"} & {*case.found.failures}
    and "speed" not in (case.found.tables.misfits if case.found.tables else {})
]


@pytest.mark.parametrize("case", OF_CLUSTERS, ids=lambda case: f"{case.check}-{case.severity}")
def test_what_is_wrong_with_one_cluster_is_told_of_it(case: Case) -> None:
    config, facts = sick(case)
    if case.check == "streams_move":
        stuck = run("ingest", seen_at=NOW - HOUR)
        facts = replace(facts, streams={"ingest": StreamFacts(True, stuck, is_alive=True)})
    report = run_checks(several(config, source(config.sources()[0]), facts))
    (found,) = (each for each in of(report, "eu") if each.check.name == case.check)
    assert found.status == "found"
    for finding in found.findings:
        assert finding.severity == case.severity
        assert finding.cluster
        assert (finding.cluster.name, finding.cluster.servers) == ("eu", "eu:1")
        if "oncelake " in finding.fix and "nightly" not in finding.fix:
            assert "--cluster eu" in finding.fix
    if case.check != "streams_move" and "kafka.options" not in case.words:
        assert case.words.replace("kafka.starting", "kafka.clusters.eu.starting") in "; ".join(
            finding.found for finding in found.findings
        )


def test_all_checks_of_clusters_are_tried_on_one_of_several() -> None:
    assert {case.check for case in OF_CLUSTERS} >= OF_EACH
    assert {check.name for check in ALL_CHECKS if check.scope == "streams"} >= {
        "streams_ended_well",
        "tables_fit_checkpoints",
        "tables_can_be_read",
    }


def test_a_cluster_that_does_not_answer_is_one_finding_and_hides_no_other() -> None:
    lost = {"topic": Failure("no answer", is_ours=False)}
    gone = source(SECOND, topic=None, failures=lost)
    kept = source(FIRST, streams={"ingest": replace(STREAMS["ingest"], read_until={0: 7})})
    report = run_checks(several(CONFIG, kept, gone))
    found = [
        (check.name, finding.cluster.name if finding.cluster else "-") for check, finding in report.findings()
    ]
    assert found == [("cluster_answers", "eu"), ("unread_records_are_there", None)]
    assert statuses(report, "eu")["retention_covers_runs"] == "skipped"
    assert statuses(report, None)["retention_covers_runs"] == "passed"
    # What was read of its ingest is looked at.
    assert statuses(report, "eu")["streams_ended_well"] == "passed"
    assert report.at_least("error") == ["cluster_answers", "unread_records_are_there"]


def test_where_the_first_does_not_answer_the_others_are_looked_at() -> None:
    lost = {"topic": Failure("no answer", is_ours=False)}
    whole = several(CONFIG, source(FIRST, topic=None, failures=lost), source(SECOND))
    whole = replace(whole, topic=None, dead_letters=None, left_out=frozenset({"topic", "dead_letters"}))
    report = run_checks(whole)
    told = [(check.name, finding.cluster and finding.cluster.name) for check, finding in report.findings()]
    assert told == [("cluster_answers", None)]
    assert {*statuses(report, "eu").values()} == {"passed"}
    by_name = {each.check.name: each.status for each in report.results if not each.cluster}
    assert by_name["dead_letters_fit"] == "skipped"


def test_the_streams_of_the_pipeline_are_not_told_of_a_cluster() -> None:
    failed = StreamFacts(True, run("speed", failure="the disk is full"))
    whole = several(CONFIG, source(FIRST), source(SECOND))
    report = run_checks(replace(whole, streams={**(whole.streams or {}), "speed": failed}))
    ((check, finding),) = report.findings()
    assert (check.name, finding.cluster) == ("streams_ended_well", None)
