"""A data file with other bytes, cut off or gone: each job that reads it says which, and the way back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from tests.guarantees.test_runbook import INGEST, KEPT, NIGHT, SENT, begun, send
from tests.support.damaged_files import FAULTS, Fault, data_file
from tests.support.kafka import fresh_topics
from tests.support.nights import ONE, TWO
from tests.support.runbook import Project

pytestmark = [pytest.mark.thorough, pytest.mark.integration, pytest.mark.spark]

VALIDATE: Final = f"oncelake validate --pipeline flights --date {ONE}"
EXPLAIN, RECONCILE, MAINTAIN = (
    f"oncelake {words}"
    for words in (
        "explain --pipeline flights --key flight=1",
        "reconcile --pipeline flights",
        "maintain --pipeline flights",
    )
)
READ_BY: Final = {
    "bronze": ("_topic", [f"{NIGHT}{TWO}", VALIDATE, EXPLAIN, RECONCILE, MAINTAIN, INGEST]),
    "speed": ("flight", [VALIDATE, EXPLAIN]),
    "batch": ("flight", [VALIDATE, EXPLAIN]),
}
"""A column of a table, and the jobs that read its files once the first day is certified."""


@pytest.fixture(scope="module")
def prepared(
    spark: SparkSession, broker: str, admin: AdminClient, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    folder = tmp_path_factory.mktemp("damaged") / "project"
    with fresh_topics(admin) as make, pytest.MonkeyPatch.context() as patched:
        topic = make(2, "flights", **KEPT)
        send(broker, topic, SENT)
        project = Project.laid_out(folder, broker, topic)
        patched.chdir(folder)
        yield begun(project)


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("table", READ_BY)
def test_jobs_that_read_a_damaged_file_name_it_and_the_way_back(
    table: str, fault: Fault, prepared: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = prepared.copied(tmp_path / "project")
    monkeypatch.chdir(project.folder)
    column, lines = READ_BY[table]
    file = data_file(project.lake / table / "flights")
    FAULTS[fault](file, column)
    for line in lines:
        said = project.refused(line, 4, "A data file is damaged")
        assert f"/{table}/flights/" in said
        assert file.name in said
