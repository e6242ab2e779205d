"""A new stream is an entry of `STREAMS`; these tests say where else it must be known."""

import re
from pathlib import Path
from typing import get_args

import pytest
from annotated_types import Le
from click.testing import CliRunner

from pipelines.cli.app import oncelake
from pipelines.cli.jobs import JOBS
from pipelines.cli.maintain import summary_of
from pipelines.config.loader import load_config
from pipelines.config.model import MetricsConfig
from pipelines.config.streams import (
    LAYERS,
    STREAMS,
    LakeQuery,
    Layer,
    Query,
    Stream,
    TableQuery,
    reader_of,
    writer_of,
)
from pipelines.retention.upkeep_run import KeptFiles
from pipelines.steps.maintain import READER_IS_BEHIND, Upkeep

ROOT = Path(__file__).resolve().parents[3]
READ: dict[Layer, Stream] = {layer: stream for stream in STREAMS.values() for layer in stream.reads}


def test_the_types_name_the_streams_that_are_declared() -> None:
    assert get_args(Query) == (*STREAMS,)
    assert get_args(LakeQuery) == tuple(query for query, stream in STREAMS.items() if stream.writes)
    assert get_args(TableQuery) == tuple(query for query, stream in STREAMS.items() if stream.reads)


def test_a_table_has_one_stream_that_writes_it_and_one_that_reads_it_at_most() -> None:
    # `first_unread_version`, `unread_rows` and upkeep ask one reader of each table.
    written = [layer for stream in STREAMS.values() for layer in stream.writes]
    assert sorted(written) == sorted({*LAYERS} - {"batch"})
    assert len([layer for stream in STREAMS.values() for layer in stream.reads]) == len(READ)
    assert {layer: writer_of(layer).job for layer in LAYERS if layer != "batch"} == {
        **{"bronze": "ingest_stream", "speed": "speed_stream", "quarantine": "speed_stream"}
    }
    assert {layer: reader_of(layer) for layer in LAYERS} == {
        **{"bronze": "speed", "speed": "publish"},
        **{"batch": None, "quarantine": None},
    }


def test_a_pipeline_that_does_not_publish_has_all_other_streams() -> None:
    assert load_config("flights", environ={}, settings=["publish.topic=out"]).streams == (*STREAMS,)
    assert load_config("flights", environ={}, settings=[]).streams == tuple(
        query for query in STREAMS if query != "publish"
    )


def test_upkeep_leaves_the_files_that_the_reader_of_a_table_needs_and_names_it() -> None:
    assert {*READER_IS_BEHIND} == {*READ}
    for layer, stream in READ.items():
        (line,) = summary_of(Upkeep((KeptFiles(layer),)), vacuum_now=True)["lines"]
        assert line.startswith(f"{layer}: no file removed: {stream.job} has not "), line


def test_streams_can_listen_on_one_host() -> None:
    ports = sorted(stream.port for stream in STREAMS.values())
    assert ports == [*range(len(STREAMS))]
    assert Le(65_535 - ports[-1]) in MetricsConfig.model_fields["port"].metadata


@pytest.mark.parametrize("query", STREAMS)
def test_a_stream_is_a_job_that_plan_and_the_pages_show(query: Query) -> None:
    stream = STREAMS[query]
    assert stream.job in JOBS
    assert (ROOT / f"jobs/{stream.job}.py").is_file()
    planned = CliRunner().invoke(oncelake, ["plan", "--pipeline=flights", "--log-format=text"], env={})
    assert re.search(rf"^{stream.job}: ", planned.output, re.MULTILINE)
    for page in ("deploy", "schedule", "runbook"):
        assert f"`{stream.job}`" in (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("query", STREAMS)
def test_the_architecture_names_what_a_stream_reads_and_writes(query: Query) -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| `{STREAMS[query].job}` \| (.+) \| (.+) \| stream \|$", page, re.MULTILINE)
    assert found is not None
    reads, writes = (re.findall(r"`(\w+)/NAME`", column) for column in found.groups())
    assert (sorted(reads), sorted(writes)) == (sorted(STREAMS[query].reads), sorted(STREAMS[query].writes))
    assert f"`{query}`" in re.findall(r"^\| `ops/checkpoints/NAME/QUERY` \|.*$", page, re.MULTILINE)[0]
