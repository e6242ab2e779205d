"""`oncelake deploy` writes files to a folder or prints them, and refuses what does not scale."""

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from pipelines.cli.deploy import deploy
from pipelines.errors import OncelakeError

FIGURES = ("--rate-in", "1000", "--rate-out", "400", "--catch-up", "1 hour", "--partitions", "12")
ABSOLUTE = (
    "the absolute path of a folder, of letters, digits, '.', '_' and '-', without '.' and '..' as a part and"
    " without / at its end"
)
DATABRICKS = ("--runtime", "18.0", "--node-type", "m6", "--files", "/Workspace/x")


def run(*words: str) -> Result:
    command, *options = words
    return CliRunner().invoke(deploy, [command, "--pipeline", "flights", "--env", "prod", *options])


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["kubernetes"], ["base.yaml", "scheduled.yaml", "streams.yaml"]),
        (["keda"], ["base.yaml", "first-run.yaml", "scaled-job.yaml"]),
        (["keda", "--workers", "StatefulSet/spark", *FIGURES], ["scaled-object.yaml"]),
        (["spark-operator"], ["scheduled.yaml", "streams.yaml"]),
        (["airflow"], ["oncelake_nightly_flights.py"]),
        (["cron"], ["oncelake-flights"]),
        (
            ["databricks-job", *DATABRICKS],
            [f"{name}.json" for name in ("ingest_stream", "maintain", "nightly_batch", "speed_stream")],
        ),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_files_go_to_a_folder_and_the_same_to_standard_output(
    words: list[str], names: list[str], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = run(*words, "--out", str(out))
    assert (done.exit_code, done.exception) == (0, None)
    assert sorted(path.name for path in out.iterdir()) == names
    assert {*done.output.splitlines()} == {str(path) for path in out.iterdir()}
    printed = run(*words).output
    if names[0].endswith(".json"):
        assert sorted(json.loads(printed), key=str) == sorted(
            (json.loads(path.read_text()) for path in out.iterdir()), key=str
        )
    elif names[0].endswith(".yaml"):
        written = [each for path in sorted(out.iterdir()) for each in yaml.safe_load_all(path.read_text())]
        assert sorted(yaml.safe_load_all(printed), key=str) == sorted(written, key=str)
    else:
        assert printed == (out / names[0]).read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["keda", "--max-executors", "3"], "a stream is one run at a time"),
        (["keda", "--workers", "StatefulSet/spark"], "--workers needs --partitions, --rate-in"),
        (["keda", "--measured", __file__], "--measured: expected with --workers only"),
        (
            ["keda", "--workers", "StatefulSet/spark", *FIGURES, "--measured", __file__],
            "--measured: expected in place of --rate-in and --rate-out",
        ),
        (
            ["keda", "--workers", "StatefulSet/spark", *FIGURES, "--cooldown", "1 minute"],
            "expected 5 minutes at least",
        ),
        (
            ["keda", "--workers", "StatefulSet/spark", *FIGURES, "--max-executors", "13"],
            "number of partitions",
        ),
        (["systemd", "--with", "weather"], "--with: expected with --one-service only"),
        (["systemd", "--one-service", "--with", "nobody"], "nobody"),
        (["spark-operator", "--executors", "7", "--partitions", "6"], "number of partitions, 6"),
        (
            ["databricks-job", *DATABRICKS, "--max-workers", "9", "--partitions", "6"],
            "number of partitions, 6",
        ),
        (
            ["databricks-job", *DATABRICKS, "--workers", "3", "--max-workers", "2"],
            "expected at least --workers",
        ),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, list) else "",
)
def test_what_does_not_scale_is_refused(words: list[str], said: str) -> None:
    done = run(*words)
    assert isinstance(done.exception, OncelakeError)
    assert done.exception.exit_code == 2
    assert said in str(done.exception)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["kubernetes", "--image", "a b"], "the name of an image"),
        (["kubernetes", "--home", "opt"], ABSOLUTE),
        (["systemd", "--home", "opt/one"], ABSOLUTE),
        (["systemd", "--home", "/opt/one/"], ABSOLUTE),
        (["systemd", "--home", "/"], ABSOLUTE),
        (["systemd", "--home", "~/one"], ABSOLUTE),
        (["systemd", "--home", "/opt/one lake"], ABSOLUTE),
        (["systemd", "--home", "/opt/../etc"], ABSOLUTE),
        (["systemd", "--home", "/opt/./one"], ABSOLUTE),
        (["kubernetes", "--home", "/opt/'"], ABSOLUTE),
        (["kubernetes", "--secret", "A"], "1 to 253 small letters"),
        (["keda", "--workers", "DaemonSet/spark"], "StatefulSet/NAME or Deployment/NAME"),
        (["airflow", "--home", '/opt/"\n'], ABSOLUTE),
        (["kubernetes", "--image", ":"], "the name of an image"),
        (["kubernetes", "--secret", "a..b"], "1 to 253 small letters"),
        (["kubernetes", "--secret", "a" * 254], "1 to 253 small letters"),
        (["spark-operator", "--driver-account", "a.-b"], "1 to 253 small letters"),
        (
            ["databricks-job", "--runtime", "", "--node-type", "m6", "--files", "/Workspace/x"],
            "letters, digits, '.', '_' and '-', such as 18.0.x-scala2.13, got ''",
        ),
        (
            ["databricks-job", "--runtime", "18.0", "--node-type", "", "--files", "/Workspace/x"],
            "letters, digits, '.', '_' and '-', such as m6gd.large, got ''",
        ),
        (["databricks-job", "--runtime", "18.0", "--node-type", "m6", "--files", "x"], ABSOLUTE),
    ],
)
def test_texts_that_would_mean_something_else_in_a_file_are_refused(words: list[str], expected: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert f": expected {expected}" in done.output
    assert ", such as " in done.output
    assert ", got " in done.output


def test_a_wrong_home_is_refused_with_what_one_is() -> None:
    done = run("systemd", "--home", "opt/one")
    assert done.output.endswith(
        f"Invalid value for '--home': expected {ABSOLUTE}, such as /opt/oncelake, got 'opt/one'\n"
    )


def test_files_that_cannot_all_be_written_are_not_written_in_part(tmp_path: Path) -> None:
    """`kubectl apply --filename FOLDER` would take what there is."""
    (tmp_path / "base.yaml").write_text("before")
    (tmp_path / "streams.yaml").mkdir()
    (tmp_path / "streams.yaml" / "mine").touch()
    done = run("kubernetes", "--out", str(tmp_path))
    assert isinstance(done.exception, OncelakeError)
    assert (done.exception.exit_code, done.output) == (2, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["base.yaml", "streams.yaml"]
    assert (tmp_path / "base.yaml").read_text() == "before"
