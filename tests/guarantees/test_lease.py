"""One run at a time for each pipeline: the lease is kept while held, lost aloud, and taken from the dead."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tenacity import Retrying, retry_if_exception_type, stop_after_delay

from pipelines.delta.event_tables import ensure_speed
from pipelines.delta.fenced_commits import claim
from pipelines.delta.tables import ensure_table, exists, shape
from pipelines.errors import InfrastructureError
from pipelines.fault_points import Point, armed
from pipelines.ledger.lease_holders import Holder, started, this_process
from pipelines.ledger.leases import lease
from pipelines.ledger.ops_tables import LEASES
from testbed.waiting import wait_until
from tests.support.accidents import dying, once
from tests.support.lakes import Lake

OLD = (
    "pipeline string, holder string, host string, pid bigint, process_started double, since timestamp,"
    " until timestamp"
)
"""The columns of a lease before it had an epoch."""


LEASE_OF_FLIGHTS = [("pipeline", "=", "flights")]


def held(lake: Lake) -> dict[str, Any]:
    leases = DeltaTable(lake.config.ops_table("leases")).to_pyarrow_table(filters=LEASE_OF_FLIGHTS)
    found: dict[str, Any] = leases.to_pylist()[0]
    return found


def hand_to(lake: Lake, columns: str = LEASES.ddl, **changes: Any) -> None:
    """Writes a lease of somebody else's, as that run would, without a look at what is there."""
    row = {
        "pipeline": "flights",
        "holder": "other",
        "since": datetime.now(UTC),
        "until": datetime.now(UTC) + timedelta(hours=1),
        **asdict(this_process()),
        **changes,
    }
    table = lake.config.ops_table("leases")
    ensure_table(lake.spark, table, shape(columns), partitions=["pipeline"])
    schema = DeltaTable(table).to_pyarrow_table().schema
    rows = pa.Table.from_pylist([{name: row.get(name) for name in schema.names}], schema=schema)
    write_deltalake(table, rows, mode="overwrite", predicate="pipeline = 'flights'")


def dead_process() -> dict[str, Any]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        since = started(psutil.Process(process.pid))
    return {"pid": process.pid, "process_started": since}


def holder(**changes: Any) -> Holder:
    return replace(this_process(), **changes)


def refused(lake: Lake, match: str) -> None:
    with pytest.raises(InfrastructureError, match=match), lease(lake.pipeline, "mine"):
        pass
    assert held(lake)["holder"] == "other"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("leases") / "lake"


@pytest.fixture
def free(make_lake: Callable[..., Lake], root: Path) -> Callable[..., Lake]:
    """Opens a lake that tests share, whose lease is free: `free("batch.lease_duration=3 seconds")`."""

    def opened(*settings: str) -> Lake:
        lake = make_lake(f"lake.root={root}", *settings)
        there = exists(lake.spark, lake.config.ops_table("leases"))
        if there and held(lake)["until"] > datetime.now(UTC):
            hand_to(lake, until=datetime.now(UTC))
        return lake

    return opened


def test_a_lease_that_is_held_prolongs_itself_also_after_a_commit_whose_answer_was_lost(
    free: Callable[..., Lake],
) -> None:
    lake = free("batch.lease_duration=3 seconds")
    ends: list[datetime] = []

    def no_answer_first() -> None:
        ends.append(held(lake)["until"])
        if len(ends) == 1:
            raise InfrastructureError("no answer")

    with lease(lake.pipeline, "mine") as mine:
        first = held(lake)["until"]
        with armed(Point.LEASE_WRITTEN, no_answer_first):
            wait_until(lambda: len(ends) > 1, "it is prolonged again", 60)
        assert first < ends[0] < ends[1]
        mine.require()
    assert held(lake)["until"] <= datetime.now(UTC)


def test_a_run_that_hangs_does_not_hold_its_lease_for_ever(free: Callable[..., Lake]) -> None:
    lake = free("batch.lease_duration=1 second", "batch.max_duration=2 seconds")
    with lease(lake.pipeline, "hangs") as hanging:
        # Before that it may lapse for a moment and be prolonged all the same, where the machine is slow.
        most = held(lake)["since"] + timedelta(seconds=2)
        wait_until(lambda: most <= datetime.now(UTC), "the lease has ended", 60)
        assert held(lake)["until"] <= most
        # What the hanging run had begun to write may still refuse one commit.
        again = Retrying(
            retry=retry_if_exception_type(InfrastructureError), stop=stop_after_delay(60), reraise=True
        )
        with ExitStack() as stack:
            following = again(lambda: stack.enter_context(lease(lake.pipeline, "next")))
            assert following.epoch == hanging.epoch + 1
            with pytest.raises(InfrastructureError, match="lost its lease to next"):
                hanging.require()
        assert held(lake)["holder"] == "next"
    # Giving back what is not one's own would free the lease of whoever holds it.
    assert held(lake)["holder"] == "next"


def test_epochs_grow_with_each_taking_also_where_the_table_of_leases_was_lost(lake: Lake) -> None:
    epochs = []
    for name in ("first", "second", "after a loss"):
        if name == "after a loss":
            shutil.rmtree(lake.config.ops_table("leases"))
        with lease(lake.pipeline, name) as taken:
            epochs.append(taken.epoch)
    assert epochs == [1, 2, 3]


def test_epochs_are_above_those_of_a_speed_layer_that_outlived_the_verdicts(lake: Lake) -> None:
    """As where verdicts and batch layer are put back from a backup: replays would be refused as overtaken."""
    ensure_speed(lake.pipeline)
    speed, epochs = lake.config.table("speed"), []
    for name in ("first", "second", "after a loss"):
        if name == "after a loss":
            shutil.rmtree(Path(lake.config.ops_table("leases")).parent)
        with lease(lake.pipeline, name) as taken:
            claim(lake.spark, speed, taken.stamp("claim"))
            epochs.append(taken.epoch)
    assert epochs == [1, 2, 3]


def test_of_two_that_find_the_lease_free_one_takes_it(free: Callable[..., Lake]) -> None:
    lake = free()
    with ExitStack() as others:

        def overtaken() -> None:
            others.enter_context(lease(lake.pipeline, "other"))

        with armed(Point.LEASE_LOOKED_AT, once(overtaken)):
            refused(lake, "run other on .* is at work")


def test_a_run_that_lost_its_lease_says_so_and_leaves_the_other_s_alone(free: Callable[..., Lake]) -> None:
    lake = free()
    with lease(lake.pipeline, "mine") as mine:
        hand_to(lake)
        with pytest.raises(InfrastructureError, match=r"lost its lease to other, so it certifies nothing"):
            mine.require()
    assert held(lake)["holder"] == "other"


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(dead_process, id="its process is gone"),
        pytest.param(lambda: {"process_started": 1.0}, id="its process id has gone to another process"),
    ],
)
def test_a_process_that_has_ended_is_known_to_be_gone(left: Callable[[], dict[str, Any]]) -> None:
    assert holder(**left()).is_gone()


def test_a_process_that_has_ended_is_gone_although_its_parent_has_not_asked_how() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        left = psutil.Process(process.pid)
        of_process = holder(pid=process.pid, process_started=started(left))
        assert not of_process.is_gone()
        process.kill()
        wait_until(lambda: left.status() == psutil.STATUS_ZOMBIE, "it has ended")
        assert of_process.is_gone()


def test_a_dead_run_s_lease_is_taken_over(free: Callable[..., Lake]) -> None:
    lake = free()
    # Its process is gone; its time is over.
    for left in (dead_process(), {"host": "elsewhere", "until": datetime.now(UTC)}):
        hand_to(lake, **left)
        with lease(lake.pipeline, "mine"):
            assert held(lake)["holder"] == "mine"


def test_a_run_that_could_not_give_its_lease_back_keeps_none_from_its_own_process(
    free: Callable[..., Lake],
) -> None:
    lake = free()
    with pytest.raises(OSError, match="no space"), ExitStack() as later, lease(lake.pipeline, "full"):
        later.enter_context(armed(Point.PARTITION_WRITTEN, dying(OSError("no space"))))
    assert (held(lake)["holder"], held(lake)["until"] > datetime.now(UTC)) == ("full", True)
    with (
        lease(lake.pipeline, "mine"),
        pytest.raises(InfrastructureError, match=r"run mine on \S+ \(pid \d+\) is at work"),
        lease(lake.pipeline, "third"),
    ):
        pass


@pytest.mark.parametrize(
    "elsewhere",
    [
        pytest.param({"host": "elsewhere"}, id="another host name"),
        pytest.param({"boot": "another"}, id="another machine, or one that was started again"),
        pytest.param({"pid_namespace": "pid:[1]"}, id="another container"),
        pytest.param({"boot": None, "pid_namespace": None}, id="a lease of before they were told apart"),
    ],
)
def test_a_process_that_cannot_be_seen_is_not_taken_for_dead(elsewhere: dict[str, Any]) -> None:
    dead = dead_process()
    assert holder(**dead).is_gone()
    assert not holder(**dead, **elsewhere).is_gone()


def test_a_lease_of_a_process_that_cannot_be_seen_is_believed_until_its_time_is_over(
    free: Callable[..., Lake],
) -> None:
    lake = free()
    hand_to(lake, **dead_process(), pid_namespace="pid:[1]")
    refused(lake, r"run other on \S+ \(pid \d+\) is at work")


def test_a_lease_of_the_code_of_before_epochs_is_believed_and_then_taken_over(lake: Lake) -> None:
    hand_to(lake, OLD, **dead_process())
    refused(lake, r"run other on \S+ \(pid \d+\) is at work")
    hand_to(lake, until=datetime.now(UTC))
    with lease(lake.pipeline, "mine") as mine:
        assert mine.epoch == 1


_UNSHARE = ("unshare", "--pid", "--fork", "--mount-proc")


def _may_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*_UNSHARE, "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _may_unshare(), reason="this user may make no PID namespace")
def test_a_living_run_in_another_pid_namespace_is_not_taken_for_dead() -> None:
    """Two containers with one host name: the process of the one cannot be seen from the other."""
    script = (
        "import sys; from dataclasses import astuple;"
        " from pipelines.ledger.lease_holders import this_process;"
        "print(repr(astuple(this_process())), flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [*_UNSHARE, sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.getcwd()},  # noqa: PTH109
    ) as process:
        assert process.stdout is not None
        other = Holder(*ast.literal_eval(process.stdout.readline()))
        here = this_process()
        assert (other.host, other.boot) == (here.host, here.boot)
        assert other.pid_namespace != here.pid_namespace
        assert not other.is_gone()
        assert process.stdin is not None
        process.stdin.close()
