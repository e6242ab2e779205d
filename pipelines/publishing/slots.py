"""Slots of a sink: how each is taken, how far it is, and what that means for a micro-batch."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipelines.errors import SourceError

_LONGEST_SHOWN: Final = 200
OVERTAKEN: Final = "overtaken"
"""What progress has for a run where whoever had begun to send a whole day may send nothing more of it."""


class ProgressError(Exception):
    """What the cluster knows of a slot does not go with the checkpoint."""


class OvertakenError(ProgressError):
    """A run that sends a whole day may send nothing more: days were certified since it began."""


class UnsentError(Exception):
    """The brokers did not take all rows of a slot while its transaction may be open."""


class UnreadableError(SourceError):
    """What is kept in the place of a slot's progress is none."""


class ContentError(SourceError):
    """A slot was published with other rows than it has now."""


@dataclass(frozen=True)
class Written:
    """What a slot of a micro-batch was made of.

    Attributes:
        rows: How many.
        digest: Of the rows, in whatever order they were.
        rules: What decides the content beside the source, as words by name.
    """

    rows: int
    digest: str
    rules: Mapping[str, str]


@dataclass(frozen=True)
class SlotProgress:
    """What a slot's progress says, as an offset and its metadata in the group.

    Attributes:
        next_batch: The number of the micro-batch that comes next.
        source: The id of the checkpoint whose batches are counted; empty while none was begun.
        topic_id: Of the topic that was written.
        slots: How many slots there were.
        part: How many parts of that micro-batch are done, where one is sent in parts.
        is_begun: What was to be done by then was begun, and no more. Nobody ever reads that, unless a
            transaction was ended by another than its producer.
        written: What that micro-batch was made of; None if it was published before that was kept.
        run: The run that has the slots; empty where none took them for a stream.
        partitions: How many partitions of the topic divided keys among slots; 0 if a hash of theirs did.
        parts: In how many parts the micro-batch is sent of which some are done, or that was done last.
        is_lost: Written in place of progress that was lost while a micro-batch was in progress, of which the
            slot may have been published all the same.
    """

    next_batch: int
    source: str
    topic_id: str
    slots: int
    part: int = 0
    is_begun: bool = False
    written: Written | None = field(default=None, compare=False)
    run: str = field(default="", compare=False)
    partitions: int = field(default=0, compare=False)
    parts: int = field(default=1, compare=False)
    is_lost: bool = field(default=False, compare=False)

    @property
    def position(self) -> tuple[int, int]:
        """The next micro-batch, and how many of its parts are done."""
        return self.next_batch, self.part

    @property
    def batch(self) -> int:
        """The micro-batch of which this says that it is done, or some parts of it."""
        return self.next_batch if self.part else self.next_batch - 1

    @property
    def before(self) -> tuple[int, int]:
        """The position before the part that is done last."""
        return self.batch, (self.part or self.parts) - 1

    @classmethod
    def of(cls, committed: TopicPartition) -> "SlotProgress | None":
        """Read it from what the group has committed; None if that is nothing.

        Raises:
            UnreadableError: It is no progress, as where Kafka's own tool has set the offset.
        """
        if committed.error:
            raise KafkaException(committed.error)
        if committed.offset < 0:
            return None
        metadata = _object(committed.metadata or "")
        progress = None if metadata is None else cls._read({**metadata, "next_batch": committed.offset})
        if progress is None:
            raise _unreadable("the metadata of an offset of the sink's group", committed.metadata)
        return progress

    @classmethod
    def of_record(cls, value: bytes) -> "SlotProgress":
        """Read it from the value of a record of the progress topic.

        Raises:
            UnreadableError: It is none.
        """
        progress = cls._read(_object(value) or {})
        if progress is None:
            raise _unreadable("a record of the progress topic with the key of the sink", value)
        return progress

    @classmethod
    def _read(cls, metadata: Mapping[str, Any]) -> "SlotProgress | None":
        """Return the progress that metadata stand for; None if they stand for none."""
        kinds = {"next_batch": int, "source": str, "topic_id": str, "slots": int, "is_begun": bool}
        kinds |= {"run": str, "partitions": int, "part": int, "parts": int, "is_lost": bool}
        usual: dict[str, Any] = {"source": "", "topic_id": ""}
        values = usual | {name: metadata[name] for name in kinds if name in metadata}
        fits = all(type(value) is kinds[name] for name, value in values.items())
        if not fits or min((v for v in values.values() if type(v) is int), default=0) < 0:
            return None
        if "next_batch" not in values or 0 in (values.get("slots", 0), values.get("parts", 1)):
            return None
        match metadata.get("written"):
            case None:
                return cls(**values)
            case {"rows": int() as rows, "digest": str() as digest, "rules": dict() as rules, **others} if (
                not others and all(isinstance(word, str) for word in rules.values())
            ):
                return cls(**values, written=Written(rows, digest, rules))
            case _:
                return None

    def commit(self, topic: str, slot: int) -> TopicPartition:
        """Return the progress as the consumer group commits it."""
        return TopicPartition(topic, slot, self.next_batch, json.dumps(self._metadata()))

    def record(self) -> bytes:
        """Return the progress as the value of a record of the progress topic."""
        return json.dumps({"next_batch": self.next_batch, **self._metadata()}).encode()

    def _metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"source": self.source, "topic_id": self.topic_id, "slots": self.slots}
        if self.written:
            metadata["written"] = asdict(self.written)
        usual = {"is_begun": False, "run": "", "partitions": 0, "part": 0, "parts": 1, "is_lost": False}
        own = {name: getattr(self, name) for name in usual}
        return metadata | {name: value for name, value in own.items() if value != usual[name]}


def _object(text: str | bytes) -> dict[str, Any] | None:
    """Return a JSON object; None for whatever else."""
    try:
        value = json.loads(text.decode() if isinstance(text, bytes) else text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _unreadable(what: str, found: object) -> UnreadableError:
    return UnreadableError(
        f"{what} is no progress: found {str(found or '')[:_LONGEST_SHOWN]!r}, expected JSON as Oncelake"
        " writes it."
        " Another program has written there. Nothing was published."
        " See docs/publishing.md, 'Refused at the start, with exit code 4'"
    )


class SlotProducer(Protocol):
    """What a slot needs of a transactional producer; see `confluent_kafka.Producer`."""

    def begin_transaction(self) -> None:
        """Begin a transaction."""

    def send_offsets_to_transaction(
        self, positions: list[TopicPartition], group_metadata: object, timeout: float = ..., /
    ) -> None:
        """Commit offsets of a group in it."""

    def produce(self, *record: Any, **named: Any) -> None:
        """Put a record into it."""

    def poll(self, timeout: float = ..., /) -> int:
        """Serve what has come; return how much."""

    def flush(self, timeout: float = ..., /) -> int:
        """Wait until the brokers have all records; return how many they have not."""

    def commit_transaction(self, timeout: float = ..., /) -> None:
        """Commit it."""

    def abort_transaction(self, timeout: float = ..., /) -> None:
        """Roll it back."""


class SlotConnection(Protocol):
    """How slots of a sink are reached: by Kafka's clients, or in a simulation."""

    @property
    def name(self) -> str:
        """The name of the sink."""

    @property
    def progress_topic(self) -> str:
        """The topic whose partitions stand for slots."""

    @property
    def timeout_s(self) -> float:
        """How long the cluster may take for one answer."""

    @property
    def transaction_timeout_ms(self) -> int:
        """How long a transaction may be open."""

    def take(self, slot: int) -> SlotProducer:
        """Return a producer for a slot, which from now on nobody else can write to."""

    def consumer(self, *, is_stable: bool = True) -> Consumer:
        """Return a consumer of the group that keeps the progress."""

    def clients(self, slot: int) -> "SlotClients":
        """Return the clients of one try to publish a slot, which is not taken yet."""


class SlotClients(Protocol):
    """The clients of one try to publish a slot."""

    def take(self) -> SlotProducer:
        """Return a producer for the slot, as `SlotConnection.take` does."""

    def consumer(self, *, is_stable: bool) -> Consumer:
        """Return a consumer of the group that keeps the progress, which is closed with the clients."""

    def close(self) -> None:
        """Close the consumers; the producer stays."""


def send_progress(
    producer: SlotProducer, connection: SlotConnection, slot: int, mark: SlotProgress, group: object
) -> None:
    """Put progress into the transaction that a producer has begun.

    It goes into the group's offsets, which are quickly looked at and expire, and into a record of the
    compacted progress topic, which does not.

    Args:
        producer: Has the slot.
        connection: To its cluster.
        slot: Its number.
        mark: The progress.
        group: `consumer_group_metadata` of a consumer of the sink's group.
    """
    offsets = [mark.commit(connection.progress_topic, slot)]
    producer.send_offsets_to_transaction(offsets, group, connection.timeout_s)
    producer.produce(connection.progress_topic, mark.record(), connection.name.encode(), slot)


def transactional_id(name: str, slot: int) -> str:
    """Return the `transactional.id` of a slot."""
    return f"{name}-{slot}"


def refuse_another_run(mark: SlotProgress, run: str) -> None:
    """Make sure that no other run has taken the slots since this one did.

    Raises:
        ProgressError: Another has: two drivers continue from one checkpoint, or from its copy.
    """
    if mark.run == OVERTAKEN != run:
        raise OvertakenError(
            "days were certified since this run began, and their changes are being sent, so nothing more was"
            " sent. Start it again"
        )
    if mark.run != run:
        raise ProgressError(
            f"another run has taken the slots: found {mark.run or 'reset'}, expected {run or 'none'}. Two"
            " drivers publish with one checkpoint or a copy of it, or publish reset was run meanwhile:"
            " leave one driver running"
        )


def what_to_do(mark: SlotProgress | None, done: SlotProgress, *, is_new: bool) -> Literal["publish", "skip"]:
    """Decide whether a slot of a micro-batch is published or was so before.

    Args:
        mark: What progress says, looked at after all others were fenced.
        done: What it says once this micro-batch is published.
        is_new: As in `SlotTask`.

    Raises:
        ProgressError: Neither can be right.
    """
    batch, before = done.batch, done.before
    if mark and mark.is_begun:
        raise ProgressError(f"only a part of the rows of micro-batch {mark.batch} was committed")
    if mark is None:
        if is_new:
            return "publish"
        raise ProgressError(f"there is no progress, but the checkpoint is at micro-batch {batch}")
    is_first = before == (0, 0) and mark == replace(done, next_batch=0, part=0, source="")
    if not is_first and (mark.source, mark.topic_id, mark.slots) != (
        done.source,
        done.topic_id,
        done.slots,
    ):
        raise ProgressError(f"progress belongs to another stream: found {mark}, expected {done}")
    refuse_another_run(mark, done.run)
    if mark.position == before:
        return "publish"
    # A slot may be ahead of others by parts of a micro-batch.
    if (batch, 0) < mark.position <= (batch + 1, 0) and mark.position >= done.position:
        return "skip"
    raise ProgressError(f"progress is at micro-batch {mark.next_batch}, but the checkpoint is at {batch}")
