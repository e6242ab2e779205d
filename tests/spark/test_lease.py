"""One run at a time for each pipeline: the lease is kept while held, lost aloud, and taken from the dead."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psutil
import pytest

from pipelines.errors import InfrastructureError
from pipelines.ops.lease import LEASES, lease, started
from pipelines.sinks.delta import read
from pipelines.sinks.tables import ensure_table, shape, small_frame
from tests.support.lakes import Lake
from tests.support.processes import wait_until


def held(lake: Lake) -> dict[str, Any]:
    row = read(lake.spark, lake.config.ops_table("leases")).where("pipeline = 'flights'").first()
    assert row is not None
    return row.asDict()


def hand_to(lake: Lake, **changes: Any) -> None:
    """Writes a lease of somebody else's, as that run would."""
    process = psutil.Process()
    row = {
        "pipeline": "flights",
        "holder": "other",
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_started": started(process),
        "since": datetime.now(UTC),
        "until": datetime.now(UTC) + timedelta(hours=1),
        **changes,
    }
    table = lake.config.ops_table("leases")
    ensure_table(lake.spark, table, shape(LEASES), partitions=["pipeline"])
    frame = small_frame(lake.spark, [row], shape(LEASES))
    frame.write.format("delta").mode("overwrite").option("replaceWhere", "pipeline = 'flights'").save(table)


def dead_process() -> dict[str, Any]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        since = started(psutil.Process(process.pid))
    return {"pid": process.pid, "process_started": since}


def test_a_lease_that_is_held_prolongs_itself(make_lake: Callable[..., Lake]) -> None:
    lake = make_lake("batch.lease_duration=3 seconds")
    with lease(lake.spark, lake.config, "mine") as mine:
        first = held(lake)["until"]
        wait_until(lambda: held(lake)["until"] > first, "the lease is prolonged", 60)
        mine.require()
    assert held(lake)["until"].astimezone(UTC) <= datetime.now(UTC)


def test_a_run_that_lost_its_lease_says_so_and_leaves_the_other_s_alone(lake: Lake) -> None:
    with lease(lake.spark, lake.config, "mine") as mine:
        hand_to(lake)
        with pytest.raises(InfrastructureError, match=r"lost its lease to other, so it certifies nothing"):
            mine.require()
    assert held(lake)["holder"] == "other"


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(dead_process, id="its process is gone"),
        pytest.param(lambda: {"process_started": 1.0}, id="its process id has gone to another process"),
        pytest.param(lambda: {"host": "elsewhere", "until": datetime.now(UTC)}, id="its time is over"),
    ],
)
def test_a_dead_run_s_lease_is_taken_over(lake: Lake, left: Callable[[], dict[str, Any]]) -> None:
    hand_to(lake, **left())
    with lease(lake.spark, lake.config, "mine"):
        assert held(lake)["holder"] == "mine"


def test_a_lease_of_another_machine_is_believed_until_its_time_is_over(lake: Lake) -> None:
    hand_to(lake, host="elsewhere", **dead_process())
    with (
        pytest.raises(InfrastructureError, match=r"run other on elsewhere \(pid \d+\) is rebuilding"),
        lease(lake.spark, lake.config, "mine"),
    ):
        pass
    assert held(lake)["holder"] == "other"
