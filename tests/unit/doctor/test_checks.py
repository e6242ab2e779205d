"""Each check of doctor says nothing of a sound pipeline, and finds what it is there for."""

from dataclasses import replace
from typing import Any, get_args

import pytest

from pipelines.doctor.check_list import CheckResult
from pipelines.doctor.check_report import ALL_CHECKS, run_checks
from pipelines.doctor.findings import FindingSeverity
from pipelines.doctor.pipeline_facts import (
    Part,
    PipelineFacts,
    StreamFacts,
    TableFacts,
)
from tests.support.doctor_cases import CASES, Case
from tests.support.doctor_facts import HOUR, NOW, SOUND, STREAMS, configured, failed, kept, run


def result(check: str, facts: PipelineFacts) -> CheckResult:
    return next(each for each in run_checks(facts).results if each.check.name == check)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.severity}")
def test_a_check_finds_what_it_is_there_for(case: Case) -> None:
    found = result(case.check, case.found)
    assert found.status == "found"
    assert case.words in "; ".join(finding.found for finding in found.findings)
    # `error` is the gravest that a check may find.
    order = list(get_args(FindingSeverity))
    assert {finding.severity for finding in found.findings} == {case.severity}
    assert order.index(case.severity) >= order.index(found.check.severity)
    assert all(finding.expected and finding.fix for finding in found.findings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.check}-{case.severity}")
def test_a_check_says_nothing_of_what_is_near_and_sound(case: Case) -> None:
    if case.near is SOUND and case.check == "bytes_stay_in_the_rack":
        pytest.skip("the sound pipeline does not use racks")
    assert result(case.check, case.near).findings == ()


def test_of_a_sound_pipeline_nothing_is_found() -> None:
    racks_are_used = configured("kafka.rack.mode=client")
    checkup = run_checks(racks_are_used)
    assert not list(checkup.findings())
    assert {each.status for each in checkup.results} == {"passed"}


@pytest.mark.parametrize("part", get_args(Part))
def test_a_part_that_fails_is_told_by_one_check(part: Part) -> None:
    # Racks are advice, here as elsewhere.
    told = [check for check, finding in run_checks(failed(part)).findings() if finding.severity == "error"]
    assert len(told) == 1


def test_each_check_has_its_case_and_a_name_of_its_own() -> None:
    names = [check.name for check in ALL_CHECKS]
    assert len({*names}) == len(names)
    assert {*names} == {case.check for case in CASES}


@pytest.mark.parametrize(
    ("risk", "case"),
    [(check.risk, case) for check in ALL_CHECKS for case in CASES if check.risk and case.check == check.name],
    ids=lambda value: value.check if isinstance(value, Case) else str(value),
)
def test_what_is_accepted_by_name_is_told_and_fails_nothing(risk: Any, case: Case) -> None:
    config = case.found.config.model_copy(update={"accept_risks": (risk,)})
    accepted = result(case.check, replace(case.found, config=config))
    assert {finding.severity for finding in accepted.findings} == {"info"}
    assert all(finding.found.endswith(f"accept_risks has {risk}") for finding in accepted.findings)


def test_a_check_is_skipped_where_what_it_needs_has_failed_or_was_left_out_for_that() -> None:
    unreachable = replace(failed("topic"), dead_letters=None, output=None, left_out=frozenset({"output"}))
    statuses = {each.check.name: each.status for each in run_checks(unreachable).results}
    assert statuses["cluster_answers"] == "found"
    assert statuses["retention_covers_runs"] == statuses["slots_have_partitions"] == "skipped"
    # The pipeline has none, and nothing has failed.
    assert statuses["dead_letters_fit"] == "skipped"
    plain = replace(SOUND, dead_letters=None, output=None)
    statuses = {each.check.name: each.status for each in run_checks(plain).results}
    assert statuses["dead_letters_fit"] == statuses["slots_have_partitions"] == "not_applicable"


def test_who_starts_a_stream_that_was_killed_learns_with_which_options() -> None:
    def fix(trigger_s: float) -> str:
        gone = run("ingest", written_at=NOW - HOUR, trigger_s=trigger_s)
        facts = replace(SOUND, streams={**STREAMS, "ingest": StreamFacts(True, gone, is_alive=False)})
        (finding,) = result("streams_are_at_work", facts).findings
        return finding.fix

    assert fix(10.0).endswith("oncelake ingest_stream --pipeline flights")
    assert fix(0.0).endswith("oncelake ingest_stream --pipeline flights --once")


def test_a_stream_that_is_dead_is_not_called_stuck_as_well() -> None:
    silent = run("ingest", written_at=NOW - HOUR, seen_at=NOW - HOUR)
    for is_alive in (False, None):
        stream = StreamFacts(True, silent, is_alive=is_alive)
        found = replace(SOUND, streams={**STREAMS, "ingest": stream})
        assert result("streams_are_at_work", found).findings
        assert not result("streams_move", found).findings


def test_the_gravest_findings_come_first_and_decide() -> None:
    bad = replace(kept(min_insync_replicas="4", retention_bytes="1"), tables=TableFacts("other"))
    checkup = run_checks(bad)
    severities = [finding.severity for _, finding in checkup.findings()]
    assert severities == sorted(severities, key=list(get_args(FindingSeverity)).index)
    assert checkup.at_least("error") == ["min_insync_replicas", "topic_is_that_of_bronze"]
    assert checkup.at_least("warning") == [*checkup.at_least("error"), "retention_is_by_time"]
    assert (checkup.count("error"), checkup.count("warning")) == (2, 1)
