"""Which faults happen when: a pure function of the seed."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import Final

from chaos.traffic import DAYS, PARTITIONS, Skew
from chaos.values import WITH_SCHEMAS

QUERIES: Final = ("ingest", "speed", "publish")
BROKERS: Final = (1, 2, 3)


class Kind(StrEnum):
    """What happens."""

    KILL_DRIVER = "SIGKILL of a job, its JVM and its Python workers"
    KILL_JVM = "SIGKILL of the JVM of a job"
    KILL_WORKER = "SIGKILL of the Python workers of a job"
    KILL_EXECUTOR = "SIGKILL of an executor of a job"
    PAUSE_EXECUTOR = "SIGSTOP and SIGCONT of an executor of a job"
    PAUSE_DRIVER = "SIGSTOP and SIGCONT of a job"
    KILL_BROKER = "SIGKILL of a broker and controller"
    PAUSE_BROKER = "SIGSTOP and SIGCONT of a broker and controller"
    CUT_PEERS = "connections of other brokers to a broker cut"
    FILL_BROKER = "disk of a broker full"
    CUT_NETWORK = "connections of a broker cut"
    STALL_NETWORK = "packets of a broker held back"
    DELAY_NETWORK = "packets of all brokers delayed"
    RESTART_BROKERS = "brokers and controllers restarted in turn"
    DENY = "permission of Kafka lost"
    CUT_REGISTRY = "schema registry down"
    TEAR = "torn file in a checkpoint"
    TEAR_COMMIT = "torn commit of a table"
    SECOND_COPY = "second copy of a job"
    RESTORE_CHECKPOINT = "older checkpoint restored"
    RESTORE_TABLE = "older table restored"
    FILL_DISK = "disk of the lake full"
    READ_ONLY = "lake not writable"
    SKEW_CLOCK = "clock of a producer wrong"
    NIGHTLY = "nightly run"
    MAINTAIN = "maintain"
    UPGRADE = "upgrade of the code"


OF_BROKERS: Final = frozenset(
    {
        *(Kind.KILL_BROKER, Kind.PAUSE_BROKER, Kind.RESTART_BROKERS, Kind.CUT_PEERS),
        Kind.FILL_BROKER,
    }
)
"""One at a time: two of three brokers have to be in sync."""
OF_NETWORK: Final = frozenset({Kind.CUT_NETWORK, Kind.STALL_NETWORK})
"""Between clients and one broker."""
OF_STATE: Final = frozenset(
    {
        *(Kind.TEAR, Kind.TEAR_COMMIT, Kind.RESTORE_CHECKPOINT, Kind.RESTORE_TABLE),
        Kind.SECOND_COPY,
    }
)
"""One at a time in a pipeline: what a job says when it is refused is held against the last of them."""
OF_JVM: Final = frozenset({Kind.KILL_DRIVER, Kind.KILL_JVM, Kind.KILL_WORKER, Kind.KILL_EXECUTOR})
"""One at a time in a pipeline: what starts all the time does nothing that a fault could disturb."""
OF_ALL_JOBS: Final = frozenset({Kind.FILL_DISK, Kind.READ_ONLY, Kind.DENY})
"""One at a time: streams that fail for them have to come to work again."""
OUTSIDE: Final = OF_BROKERS | OF_NETWORK | OF_ALL_JOBS | {Kind.DELAY_NETWORK, Kind.CUT_REGISTRY}
"""Not all the time: while they last, and somewhat longer, a job may fail without a reason of its own."""
OF_EXECUTORS: Final = (Kind.KILL_EXECUTOR, Kind.PAUSE_EXECUTOR)
"""Only where jobs have executors."""
_PLANNED: Final = (Kind.NIGHTLY, Kind.MAINTAIN, Kind.UPGRADE)
RANDOM: Final = tuple(kind for kind in Kind if kind not in {*_PLANNED, *OF_EXECUTORS})

_AT_ONCE: Final = frozenset(
    {Kind.KILL_DRIVER, Kind.KILL_JVM, Kind.KILL_EXECUTOR, Kind.TEAR, Kind.TEAR_COMMIT}
)
# What no job has to be started again for comes up more often: it costs little.
_TIMES: Final[Mapping[Kind, int]] = {
    Kind.KILL_WORKER: 2,
    Kind.PAUSE_EXECUTOR: 3,
    Kind.PAUSE_DRIVER: 5,
    Kind.PAUSE_BROKER: 3,
    Kind.CUT_NETWORK: 6,
    Kind.STALL_NETWORK: 5,
    Kind.DELAY_NETWORK: 3,
    Kind.CUT_REGISTRY: 3,
    Kind.SKEW_CLOCK: 4,
}
_FILES: Final = ("offsets", "commits", "metadata", "note", "progress", "state")
_SHARED: Final = ("certifications",)
_TEARS: Final = ("cut", "missing", "flipped")
_DETAILS: Final[Mapping[Kind, Sequence[str]]] = {
    Kind.CUT_PEERS: ("cut", "held back"),
    Kind.DELAY_NETWORK: ("20 ms", "80 ms", "200 ms"),
    Kind.RESTORE_TABLE: ("bronze", "speed", "certifications"),
    Kind.TEAR_COMMIT: ("bronze cut", "speed cut"),
    Kind.DENY: ("Read of the topic", "Write of the output topic", "Write of transactional ids"),
    Kind.CUT_REGISTRY: ("refuses", "hangs"),
    Kind.SKEW_CLOCK: ("-30 h", "-3 h", "5 h"),
}
_FIRST_S: Final = 1.0
_GAP_S: Final = 1.3
_REST_S: Final = 25.0
_GAPS_S: Final[Mapping[Kind, float]] = dict.fromkeys(OF_BROKERS, 6.0) | dict.fromkeys(OF_JVM, 10.0)
_BROKERS: Final = "brokers"
_RESTARTS_S: Final = 25.0
_LONG: Final = 0.2
# In each such span nothing outside of the jobs is disturbed for a while.
_SPAN_S: Final = 150.0
_DISTURBED_S: Final = 105.0
_NIGHTS_S: Final = 60.0
_COMBINED: Final = 0.25
_FIRST_DAY_SHARE: Final = 0.6
_UPGRADE_SHARE: Final = 0.4
_UPGRADE_S: Final = 120


@dataclass(frozen=True)
class Fault:
    """A fault of a schedule.

    Attributes:
        at_s: when, in seconds since the faults began.
        kind: what happens.
        target: to whom: `PIPELINE/JOB`, `PIPELINE`, the number of a broker or partition, or `all`.
        lasts_s: for how long, in seconds; 0 for what is over at once.
        detail: how, where there are several ways.
    """

    at_s: float
    kind: Kind
    target: str
    lasts_s: float = 0.0
    detail: str = ""

    def __str__(self) -> str:
        detail = f", {self.detail}" if self.detail else ""
        lasts = f", for {self.lasts_s:.1f} s" if self.lasts_s else ""
        return f"{self.at_s:6.1f} s  {self.kind} ({self.target}{detail}{lasts})"


def schedule(
    seed: int, seconds: float, pipelines: Sequence[str], kinds: Sequence[Kind] = RANDOM
) -> list[Fault]:
    """Return the faults of a run, in their order.

    Args:
        seed: decides everything.
        seconds: how long faults happen.
        pipelines: the names of the pipelines.
        kinds: which faults may happen; each one comes up before one comes up again.
    """
    random = Random(f"schedule {seed}")  # noqa: S311 - nothing here is secret
    if not set(pipelines) & set(WITH_SCHEMAS):
        kinds = [kind for kind in kinds if kind is not Kind.CUT_REGISTRY]
    faults = [*_at_random(random, seconds, pipelines, kinds)]
    for number in range(1, int(seconds / _NIGHTS_S) + 1):
        at_s = number * _NIGHTS_S - _NIGHTS_S / 2
        # Readers get the second day from the speed layer first.
        last = str(DAYS[0] if at_s < seconds * _FIRST_DAY_SHARE else DAYS[-1])
        faults += [
            Fault(round(at_s + place * _NIGHTS_S / 2, 1), Kind.NIGHTLY, pipeline, detail=last)
            for place, pipeline in enumerate(pipelines)
        ]
    faults += [Fault(round(seconds * 0.6, 1), Kind.MAINTAIN, pipeline) for pipeline in pipelines]
    return sorted((fault for fault in faults if fault.at_s < seconds), key=lambda fault: fault.at_s)


def with_upgrade(faults: Sequence[Fault], seconds: float) -> list[Fault]:
    """Add the upgrade of the code, in the middle of a run.

    Args:
        faults: the schedule.
        seconds: how long faults happen.
    """
    upgrade = Fault(
        round(seconds * _UPGRADE_SHARE, 1),
        Kind.UPGRADE,
        "all",
        max(round(seconds * _UPGRADE_SHARE), _UPGRADE_S),
    )
    return sorted([*faults, upgrade], key=lambda fault: fault.at_s)


def _at_random(
    random: Random, seconds: float, pipelines: Sequence[str], kinds: Sequence[Kind]
) -> Iterator[Fault]:
    at_s, bag, misses = _FIRST_S, list[Kind](), 0
    full = [kind for kind in kinds for _ in range(_TIMES.get(kind, 1))]
    free_s = defaultdict[str, float](float)
    while kinds and at_s < seconds:
        if misses >= len(bag):
            # What has to wait for its turn holds up nothing else.
            fresh = [kind for kind in full if kind not in bag]
            bag, misses = [*bag, *random.sample(fresh, len(fresh))], 0
        fault = _fault(random, round(at_s, 1), bag.pop(), pipelines)
        turn = _turn(fault)
        if (turn and fault.at_s < free_s[turn]) or _disturbs_calm(fault):
            bag.insert(0, fault.kind)
            # Not for ever, where there is nothing else.
            misses, at_s = misses + 1, at_s + 0.02
            continue
        if turn:
            free_s[turn] = fault.at_s + fault.lasts_s + _GAPS_S.get(fault.kind, _REST_S)
        at_s += 0.0 if random.random() < _COMBINED else random.expovariate(1 / _GAP_S) + 0.3
        misses = 0
        yield fault


def _disturbs_calm(fault: Fault) -> bool:
    return fault.kind in OUTSIDE and fault.at_s % _SPAN_S + fault.lasts_s > _DISTURBED_S


def _turn(fault: Fault) -> str:
    """Return what has to have come to rest before a fault; empty for one that may come at any time."""
    if fault.kind in OF_STATE:
        return fault.target.partition("/")[0]
    if fault.kind in OF_JVM:
        return f"starts of {fault.target.partition('/')[0]}"
    if fault.kind in OF_ALL_JOBS:
        return "all jobs"
    return _BROKERS if fault.kind in OF_BROKERS else ""


def _fault(random: Random, at_s: float, kind: Kind, pipelines: Sequence[str]) -> Fault:
    target = _target(random, kind, random.choice(pipelines))
    detail = _detail(random, kind, target)
    if detail in _SHARED and len(pipelines) > 1:
        # It would be a fault of the other pipeline, too.
        detail = "speed"
    return Fault(at_s, kind, target, _lasts_s(random, kind), detail)


def _lasts_s(random: Random, kind: Kind) -> float:
    long_s = random.uniform(6, 15)
    brief_s = long_s if random.random() < _LONG else random.uniform(0.5, 5)
    if kind in _AT_ONCE:
        return 0.0
    if kind is Kind.RESTART_BROKERS:
        return _RESTARTS_S
    # What is restored has to be older than what it takes the place of; a copy has to come to work.
    is_long = kind in {Kind.RESTORE_CHECKPOINT, Kind.RESTORE_TABLE, Kind.SECOND_COPY}
    return round(2 * long_s if is_long else brief_s, 1)


def _target(random: Random, kind: Kind, pipeline: str) -> str:
    query, broker = random.choice(QUERIES), random.choice(BROKERS)
    match kind:
        case Kind.KILL_DRIVER | Kind.KILL_JVM | Kind.KILL_EXECUTOR:
            return f"{pipeline}/{random.choice((*QUERIES, *QUERIES, 'nightly'))}"
        case Kind.KILL_WORKER:
            return f"{pipeline}/publish"
        case Kind.PAUSE_DRIVER | Kind.PAUSE_EXECUTOR | Kind.SECOND_COPY | Kind.TEAR | Kind.RESTORE_CHECKPOINT:
            return f"{pipeline}/{query}"
        case Kind.SKEW_CLOCK:
            return str(random.randrange(PARTITIONS))
        case Kind.DELAY_NETWORK | Kind.RESTART_BROKERS | Kind.CUT_REGISTRY:
            return "all"
        case _:
            return str(broker) if kind in OF_BROKERS | OF_NETWORK else pipeline


def _detail(random: Random, kind: Kind, target: str) -> str:
    if kind is Kind.TEAR:
        file = random.choice(_FILES if target.endswith("/speed") else _FILES[:-1])
        return f"{file} {random.choice(_TEARS)}"
    return random.choice(_DETAILS[kind]) if kind in _DETAILS else ""


def skews(faults: Sequence[Fault], lead_s: float = 0.0) -> list[Skew]:
    """Return when clocks of producers are wrong.

    Args:
        faults: the schedule.
        lead_s: how long producers have been sending when it begins, in seconds.
    """
    return [
        Skew(
            int(each.target),
            lead_s + each.at_s,
            lead_s + each.at_s + each.lasts_s,
            timedelta(hours=int(each.detail.split()[0])),
        )
        for each in faults
        if each.kind is Kind.SKEW_CLOCK
    ]


def as_json(faults: Sequence[Fault]) -> str:
    """Return a schedule as JSON, the same text for the same schedule."""
    return json.dumps([asdict(fault) for fault in faults], indent=1)
