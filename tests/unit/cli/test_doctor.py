"""What `oncelake doctor` prints of its checks."""

from datetime import UTC, datetime, timedelta

from pipelines.cli.doctor import summary_of
from pipelines.config.loader import load_config
from pipelines.doctor.check_report import run_checks
from pipelines.doctor.pipeline_facts import Failure, Part, PipelineFacts, RuntimeFacts
from pipelines.spark.log_store import StoreProbe

CONFIG = load_config("flights", environ={}, settings=["accept_risks=[acks_not_all]"])
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def test_a_finding_is_told_with_what_was_found_expected_and_to_do() -> None:
    facts = PipelineFacts(
        CONFIG,
        NOW,
        {"topic": Failure("no answer\x1b[31m within 1 s", is_ours=False)},
        frozenset({"output"}),
        runtime=RuntimeFacts("Java 17"),
        store=StoreProbe(takes_over=False, is_clean=False, skew=timedelta()),
    )
    told = summary_of(run_checks(facts))
    assert told["counts"] | {"checks": 0, "skipped": 0} == {
        "checks": 0,
        "errors": 1,
        "warnings": 1,
        "infos": 1,
        "skipped": 0,
    }
    assert [each["severity"] for each in told["findings"]] == ["error", "warning", "info"]
    assert told["findings"][0] == {
        "check": "cluster_answers",
        "group": "cluster",
        "severity": "error",
        "found": "no answer\x1b[31m within 1 s",
        "expected": "an answer",
        "fix": "check that the cluster is up, and that this machine can reach it",
        "runbook": "docs/runbook.md#the-cluster-does-not-answer",
        "cluster": None,
        "servers": None,
    }
    # What a terminal would obey is escaped.
    assert told["lines"][:5] == [
        "error: cluster: cluster_answers",
        "    found: no answer\\x1b[31m within 1 s",
        "    expected: an answer",
        "    fix: check that the cluster is up, and that this machine can reach it",
        "    see: docs/runbook.md, 'The cluster does not answer'",
    ]
    statuses = {each["name"]: each["status"] for each in told["checks"]}
    assert statuses["put_if_absent"] == "passed"
    assert statuses["slots_have_partitions"] == statuses["retention_covers_runs"] == "skipped"
    assert statuses["commits_are_whole"] == "not_applicable"
    assert told["counts"]["checks"] == len(told["checks"])
    assert told["counts"]["skipped"] == list(statuses.values()).count("skipped")
    assert told["lines"][-1].startswith("skipped, since something failed before: ")
    assert "retention_covers_runs" in told["lines"][-1]


def test_what_is_found_of_one_of_several_clusters_names_it() -> None:
    config = load_config(
        "flights",
        environ={},
        settings=["kafka.bootstrap_servers=us:9092", "kafka.clusters.eu.bootstrap_servers=eu:9092"],
    )
    first, eu = config.sources()
    lost: dict[Part, Failure] = {"topic": Failure("no answer within 1 s", is_ours=False)}
    facts = PipelineFacts(
        config,
        NOW,
        runtime=RuntimeFacts("Java 17"),
        store=StoreProbe(takes_over=False, is_clean=False, skew=timedelta()),
        sources=(PipelineFacts(first, NOW, lost), PipelineFacts(eu, NOW, lost)),
    )
    told = summary_of(run_checks(facts))
    found = [(each["check"], each["cluster"], each["servers"]) for each in told["findings"]]
    assert found == [
        ("cluster_answers", None, "us:9092"),
        ("cluster_answers", "eu", "eu:9092"),
        ("store_deletes", None, None),
    ]
    assert [line for line in told["lines"] if "cluster: " in line and "error" not in line] == [
        "    cluster: the first (us:9092)",
        "    cluster: eu (eu:9092)",
    ]
    assert told["lines"].index("    cluster: eu (eu:9092)") + 1 == told["lines"].index(
        "    found: no answer within 1 s", 8
    )
    of_retention = [each for each in told["checks"] if each["name"] == "retention_is_by_time"]
    assert [(each["cluster"], each["servers"], each["status"]) for each in of_retention] == [
        (None, "us:9092", "skipped"),
        ("eu", "eu:9092", "skipped"),
    ]
    (of_store,) = (each for each in told["checks"] if each["name"] == "put_if_absent")
    assert (of_store["cluster"], of_store["servers"], of_store["status"]) == (None, None, "passed")
    assert "retention_is_by_time of eu (eu:9092)" in told["lines"][-1]
