"""Data files of a lake on S3 that were damaged are named with exit code 4, without a checksum beside them."""

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

from pipelines.runtime.jars import ensure_jars
from tests.support.command_process import CommandProcess, command_process
from tests.support.damaged_files import FAULTS, Fault
from tests.support.kafka import MakeTopic
from tests.support.s3 import Store, s3_double
from tests.support.s3_site import HOURS, NIGHT, Site, new_site

pytestmark = [pytest.mark.slow, pytest.mark.thorough, pytest.mark.integration, pytest.mark.timeout(300)]

ROOT: Final = Path(__file__).resolve().parents[2]
SPEED: Final = ("speed_stream", "--once")
# Of a file that is gone, a stream says that the log was cleaned up.
READ_BY: Final[Mapping[Fault, Sequence[tuple[str, str]]]] = {
    "changed": (SPEED, NIGHT),
    "cut off": (SPEED,),
    "gone": (NIGHT,),
}
LOG: Final = "lake/bronze/weather/_delta_log/"


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    """Fetched once; a job that waits for them is not what is tested."""
    ensure_jars("s3")


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    log = logging.getLogger("werkzeug")
    level = log.level
    log.setLevel(logging.ERROR)
    with s3_double() as running:
        yield running
    log.setLevel(level)


@pytest.fixture(scope="module")
def process() -> Iterator[CommandProcess]:
    with command_process(environment={**os.environ, "PYTHONPATH": str(ROOT)}) as running:
        yield running


@pytest.fixture
def site(store: Store, process: CommandProcess, tmp_path: Path, broker: str, topic: MakeTopic) -> Site:
    return new_site(store, process, tmp_path, broker, topic())


class StoredFile:
    """An object of a site's bucket that is damaged and put back."""

    def __init__(self, site: Site, key: str) -> None:
        self.key, self.content = key, site.store.read(key, site.bucket)
        self._site, self._client = site, site.store.client("s3")

    def put(self, content: bytes) -> None:
        self._client.put_object(Bucket=self._site.bucket, Key=self.key, Body=content)

    def damage(self, fault: Callable[[Path, str], None], column: str) -> None:
        """Damages it as a file on a disk is."""
        copy = self._site.folder / "copy.parquet"
        copy.write_bytes(self.content)
        fault(copy, column)
        if copy.exists():
            self.put(copy.read_bytes())
        else:
            self._client.delete_object(Bucket=self._site.bucket, Key=self.key)


def refused(site: Site, *job: str) -> str:
    """Runs a job that ends with exit code 4; its message."""
    code, summary = site.run(*job)
    assert code == 4, summary
    return str(summary["error"])


def newest_file(site: Site) -> StoredFile:
    """A data file that the newest commit of bronze has added."""
    for name in sorted(site.store.files(LOG, site.bucket), reverse=True):
        if name.endswith(".json"):
            lines = site.store.read(f"{LOG}{name}", site.bucket).splitlines()
            for action in map(json.loads, lines):
                if "add" in action:
                    return StoredFile(site, f"lake/bronze/weather/{action['add']['path']}")
    raise AssertionError("bronze is empty")


def test_a_damaged_data_file_on_s3_is_named_with_the_way_back_and_jobs_read_on_once_it_is_put_back(
    site: Site,
) -> None:
    site.well("ingest_stream", "--once")
    data = newest_file(site)
    for fault, jobs in READ_BY.items():
        data.damage(FAULTS[fault], "value")
        for job in jobs:
            said = refused(site, *job)
            assert data.key in said, fault
            assert "docs/runbook.md, 'A data file is damaged'" in said
        data.put(data.content)

    site.well(*SPEED)
    assert site.rows("speed") == HOURS
    assert site.well(*NIGHT)["days"] == {"2013-01-01": "certified"}
    assert site.traces() == []
