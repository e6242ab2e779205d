"""The end of a demo: the console beside it, and what lag and doctor say."""

from http.client import HTTPConnection
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rich.console import Console

from demo.health import Health, live_console
from demo.narration import Narrator
from demo.verdict import show_health
from pipelines.spark.pipeline import Pipeline
from pipelines.steps.loading import load_pipeline


def test_the_console_answers_at_its_address_whatever_can_be_read_and_ends_with_its_block(
    tmp_path: Path,
) -> None:
    no_session: Any = None
    pipeline = Pipeline(no_session, *load_pipeline("flights", settings=[f"lake.root={tmp_path}"]))
    with live_console(pipeline, tmp_path) as address:
        connection = HTTPConnection(urlsplit(address).netloc, timeout=30)
        for _ in range(2):
            connection.request("GET", "/")
            answer = connection.getresponse()
            assert (answer.status, b"flights" in answer.read()) == (200, True)
        connection.close()


def test_lines_of_lag_are_not_cut_to_the_width_of_a_terminal() -> None:
    said, line = StringIO(), "ingest   all   " + "0   " * 30
    show_health(Narrator(Console(file=said, width=80)), Health([line], ["[nothing] found"]))
    assert said.getvalue().splitlines() == [
        "",
        "oncelake lag",
        f"  {line}",
        "",
        "oncelake doctor",
        "  [nothing] found",
    ]
