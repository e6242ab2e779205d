"""The supervisor starts again what ends, and asks of each refusal what explains it: with small processes."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from chaos.commands import Site
from chaos.journal import Injected, Journal
from chaos.runbook import Runbook, damaged_commit, reset_in
from chaos.schedule import QUERIES, Fault, Kind
from chaos.supervisor import Supervisor, names_of, newest_micro_batch
from demo.waiting import wait_until

# Says and ends as it is told in a file; a stream of which no file tells runs on.
JOB = """
import json, sys, time
from pathlib import Path
words, folder = sys.argv[1:], Path(FOLDER)
name = words[0] + (" reset" if words[1] == "reset" else "") + (" --once" if "--once" in words else "")
with (folder / "calls").open("a") as calls:
    calls.write(name + "\\n")
told = folder / name
if told.exists():
    code, error = json.loads(told.read_text())
    print(json.dumps({"error": error}))
    sys.exit(code)
if name.endswith("_stream"):
    time.sleep(100)
"""
SPEED = "north/speed"
REFUSED = (
    "speed/north is ahead of its checkpoint; run: oncelake checkpoint reset --pipeline north --query speed"
)
WITHIN_S = 30.0


class Office:
    """A supervisor of processes that do as they are told."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "logs").mkdir()
        self.site = Site(folder, "nowhere:9092", ("-c", JOB.replace("FOLDER", repr(str(folder)))))
        self.journal = Journal(folder / "journal.jsonl")
        streams = {name: self.site.stream(*name.split("/")) for name in names_of(["north"], QUERIES)}
        self.is_quiet = True
        runbook = Runbook(self.site, self.journal)
        self.supervisor = Supervisor(runbook, streams, self.journal, lambda: self.is_quiet)

    def tell(self, command: str, code: int, error: str) -> None:
        (self.folder / command).write_text(json.dumps([code, error]))

    def calls(self) -> list[str]:
        calls = self.folder / "calls"
        return calls.read_text().splitlines() if calls.exists() else []

    def injected(self, kind: Kind) -> Injected:
        return self.journal.inject(Fault(1.0, kind, SPEED, detail="offsets cut"))

    def rules(self) -> set[str]:
        return {violation.rule for violation in self.journal.violations}

    def until(self, condition: Callable[[], bool], what: str) -> None:
        wait_until(condition, what, WITHIN_S, self.supervisor.check)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    office = Office(tmp_path)
    try:
        yield office
    finally:
        office.supervisor.join()
        for job in office.supervisor.streams.values():
            job.kill()


def ends(office: Office, name: str) -> int:
    return sum(ended.job == name for ended in office.journal.ended)


def test_a_stream_that_was_killed_is_started_again(office: Office) -> None:
    office.supervisor.start()
    job = office.supervisor.streams[SPEED]
    job.send(signal.SIGKILL)
    office.until(lambda: ends(office, SPEED) == 1 and job.is_running, "it runs again")
    assert office.journal.exit_codes() == {SPEED: {-9: 1}}
    assert office.rules() == set()


def test_a_refusal_that_a_fault_explains_is_repaired_by_the_runbook(office: Office) -> None:
    office.tell("speed_stream", 4, REFUSED)
    injected = office.injected(Kind.RESTORE_CHECKPOINT)
    office.supervisor.start()
    office.supervisor.explain(SPEED, injected)
    office.until(lambda: "publish reset" in office.calls(), "it is repaired")
    office.supervisor.join()
    repair = ["checkpoint reset", "speed_stream --once", "publish reset"]
    assert [call for call in office.calls() if call in repair] == repair
    assert injected.outcome == "refused with 4, repaired by the runbook"
    assert office.supervisor.runbook.repeats == {"north": 1}
    assert office.rules() == set()


def test_a_refusal_that_nothing_explains_is_a_violation(office: Office) -> None:
    office.tell("speed_stream", 4, REFUSED)
    office.supervisor.start()
    office.until(lambda: bool(office.rules()), "it is noticed")
    assert office.rules() == {"exit code 4 has a cause"}


def test_a_refusal_without_a_way_back_is_a_violation(office: Office) -> None:
    office.tell("speed_stream", 4, "something is wrong")
    office.supervisor.start()
    office.supervisor.explain(SPEED, office.injected(Kind.TEAR))
    office.until(lambda: bool(office.rules()), "it is noticed")
    assert office.rules() == {"a refusal names a way back"}


@pytest.mark.parametrize("needs_repair", [True, False])
def test_a_refusal_that_says_to_start_again_has_to_end_when_the_other_run_is_gone(
    office: Office, needs_repair: bool
) -> None:
    office.tell("speed_stream", 4, "found micro-batch 7. Stop the other run, then start again")
    office.supervisor.start()
    office.supervisor.explain(SPEED, office.injected(Kind.SECOND_COPY), needs_repair=needs_repair)
    office.until(lambda: bool(office.rules()), "it is noticed")
    assert ends(office, SPEED) == 3
    assert office.rules() == {"what a refusal tells to do leads back"}


def test_damage_that_is_reported_with_1_again_and_again_is_a_violation(office: Office) -> None:
    office.tell("speed_stream", 1, "JSONDecodeError")
    office.supervisor.start()
    office.supervisor.explain(SPEED, office.injected(Kind.TEAR))
    office.until(lambda: bool(office.rules()), "it is noticed")
    assert office.rules() == {"state that cannot be read is reported with exit code 4"}


def test_failures_while_a_broker_is_down_say_nothing_of_the_state(office: Office) -> None:
    office.tell("speed_stream", 1, "the cluster does not answer")
    office.is_quiet = False
    office.supervisor.start()
    office.supervisor.explain(SPEED, office.injected(Kind.TEAR))
    office.until(lambda: ends(office, SPEED) == 4, "it has failed four times")
    assert office.rules() == set()


def test_a_stream_that_goes_on_after_a_fault_is_explained_no_more(office: Office) -> None:
    commits = office.site.checkpoint(SPEED) / "commits"
    commits.mkdir(parents=True)
    (commits / "7").touch()
    injected = office.injected(Kind.TEAR)
    office.supervisor.start()
    office.supervisor.explain(SPEED, injected)
    (commits / "8").touch()
    office.supervisor.check()
    assert not injected.outcome
    (commits / "9").touch()
    office.supervisor.check()
    assert injected.outcome == "not refused: went on by itself"
    assert office.supervisor.explained == {}


def test_a_repair_that_names_another_checkpoint_resets_that_one_too(office: Office) -> None:
    runbook = office.supervisor.runbook
    office.tell("ingest_stream --once", 4, REFUSED)
    runbook.follow("north", "ingest", "run: oncelake checkpoint reset --pipeline north --query ingest")
    assert office.calls().count("checkpoint reset") == 2
    # It was refused once more, though both were reset.
    assert office.rules() == {"the commands of the runbook lead back"}


def test_what_a_message_tells_to_do_is_read_from_it(tmp_path: Path) -> None:
    assert reset_in(REFUSED) == "speed"
    assert reset_in("no such command") is None
    commit = tmp_path / "speed/north/_delta_log/00000000000000000007"
    assert damaged_commit(f"file:{commit}.json: the file of a commit is empty or cut off") == commit
    assert damaged_commit(REFUSED) is None


def test_a_damaged_commit_is_moved_aside_with_its_checksum(office: Office) -> None:
    log = office.folder / "lake/speed/north/_delta_log"
    log.mkdir(parents=True)
    for suffix in ("json", "crc"):
        (log / f"00000000000000000007.{suffix}").touch()
    error = f"{log}/00000000000000000007.json: the file of a commit is empty or cut off, as after a crash"
    office.supervisor.runbook.follow("north", "speed", error)
    assert not list(log.iterdir())
    assert len(list((office.folder / "backups").iterdir())) == 2


def test_the_newest_micro_batch_is_the_one_with_the_highest_number(tmp_path: Path) -> None:
    assert newest_micro_batch(tmp_path) == -1
    (tmp_path / "commits").mkdir()
    for name in ("9", "10", ".10.crc"):
        (tmp_path / "commits" / name).touch()
    assert newest_micro_batch(tmp_path) == 10
