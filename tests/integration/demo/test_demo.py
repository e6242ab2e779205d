"""The demo from its start to its end: nothing is lost, and lag and doctor have nothing to say."""

import re
from http.client import HTTPConnection
from pathlib import Path

import pytest

from testbed.waiting import wait_until
from tests.support.signalled_programs import Program, program

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough]

_CONSOLE = re.compile(r"the console shows all of this: http://(\S+)/")


def said(running: Program) -> str:
    return running.log.read_text()


@pytest.mark.timeout(900)
def test_it_ends_well_with_the_console_beside_it(tmp_path: Path) -> None:
    with program(tmp_path, "-m", "demo", "--days=2", f"--folder={tmp_path}/demo") as running:
        wait_until(
            lambda: _CONSOLE.search(said(running)) is not None or running.process.poll() is not None,
            "the console has an address",
            600,
        )
        found = _CONSOLE.search(said(running))
        assert found is not None, said(running)
        connection = HTTPConnection(found[1], timeout=60)
        connection.request("GET", "/")
        assert "flights" in connection.getresponse().read().decode()
        assert running.process.wait(300) == 0, said(running)
    verdict, _, health = said(running).rpartition("oncelake lag\n")
    assert "lost 0 · duplicated 0 · wrong payload 0 · never sent 0 · quarantine differs 0" in verdict
    lag, _, doctor = health.partition("oncelake doctor\n")
    told = dict(re.findall(r"^ +(ingest|speed): ([a-z ]+):", lag, re.MULTILINE))
    # That depends on whether something came in the last five minutes.
    assert told.keys() == {"ingest", "speed"}
    assert {*told.values()} <= {"not behind", "source quiet"}
    assert doctor.split() == ["nothing", "found"]
