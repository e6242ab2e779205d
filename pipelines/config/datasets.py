"""Which datasets each job reads and writes, by the names that OpenLineage gives to topics and tables.

Source: https://openlineage.io/docs/spec/naming
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pipelines.config.model import PipelineConfig
from pipelines.config.streams import STREAMS, Layer, Query

_S3: Final = ("s3", "s3a", "s3n")
_WITH_ROOT: Final = ("file", "hdfs")
_OF_EVENTS: Final = ("speed", "batch")


@dataclass(frozen=True)
class Dataset:
    """A topic or a table.

    Attributes:
        namespace: The cluster or the store.
        name: The topic, or the path within the store.
        has_events: Whether its rows or values have the contract's columns.
    """

    namespace: str
    name: str
    has_events: bool = False


@dataclass(frozen=True)
class Datasets:
    """What a job reads and writes.

    Attributes:
        inputs: What it reads.
        outputs: What it writes.
        is_stream: Whether it runs until it is stopped.
    """

    inputs: tuple[Dataset, ...]
    outputs: tuple[Dataset, ...]
    is_stream: bool = False


def datasets_of(config: PipelineConfig, job: str) -> Datasets | None:
    """Return what a job of a pipeline reads and writes; None for a command that is no job.

    Args:
        config: The pipeline's configuration.
        job: The name of the job, as in its summary.
    """
    for query, stream in STREAMS.items():
        if stream.job == job:
            return _of_stream(config, query)
    match job:
        case "nightly_batch":
            served = [table(config.serving_table, has_events=True)] if config.serving.table else []
            written = (*_layers(config, ["batch", "quarantine"]), *served, *_ops(config, "certifications"))
            return Datasets(_layers(config, ["bronze", "speed", "quarantine"]), written)
        case "validate":
            read = _layers(config, ["bronze", "batch", "speed", "quarantine"])
            return Datasets(read, _ops(config, "validation_results"))
        case "report":
            read = _layers(config, ["bronze", "batch", "speed", "quarantine"])
            return Datasets((*read, *_ops(config, "certifications", "validation_results")), ())
        case "maintain":
            # It changes no data: the versions that readers see have the same rows before and after.
            return Datasets((), ())
        case _:
            return None


def _of_stream(config: PipelineConfig, query: Query) -> Datasets:
    stream, servers = STREAMS[query], config.kafka.bootstrap_servers
    inputs, outputs = _layers(config, stream.reads), _layers(config, stream.writes)
    match query:
        case "ingest":
            inputs = (topic(servers, config.kafka.topic),)
        case "speed":
            if dead_letters := config.quarantine.dead_letter_topic:
                outputs = (*outputs, topic(servers, dead_letters))
        case "publish":
            if config.publish:
                to = config.publish.bootstrap_servers or servers
                outputs = (topic(to, config.publish.topic, has_events=True),)
    return Datasets(inputs, outputs, is_stream=True)


def _layers(config: PipelineConfig, layers: Iterable[Layer]) -> tuple[Dataset, ...]:
    return tuple(table(config.table(layer), has_events=layer in _OF_EVENTS) for layer in layers)


def _ops(config: PipelineConfig, *names: str) -> tuple[Dataset, ...]:
    return tuple(table(config.ops_table(name)) for name in names)


def topic(servers: str, name: str, *, has_events: bool = False) -> Dataset:
    """Return a topic of a cluster, which is named after its first server."""
    return Dataset(f"kafka://{servers.split(',', maxsplit=1)[0].strip()}", name, has_events)


def table(path: str, *, has_events: bool = False) -> Dataset:
    """Return a table by its path."""
    scheme, separator, rest = path.partition("://")
    if not separator:
        return Dataset("file", path, has_events)
    store, _, name = rest.partition("/")
    scheme = "s3" if scheme in _S3 else scheme
    name = f"/{name}" if scheme in _WITH_ROOT else name
    return Dataset(f"{scheme}://{store}" if store else scheme, name, has_events)
