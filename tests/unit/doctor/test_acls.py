"""The ACLs of jobs are those of what a pipeline has, and the page on security lists them."""

import re
from pathlib import Path

from pipelines.config.loader import load_config
from pipelines.doctor.acls import Acl, acls

EVERYTHING = ("publish.topic=events", "quarantine.dead_letter_topic=dead")


def listed(*settings: str) -> tuple[Acl, ...]:
    return acls(load_config("flights", environ={}, settings=settings))


def test_a_pipeline_needs_acls_only_for_what_it_has() -> None:
    plain = listed("ingest.offsets_group=null")
    needs = {(acl.resource, acl.name, acl.operation) for acl in plain if not acl.optional}
    assert needs == {("topic", "flights", "Read"), ("topic", "flights", "Describe")}
    assert "speed_stream" not in {acl.job for acl in plain}
    needed = {(acl.job, acl.operation, acl.name) for acl in listed(*EVERYTHING) if not acl.optional}
    assert ("speed_stream", "Write", "dead") in needed
    assert ("publish_stream", "Write", "events") in needed


def test_each_cluster_that_is_read_needs_the_same() -> None:
    eu = ("kafka.clusters.eu.bootstrap_servers=eu:1", "kafka.clusters.eu.topic=mirrored")
    found = {(acl.servers, acl.resource, acl.name) for acl in listed(*eu) if acl.job == "ingest_stream"}
    assert {each for each in found if each[0] == "eu:1"} == {
        ("eu:1", "topic", "mirrored"),
        ("eu:1", "group", "oncelake.local.flights.ingest.eu"),
    }
    assert not [acl for acl in listed(*eu, "kafka.clusters.eu.retired=true") if acl.servers == "eu:1"]


def test_a_command_allows_what_is_needed_on_the_cluster_that_has_it() -> None:
    found = listed(*EVERYTHING, "publish.bootstrap_servers=other:1")
    ids = [acl for acl in found if acl.job == "publish" and acl.resource == "transactional-id"]
    add = "kafka-acls.sh --bootstrap-server other:1 --add --allow-principal User:NAME --operation Write"
    assert ids[0].command == f"{add} --transactional-id oncelake.local.flights-0"
    days = "oncelake.local.flights.day. --resource-pattern-type prefixed"
    assert ids[-1].command == f"{add} --transactional-id {days}"


def test_no_user_of_a_pipeline_is_let_into_another_whose_name_begins_alike() -> None:
    config = load_config("flights", environ={}, settings=EVERYTHING)
    of_one, of_other = (
        [
            acl
            for acl in acls(config.model_copy(update={"name": name}))
            if acl.resource in {"group", "transactional-id"} and "ingest" not in acl.name
        ]
        for name in ("flights", "flights-eu")
    )
    assert of_one
    for acl in of_one:
        for other in of_other:
            assert not (other.name.startswith(acl.name) if acl.is_prefix else other.name == acl.name)


def test_the_page_lists_all_of_them_and_no_others() -> None:
    page = Path("docs/security.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*`) \| (\w+) \| ([\w-]+) \| (.*) \| (yes|no) \|$", page, re.MULTILINE)
    told = {
        (job.strip("`"), operation, resource, name, optional == "no")
        for jobs, operation, resource, name, optional in rows
        for job in jobs.split(", ")
    }
    names = {"flights": "the topic", "dead": "the dead-letter topic", "events": "the output topic"}
    names |= {"oncelake-progress": "the progress topic", "oncelake.local.flights": "`oncelake.ENV.PIPELINE`"}
    names["oncelake.local.flights.day."] = "`oncelake.ENV.PIPELINE.day.`"
    slots = load_config("flights", environ={}, settings=EVERYTHING).publish.slots  # type: ignore[union-attr]
    for slot in range(slots):
        names[f"oncelake.local.flights-{slot}"] = "`oncelake.ENV.PIPELINE-SLOT`"
    names["kafka-cluster"] = "the cluster"
    names["oncelake.local.flights.ingest"] = "`ingest.offsets_group`"
    needed = {
        (acl.job, acl.operation, acl.resource, names[acl.name], acl.optional is not None)
        for acl in listed(*EVERYTHING)
    }
    assert told == needed
