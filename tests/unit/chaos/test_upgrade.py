"""An upgrade in the middle of a run begins with an earlier commit's code, and follows the runbook."""

import subprocess
from pathlib import Path

import pytest

from chaos.cluster import Cluster
from chaos.journal import Injected
from chaos.releases import Release, earlier_release
from chaos.schedule import QUERIES, Fault, Kind, schedule, with_upgrade
from chaos.supervisor import names_of
from chaos.upgrade import Upgrade
from chaos.world import World
from demo.cast import ROOT
from pipelines.errors import ConfigError
from tests.support.small_jobs import SmallJobs


@pytest.fixture
def world(jobs: SmallJobs) -> World:
    site = jobs.site
    nights = {"north": site.nightly("north")}
    upkeep = {"north": site.job("north/maintain", "north", "maintain")}
    return World(site, Cluster({}), jobs.journal, jobs.supervisor, nights, upkeep, {})


def injected(world: World) -> Injected:
    return world.journal.inject(Fault(1.0, Kind.UPGRADE, "all", 9.0))


def begin_earlier(release: Release, folder: Path) -> None:
    release.root, release.name = folder, "1.0"


def test_streams_stop_and_publishing_finishes_before_the_code_changes(
    world: World, jobs: SmallJobs, tmp_path: Path
) -> None:
    jobs.tell("publish_stream --once", 0, "")
    begin_earlier(world.site.release, tmp_path)
    jobs.supervisor.start()
    jobs.until(lambda: len(jobs.calls()) == len(QUERIES), "the streams run")
    upgrade = Upgrade(world, injected(world))
    upgrade.inject()
    assert jobs.supervisor.held == {*names_of(["north"], QUERIES), "north/nightly", "north/maintain"}
    jobs.supervisor.join()
    assert not jobs.supervisor.held
    assert jobs.calls()[len(QUERIES) :] == ["publish_stream --once"]
    assert world.site.release == Release()
    upgrade.heal()
    assert upgrade.injected.outcome == "1.0 to this checkout"
    jobs.until(lambda: len(jobs.calls()) == 2 * len(QUERIES) + 1, "the streams run again")
    assert {each.release.root for each in jobs.supervisor.streams.values()} == {ROOT}


def test_no_code_changes_while_a_nightly_run_is_at_work(
    world: World, jobs: SmallJobs, tmp_path: Path
) -> None:
    begin_earlier(world.site.release, tmp_path)
    night = world.nights["north"]
    night.entry = ("-c", "import time; time.sleep(100)")
    night.start()
    upgrade = Upgrade(world, injected(world))
    upgrade.inject()
    upgrade.keep()
    assert jobs.supervisor.held == {"north/nightly", "north/maintain"}
    night.kill()
    upgrade.heal()
    assert not jobs.supervisor.held
    assert upgrade.injected.outcome.startswith("not injected")
    assert world.site.release.root == tmp_path


def test_an_earlier_release_is_the_code_of_its_commit(tmp_path: Path) -> None:
    if subprocess.run(("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip("no repository here, as in an archive of the source")
    release = earlier_release("HEAD", tmp_path / "before")
    assert (release.root / "pipelines" / "cli" / "__init__.py").exists()
    assert release.python_path == str(tmp_path / "before")
    with pytest.raises(ConfigError, match="--upgrade-from nothing: found no such release"):
        earlier_release("nothing", tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_the_upgrade_is_one_fault_of_the_schedule() -> None:
    planned = schedule(1, 100.0, ["north"])
    (upgrade,) = [each for each in with_upgrade(planned, 100.0) if each not in planned]
    assert (upgrade.kind, upgrade.at_s, upgrade.lasts_s) == (Kind.UPGRADE, 40.0, 120.0)
    assert with_upgrade(planned, 100.0) == sorted([*planned, upgrade], key=lambda each: each.at_s)
