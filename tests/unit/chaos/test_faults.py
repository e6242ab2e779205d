"""Faults of state do what they say to files, and what follows is explained by them."""

import shutil
import signal
import socket
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos.cluster import Cluster
from chaos.effects import Effect
from chaos.faults import EFFECTS
from chaos.proxy import Link, Proxy
from chaos.reading import LakeReader
from chaos.registry import Registry
from chaos.schedule import QUERIES, Fault, Kind
from chaos.supervisor import names_of
from chaos.world import Watch, World
from tests.support.small_jobs import SPEED, WITHIN_S, SmallJobs


@pytest.fixture
def world(jobs: SmallJobs) -> World:
    site, watch = jobs.site, Watch(LakeReader(jobs.site.lake, "north"), jobs.journal, every_s=3.0)
    nights, upkeep = (
        {"north": site.nightly("north")},
        {"north": site.job("north/maintain", "north", "maintain")},
    )
    return World(
        site,
        Cluster({}),
        jobs.journal,
        jobs.supervisor,
        nights,
        upkeep,
        {"north": watch},
        has_own_disk=False,
    )


def effect(world: World, kind: Kind, target: str = SPEED, detail: str = "") -> Effect:
    return EFFECTS[kind](world, world.journal.inject(Fault(1.0, kind, target, 1.0, detail)))


def write_checkpoint(world: World, *batches: int) -> Path:
    checkpoint = world.site.checkpoint(SPEED)
    shutil.rmtree(checkpoint, ignore_errors=True)
    for folder in ("offsets", "commits"):
        (checkpoint / folder).mkdir(parents=True)
        for batch in batches:
            (checkpoint / folder / str(batch)).write_text("v1\n{}")
    return checkpoint


def test_every_kind_has_an_effect() -> None:
    assert set(EFFECTS) == set(Kind)


def test_a_torn_file_is_explained_and_its_stream_started_again(world: World, jobs: SmallJobs) -> None:
    checkpoint = write_checkpoint(world, 0, 1)
    jobs.supervisor.start()
    effect(world, Kind.TEAR, detail="offsets missing").inject()
    assert [path.name for path in (checkpoint / "offsets").iterdir()] == ["0"]
    assert SPEED in jobs.supervisor.explained
    assert jobs.supervisor.streams[SPEED].code == -signal.SIGKILL
    jobs.until(lambda: jobs.supervisor.streams[SPEED].is_running, "it runs again")


def test_a_fault_of_a_job_that_does_not_run_is_no_fault(world: World) -> None:
    for kind in (Kind.KILL_DRIVER, Kind.PAUSE_DRIVER, Kind.TEAR, Kind.SECOND_COPY, Kind.RESTORE_CHECKPOINT):
        each = effect(world, kind, detail="offsets cut")
        each.inject()
        each.heal()
        assert each.injected.outcome.startswith("not injected"), kind


@pytest.mark.parametrize(("newer", "is_explained"), [((0, 1, 2), True), ((0, 1), False)])
def test_an_older_checkpoint_takes_the_place_of_a_newer_one(
    world: World, jobs: SmallJobs, newer: tuple[int, ...], is_explained: bool
) -> None:
    checkpoint = write_checkpoint(world, 0, 1)
    jobs.supervisor.start()
    restored = effect(world, Kind.RESTORE_CHECKPOINT)
    restored.inject()
    write_checkpoint(world, *newer)
    restored.heal()
    assert sorted(path.name for path in (checkpoint / "commits").iterdir()) == ["0", "1"]
    assert (SPEED in jobs.supervisor.explained) == is_explained
    assert not jobs.supervisor.streams[SPEED].is_running


def test_an_older_table_is_explained_to_all_who_use_it(world: World, jobs: SmallJobs) -> None:
    log = world.site.lake / "bronze" / "north" / "_delta_log"
    log.mkdir(parents=True)
    (log / "0.json").touch()
    jobs.supervisor.start()
    restored = effect(world, Kind.RESTORE_TABLE, "north", "bronze")
    restored.inject()
    (log / "1.json").touch()
    restored.heal()
    assert [path.name for path in log.iterdir()] == ["0.json"]
    assert set(jobs.supervisor.explained) == set(names_of(["north"], ("ingest", "speed")))
    assert jobs.supervisor.held == set()


def test_a_torn_commit_is_explained_to_all_streams(world: World, jobs: SmallJobs) -> None:
    log = world.site.lake / "speed" / "north" / "_delta_log"
    log.mkdir(parents=True)
    for number in range(3):
        (log / f"{number}.json").write_text("whole")
    jobs.supervisor.start()
    effect(world, Kind.TEAR_COMMIT, "north", "speed cut").inject()
    assert [path.read_text() for path in sorted(log.iterdir())] == ["whole", "whole", "wh"]
    assert set(jobs.supervisor.explained) == set(names_of(["north"], QUERIES))
    assert jobs.supervisor.streams["north/ingest"].is_running
    assert not jobs.supervisor.streams[SPEED].is_running


def test_workers_that_never_come_are_not_killed(world: World, jobs: SmallJobs) -> None:
    jobs.supervisor.start()
    killed = effect(world, Kind.KILL_WORKER)
    killed.inject()
    killed.keep()
    killed.heal()
    assert killed.injected.outcome == "nothing to kill"
    assert jobs.supervisor.streams[SPEED].is_running


def test_a_fault_of_the_network_that_is_over_leaves_another_of_the_same_broker(world: World) -> None:
    turned = list[Link]()

    class Noted(Proxy):
        def turn(self, link: Link) -> None:
            turned.append(link)
            super().turn(link)

    with closing(Noted(9)) as proxy:
        world.cluster = Cluster({1: SimpleNamespace(proxy=proxy)})  # type: ignore[dict-item]
        cut, held_back = effect(world, Kind.CUT_NETWORK, "1"), effect(world, Kind.STALL_NETWORK, "1")
        slow, slower = (effect(world, Kind.DELAY_NETWORK, "all", detail) for detail in ("20 ms", "80 ms"))
        for each in (cut, held_back, slow, slower):
            each.inject()
        assert proxy.delay_s == 0.08
        slow.heal()
        cut.heal()
        assert (proxy.delay_s, turned[-1]) == (0.08, Link.STALLED)
        slower.heal()
        held_back.heal()
        assert (proxy.delay_s, turned[-1]) == (0.0, Link.OPEN)
    assert world.disturbed == 0


def test_a_fault_of_state_waits_until_the_one_before_was_noticed(world: World, jobs: SmallJobs) -> None:
    write_checkpoint(world, 0, 1)
    jobs.supervisor.start()
    effect(world, Kind.TEAR, detail="offsets missing").inject()
    jobs.until(lambda: jobs.supervisor.streams[SPEED].is_running, "it runs again")
    for kind, detail in ((Kind.TEAR, "commits cut"), (Kind.SECOND_COPY, "")):
        second = effect(world, kind, detail=detail)
        second.inject()
        assert second.injected.outcome.startswith("not injected: the fault of state before")


def test_damage_explains_the_end_of_a_night_until_some_time_after_its_repair(world: World) -> None:
    assert not world.has_damaged_state("north", 0.0)
    not_done = effect(world, Kind.TEAR)
    not_done.settle("not injected: there is no such file yet")
    assert not world.has_damaged_state("north", 0.0)
    torn = effect(world, Kind.TEAR)
    assert world.has_damaged_state("north", 1_000.0)
    torn.settle("refused with 4, repaired by the runbook")
    assert world.has_damaged_state("north", 10.0)
    assert not world.has_damaged_state("north", 1_000.0)
    assert not world.has_damaged_state("south", 0.0)


@pytest.mark.parametrize("how", ["refuses", "hangs"])
def test_a_registry_answers_again_when_the_fault_is_over(world: World, how: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as registry,
        closing(Proxy(registry.getsockname()[1])) as proxy,
    ):
        registry.settimeout(WITHIN_S)
        world.site = replace(world.site, registry=Registry(proxy, []))
        down = effect(world, Kind.CUT_REGISTRY, "all", how)
        down.inject()
        with socket.create_connection(("127.0.0.1", proxy.port), WITHIN_S) as asking:
            if how == "refuses":
                with suppress(ConnectionResetError):
                    assert asking.recv(1) == b""
            else:
                asking.sendall(b"?")
                asked, _ = registry.accept()
            down.heal()
            if how == "hangs":
                assert asked.recv(1) == b"?"
        with socket.create_connection(("127.0.0.1", proxy.port), WITHIN_S) as asking:
            asking.sendall(b"?")
            assert registry.accept()[0].recv(1) == b"?"


def test_a_stopped_job_goes_on(world: World, jobs: SmallJobs) -> None:
    jobs.supervisor.start()
    job = jobs.supervisor.streams[SPEED]
    pause = effect(world, Kind.PAUSE_DRIVER)

    def states() -> set[str]:
        return {process.status() for process in job.processes()}

    pause.inject()
    jobs.until(lambda: states() == {"stopped"}, "it stands still")
    pause.heal()
    jobs.until(lambda: "stopped" not in states(), "it goes on")
    assert pause.injected.outcome == "went on"


def test_a_second_copy_explains_a_refusal_while_it_runs(world: World, jobs: SmallJobs) -> None:
    jobs.supervisor.start()
    copy = effect(world, Kind.SECOND_COPY)
    copy.inject()
    assert jobs.supervisor.explained[SPEED].is_under_way
    jobs.until(lambda: jobs.calls().count("speed_stream") == 2, "both run")
    copy.heal()
    assert not jobs.supervisor.explained[SPEED].is_under_way
    assert not jobs.supervisor.explained[SPEED].needs_repair


def test_there_is_a_stream_for_each_query(jobs: SmallJobs) -> None:
    assert set(jobs.supervisor.streams) == set(names_of(["north"], QUERIES))
