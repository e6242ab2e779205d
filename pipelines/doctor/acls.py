"""The ACLs that each job of a pipeline needs on its clusters, and no others: `oncelake doctor --acls`.

`tests/guarantees/test_secured_broker.py` runs the streams, `nightly_batch`, `doctor`, `lag` and `reconcile`
with these against a broker that denies all else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from pipelines.config.model import PipelineConfig
from pipelines.publishing.settings import DAY_SINK, sink_of
from pipelines.publishing.slots import transactional_id

Resource = Literal["topic", "group", "transactional-id", "cluster"]
Operation = Literal["Read", "Write", "Describe", "DescribeConfigs", "Create", "Alter"]

# Read and Write include Describe.
_LOOKERS: Final = ("lag", "console")
_READERS: Final = ("ingest_stream", "nightly_batch", "backfill", "reconcile", "checkpoint reset", "doctor")
_PUBLISHERS: Final = ("publish_stream", "publish", "publish reset")
_CLUSTER: Final = "kafka-cluster"
_WATCHERS: Final = ("doctor", "publish status", "publish doctor")


@dataclass(frozen=True)
class Acl:
    """An operation that the user of a job must be allowed.

    Attributes:
        job: The job or command.
        resource: The kind of resource.
        name: Its name, or the beginning of its name.
        operation: What must be allowed.
        servers: The cluster, by its address.
        is_prefix: Whether the name is the beginning of names.
        optional: What the job lacks without it; None if it fails.
    """

    job: str
    resource: Resource
    name: str
    operation: Operation
    servers: str
    is_prefix: bool = False
    optional: str | None = None

    @property
    def command(self) -> str:
        """Kafka's own command that allows it; the user's name is left to be put in."""
        pattern = " --resource-pattern-type prefixed" if self.is_prefix else ""
        name = "" if self.resource == "cluster" else f" {self.name}"
        return (
            f"kafka-acls.sh --bootstrap-server {self.servers} --add --allow-principal User:NAME"
            f" --operation {self.operation} --{self.resource}{name}{pattern}"
        )


def acls(config: PipelineConfig) -> tuple[Acl, ...]:
    """Return the ACLs that the jobs of a pipeline need, job by job; jobs that are not named need none."""
    needed = dict[tuple[str, ...], Acl]()
    of_sources = (
        acl for source in config.sources() if not source.kafka.retired for acl in _of_source(source)
    )
    for acl in (*of_sources, *_of_dead_letters(config), *_of_output(config)):
        needed.setdefault((acl.job, acl.servers, acl.resource, acl.name, acl.operation), acl)
    jobs = dict.fromkeys(acl.job for acl in needed.values())
    return tuple(acl for job in jobs for acl in needed.values() if acl.job == job)


def _of_source(config: PipelineConfig) -> Iterator[Acl]:
    kafka, servers = config.kafka, config.kafka.bootstrap_servers
    for job in _READERS:
        yield Acl(job, "topic", kafka.topic, "Read", servers)
        if job == "ingest_stream" and config.offsets_group:
            lacks = "lag tools do not see its offsets; ingest.offsets_group: null turns them off"
            yield Acl(job, "group", config.offsets_group, "Read", servers, optional=lacks)
    for job in _LOOKERS:
        yield Acl(job, "topic", kafka.topic, "Describe", servers)
        # They read the first unread records, to know when these were sent, and keys of a hot partition.
        lacks = (
            "it is not known how old unread records are, so a stream that keeps up may seem slow; nor which"
            " keys are frequent, and how fast brokers answer"
        )
        yield Acl(job, "topic", kafka.topic, "Read", servers, optional=lacks)
        lacks = "nobody is told that Kafka is about to delete records that were not read"
        yield Acl(job, "topic", kafka.topic, "DescribeConfigs", servers, optional=lacks)
    lacks = "retention and other settings of the topic are not checked"
    yield Acl("doctor", "topic", kafka.topic, "DescribeConfigs", servers, optional=lacks)
    lacks = "racks, limits of brokers and sizes of partitions are not checked"
    yield Acl("doctor", "cluster", _CLUSTER, "DescribeConfigs", servers, optional=lacks)
    yield Acl("doctor", "cluster", _CLUSTER, "Describe", servers, optional=lacks)


def _of_dead_letters(config: PipelineConfig) -> Iterator[Acl]:
    servers = config.kafka.bootstrap_servers
    if topic := config.quarantine.dead_letter_topic:
        yield Acl("speed_stream", "topic", topic, "Write", servers)
        yield Acl("doctor", "topic", topic, "Describe", servers)
        lacks = "it is not checked whether the largest record fits"
        yield Acl("doctor", "topic", topic, "DescribeConfigs", servers, optional=lacks)


def _of_output(config: PipelineConfig) -> Iterator[Acl]:
    publish = config.publish
    if publish is None:
        return
    sink, servers = sink_of(config), publish.bootstrap_servers or config.kafka.bootstrap_servers
    by_hand = f"create the topic with {publish.slots} partitions and cleanup.policy=compact yourself"
    for job in _PUBLISHERS:
        yield Acl(job, "topic", sink.topic, "Write", servers)
        lacks = "progress that the cluster has lost is not found in the records"
        yield Acl(job, "topic", sink.topic, "Read", servers, optional=lacks)
        # A prefix of the stream's own names would let in other pipelines whose names begin so.
        for slot in range(publish.slots):
            yield Acl(job, "transactional-id", transactional_id(sink.name, slot), "Write", servers)
        yield Acl(job, "transactional-id", f"{sink.name}{DAY_SINK}", "Write", servers, is_prefix=True)
        yield from _of_groups(job, sink.name, "Read", servers)
        yield Acl(job, "topic", sink.progress_topic, "Read", servers)
        yield Acl(job, "topic", sink.progress_topic, "Write", servers)
        making: tuple[Operation, ...] = ("Create", "Alter")
        for operation in making:
            yield Acl(job, "topic", sink.progress_topic, operation, servers, optional=by_hand)
        lacks = "it warns that it cannot see whether the topic is compacted"
        yield Acl(job, "topic", sink.progress_topic, "DescribeConfigs", servers, optional=lacks)
    for job in _WATCHERS:
        yield Acl(job, "topic", sink.topic, "Describe", servers)
        yield Acl(job, "topic", sink.progress_topic, "Read", servers)
        yield from _of_groups(job, sink.name, "Describe", servers)
        lacks = "limits of the brokers are not checked"
        yield Acl(job, "cluster", _CLUSTER, "DescribeConfigs", servers, optional=lacks)
        lacks = "settings of the output topic are not checked"
        yield Acl(job, "topic", sink.topic, "DescribeConfigs", servers, optional=lacks)


def _of_groups(job: str, name: str, operation: Operation, servers: str) -> Iterator[Acl]:
    """Yield the ACLs for the groups that keep the progress of the stream, and of whole days."""
    yield Acl(job, "group", name, operation, servers)
    yield Acl(job, "group", f"{name}{DAY_SINK}", operation, servers, is_prefix=True)
