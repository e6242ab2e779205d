"""The command prints its schedule, and touches no folder that it has not made."""

from pathlib import Path

from click.testing import CliRunner

from chaos.__main__ import chaos
from chaos.schedule import Kind


def test_the_schedule_can_be_seen_without_a_run() -> None:
    def shown(*options: str) -> str:
        done = CliRunner().invoke(chaos, ["--show", *options])
        assert done.exit_code == 0, done.output
        return done.output

    assert shown("--seed", "3") == shown("--seed", "3") != shown("--seed", "4")
    assert Kind.KILL_BROKER not in shown("--fault", "TEAR")
    assert Kind.TEAR in shown("--fault", "TEAR")
    assert Kind.TEAR not in shown("--quiet")
    assert Kind.KILL_EXECUTOR not in shown("--minutes", "20")
    refused = CliRunner().invoke(chaos, ["--show", "--fault", "KILL_EXECUTOR"])
    assert (refused.exit_code, "add --executors" in refused.output) == (2, True)
    assert Kind.UPGRADE in shown("--upgrade-from", "HEAD")
    refused = CliRunner().invoke(chaos, ["--show", "--upgrade-from", "HEAD", "--plant", "ingest-drops"])
    assert (refused.exit_code, "has the code of this checkout" in refused.output) == (2, True)
    assert Kind.KILL_EXECUTOR in shown("--minutes", "20", "--executors", "2")


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis").touch()
    done = CliRunner().invoke(chaos, ["--folder", str(tmp_path)])
    assert done.exit_code == 2
    assert "found files that no run made" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]
