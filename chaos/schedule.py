"""Which faults happen when: a pure function of the seed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import Final

from chaos.traffic import DAYS, PARTITIONS, Skew

QUERIES: Final = ("ingest", "speed", "publish")
BROKERS: Final = (1, 2, 3)


class Kind(StrEnum):
    """What happens."""

    KILL_DRIVER = "SIGKILL of a job, its JVM and its Python workers"
    KILL_JVM = "SIGKILL of the JVM of a job"
    KILL_WORKER = "SIGKILL of the Python workers of a job"
    PAUSE_DRIVER = "SIGSTOP and SIGCONT of a job"
    KILL_BROKER = "SIGKILL of a broker and controller"
    PAUSE_BROKER = "SIGSTOP and SIGCONT of a broker and controller"
    CUT_NETWORK = "connections of a broker cut"
    STALL_NETWORK = "packets of a broker held back"
    DELAY_NETWORK = "packets of all brokers delayed"
    TEAR = "torn file in a checkpoint"
    SECOND_COPY = "second copy of a job"
    RESTORE_CHECKPOINT = "older checkpoint restored"
    RESTORE_TABLE = "older table restored"
    FILL_DISK = "disk of the lake full"
    READ_ONLY = "lake not writable"
    SKEW_CLOCK = "clock of a producer wrong"
    NIGHTLY = "nightly run"
    MAINTAIN = "maintain"


OF_BROKERS: Final = frozenset({Kind.KILL_BROKER, Kind.PAUSE_BROKER, Kind.CUT_NETWORK, Kind.STALL_NETWORK})
"""One at a time: two of three brokers have to be in sync."""
OF_STATE: Final = frozenset({Kind.TEAR, Kind.RESTORE_CHECKPOINT, Kind.RESTORE_TABLE, Kind.SECOND_COPY})
"""One at a time: what a job says when it is refused is held against the last of them."""
RANDOM: Final = tuple(kind for kind in Kind if kind not in {Kind.NIGHTLY, Kind.MAINTAIN})

_AT_ONCE: Final = frozenset({Kind.KILL_DRIVER, Kind.KILL_JVM, Kind.KILL_WORKER, Kind.TEAR})
_FILES: Final = ("offsets", "commits", "metadata", "state")
_TEARS: Final = ("cut", "missing", "flipped")
_TABLES: Final = ("bronze", "speed", "certifications")
_FIRST_S: Final = 3.0
_GAP_S: Final = 9.0
_STATE_GAP_S: Final = 40.0
_NIGHTS_S: Final = 50.0
_COMBINED: Final = 0.25
_FIRST_DAY_SHARE: Final = 0.6


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
    faults = [*_at_random(random, seconds, pipelines, kinds)]
    for number in range(1, int(seconds / _NIGHTS_S) + 1):
        at_s = number * _NIGHTS_S - _NIGHTS_S / 2
        # Readers get the second day from the speed layer first.
        last = str(DAYS[0] if at_s < seconds * _FIRST_DAY_SHARE else DAYS[-1])
        faults += [Fault(at_s, Kind.NIGHTLY, pipeline, detail=last) for pipeline in pipelines]
    faults += [Fault(round(seconds * 0.6, 1), Kind.MAINTAIN, pipeline) for pipeline in pipelines]
    return sorted(faults, key=lambda fault: fault.at_s)


def _at_random(
    random: Random, seconds: float, pipelines: Sequence[str], kinds: Sequence[Kind]
) -> Iterator[Fault]:
    at_s, bag = _FIRST_S, list[Kind]()
    brokers_free_s = state_free_s = 0.0
    while kinds and at_s < seconds:
        bag = bag or random.sample(kinds, len(kinds))
        fault = _fault(random, round(at_s, 1), bag.pop(), pipelines)
        at_s += 0.0 if random.random() < _COMBINED else random.expovariate(1 / _GAP_S) + 0.5
        if fault.kind in OF_BROKERS:
            is_its_turn = fault.at_s >= brokers_free_s
            brokers_free_s = fault.at_s + fault.lasts_s + _GAP_S if is_its_turn else brokers_free_s
        elif fault.kind in OF_STATE:
            is_its_turn = fault.at_s >= state_free_s
            state_free_s = fault.at_s + fault.lasts_s + _STATE_GAP_S if is_its_turn else state_free_s
        else:
            is_its_turn = True
        if is_its_turn:
            yield fault
        else:
            bag.insert(0, fault.kind)


def _fault(random: Random, at_s: float, kind: Kind, pipelines: Sequence[str]) -> Fault:
    target = _target(random, kind, random.choice(pipelines))
    lasts_s = 0.0 if kind in _AT_ONCE else round(random.uniform(4, 15), 1)
    # What is restored has to be older than what it takes the place of.
    is_restored = kind in {Kind.RESTORE_CHECKPOINT, Kind.RESTORE_TABLE}
    return Fault(at_s, kind, target, 2 * lasts_s if is_restored else lasts_s, _detail(random, kind, target))


def _target(random: Random, kind: Kind, pipeline: str) -> str:
    query, broker = random.choice(QUERIES), random.choice(BROKERS)
    match kind:
        case Kind.KILL_DRIVER | Kind.KILL_JVM:
            return f"{pipeline}/{random.choice((*QUERIES, 'nightly'))}"
        case Kind.KILL_WORKER:
            return f"{pipeline}/publish"
        case Kind.PAUSE_DRIVER | Kind.SECOND_COPY | Kind.TEAR | Kind.RESTORE_CHECKPOINT:
            return f"{pipeline}/{query}"
        case Kind.SKEW_CLOCK:
            return str(random.randrange(PARTITIONS))
        case Kind.DELAY_NETWORK:
            return "all"
        case _:
            return str(broker) if kind in OF_BROKERS else pipeline


def _detail(random: Random, kind: Kind, target: str) -> str:
    match kind:
        case Kind.DELAY_NETWORK:
            return f"{random.choice((20, 80, 200))} ms"
        case Kind.TEAR:
            file = random.choice(_FILES if target.endswith("/speed") else _FILES[:-1])
            return f"{file} {random.choice(_TEARS)}"
        case Kind.RESTORE_TABLE:
            return random.choice(_TABLES)
        case Kind.SKEW_CLOCK:
            return f"{random.choice((-30, -3, 5))} h"
        case _:
            return ""


def skews(faults: Sequence[Fault]) -> list[Skew]:
    """Return when clocks of producers are wrong, by a schedule."""
    return [
        Skew(
            int(each.target),
            each.at_s,
            each.at_s + each.lasts_s,
            timedelta(hours=int(each.detail.split()[0])),
        )
        for each in faults
        if each.kind is Kind.SKEW_CLOCK
    ]


def as_json(faults: Sequence[Fault]) -> str:
    """Return a schedule as JSON, the same text for the same schedule."""
    return json.dumps([asdict(fault) for fault in faults], indent=1)
