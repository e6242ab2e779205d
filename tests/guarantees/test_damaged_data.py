"""Bytes of a data file that a disk or a copy has changed are told with exit code 4, and not read as data."""

import random
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from pipelines.errors import SourceError
from pipelines.spark.failures import explain_failure
from pipelines.steps.speed import speed
from tests.support.damaged_files import change_page, data_file
from tests.support.lakes import Lake
from tests.support.nights import on

pytestmark = pytest.mark.spark

CHANGES = 40


def rows(lake: Lake) -> list[str]:
    return sorted(map(str, lake.table("bronze").collect()))


def test_no_changed_byte_of_a_data_file_is_read_as_data(lake: Lake) -> None:
    lake.ingest([on(1, number, tailnum=f"N{number:05}") for number in range(1, 200)])
    file = data_file(Path(lake.config.table("bronze")))
    whole, before = file.read_bytes(), rows(lake)
    dice, refused = random.Random(1), 0  # noqa: S311 - nothing secret
    for at in sorted(dice.sample(range(4, len(whole) - 8), CHANGES)):
        file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :])
        try:
            found = rows(lake)
        except (PySparkException, Py4JJavaError):
            refused += 1
        else:
            # Some bytes of the footer say nothing that is needed.
            assert found == before, f"byte {at} of {len(whole)}"
    assert refused > CHANGES / 2


def test_no_row_is_passed_over_by_a_changed_dictionary(lake: Lake) -> None:
    # Spark looks there first whether a file has what is asked for, and Parquet compares no checksum then.
    lake.ingest([on(1, number) for number in range(1, 50)])
    of_topic = lake.table("bronze").where("_topic = 'flights'")
    assert of_topic.count() == 49
    change_page(data_file(Path(lake.config.table("bronze"))), "_topic")
    with pytest.raises((PySparkException, Py4JJavaError)) as failed:
        of_topic.collect()
    assert "has other bytes than when it was written" in str(explain_failure(failed.value))


@pytest.mark.parametrize("how", ["changed", "cut off"])
def test_a_job_that_reads_a_damaged_data_file_ends_with_exit_code_4_and_reads_on_once_it_is_put_back(
    lake: Lake, how: str
) -> None:
    lake.ingest([on(1, number) for number in range(1, 50)])
    file = data_file(Path(lake.config.table("bronze")))
    whole = file.read_bytes()
    middle = len(whole) // 3
    changed = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    file.write_bytes(changed if how == "changed" else whole[: 2 * middle])
    with pytest.raises(SourceError, match=rf"{file.name}: a data file of the table is cut off") as refused:
        speed(lake.pipeline, once=True)
    assert refused.value.exit_code == 4
    file.write_bytes(whole)
    assert speed(lake.pipeline, once=True).counts.rows == 49
