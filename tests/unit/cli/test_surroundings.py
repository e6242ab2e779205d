"""Whatever a command is started in, it ends with one message, its exit code and no stack trace."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.patient

ROOT = Path(__file__).resolve().parents[3]
FULL = Path("/dev/full")
PLAN = (
    "plan",
    "--pipeline",
    "flights",
    "--conf-dir",
    f"{ROOT}/conf",
    "--contracts-dir",
    f"{ROOT}/data_contracts",
)
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}


def command(*words: str, before: str = "") -> list[str]:
    """`oncelake WORDS` in a process of its own, in which something is done before."""
    return [sys.executable, "-c", f"{before}\nfrom pipelines.cli import main\nmain()", *words]


def run(*words: str, before: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(*words, before=before),
        env=ENVIRONMENT | environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        timeout=60,
        check=False,
    )


def test_a_folder_that_is_gone_is_named_as_the_cause(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    done = run(*PLAN, before=f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})")
    assert done.returncode == 2
    assert done.stderr.startswith("error: the folder in which this command runs is gone")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
def test_a_full_disk_behind_standard_output_is_one_message() -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            command(*PLAN),
            env=ENVIRONMENT,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [("plan",), ("ingest_stream",)], ids=" ".join)
def test_a_full_disk_behind_standard_error_leaves_the_exit_code(words: tuple[str, ...]) -> None:
    with FULL.open("w") as full:
        done = subprocess.run(
            command(*words, "--pipeline", "none", "--conf-dir", f"{ROOT}/conf"),
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=full,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2


def test_a_reader_that_has_gone_is_no_stack_trace() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            command(*PLAN),
            env=ENVIRONMENT,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_what_an_encoding_lacks_is_shown_as_an_escape() -> None:
    done = run(*PLAN, "--set", "lake.root=/lake/日", PYTHONIOENCODING="latin-1")
    assert done.returncode == 0, done.stderr
    assert "/lake/\\u65e5/bronze/flights" in done.stdout


def test_ctrl_c_while_modules_are_imported_shows_no_stack_trace() -> None:
    """The signal comes when the first module of the commands is imported."""
    before = "\n".join(
        (
            "import os, signal, sys",
            "class Finder:",
            "    def find_spec(self, name, path, target=None):",
            "        if name == 'pipelines.cli.app': os.kill(os.getpid(), signal.SIGINT)",
            "sys.meta_path.insert(0, Finder())",
        )
    )
    done = run("--version", before=before)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_a_terminal_gets_no_escape_codes_from_a_file() -> None:
    done = run(*PLAN, "--set", "kafka.options.client.id=a\x1b[2Jb")
    assert done.returncode == 0, done.stderr
    assert "a\\x1b[2Jb" in done.stdout
