"""A pipeline knows itself among the sources of its clusters."""

from typing import Any

from pipelines.spark.pipeline import Pipeline
from pipelines.steps.loading import load_pipeline

NO_SESSION: Any = None


def test_the_source_of_the_only_cluster_is_the_pipeline_itself() -> None:
    """A look at the lag refuses an only cluster that does not answer; of several, it goes on."""
    pipeline = Pipeline(NO_SESSION, *load_pipeline("flights"))
    (only,) = pipeline.sources()
    assert only is pipeline


def test_each_of_several_clusters_has_a_source() -> None:
    settings = ["kafka.clusters.eu.bootstrap_servers=eu:9092"]
    pipeline = Pipeline(NO_SESSION, *load_pipeline("flights", settings=settings))
    assert [source.config.cluster for source in pipeline.sources()] == [None, "eu"]
