"""Files of a lake on S3 that were damaged are named with exit code 4, though no checksum is beside them."""

import json
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
    with s3_double() as running:
        yield running


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


def newest_commit(site: Site) -> StoredFile:
    """The newest commit of bronze that has added a data file."""
    names = (name for name in sorted(site.store.files(LOG, site.bucket)) if name.endswith(".json"))
    commits = [StoredFile(site, f"{LOG}{name}") for name in names]
    return next(each for each in reversed(commits) if b'"add"' in each.content)


def added_by(site: Site, commit: StoredFile) -> StoredFile:
    """A data file that a commit of bronze has added."""
    actions = map(json.loads, commit.content.splitlines())
    path = next(action["add"]["path"] for action in actions if "add" in action)
    return StoredFile(site, f"lake/bronze/weather/{path}")


def test_a_damaged_file_on_s3_is_named_with_the_way_back_and_jobs_read_on_once_it_is_put_back(
    site: Site,
) -> None:
    site.well("ingest_stream", "--once")
    commit = newest_commit(site)
    data = added_by(site, commit)
    for fault, jobs in READ_BY.items():
        data.damage(FAULTS[fault], "value")
        for job in jobs:
            said = refused(site, *job)
            assert data.key in said, fault
            assert "docs/runbook.md, 'A data file is damaged'" in said
        data.put(data.content)
    # Delta does not say which commit it could not read.
    commit.put(commit.content[: len(commit.content) // 2])
    for job in (SPEED, NIGHT):
        said = refused(site, *job)
        assert f"{commit.key}: the file of a commit is empty or cut off" in said
        assert "docs/runbook.md, 'A commit is damaged'" in said
    commit.put(commit.content)

    site.well(*SPEED)
    assert site.rows("speed") == HOURS
    assert site.well(*NIGHT)["days"] == {"2013-01-01": "certified"}
    assert site.traces() == []
