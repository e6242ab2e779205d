"""What a row of `ops/leases` says, without Spark."""

from datetime import UTC, datetime, timedelta, timezone

from pipelines.ledger.lease_holders import HeldLease, Holder


def test_a_row_says_who_holds_the_lease_also_one_of_code_without_epochs() -> None:
    since = datetime(2013, 1, 1, 12, tzinfo=UTC)
    process = Holder("host", None, None, 7, 12.5)
    held = HeldLease("run", process, since, since + timedelta(minutes=5), epoch=3, job="maintain")
    row = held.row("flights@backfill")
    assert row == {
        "pipeline": "flights@backfill",
        "holder": "run",
        "since": since,
        "until": since + timedelta(minutes=5),
        "epoch": 3,
        "job": "maintain",
        "host": "host",
        "boot": None,
        "pid_namespace": None,
        "pid": 7,
        "process_started": 12.5,
    }
    assert HeldLease.of_row(row) == held
    assert held.words == "run run of maintain on host (pid 7)"
    # Times are read in the time zone of the session.
    there = row["until"].astimezone(timezone(timedelta(hours=9)))
    told = {name: value for name, value in row.items() if name != "job"}
    older = HeldLease.of_row({**told, "until": there, "epoch": None})
    assert (older.until.utcoffset(), older.epoch, older.job) == (timedelta(), None, None)
    assert older.words == "run run on host (pid 7)"
