"""A run: brokers, pipelines, faults by the schedule, and the judgement when the dust has settled."""

import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from chaos.cluster import Cluster, running_cluster
from chaos.commands import JOBS, Site
from chaos.desk import PROGRAM, open_desk
from chaos.disks import mount_disk, unmount_disk
from chaos.effects import Effect
from chaos.faults import EFFECTS
from chaos.jobs import Job, planted_environment
from chaos.journal import Journal
from chaos.observations import Lake
from chaos.oracle import Violation, sends_in_the_topic_twice, unsteady, violations
from chaos.planted import Outside
from chaos.producers import Producers
from chaos.proxy import Link
from chaos.reading import LakeReader, end_offsets, lake_of, output_topic
from chaos.registry import running_registry
from chaos.releases import Release, earlier_release
from chaos.report import Report, commit_of_now
from chaos.resources import SHORTEST_S, Sampler, behind, growing, unsampled
from chaos.runbook import Runbook, lacks_permission
from chaos.schedule import QUERIES, Fault, as_json, skews
from chaos.supervisor import Supervisor, names_of
from chaos.traffic import DAYS, PARTITIONS, Burst, Send, traffic
from chaos.values import WITH_SCHEMAS, Values
from chaos.world import Watch, World
from pipelines.errors import ConfigError, InfrastructureError
from testbed.waiting import wait_until

_SCHEDULE: Final = "schedule.json"
_TICK_S: Final = 0.2
_STILL_S: Final = 2.0
_LEAD_S: Final = 30.0
_JOB_S: Final = 240.0
# Where others compute, too, all streams together take minutes to start.
_START_S: Final = 600.0
_TRIES: Final = 6
_DISK_MB: Final = 1500
_BROKER_DISK_MB: Final = 800
_BEGUN: Final = 2
_READ_S: Final = 3.0
# A read takes in the whole lake.
_SOAK_READ_S: Final = 60.0
_UNSEALED: Final = "cannot be sealed"


@dataclass(frozen=True)
class Plan:
    """What a run is to be.

    Attributes:
        seed: decides what is sent.
        seconds: how long producers send and faults happen.
        rate: records a second, for each pipeline.
        pipelines: their names.
        faults: the schedule.
        patch: a fault planted in the jobs, see `chaos.planted.PATCHED`; None for none.
        outside: faults planted from outside when all is judged, each judged for itself.
        executors: how many each stream and nightly run has; 0 where its JVM runs its tasks.
        upgraded_from: the commit whose code jobs run until their upgrade; empty for that of this checkout.
        is_soak: whether jobs have the settings of production, and what streams hold is sampled.
        burst: when producers send more than usual; None for never.
    """

    seed: int
    seconds: float
    rate: float
    pipelines: Sequence[str]
    faults: Sequence[Fault]
    patch: str | None = None
    outside: Sequence[Outside] = ()
    executors: int = 0
    upgraded_from: str = ""
    is_soak: bool = False
    burst: Burst | None = None


def play(plan: Plan, folder: Path) -> Report:
    """Play a run.

    Args:
        plan: what it is to be.
        folder: where everything goes; what an earlier run left there is deleted.

    Returns:
        What came of it.

    Raises:
        ConfigError: there is something else in the folder, or no such commit.
    """
    _claim(folder)
    commit = commit_of_now()
    (folder / _SCHEDULE).write_text(as_json(plan.faults), encoding="utf-8")
    journal, producers = Journal(folder / "journal.jsonl"), dict[str, Producers]()
    planted, polls = dict[str, list[str]](), dict[str, tuple[int, int]]()
    sampler = Sampler({})
    with ExitStack() as stack:
        # A soak may need more room than memory has, and no fault fills its disk.
        has_own_disk = not plan.is_soak and mount_disk(folder / "lake", _DISK_MB)
        if has_own_disk:
            stack.callback(unmount_disk, folder / "lake")
        journal.say("starting three brokers")
        disk_mb = 0 if plan.is_soak else _BROKER_DISK_MB
        cluster = stack.enter_context(running_cluster(folder / "cluster", disk_mb))
        world = stack.enter_context(_world(plan, _site(plan, folder, cluster, stack), cluster, journal))
        world.has_own_disk = has_own_disk
        producers = _producers(world, plan)
        try:
            _start(world, producers)
            for each in producers.values():
                each.release()
            sampler = _sampler(world, plan)
            with sampler.sampling():
                _disturb(world, plan)
            if plan.is_soak:
                journal.violations += [*_not_lasting(plan, sampler, journal), *_behind(world, plan)]
            _settle(world, producers)
            planted = _judge(world, plan, producers)
        except InfrastructureError as error:
            journal.violate("a run comes to its end", str(error))
        polls = {pipeline: (len(watch.polls), watch.refused) for pipeline, watch in world.watches.items()}
        if journal.violations and has_own_disk:
            shutil.copytree(folder / "lake", folder / "lake-at-the-end")
    sent = {pipeline: each.sent for pipeline, each in producers.items()}
    told = (plan.seed, plan.seconds, sent, polls, journal, planted, plan.patch is not None)
    return Report(*told, took_s=journal.now_s(), commit=commit, held=sampler.samples)


def _claim(folder: Path) -> None:
    """Empty the folder for a run.

    Raises:
        ConfigError: it holds what no run made.
    """
    if folder.exists() and any(folder.iterdir()) and not (folder / _SCHEDULE).exists():
        raise ConfigError(
            f"--folder {folder}: found files that no run made (there is no {_SCHEDULE}), expected an empty"
            " folder or none; name another folder"
        )
    for disk in (folder / "lake", *folder.glob("cluster/broker-*/data")):
        if disk.is_mount():
            unmount_disk(disk)
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "logs").mkdir(parents=True)


def _site(plan: Plan, folder: Path, cluster: Cluster, stack: ExitStack) -> Site:
    """Return where the pipelines are; the registry and the desk that they need run until the stack ends."""
    release = earlier_release(plan.upgraded_from, folder / "before") if plan.upgraded_from else Release()
    site = Site(folder, cluster.servers, release=release, executors=plan.executors)
    if set(plan.pipelines) & set(WITH_SCHEMAS):
        site = replace(site, registry=stack.enter_context(running_registry()))
    if plan.is_soak:
        # Java compiles as in production, and Spark its plans.
        site = replace(site, settings=(), environment={"JDK_JAVA_OPTIONS": ""})
    if plan.patch:
        entry = ("-m", "chaos.planted_job", plan.patch)
        site = replace(site, entry=entry, environment=planted_environment(plan.patch))
        return replace(site, desk=stack.enter_context(open_desk(entry)))
    return replace(site, desk=stack.enter_context(open_desk(("-P", PROGRAM), release)))


def _producers(world: World, plan: Plan) -> dict[str, Producers]:
    """Return what sends to each pipeline, not started, and make their topics."""
    producers = dict[str, Producers]()
    # They begin before the faults, which wait until the jobs have.
    seconds = plan.seconds + _LEAD_S
    for pipeline in plan.pipelines:
        world.cluster.create(pipeline, PARTITIONS)
        world.cluster.create(output_topic(pipeline), PARTITIONS)
        sends = traffic(plan.seed, seconds, plan.rate, skews(plan.faults, _LEAD_S), plan.burst)
        written = _written(sends, world.site.values(pipeline), seconds)
        producers[pipeline] = Producers(world.cluster.servers, pipeline, written, _LEAD_S)
    return producers


def _not_lasting(plan: Plan, sampler: Sampler, journal: Journal) -> list[Violation]:
    """Return what streams of a soak did that none does which could go on for ever."""
    ended = tuple(f"{each.job} ended with {each.code}" for each in journal.ended if each.job in sampler.jobs)
    found = [Violation("a stream goes on", len(ended), ended)] if ended else []
    if plan.seconds >= SHORTEST_S:
        found += unsampled(sampler.samples, sampler.jobs)
    return found + growing(sampler.samples)


def _behind(world: World, plan: Plan) -> list[Violation]:
    """Return the pipelines of a soak whose ingest has not kept up; nothing has been stopped yet."""
    lacking = dict[str, int]()
    for pipeline, watch in world.watches.items():
        held, sent = watch.reader.records(), sum(end_offsets(world.cluster.servers, pipeline).values())
        world.journal.say(f"{pipeline}: bronze lacks {sent - held:,} of {sent:,} records, while all run")
        lacking[pipeline] = sent - held
    return behind(lacking, plan.rate)


def _sampler(world: World, plan: Plan) -> Sampler:
    """Return what samples the streams of a soak, and nothing else."""
    streams = world.supervisor.streams if plan.is_soak else {}
    return Sampler({name: (job, world.site.checkpoint(name)) for name, job in streams.items()})


def _written(sends: Iterator[Send], values: Values, seconds: float) -> Iterator[Send]:
    for send in sends:
        yield replace(send, value=values.written(send.value, send.at_s / seconds))


@contextmanager
def _world(plan: Plan, site: Site, cluster: Cluster, journal: Journal) -> Iterator[World]:
    streams = {name: site.stream(*name.split("/")) for name in names_of(plan.pipelines, QUERIES)}
    nights = {pipeline: site.nightly(pipeline) for pipeline in plan.pipelines}
    upkeep = {each: site.job(f"{each}/maintain", each, "maintain") for each in plan.pipelines}
    every_s = _SOAK_READ_S if plan.is_soak else _READ_S
    watches = {each: Watch(LakeReader(site.lake, each), journal, every_s) for each in plan.pipelines}
    runbook = Runbook(site, journal, lambda each: end_offsets(cluster.servers, output_topic(each)))
    supervisor = Supervisor(runbook, streams, journal, lambda: world.is_quiet)
    world = World(site, cluster, journal, supervisor, nights, upkeep, watches)
    try:
        yield world
    finally:
        for watch in watches.values():
            watch.finish()
        for job in (*streams.values(), *nights.values(), *upkeep.values()):
            job.kill()


def _start(world: World, producers: dict[str, Producers]) -> None:
    world.journal.say("starting the streams")
    world.supervisor.start()
    for each in producers.values():
        each.start()
    for watch in world.watches.values():
        watch.start()

    def have_begun() -> bool:
        logs = (watch.reader.table("speed") / "_delta_log" for watch in world.watches.values())
        has_rows = all(len([*log.glob("*.json")]) > _BEGUN for log in logs)
        # Days that are certified before publishing is first started are not what it sends.
        return has_rows and all(world.site.publishes(pipeline) for pipeline in world.watches)

    what = "the speed layers have rows, and publishing has been started"
    wait_until(have_begun, what, _START_S, world.supervisor.check)


def _disturb(world: World, plan: Plan) -> None:
    """Let the faults of the schedule happen, until the producers have sent all."""
    world.journal.say(f"{len(plan.faults)} faults from here on")
    began, left = time.monotonic(), list(plan.faults)
    under_way = list[tuple[float, Effect]]()
    while (now_s := time.monotonic() - began) < plan.seconds or left or under_way:
        world.supervisor.check()
        _look_at_nights(world)
        for healed in [each for each in under_way if each[0] <= now_s]:
            under_way.remove(healed)
            _tried(world, healed[1], healed[1].heal)
        for _, effect in under_way:
            effect.keep()
        while left and left[0].at_s <= now_s:
            fault = left.pop(0)
            effect = EFFECTS[fault.kind](world, world.journal.inject(fault))
            _tried(world, effect, effect.inject)
            if fault.lasts_s:
                under_way.append((time.monotonic() - began + fault.lasts_s, effect))
        slept = time.monotonic()
        time.sleep(_TICK_S)
        # A machine that stood still is not one on which everything happens at once.
        began += max(time.monotonic() - slept - _STILL_S, 0.0)


def _tried(world: World, effect: Effect, step: Callable[[], None]) -> None:
    """Inject or heal a fault; one that cannot be is no reason to end the run."""
    try:
        step()
    except Exception as error:  # noqa: BLE001 - files, processes and clients have many, and all mean the same
        world.journal.say(f"a fault failed: {type(error).__name__}: {error}")
        effect.settle("failed")


def _look_at_nights(world: World) -> None:
    for job in (*world.nights.values(), *world.upkeep.values()):
        if job.code is not None:
            _night_ended(world, job)
            job.forget()


def _night_ended(world: World, job: Job) -> None:
    job.bury()
    code, error = job.code or 0, str(job.summary().get("error", ""))
    world.journal.end(job.name, code, error)
    pipeline, ran_s = job.name.partition("/")[0], time.monotonic() - job.started
    has_damaged_state = world.has_damaged_state(pipeline, world.journal.now_s() - ran_s)
    is_explained = has_damaged_state or _UNSEALED in error
    if code == 4 and not is_explained:
        world.journal.violate("exit code 4 has a cause", f"{job.name}: {error}")
    if code == 3 and not has_damaged_state:
        world.journal.violate("an audit passes unless something is wrong", f"{job.name}: {error}")
    if code == 2 and not lacks_permission(error):
        world.journal.violate("a job is not refused for its configuration", f"{job.name}: {error}")


def _settle(world: World, producers: dict[str, Producers]) -> None:
    """Heal everything, stop the streams, and let each job take what there is, as after an outage."""
    world.journal.say("the dust settles")
    for pipeline, each in producers.items():
        if unknown := each.finish():
            world.journal.say(f"{pipeline}: the cluster has not answered for {unknown} records")
    for broker in world.cluster.brokers.values():
        broker.send(signal.SIGCONT)
        broker.proxy.turn(Link.OPEN)
        broker.peers.turn(Link.OPEN)
        broker.proxy.delay_s = 0.0
    if world.site.registry:
        world.site.registry.proxy.turn(Link.OPEN)
    world.join()
    wait_until(world.cluster.is_whole, "all replicas are in sync", _JOB_S)
    wait_until(world.cluster.allow_all, "all permissions are given back", _JOB_S)
    for job in (*world.nights.values(), *world.upkeep.values()):
        # One more death: what it leaves is for the run that follows.
        if job.is_running:
            job.kill()
        if job.code is not None:
            _night_ended(world, job)
    world.supervisor.stop()
    _take_all(world)
    for injected in world.journal.injected:
        world.journal.settle(injected, "not refused: went on by itself")


def _take_all(world: World) -> None:
    """Let each job of each pipeline take what there is."""
    for pipeline in world.nights:
        world.journal.say(f"{pipeline} takes what there is")
        for query in ("ingest", "speed"):
            _once(world, f"{pipeline}/{query}")
        days = ("--from", str(DAYS[0]), "--to", str(DAYS[-1]))
        _good_end(world, world.site.errand(f"{pipeline}/nightly at last", pipeline, "nightly_batch", *days))
        _once(world, f"{pipeline}/publish")
        if world.supervisor.runbook.sent_again.get(pipeline):
            world.supervisor.runbook.send_days(pipeline, str(DAYS[0]), str(DAYS[-1]))
        _good_end(world, world.site.errand(f"{pipeline}/reconcile", pipeline, "reconcile"))


def _once(world: World, name: str) -> None:
    """Let a stream take what there is; what is refused is repaired, and it is started again."""
    pipeline, _, query = name.partition("/")
    job = world.site.errand(f"{name} --once", pipeline, JOBS[query], "--once")
    for _ in range(_TRIES):
        job.start()
        job.wait(_JOB_S)
        if world.supervisor.handle(name, job):
            return
        job.kill()
    world.journal.violate("a stream comes to its end when the dust has settled", f"{name}: {job.summary()}")


def _good_end(world: World, job: Job) -> None:
    for _ in range(_TRIES):
        job.start()
        code = job.wait(_JOB_S)
        error = str(job.summary().get("error", ""))
        world.journal.end(job.name, -1 if code is None else code, error)
        job.kill()
        # The lease of a run that was killed is free when its process is known to be gone.
        if code != 1:
            break
    if code != 0:
        world.journal.violate("a job ends well when the dust has settled", f"{job.name}: {code}: {error}")


def _judge(world: World, plan: Plan, producers: Mapping[str, Producers]) -> dict[str, list[str]]:
    """Hold all pipelines against what was sent; then plant faults, and see whether they are found."""
    planted = dict[str, list[str]]()
    for pipeline, watch in world.watches.items():
        watch.finish()
        watch.poll()
        found = _violations(world, pipeline, producers[pipeline])
        world.journal.violations += found
        for each in plan.outside:
            polled = len(watch.polls)
            with each.done(watch.reader, world.cluster.servers):
                watch.poll()
                now = _violations(world, pipeline, producers[pipeline])
            rules = [violation.rule for violation in now]
            del watch.polls[polled:]
            planted[f"{each.name} ({pipeline}: {each.what})"] = rules if each.rule in rules else []
    if plan.patch:
        planted[plan.patch] = sorted({violation.rule for violation in world.journal.violations})
    return planted


def _violations(world: World, pipeline: str, producers: Producers) -> list[Violation]:
    watch = world.watches[pipeline]
    sent_again = world.supervisor.runbook.sent_again.get(pipeline, ())
    lake = lake_of(watch.reader, world.cluster.servers, producers.acknowledged, sent_again)
    world.journal.say(f"{pipeline}: {_sizes(lake)}; {len(watch.polls)} reads")
    if twice := sends_in_the_topic_twice(lake):
        world.journal.say(f"{pipeline}: the client of the producers has written {twice} records twice")
    found = [*violations(lake, world.site.values(pipeline)), *unsteady(watch.polls)]
    for violation in found:
        world.journal.say(f"VIOLATION {violation}")
    return found


def _sizes(lake: Lake) -> str:
    sizes = {
        "acknowledged": lake.acknowledged,
        "in the topic": lake.source,
        "in bronze": lake.bronze,
        "in the speed layer": lake.speed,
        "in quarantine": lake.quarantine,
        "in the batch layer": lake.batch,
        "in the serving table": lake.serving,
        "in the output topic": lake.output,
    }
    return ", ".join(f"{len(found):,} {name}" for name, found in sizes.items())
