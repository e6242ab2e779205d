"""What is certified is one table: another one under its path is not taken for it, whatever its versions."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from delta.tables import DeltaTable

from pipelines.config.loader import load_config
from pipelines.delta.event_tables import ensure_batch
from pipelines.delta.table_properties import set_table_property
from pipelines.delta.tables import version
from pipelines.errors import SourceError
from pipelines.ledger.certifications import certified, history
from pipelines.publishing.publications import publications, record_publication
from pipelines.publishing.published_days import (
    TopicOfAnotherTable,
    record_settled,
    settled_before,
    settled_so_far,
)
from pipelines.publishing.settled import Settled
from pipelines.retention.upkeep_run import KeptFiles
from pipelines.spark.session import forget_tables
from pipelines.steps.maintain import maintain
from pipelines.steps.serving import read_serving
from pipelines.steps.validate import validate
from tests.support.lakes import Lake
from tests.support.nights import ONE, TWO, begin, run
from tests.support.prepared_lakes import Nights, PreparedLake

IS_ANOTHER = "was replaced.* is not the certified one.*The certified version is gone"


def write_until(lake: Lake, at: int) -> None:
    """Makes commits of the batch table, as upkeep does, until it has come to a version."""
    batch = lake.config.table("batch")
    while version(lake.spark, batch) < at:
        set_table_property(lake.spark, batch, "note", str(version(lake.spark, batch)))


def restored_copy(lake: Lake, before: Path) -> None:
    """The table as it was before the second night."""
    shutil.rmtree(lake.config.table("batch"))
    shutil.copytree(before, lake.config.table("batch"))


def table_made_anew(lake: Lake, _: Path) -> None:
    shutil.rmtree(lake.config.table("batch"))
    ensure_batch(lake.pipeline)


def settle(lake: Lake) -> Settled:
    """Let a stream have settled what is certified."""
    newest = max(history(lake.pipeline), key=lambda verdict: verdict.batch_version)
    settled = Settled(newest.batch_version, (ONE, TWO), newest.batch_commit)
    record_settled(lake.pipeline, "query", 0, settled, "topic")
    return settled


@pytest.mark.parametrize(
    "accident", [restored_copy, pytest.param(table_made_anew, marks=pytest.mark.thorough)]
)
def test_days_of_another_batch_table_are_not_read_as_certified(
    certified_lake: Callable[[Nights], Lake],
    prepared_lake: PreparedLake,
    tmp_path: Path,
    accident: Callable[[Lake, Path], None],
) -> None:
    lake = certified_lake("two nights")
    accident(lake, prepared_lake.table("one night", lake, lake.config.table("batch")))
    before = history(lake.pipeline)
    at = max(verdict.batch_version for verdict in before)
    write_until(lake, at)
    for reads in (
        lambda: read_serving(lake.pipeline),
        lambda: run(lake, TWO),
        lambda: validate(lake.pipeline, "validation", TWO),
        lambda: maintain(lake.pipeline, "upkeep", dry_run=True),
    ):
        with pytest.raises(SourceError, match=IS_ANOTHER):
            reads()
    assert history(lake.pipeline) == before

    # Nor are they taken for what publishing has sent; what readers lack is told first.
    settle(lake)
    with pytest.raises(SourceError, match=IS_ANOTHER):
        settled_before(lake.pipeline, "query", 1)
    for verdict in before:
        record_publication(lake.pipeline, verdict, "topic", "run", 2)
    sent = publications(lake.pipeline, "topic")
    assert {day: (found.count, found.version >= 0) for day, found in sent.items()} == {
        ONE: (1, accident is restored_copy),
        TWO: (1, False),
    }

    # As the runbook says for a folder that nobody has a copy of.
    Path(lake.config.table("batch")).rename(tmp_path / "aside")
    DeltaTable.forPath(lake.spark, lake.config.ops_table("certifications")).delete("pipeline = 'flights'")
    begin(lake, ONE)
    assert certified(lake.pipeline) is None
    assert lake.count("batch") == 0


def test_a_topic_that_has_followed_what_was_certified_later_begins_anew_and_upkeep_goes_on(
    certified_lake: Callable[[Nights], Lake], prepared_lake: PreparedLake, caplog: pytest.LogCaptureFixture
) -> None:
    lake = certified_lake("two nights")
    settled = settle(lake)
    checkpoint = Path(lake.config.checkpoint("publish"))
    done = {
        "metadata": '{"id":"query"}',
        "offsets/0": 'v1\n{"batchTimestampMs":0}\n-\n-',
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
    }
    for name, text in done.items():
        (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (checkpoint / name).write_text(text)
    publishing = load_config("flights", environ={}, settings=["publish.topic=out"]).publish
    lake.config = lake.config.model_copy(update={"publish": publishing})
    # As the runbook says, both from one backup.
    for table in (lake.config.table("batch"), lake.config.ops_table("certifications")):
        shutil.rmtree(table)
        shutil.copytree(prepared_lake.table("one night", lake, table), table)
    forget_tables()
    assert certified(lake.pipeline) is not None

    again = "from which days were published.*Publish again from the beginning"
    with pytest.raises(TopicOfAnotherTable, match=f"its log has no version {settled.version}, {again}"):
        settled_so_far(lake.pipeline)
    upkeep = maintain(lake.pipeline, "upkeep", dry_run=True)
    assert KeptFiles("batch") in upkeep.findings
    assert "its log has no version" in caplog.text
    write_until(lake, settled.version)
    with pytest.raises(TopicOfAnotherTable, match=f"was replaced.* is not the one {again}"):
        settled_so_far(lake.pipeline)
    assert certified(lake.pipeline) is not None
