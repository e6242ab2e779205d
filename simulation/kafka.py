"""A model of Kafka's transactions: producers' epochs, open transactions, offsets of a group, late requests.

`tests/integration/simulation/test_kafka_model.py` holds it against a broker. Requests are those of
transactions v1, which librdkafka speaks, with the checks of brokers since 3.7: a record or an offset of a
producer without an open transaction is refused (KIP-890, part 1).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from simulation.kernel import Kernel, NoAnswer

_RECORDS_A_REQUEST: Final = 2

Place = tuple[str, int]


def kafka_refusal(code: int, *, fatal: bool = False) -> KafkaException:
    """Return what a client raises if the cluster refuses."""
    return KafkaException(KafkaError(code, None, fatal))


@dataclass(frozen=True)
class Record:
    """A record of a topic."""

    key: bytes | None
    value: bytes | None
    transaction: int


@dataclass
class Transactional:
    """What the coordinator knows of a `transactional.id`.

    Attributes:
        epoch: of its producer.
        state: of its last transaction.
        number: of that transaction, among all of the cluster.
        began: when it began, in seconds.
        timeout_s: after which the coordinator ends it.
        offsets: of the group, as they are once it is committed, by partition.
        has_group: whether it holds offsets of the group.
        places: the partitions that it has records in.
    """

    epoch: int = -1
    state: Literal["empty", "open", "committed", "aborted"] = "empty"
    number: int = -1
    began: float = 0.0
    timeout_s: float = 60.0
    offsets: dict[int, tuple[int, str]] = field(default_factory=dict)
    has_group: bool = False
    places: set[Place] = field(default_factory=set)


class ModelCluster:
    """A cluster with one group, whose time is that of the simulation."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.logs: dict[Place, list[Record]] = {}
        self.offsets: dict[int, tuple[int, str]] = {}
        self.ids: dict[str, Transactional] = {}
        self.outcomes: dict[int, bool] = {}
        self._transactions = 0

    def init(self, transactional_id: str, timeout_s: float) -> int:
        """Give a producer the id; what another has left open is rolled back. Return the producer's epoch."""
        known = self.ids.setdefault(transactional_id, Transactional())
        if known.state == "open":
            self._end(known, is_commit=False)
        self.shut_out(known)
        known.state, known.timeout_s = "empty", timeout_s
        return known.epoch

    def add_partition(self, transactional_id: str, epoch: int, place: Place) -> None:
        """Make a partition a part of the transaction, which begins with its first one."""
        known = self._of(transactional_id, epoch)
        self._begin(known)
        known.places.add(place)

    def produce(self, transactional_id: str, epoch: int, place: Place, records: Sequence[Record]) -> None:
        """Append records to a partition that is a part of the open transaction."""
        known = self._of(transactional_id, epoch)
        if known.state != "open" or place not in known.places:
            raise kafka_refusal(KafkaError.INVALID_TXN_STATE)
        log = self.logs.setdefault(place, [])
        log += [Record(record.key, record.value, known.number) for record in records]

    def add_group(self, transactional_id: str, epoch: int) -> None:
        """Make the group a part of the transaction."""
        known = self._of(transactional_id, epoch)
        self._begin(known)
        known.has_group = True

    def commit_offsets(
        self, transactional_id: str, epoch: int, offsets: Mapping[int, tuple[int, str]]
    ) -> None:
        """Put offsets of the group into the open transaction."""
        known = self._of(transactional_id, epoch)
        if known.state != "open" or not known.has_group:
            raise kafka_refusal(KafkaError.INVALID_TXN_STATE)
        known.offsets.update(offsets)

    def end(self, transactional_id: str, epoch: int, *, is_commit: bool) -> None:
        """End the open transaction; that it has ended so before is no error."""
        known = self._of(transactional_id, epoch)
        if known.state == "open":
            self._end(known, is_commit=is_commit)
        elif known.state != ("committed" if is_commit else "aborted"):
            raise kafka_refusal(KafkaError.INVALID_TXN_STATE)

    def expire(self) -> None:
        """End transactions that are open for too long, and shut out their producers."""
        for known in self.ids.values():
            if known.state == "open" and self.kernel.now >= known.began + known.timeout_s:
                self._end(known, is_commit=False)
                self.shut_out(known)

    def shut_out(self, known: Transactional) -> None:
        """Give the id a new epoch, so that its producer is refused from now on."""
        known.epoch += 1

    def forget_offsets(self) -> None:
        """Let the group's offsets expire."""
        self.offsets.clear()

    def is_pending(self, partitions: Sequence[int]) -> bool:
        """Return whether an open transaction holds offsets of the group for some partitions."""
        self.expire()
        return any(known.state == "open" and {*known.offsets} & {*partitions} for known in self.ids.values())

    def stable_end(self, place: Place) -> int:
        """Return the offset up to which readers of committed records come."""
        self.expire()
        log = self.logs.get(place, [])
        return next((at for at, each in enumerate(log) if each.transaction not in self.outcomes), len(log))

    def committed(self, place: Place) -> list[tuple[int, Record]]:
        """Return the committed records of a partition, with their offsets, up to the first open one."""
        log = self.logs.get(place, [])[: self.stable_end(place)]
        return [(at, each) for at, each in enumerate(log) if self.outcomes[each.transaction]]

    def _of(self, transactional_id: str, epoch: int) -> Transactional:
        self.expire()
        known = self.ids[transactional_id]
        if epoch != known.epoch:
            raise kafka_refusal(KafkaError._FENCED, fatal=True)
        return known

    def _begin(self, known: Transactional) -> None:
        if known.state != "open":
            known.state, known.number, known.began = "open", self._transactions, self.kernel.now
            known.offsets, known.has_group, known.places = {}, False, set()
            self._transactions += 1

    def _end(self, known: Transactional, *, is_commit: bool) -> None:
        known.state = "committed" if is_commit else "aborted"
        self.outcomes[known.number] = is_commit
        if is_commit:
            self.offsets.update(known.offsets)


class ModelProducer:
    """A producer of librdkafka's, in one process of the simulation."""

    def __init__(self, cluster: ModelCluster, transactional_id: str, timeout_s: float) -> None:
        self._cluster, self._id = cluster, transactional_id
        self._added = set[Place]()
        self._has_group = False
        self._waiting: list[tuple[Place, Record]] = []
        self._epoch = self._ask("takes the slot", lambda: cluster.init(transactional_id, timeout_s))

    def begin_transaction(self) -> None:
        """Begin a transaction; no request is sent."""
        self._added, self._has_group = set(), False

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: object, timeout: float = -1, /
    ) -> None:
        """Commit offsets of the group in it."""
        offsets = {place.partition: (place.offset, place.metadata or "") for place in positions}
        if not self._has_group:
            self._ask("adds the group", lambda: self._cluster.add_group(self._id, self._epoch))
            self._has_group = True
        self._ask("sends progress", lambda: self._cluster.commit_offsets(self._id, self._epoch, offsets))

    def produce(self, topic: str, value: Any = None, key: Any = None, partition: int = -1, **_: Any) -> None:
        """Put a record into the queue."""
        self._waiting.append(((topic, partition), Record(key, value, -1)))

    def poll(self, timeout: float = -1, /) -> int:
        """Nothing has to be served."""
        return 0

    def flush(self, timeout: float = -1, /) -> int:
        """Send what waits; return how much is left after a failure, as librdkafka does."""
        while self._waiting:
            place = self._waiting[0][0]
            if place not in self._added:
                add = partial(self._cluster.add_partition, self._id, self._epoch, place)
                try:
                    self._ask(f"adds {place[0]}-{place[1]}", add)
                except KafkaException:
                    return len(self._waiting)
                self._added.add(place)
            batch = [record for at, record in self._waiting if at == place][:_RECORDS_A_REQUEST]
            send = partial(self._cluster.produce, self._id, self._epoch, place, batch)
            try:
                # Brokers leave out what comes twice, by its sequence number.
                self._ask(f"sends {len(batch)} records to {place[0]}-{place[1]}", send, is_once=True)
            except KafkaException:
                return len(self._waiting)
            left = len(batch)
            kept = list[tuple[Place, Record]]()
            for at, record in self._waiting:
                if at == place and left:
                    left -= 1
                else:
                    kept.append((at, record))
            self._waiting = kept
        return 0

    def commit_transaction(self, timeout: float = -1, /) -> None:
        """Commit it; all records are with the brokers."""
        if self.flush():
            raise kafka_refusal(KafkaError._TIMED_OUT)
        self._ask("commits", lambda: self._cluster.end(self._id, self._epoch, is_commit=True))

    def abort_transaction(self, timeout: float = -1, /) -> None:
        """Roll it back."""
        self._waiting.clear()
        self._ask("rolls back", lambda: self._cluster.end(self._id, self._epoch, is_commit=False))

    def _ask(self, label: str, action: Any, *, is_once: bool = False) -> Any:
        again = None if is_once else action
        try:
            return self._cluster.kernel.effect(f"{self._id}: {label}", action, is_write=True, again=again)
        except NoAnswer as none:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(none), False, True)) from None


class ModelConsumer:
    """A consumer of the group, which reads progress."""

    def __init__(self, cluster: ModelCluster, timeout_s: float, *, is_stable: bool) -> None:
        self._cluster, self._timeout_s, self._is_stable = cluster, timeout_s, is_stable
        self._at: dict[Place, int] = {}

    def committed(self, partitions: Sequence[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
        """Return the group's offsets; a stable consumer waits for open transactions that hold some."""
        numbers = [place.partition for place in partitions]
        until = self._cluster.kernel.now + self._timeout_s
        while self._ask("is progress stable?", lambda: self._is_stable and self._cluster.is_pending(numbers)):
            if self._cluster.kernel.now > until:
                raise kafka_refusal(KafkaError._TIMED_OUT)
            self._cluster.kernel.sleep(5, "waits for stable progress")
        found = self._ask("reads progress", lambda: dict(self._cluster.offsets))
        answers = []
        for place in partitions:
            offset, metadata = found.get(place.partition, (-1001, ""))
            answers.append(TopicPartition(place.topic, place.partition, offset, metadata))
        return answers

    def consumer_group_metadata(self) -> object:
        """Return what a producer needs to commit offsets of the group."""
        return object()

    def get_watermark_offsets(self, place: TopicPartition, timeout: float = -1) -> tuple[int, int]:
        """Return the first offset of a partition, and the one behind its last record."""
        log = self._ask(
            "asks for the end", lambda: self._cluster.logs.get((place.topic, place.partition), [])
        )
        return 0, len(log)

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        """Begin to read partitions."""
        self._at = {(place.topic, place.partition): max(place.offset, 0) for place in partitions}

    def consume(self, count: int, timeout: float = -1) -> list["ModelMessage"]:
        """Return the next records, and the ends of partitions."""
        if not timeout:
            return []
        return self._ask("reads records", self._next) or self._wait()

    def close(self) -> None:
        """Let nobody know."""

    def _next(self) -> list["ModelMessage"]:
        messages = list[ModelMessage]()
        for place, at in self._at.items():
            log = self._cluster.logs.get(place, [])
            end = self._cluster.stable_end(place) if self._is_stable else len(log)
            for offset in range(at, end):
                record = log[offset]
                if not self._is_stable or self._cluster.outcomes[record.transaction]:
                    messages.append(ModelMessage(place, offset, record))
            self._at[place] = max(at, end)
            messages.append(ModelMessage(place, self._at[place], None))
        return messages

    def _wait(self) -> list["ModelMessage"]:
        self._cluster.kernel.sleep(5, "waits for records")
        return []

    def _ask(self, label: str, action: Any) -> Any:
        try:
            return self._cluster.kernel.effect(label, action)
        except NoAnswer as none:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, str(none))) from None


@dataclass(frozen=True)
class ModelMessage:
    """A record as a consumer gives it, or the end of a partition."""

    place: Place
    at: int
    record: Record | None

    def error(self) -> KafkaError | None:
        """Return that this is an end; None for a record."""
        return KafkaError(KafkaError._PARTITION_EOF) if self.record is None else None

    def key(self) -> bytes | None:
        """Return the key."""
        return self.record.key if self.record else None

    def value(self) -> bytes | None:
        """Return the value."""
        return self.record.value if self.record else None

    def partition(self) -> int:
        """Return the partition."""
        return self.place[1]

    def offset(self) -> int:
        """Return the offset."""
        return self.at
