"""The README's walk from an empty folder to a report, run as it is written, with the installed wheel."""

import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.command_process import command_process

Run = Callable[..., "subprocess.CompletedProcess[str]"]
ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# The test's own environment stands for these two lines.
SET_UP = ("make setup\n", ". .venv/bin/activate\n")
# Eight of the commands start Spark, which takes most of their time. They share one.
COMMAND = """\
#!/bin/sh
case "$1" in init|plan|broker) exec {installed} "$@" ;; esac
{asking} "$@"; code=$?; echo "$(basename $0) $1 $2 cpu $(ps -eo pgid=,cputimes= | awk -v g={group} "\$1==g{{s+=\$2}}END{{print s}}")" >> /tmp/wt/tests-a-tools/rd/log; exit $code
"""

pytestmark = [pytest.mark.packaging, pytest.mark.spark, pytest.mark.integration, pytest.mark.slow]


def walk_through(text: str) -> Iterator[str]:
    """The commands of the section, in their order, as one shell script."""
    section = text.partition("\n## Step by step\n")[2].partition("\n## ")[0]
    for language, code in BLOCK.findall(section):
        yield code if language == "sh" else f"python - <<'END'\n{code}END\n"


@pytest.fixture
def commands(installed_python: Path, outside: dict[str, str], tmp_path: Path) -> Iterator[Path]:
    """A folder for the PATH, whose `oncelake` and `python` are those of the wheel."""
    folder = tmp_path / "commands"
    folder.mkdir()
    with command_process(installed_python, outside) as process:
        for name in ("oncelake", "python"):
            installed, asking = installed_python.with_name(name), shlex.join(process.asking(name))
            (folder / name).write_text(COMMAND.format(group=process.process.pid, installed=installed, asking=asking))
            (folder / name).chmod(0o700)
        yield folder


@pytest.mark.timeout(1200)
def test_step_by_step_ends_with_a_report_and_the_day_s_events_once(
    installed_python: Path,
    run: Callable[..., "subprocess.CompletedProcess[str]"],
    tmp_path: Path,
    outside: dict[str, str],
    commands: Path,
) -> None:
    script = "".join(walk_through((ROOT / "README.md").read_text()))
    for line in SET_UP:
        assert line in script
        script = script.replace(line, "")
    start = tmp_path / "checkout"
    start.mkdir()
    path = f"{commands}:{installed_python.parent}:{outside['PATH']}"
    try:
        done = run("bash", "-euxc", script, cwd=start, PATH=path)
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-8000:]}"
        assert re.search(r" 3 +open +malformed_json ", done.stdout), done.stdout
        assert re.search(r"\|\s*2013-01-01\|\s*920\|", done.stdout), done.stdout
    finally:
        run("make", "stop", cwd=tmp_path / "my-lake", PATH=path)
    assert list((tmp_path / "my-lake/reports").glob("flights-2013-01-01.html"))
