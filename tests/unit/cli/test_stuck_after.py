"""The patience that a pipeline is configured with is the one by which `oncelake run` judges its streams."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.options import CommonOptions
from pipelines.cli.supervisor import _program
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.supervision.child import Child, Program
from pipelines.supervision.output import Printer, label_text
from pipelines.supervision.stuck import Stuck, Watch
from pipelines.supervision.supervisor import Supervisor, _Stream
from tests.support.supervised_streams import POLICY

CLUSTER = "kafka.clusters.eu.bootstrap_servers=eu:1"
STREAMS: Any = (("ingest", None), ("ingest", "eu"), ("speed", None), ("publish", None))


def programs(*settings: str) -> list[Program]:
    """The programs of all streams of a pipeline with these settings."""
    config: PipelineConfig = load_config(
        "flights", environ={}, settings=[CLUSTER, "publish.topic=out", *settings]
    )
    options = CommonOptions("flights", "local", Path("conf"), Path("data_contracts"), settings, "text")
    return [_program(options, config, stream, cluster) for stream, cluster in STREAMS]


@dataclass
class Judging(Supervisor):
    """A supervisor that ends nobody."""

    def _end_stuck(self, stream: _Stream, child: Child, stuck: Stuck) -> None:
        raise AssertionError(stuck.evidence)


class Silent:
    """Stands for a process that has told nothing since the last look."""

    def signs(self) -> list[None]:
        return []


def is_ended(program: Program, silent_s: float, doublings: int = 0) -> bool:
    """Whether the stream is taken for stuck which has given no sign for so long."""
    child: Any = Silent()
    stream = _Stream(program, child=child, watch=Watch(silent_s=silent_s), doublings=doublings)
    try:
        Judging(POLICY, Printer(label_text), lambda _: None)._look([stream])
    except AssertionError:
        return True
    return False


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
        assert not is_ended(program, 2 * seconds - 60, doublings=1)
        assert is_ended(program, 2 * seconds, doublings=1)


def test_nobody_is_judged_if_the_configuration_says_no() -> None:
    assert not any(is_ended(program, 1e9) for program in programs("run.stuck_after=null"))
