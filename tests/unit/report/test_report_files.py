"""A report is written as whole files, reads back as the same, and refuses wrong data."""

import json
import os
import subprocess
import sys
import zipfile
from datetime import date, datetime
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

import pipelines
from pipelines.errors import InfrastructureError
from pipelines.report.model.records import (
    QuarantineExample,
)
from pipelines.report.model.report import ReportData
from pipelines.report.render import html_page
from pipelines.report.render.files import ReportFormat, render_json, write_report
from scripts.report_schema import SCHEMA, schema_text
from tests.support.report_pages import CASES, page_of
from tests.support.reports import sample, trend_until


def test_same_data_gives_the_same_bytes() -> None:
    """A report can be made again and compared."""
    assert html_page.render_html(sample()) == page_of("certified")
    assert render_json(sample()) == render_json(sample())


def test_json_reads_back_as_the_same_report() -> None:
    """The JSON holds everything that the page was made from."""
    for data in CASES.values():
        assert ReportData.model_validate_json(render_json(data)) == data
    assert json.loads(render_json(CASES["failed"]))["verdict"]["failed"] == 2


def test_write_report_leaves_complete_files(tmp_path: Path) -> None:
    """Page, JSON and index are there, readable, replaced by a second run, and no temporary file stays."""
    out = tmp_path / "new" / "reports"
    first = write_report(sample("failed"), out)
    second = write_report(sample(), out)
    assert first == second
    assert {sort: path.name for sort, path in second.items()} == {
        "html": "flights-2013-01-05.html", "json": "flights-2013-01-05.json", "index": "index.html"
    }  # fmt: skip
    assert second["html"].read_text(encoding="utf-8") == page_of("certified")
    assert second["json"].read_text(encoding="utf-8") == render_json(sample())
    assert sorted(out.iterdir()) == sorted(second.values())
    assert second["html"].stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(("wanted", "ending"), [("json", "json"), ("markdown", "md")])
def test_other_formats_are_one_file_alone(tmp_path: Path, wanted: ReportFormat, ending: str) -> None:
    """Who asks for one format gets no other, and no index of what is not there."""
    assert list(write_report(sample(), tmp_path, wanted)) == [wanted]
    assert [path.name for path in tmp_path.iterdir()] == [f"flights-2013-01-05.{ending}"]


def test_write_report_that_fails_keeps_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk leaves yesterday's report whole, no debris, and one message that says where."""
    files = write_report(sample("failed"), tmp_path)
    before = files["html"].read_text(encoding="utf-8")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InfrastructureError, match=r"flights 2013-01-05.*No space left on device.*--out"):
        write_report(sample(), tmp_path)
    assert files["html"].read_text(encoding="utf-8") == before
    assert len(list(tmp_path.iterdir())) == 3


def test_write_report_into_a_file_is_refused_with_its_name(tmp_path: Path) -> None:
    """--out that is a file is a mistake with a message."""
    occupied = tmp_path / "taken"
    occupied.write_text("x", encoding="utf-8")
    with pytest.raises(InfrastructureError, match="taken"):
        write_report(sample(), occupied)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"pipeline": "../etc/passwd"}, "pipeline"),
        ({"time_zone": "America/Nowhere"}, "not an IANA time zone"),
        ({"time_zone": "../../etc/passwd"}, "not an IANA time zone"),
        ({"generated_at": datetime(2013, 1, 6)}, "timezone"),  # noqa: DTZ001 - the fault under test
        ({"surplus": 1}, "Extra inputs"),
        ({"trend": [trend_until(date(2013, 1, 5))[0]] * 2}, "twice"),
    ],
)
def test_wrong_data_is_refused(change: dict[str, object], message: str) -> None:
    """Names that would leave the folder, naive instants and unknown fields never reach a page."""
    with pytest.raises(ValidationError, match=message):
        ReportData.model_validate({**sample().model_dump(), **change})


def test_trend_is_put_in_order() -> None:
    """The layer may hand the days over in any order."""
    data = sample()
    assert ReportData.model_validate({**data.model_dump(), "trend": data.trend[::-1]}).trend == data.trend


def test_text_of_any_bytes_is_taken() -> None:
    """Neither bytes that are not UTF-8 nor lone surrogates break the report."""
    example = QuarantineExample.model_validate(
        {"topic": "t", "partition": 0, "offset": 0, "found": "\ud800", "value_preview": b"\xc3("}
    )
    assert example.found == "\\ud800"
    assert example.value_preview == "\\xc3("


def test_report_is_rendered_from_a_zip(tmp_path: Path) -> None:
    """Template and style are found where executors and drivers import the package from a zip."""
    package = Path(pipelines.__file__).parent
    archive = tmp_path / "pipelines.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for path in sorted(package.rglob("*")):
            if path.suffix in {".py", ".j2", ".css"}:
                zipped.write(path, path.relative_to(package.parent))
    program = (
        "import sys; from pipelines.report.model import report as model; "
        "from pipelines.report.render import html_page; "
        "assert '.zip' in html_page.__file__; "
        "print(html_page.render_html(model.ReportData.model_validate_json(sys.stdin.read())))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=render_json(CASES["empty"]),
        capture_output=True,
        encoding="utf-8",
        cwd=tmp_path,
        env={"PYTHONPATH": str(archive), "PYTHONUTF8": "1"},
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == page_of("empty").strip()


def test_the_shape_of_the_json_is_documented_and_current() -> None:
    """Every report keeps the schema, which says of each field what it is."""
    schema = json.loads(Path(SCHEMA).read_text(encoding="utf-8"))
    assert Path(SCHEMA).read_text(encoding="utf-8") == schema_text(), "run make pages"
    Draft202012Validator.check_schema(schema)
    checker = Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for data in CASES.values():
        checker.validate(json.loads(render_json(data)))
    assert not checker.is_valid({**json.loads(render_json(sample())), "surplus": 1})
    for part in (schema, *schema["$defs"].values()):
        for name, field in part["properties"].items():
            assert field.get("description"), f"{part['title']}.{name} is not described"
