"""What people ask beside the contract counts for each day, is kept, and shows in report and Data Docs."""

import json
import re
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest

from pipelines.contracts.contract import DataContract
from pipelines.contracts.rules import OwnExpectation
from pipelines.expectations.runner import expectation_checks
from pipelines.expectations.suite_files import own_expectations, suite_path, write_suites
from pipelines.ledger.checks import Check
from pipelines.nightly.verdicts import NightFailed
from pipelines.records.decode import decode, valid
from pipelines.steps.report import report
from tests.support.lakes import Lake
from tests.support.nights import ONE, THREE, TWO, on, run

DOCUMENT = Path("docs/data-quality.md").read_text()


def add(conf: Path, suite: Any, expectation: dict[str, Any], contract: DataContract) -> None:
    """Appends an expectation to a suite, as the document says."""
    path = suite_path(conf, "flights", suite)
    document = json.loads(path.read_text())
    document["expectations"].append(expectation)
    path.write_text(json.dumps(document))


def verdict(check: Check) -> tuple[str, ...]:
    return check.day.isoformat(), check.name, check.status, check.observed


def pages(folder: Path) -> str:
    return "\n".join(path.read_text() for path in sorted(folder.rglob("*.html")))


def every_page_of(lake: Lake, day: date, out: Path) -> str:
    return report(lake.pipeline, day, out).files["json"].read_text() + pages(out)


def test_the_expectations_of_the_document_are_asked_of_each_day_and_shown(lake: Lake, tmp_path: Path) -> None:
    of_rows, of_days = map(
        json.loads, re.findall(r"^```json\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
    )
    of_days["description"] = "Late by less: a < b <script>y</script>"
    write_suites(tmp_path, "flights", lake.contract)
    add(tmp_path, "rows", of_rows, lake.contract)
    add(tmp_path, "days", of_days, lake.contract)
    own = own_expectations(tmp_path, "flights", lake.contract)
    lake.contract = replace(lake.contract, expectations=own)
    lake.ingest([on(1, 1), on(1, 2, arrival_delay=310.0, tailnum="<script>x</script>")])
    lake.ingest([on(2, 1, departure_delay=200.0), on(3, 3)])
    with pytest.raises(NightFailed) as failed:
        run(lake, ONE, TWO)
    assert failed.value.result.days == {ONE: "certified", TWO: "failed"}
    assert "expect_column_values_to_be_between departure_delay_mean: found 200.0" in str(failed.value)
    first = report(lake.pipeline, ONE, tmp_path / "out")
    page = first.files["html"].read_text()
    site = tmp_path / "out" / "data_docs" / "flights-2013-01-01"
    assert 'href="data_docs/flights-2013-01-01/index.html"' in page
    assert "unexpected_rows_expectation Nobody loses five hours in the air." in page
    assert [item["status"] for item in json.loads(first.files["json"].read_text())["checks"]].count(
        "warned"
    ) == 1
    shown = pages(site)
    assert "Nobody loses five hours in the air." in shown
    assert "departure_delay_mean" in shown
    assert "text-danger" in shown
    assert len(list(site.rglob("*.html"))) == 5
    assert "Late by less: a &lt; b &lt;script&gt;y&lt;/script&gt;" in shown
    assert not re.search(r"<script|(src|href)=\"?(https?:)?//|url\(", shown)

    assert "200.0" in every_page_of(lake, TWO, tmp_path / "before")
    lake.contract = replace(lake.contract, personal={"departure_delay": "drop"})
    assert "200.0" not in every_page_of(lake, TWO, tmp_path / "after")


@pytest.mark.thorough
def test_each_day_has_the_verdict_that_it_has_alone_and_personal_data_stays_out(
    lake: Lake, small: DataContract
) -> None:
    asked = [
        {
            "type": "expect_column_values_to_be_in_set",
            "kwargs": {"column": "tailnum", "value_set": ["N14228"], "mostly": 0.5},
        },
        {
            "type": "expect_column_values_to_match_regex",
            "kwargs": {"column": "tailnum", "regex": "^N"},
            "severity": "info",
        },
        {
            "type": "expect_column_distinct_values_to_be_in_set",
            "kwargs": {"column": "tailnum", "value_set": ["N14228"]},
        },
        {"type": "expect_column_max_to_be_between", "kwargs": {"column": "distance", "max_value": 9000}},
        {
            "type": "unexpected_rows_expectation",
            "kwargs": {"unexpected_rows_query": "SELECT int(tailnum) FROM {batch}"},
        },
    ]
    own = tuple(OwnExpectation("rows", "there", config) for config in asked)
    contract = replace(small, expectations=own)
    secret = [on(2, number, tailnum="secret") for number in (2, 3)]
    decoded = decode(lake.envelopes([on(1, 1), on(2, 1), *secret]), contract, timedelta(days=1))
    rows = valid(decoded, contract).persist()

    def checks(days: list[date], examples: int, **changes: Any) -> list[Check]:
        return expectation_checks(rows, "flights", replace(contract, **changes), days, examples)

    together = checks([ONE, TWO, THREE], 5)
    of_two = [check for check in together if check.day == TWO]
    assert list(map(verdict, of_two)) == list(map(verdict, checks([TWO], 5)))
    told = {(check.day, check.name): check.status for check in together}
    in_set = "expect_column_values_to_be_in_set tailnum"
    assert (told[ONE, in_set], told[TWO, in_set]) == ("passed", "failed")
    assert told[TWO, "expect_column_values_to_match_regex tailnum"] == "warned"
    assert told[TWO, "expect_column_distinct_values_to_be_in_set tailnum"] == "failed"
    assert (THREE, in_set) not in told, "it has no rows"
    assert "secret" in str(together)
    # Neither values nor the reason of a failure, which has the value in it.
    guarded = checks([TWO], 0, personal={"tailnum": "hash"})
    assert "secret" not in str(guarded)
    assert "N14228'" not in str([check.observed + check.detail for check in guarded])
    assert next(c for c in guarded if c.name.startswith("expect_column_max")).observed == "1400.0"
