"""What an operator calls has its own output and exit code, though one process runs all of it."""

from pathlib import Path

import pytest

from chaos.desk import PROGRAM, open_desk
from chaos.jobs import CHAOS, Job

pytestmark = pytest.mark.patient

WITHIN_S = 60.0


def test_commands_of_one_process_end_as_they_would_alone(tmp_path: Path) -> None:
    with open_desk(("-P", PROGRAM)) as desk:

        def ended(*words: str) -> tuple[int | None, str]:
            job = Job("a command", words, tmp_path, desk.entry)
            job.start()
            code = job.wait(WITHIN_S)
            job.kill()
            return code, str(job.summary().get("error", ""))

        folders = ("--conf-dir", str(CHAOS / "conf"), "--contracts-dir", str(CHAOS / "contracts"))
        refused = ended("publish", "status", "--pipeline", "nobody", *folders)
        assert refused[0] == 2
        assert "nobody" in refused[1]
        desk.open_again()
        assert ended("publish", "status", "--pipeline", "nobody", *folders) == refused
