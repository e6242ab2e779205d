"""A model of a Kafka topic: offsets, and what retention, compaction and a lost disk make of them.

`tests/integration/simulation/test_topic_model.py` holds it against a broker.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import count

from pipelines.errors import SourceError
from pipelines.kafka.topics import Topic


@dataclass(frozen=True)
class Sent:
    """A record that the cluster has acknowledged.

    Attributes:
        number: stands for its content.
        topic_id: the topic that took it.
        partition: where it is.
        offset: where it is.
        at: when the cluster took it, which is its timestamp.
        day: the day of its event.
    """

    number: int
    topic_id: str
    partition: int
    offset: int
    at: datetime
    day: date


@dataclass
class PartitionLog:
    """The log of a partition.

    Attributes:
        start: the earliest offset.
        end: the offset after the newest.
        records: those that readers get, by offset.
        most: the highest end that it ever had.
    """

    start: int = 0
    end: int = 0
    records: dict[int, Sent] = field(default_factory=dict)
    most: int = 0


class ModelTopic:
    """A topic that is not compacted and has no transactions unless somebody makes it so.

    Attributes:
        name: its name.
        topic_id: changes when it is recreated.
        logs: its partitions.
        sent: all that was ever acknowledged.
        excused: numbers of records that nobody can miss: those that Kafka has lost or compacted, and those
            under offsets that other records had before, once they are deleted.
    """

    def __init__(self, name: str, partitions: int) -> None:
        self.name = name
        self.sent = list[Sent]()
        self.excused = set[int]()
        self._ids, self._numbers = count(), count()
        self.logs = list[PartitionLog]()
        self.recreate(partitions)

    def recreate(self, partitions: int) -> None:
        """Do what somebody does by hand: delete it, and create another one of its name."""
        self.topic_id = f"id-{next(self._ids)}"
        self.logs = [PartitionLog() for _ in range(partitions)]

    def found(self) -> Topic:
        """Return what the cluster says of it."""
        return Topic(self.name, self.topic_id, len(self.logs))

    def send(self, partition: int, at: datetime, day: date) -> None:
        """Append a record."""
        log = self.logs[partition]
        record = Sent(next(self._numbers), self.topic_id, partition, log.end, at, day)
        log.records[log.end] = record
        self.sent.append(record)
        log.end += 1

    def abort(self, partition: int) -> None:
        """Append a transaction that was aborted: a record that no reader gets, and its marker."""
        self.logs[partition].end += 2

    def delete(self, partition: int, offsets: int) -> None:
        """Do what retention does: delete the oldest offsets."""
        log = self.logs[partition]
        log.start = min(log.start + offsets, log.end)
        for offset in [each for each in log.records if each < log.start]:
            number = log.records.pop(offset).number
            if offset < log.most:
                self.excused.add(number)

    def compact(self, partition: int) -> None:
        """Delete the oldest record that is not the newest."""
        log = self.logs[partition]
        if len(log.records) > 1:
            self.excused.add(log.records.pop(min(log.records)).number)

    def lose(self, partition: int, offsets: int) -> None:
        """Do what an unclean leader does: the newest offsets are gone, and will be given once more."""
        log = self.logs[partition]
        log.most = max(log.most, log.end)
        log.end = max(log.start, log.end - offsets)
        for offset in [each for each in log.records if each >= log.end]:
            self.excused.add(log.records.pop(offset).number)

    def bounds(self) -> dict[int, range]:
        """Return the earliest offset of each partition, and the one after the newest."""
        return {number: range(log.start, log.end) for number, log in enumerate(self.logs)}

    def between(self, ranges: Mapping[int, range]) -> list[Sent]:
        """Return the records within offsets, as a reader gets them that stops where any are missing.

        Raises:
            SourceError: the topic has not, or no longer, all of these offsets.
        """
        found = list[Sent]()
        for number, offsets in ranges.items():
            log = self.logs[number] if number < len(self.logs) else PartitionLog()
            if offsets and not log.start <= offsets.start <= offsets.stop <= log.end:
                expected = f"expected {offsets.start}..{offsets.stop}"
                raise SourceError(f"{self.name}-{number}: found {log.start}..{log.end}, {expected}")
            found += [record for at, record in log.records.items() if at in offsets]
        return found


def last_by_partition(records: Sequence[Sent]) -> dict[int, int]:
    """Return the last offset of each partition among records."""
    last = dict[int, int]()
    for record in records:
        last[record.partition] = max(record.offset, last.get(record.partition, -1))
    return last
