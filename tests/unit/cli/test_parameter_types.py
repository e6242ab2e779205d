"""What options refuse that click's own types take."""

import pytest
from click.testing import CliRunner

from pipelines.cli.app import oncelake

FLIGHTS = ("--pipeline", "flights")
RATES = ("--workers", "StatefulSet/spark", "--partitions", "3", "--catch-up", "1 hour")


@pytest.mark.parametrize("number", ["nan", "inf", "-inf", "1e300", "0", "", "10x"])
@pytest.mark.parametrize(
    "words",
    [
        ("lag", *FLIGHTS, "--watch"),
        ("console", "--every"),
        ("console", "--time-limit"),
        ("deploy", "keda", *FLIGHTS, *RATES, "--rate-out", "400", "--rate-in"),
        ("deploy", "keda", *FLIGHTS, *RATES, "--rate-in", "400", "--rate-out"),
    ],
    ids=lambda words: " ".join((*words[:1], words[-1])),
)
def test_what_is_no_number_of_seconds_or_records_is_refused(words: tuple[str, ...], number: str) -> None:
    done = CliRunner().invoke(oncelake, [*words, number])
    assert done.exit_code == 2, done.exception
    assert f"Invalid value for '{words[-1]}'" in done.output


@pytest.mark.parametrize(
    "words",
    [
        ("plan", *FLIGHTS, "--conf-dir"),
        ("plan", *FLIGHTS, "--contracts-dir"),
        ("deploy", "cron", *FLIGHTS, "--out"),
        ("report", *FLIGHTS, "--out"),
        ("console", "--reports"),
        ("console", "--out"),
        ("broker", "status", "--folder"),
    ],
    ids=" ".join,
)
def test_a_folder_without_a_name_is_not_the_current_one(words: tuple[str, ...]) -> None:
    done = CliRunner().invoke(oncelake, [*words, ""])
    assert done.exit_code == 2, done.exception
    assert "expected a folder, got nothing" in done.output


@pytest.mark.parametrize(
    ("option", "value"),
    [("--conf-dir", "conf"), ("--contracts-dir", "data_contracts"), ("--log-format", "text")],
)
def test_an_option_that_is_given_twice_is_refused(option: str, value: str) -> None:
    done = CliRunner().invoke(oncelake, ["plan", *FLIGHTS, option, value, option, value])
    assert done.exit_code == 2
    assert f"Invalid value for '{option}': expected the option once, found it 2 times" in done.output
