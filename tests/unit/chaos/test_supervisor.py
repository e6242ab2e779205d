"""The supervisor starts again what ends, and asks of each refusal what explains it: with small processes."""

import signal
from pathlib import Path

import pytest

from chaos.runbook import damaged_commit, damaged_end, reset_in
from chaos.schedule import Kind
from chaos.supervisor import newest_micro_batch
from tests.support.small_jobs import SPEED, SmallJobs

pytestmark = pytest.mark.patient

REFUSED = (
    "speed/north is ahead of its checkpoint; run: oncelake checkpoint reset --pipeline north --query speed"
)


def ends(jobs: SmallJobs, name: str) -> int:
    return sum(ended.job == name for ended in jobs.journal.ended)


def test_a_stream_that_was_killed_is_started_again(jobs: SmallJobs) -> None:
    jobs.supervisor.start()
    job = jobs.supervisor.streams[SPEED]
    job.send(signal.SIGKILL)
    jobs.until(lambda: ends(jobs, SPEED) == 1 and job.is_running, "it runs again")
    assert jobs.journal.exit_codes() == {SPEED: {-9: 1}}
    assert jobs.rules() == set()


def test_a_refusal_that_a_fault_explains_is_repaired_by_the_runbook(jobs: SmallJobs) -> None:
    jobs.tell("speed_stream", 4, REFUSED)
    injected = jobs.injected(Kind.RESTORE_CHECKPOINT)
    jobs.supervisor.start()
    jobs.supervisor.explain(SPEED, injected)
    jobs.until(lambda: "publish reset" in jobs.calls(), "it is repaired")
    jobs.supervisor.join()
    repair = ["checkpoint reset", "speed_stream --once", "publish reset"]
    assert [call for call in jobs.calls() if call in repair] == repair
    assert injected.outcome == "refused with 4, repaired by the runbook"
    assert jobs.supervisor.runbook.sent_again == {"north": [{0: 7}]}
    assert jobs.rules() == set()


def test_a_refusal_that_nothing_explains_is_a_violation(jobs: SmallJobs) -> None:
    jobs.tell("speed_stream", 4, REFUSED)
    jobs.supervisor.start()
    jobs.until(lambda: bool(jobs.rules()), "it is noticed")
    assert jobs.rules() == {"exit code 4 has a cause"}


def test_a_refusal_without_a_way_back_is_a_violation(jobs: SmallJobs) -> None:
    jobs.tell("speed_stream", 4, "something is wrong")
    jobs.supervisor.start()
    jobs.supervisor.explain(SPEED, jobs.injected(Kind.TEAR))
    jobs.until(lambda: bool(jobs.rules()), "it is noticed")
    assert jobs.rules() == {"a refusal names a way back"}


@pytest.mark.parametrize("needs_repair", [True, False])
def test_a_refusal_that_says_to_start_again_has_to_end_when_the_other_run_is_gone(
    jobs: SmallJobs, needs_repair: bool
) -> None:
    jobs.tell("speed_stream", 4, "found micro-batch 7. Stop the other run, then start again")
    jobs.supervisor.start()
    jobs.supervisor.explain(SPEED, jobs.injected(Kind.SECOND_COPY), needs_repair=needs_repair)
    jobs.until(lambda: bool(jobs.rules()), "it is noticed")
    assert ends(jobs, SPEED) == 3
    assert jobs.rules() == {"what a refusal tells to do leads back"}


@pytest.mark.parametrize("is_quiet", [True, False])
def test_a_configuration_is_refused_only_while_a_permission_is_lost(jobs: SmallJobs, is_quiet: bool) -> None:
    jobs.tell("publish_stream", 2, "the cluster of the output topic does not allow it")
    jobs.is_quiet = is_quiet
    jobs.supervisor.start()
    jobs.until(lambda: ends(jobs, "north/publish") > 1, "it has been started again")
    assert jobs.rules() == ({"a stream runs until it is stopped"} if is_quiet else set())


def test_damage_that_is_reported_with_1_again_and_again_is_a_violation(jobs: SmallJobs) -> None:
    jobs.tell("speed_stream", 1, "JSONDecodeError")
    jobs.supervisor.start()
    jobs.supervisor.explain(SPEED, jobs.injected(Kind.TEAR))
    jobs.until(lambda: bool(jobs.rules()), "it is noticed")
    assert jobs.rules() == {"state that cannot be read is reported with exit code 4"}


def test_failures_while_a_broker_is_down_say_nothing_of_the_state(jobs: SmallJobs) -> None:
    jobs.tell("speed_stream", 1, "the cluster does not answer")
    jobs.is_quiet = False
    jobs.supervisor.start()
    jobs.supervisor.explain(SPEED, jobs.injected(Kind.TEAR))
    jobs.until(lambda: ends(jobs, SPEED) == 4, "it has failed four times")
    assert jobs.rules() == set()


def test_a_stream_that_goes_on_after_a_fault_is_explained_no_more(jobs: SmallJobs) -> None:
    commits = jobs.site.checkpoint(SPEED) / "commits"
    commits.mkdir(parents=True)
    (commits / "7").touch()
    injected = jobs.injected(Kind.TEAR)
    jobs.supervisor.start()
    jobs.supervisor.explain(SPEED, injected)
    (commits / "8").touch()
    jobs.supervisor.check()
    assert SPEED in jobs.supervisor.explained
    (commits / "9").touch()
    jobs.supervisor.check()
    assert injected.outcome == "not refused: went on by itself"
    assert jobs.supervisor.explained == {}


def test_a_fault_of_a_table_is_settled_when_all_its_streams_have_gone_on(jobs: SmallJobs) -> None:
    injected, streams = jobs.injected(Kind.TEAR_COMMIT), ("north/ingest", SPEED)
    jobs.supervisor.start()
    for name in streams:
        jobs.supervisor.explain(name, injected)
    for name, outcome in zip(streams, ("", "not refused: went on by itself"), strict=True):
        commits = jobs.site.checkpoint(name) / "commits"
        commits.mkdir(parents=True)
        (commits / "9").touch()
        jobs.supervisor.check()
        assert injected.outcome == outcome


def test_a_stream_that_is_stopped_before_it_handles_signals_has_done_nothing_wrong(jobs: SmallJobs) -> None:
    jobs.supervisor.start()
    jobs.supervisor.stop()
    assert jobs.journal.exit_codes() == {name: {-signal.SIGTERM: 1} for name in jobs.supervisor.streams}
    assert jobs.rules() == set()


def test_a_stream_that_has_begun_and_dies_of_being_stopped_is_a_violation(jobs: SmallJobs) -> None:
    jobs.supervisor.start()
    for job in jobs.supervisor.streams.values():
        next(jobs.folder.rglob(f"{job.name.replace('/', '-')}-1.log")).write_text("begun")
    jobs.supervisor.stop()
    assert jobs.rules() == {"a stream that is told to stop ends with 0"}


def test_a_repair_that_names_another_checkpoint_resets_that_one_too(jobs: SmallJobs) -> None:
    runbook = jobs.supervisor.runbook
    jobs.tell("ingest_stream --once", 4, REFUSED)
    runbook.follow("north", "ingest", "run: oncelake checkpoint reset --pipeline north --query ingest")
    assert jobs.calls().count("checkpoint reset") == 2
    # It was refused once more, though both were reset.
    assert jobs.rules() == {"the commands of the runbook lead back"}


def test_publishing_that_is_refused_as_it_finishes_is_begun_again(jobs: SmallJobs) -> None:
    jobs.tell("publish_stream --once", 4, "found version 4, expected 5 or later")
    jobs.supervisor.runbook.finish_publishing("north")
    assert jobs.calls() == ["publish_stream --once", "publish reset", "publish_stream --once"]
    assert jobs.supervisor.runbook.sent_again == {"north": [{0: 7}]}
    # It was refused once more.
    assert jobs.rules() == {"the commands of the runbook lead back"}


def test_what_a_message_tells_to_do_is_read_from_it(tmp_path: Path) -> None:
    assert reset_in(REFUSED) == "speed"
    assert reset_in("no such command") is None
    commit = tmp_path / "speed/north/_delta_log/00000000000000000007"
    assert damaged_commit(f"file:{commit}.json: the file of a commit is empty or cut off") == commit
    assert damaged_commit(REFUSED) is None
    end = tmp_path / "checkpoints/north/speed/commits/7"
    assert damaged_end(f"file:{end}: the file that says that micro-batch 7 is done is empty") == end
    assert damaged_end(REFUSED) is None


def test_a_damaged_commit_is_moved_aside_with_its_checksums(jobs: SmallJobs) -> None:
    log = jobs.folder / "lake/speed/north/_delta_log"
    log.mkdir(parents=True)
    for name in ("{}.json", "{}.crc", ".{}.json.crc", ".{}.crc.crc"):
        (log / name.format("00000000000000000007")).touch()
    error = f"{log}/00000000000000000007.json: the file of a commit is empty or cut off, as after a crash"
    jobs.supervisor.runbook.follow("north", "speed", error)
    assert not list(log.iterdir())
    assert len(list((jobs.folder / "backups").iterdir())) == 4


def test_a_damaged_end_of_a_micro_batch_is_moved_aside_and_no_checkpoint_is_reset(jobs: SmallJobs) -> None:
    commits = jobs.site.checkpoint(SPEED) / "commits"
    commits.mkdir(parents=True)
    for name in ("6", "7", ".7.crc", "17"):
        (commits / name).touch()
    error = f"{commits}/7: the file that says that micro-batch 7 is done is empty, cut off or changed"
    jobs.supervisor.runbook.follow("north", "speed", error)
    assert sorted(path.name for path in commits.iterdir()) == ["17", "6"]
    assert jobs.calls() == []


def test_the_newest_micro_batch_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    assert newest_micro_batch(tmp_path) == -1
    (tmp_path / "commits").mkdir()
    for name in ("9", "10", ".10.crc"):
        (tmp_path / "commits" / name).touch()
    assert newest_micro_batch(tmp_path) == 10


def test_an_error_about_the_checkpoint_of_another_stream_counts_for_that_one(jobs: SmallJobs) -> None:
    injected = jobs.injected(Kind.TEAR)
    jobs.tell("ingest_stream", 4, f"{jobs.site.checkpoint(SPEED)}/metadata is cut off. See docs/runbook.md")
    jobs.supervisor.start()
    jobs.supervisor.explain(SPEED, injected)
    jobs.until(lambda: "publish reset" in jobs.calls(), "the checkpoint of that one is reset")
    jobs.supervisor.join()
    assert injected.outcome == "refused with 4, repaired by the runbook"
    assert [call for call in jobs.calls() if call in {"checkpoint reset", "speed_stream --once"}] != []
