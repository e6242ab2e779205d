"""The patience that a pipeline is configured with is the one by which `oncelake run` judges its streams."""

from pathlib import Path

import pytest

from pipelines.cli.options import CommonOptions
from pipelines.cli.supervisor import stream_programs
from pipelines.config.loader import load_config
from pipelines.supervision.child import Program
from pipelines.supervision.stuck import Patience

CLUSTER = "kafka.clusters.eu.bootstrap_servers=eu:1"
STREAMS = ["flights/ingest", "flights/ingest@eu", "flights/speed", "flights/publish"]
PLACES = (Path("conf"), Path("data_contracts"))
ALIVE = None


def programs(*settings: str) -> list[Program]:
    """The programs of all streams of a pipeline with these settings."""
    config = load_config("flights", environ={}, settings=[CLUSTER, "publish.topic=out", *settings])
    options = CommonOptions("flights", "local", *PLACES, settings, "text")
    found = list(stream_programs(options, config, config.streams))
    assert [str(each.name) for each in found] == STREAMS
    return found


def is_ended(program: Program, *silent_s: float) -> bool:
    """Whether the last of the runs of a stream is taken for stuck, each of which is silent for so long."""
    patience, is_stuck = Patience(program.stuck_after_s), False
    for each in silent_s:
        patience.begin()
        patience.look([ALIVE], 0.0)
        is_stuck = patience.look([], each) is not None
    return is_stuck


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [((), 900), (("run.stuck_after=5 minutes",), 300), (("run.stuck_after=2 hours",), 7_200)],
)
def test_a_stream_is_stuck_once_it_was_silent_for_as_long_as_is_configured(
    settings: tuple[str, ...], seconds: float
) -> None:
    for program in programs(*settings):
        assert not is_ended(program, seconds - 60)
        assert is_ended(program, seconds)
        # One that was ended as stuck gets twice as long.
        assert not is_ended(program, seconds, 2 * seconds - 60)
        assert is_ended(program, seconds, 2 * seconds)


def test_nobody_is_judged_if_the_configuration_says_no() -> None:
    assert not any(is_ended(program, 1e9) for program in programs("run.stuck_after=null"))
