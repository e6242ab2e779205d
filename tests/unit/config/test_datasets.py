"""Datasets have the names that OpenLineage's own helper gives them."""

import pytest
from openlineage.client.naming.dataset import GCS, HDFS, S3, DatasetNaming, Kafka, LocalFileSystem

from pipelines.cli.jobs import JOBS
from pipelines.config.datasets import Dataset, datasets_of, table, topic
from pipelines.config.loader import load_config


@pytest.mark.parametrize(
    ("dataset", "naming"),
    [
        (topic("one:9092, two:9092", "flights"), Kafka("one", "9092", "flights")),
        (table("/lake/speed/flights"), LocalFileSystem("/lake/speed/flights")),
        (table("file:///lake/speed/flights"), LocalFileSystem("/lake/speed/flights")),
        (table("s3a://bucket/lake/speed/flights"), S3("bucket", "lake/speed/flights")),
        (table("gs://bucket/lake/speed/flights"), GCS("bucket", "lake/speed/flights")),
        (table("hdfs://node:8020/lake/speed/flights"), HDFS("node", "8020", "/lake/speed/flights")),
    ],
    ids=lambda value: value.namespace if isinstance(value, Dataset) else "",
)
def test_names_are_those_of_the_specification(dataset: Dataset, naming: DatasetNaming) -> None:
    assert (dataset.namespace, dataset.name) == (naming.get_namespace(), naming.get_name())


def test_each_job_has_datasets_and_no_other_command() -> None:
    settings = ["publish.topic=out", "quarantine.dead_letter_topic=broken"]
    config = load_config("flights", environ={}, settings=settings)
    found = {job: datasets_of(config, job) for job in JOBS}
    assert None not in found.values()
    assert datasets_of(config, "doctor") is None
    speed, publish = found["speed_stream"], found["publish_stream"]
    assert speed is not None
    assert publish is not None
    assert [one.name for one in speed.outputs][-1] == "broken"
    assert [(one.name, one.has_events) for one in publish.outputs] == [("out", True)]
