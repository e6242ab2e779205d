"""SQL that reaches beyond the records is found in its text, wherever it hides; texts that name it are not."""

from pathlib import Path

import pytest
import yaml

from pipelines.contracts.confinement import REFUSED_FUNCTIONS, beyond_the_record, beyond_the_rows
from pipelines.contracts.quality import lost_backslashes
from pipelines.errors import ContractError
from pipelines.formats.contract_files import load_contract


@pytest.mark.parametrize("name", sorted(REFUSED_FUNCTIONS))
def test_each_refused_function_is_found_however_it_is_written(name: str) -> None:
    for sql in (f"{name}(a) = 1", f"a > 1 OR {name.upper()} (b)", f"`{name}` /* x */ (c) IS NULL"):
        assert beyond_the_record(sql) == beyond_the_rows(sql)
        assert (beyond_the_record(sql) or "").lower().startswith(f"{name}, which ")


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("a IN (SELECT b FROM c)", "a query"),
        ("a > (/* x */ select 1)", "a query"),
        ("a > (WITH t AS (SELECT 1) SELECT * FROM t)", "a query"),
        ("a <> 'java_method(1)' AND b <> \"(SELECT 1)\" -- reflect(1)", None),
        ("reflect > 1 AND (`select` > 1) AND selected(with_tax) = 1 AND a.reflected(1)", None),
        # Spark ends these comments elsewhere than it seems.
        ("a /* /* */ ' */ OR reflect(b) IS NULL", "reflect, which calls any method of Java"),
        ("a /* /* */ ' */ OR reflect(b) = ''", "reflect, which calls any method of Java"),
        ("a -- x\rOR reflect(b)", "reflect, which calls any method of Java"),
        ("a -- '\\\n '\nOR reflect(b) = ''", "reflect, which calls any method of Java"),
        ("a OR 'reflect(b)", "reflect, which calls any method of Java"),
        (r"a RLIKE r'\' AND b = 'it\'s (SELECT' /* java_method( */", None),
    ],
)
def test_a_query_is_found_and_a_text_that_looks_like_one_is_none(sql: str, found: str | None) -> None:
    assert beyond_the_record(sql) == found


@pytest.mark.parametrize("begin", ["/* ", "'\\", '"\\', "r'", "`"])
def test_a_text_that_begins_over_and_over_and_never_ends_is_read_once(begin: str) -> None:
    """As a megabyte of it in a contract would keep all pipelines of a process from starting."""
    assert beyond_the_record(f"reflect(a) {begin * 300_000}") == (
        f"reflect, which {REFUSED_FUNCTIONS['reflect']}"
    )
    assert lost_backslashes(f"a {begin * 300_000}") is None


def test_a_query_over_rows_may_not_read_a_path() -> None:
    assert beyond_the_rows("SELECT a FROM {batch} WHERE a > (SELECT max(a) FROM {batch})") is None
    assert beyond_the_rows("SELECT * FROM {batch} JOIN delta.`s3a://elsewhere/x`") == "a path as a table"


def test_addresses_of_a_contract_are_not_read(tmp_path: Path) -> None:
    document = yaml.safe_load(Path("data_contracts/flights.odcs.yaml").read_text(encoding="utf-8"))
    address = "http://127.0.0.1:1/hook"
    document |= {
        "servers": [{"server": "x", "type": "kafka", "host": "127.0.0.1:1"}],
        "support": [{"channel": "x", "url": address}],
        "customProperties": [{"property": "webhook", "value": address}],
        "authoritativeDefinitions": [{"type": "x", "url": address}],
    }
    path = tmp_path / "flights.odcs.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    assert "127.0.0.1" not in repr(load_contract(path))


@pytest.mark.parametrize("sql", ["a IN (SELECT 1)", "java_method('java.lang.System', 'exit', 1) IS NULL"])
def test_a_contract_whose_condition_reaches_out_is_refused(tmp_path: Path, sql: str) -> None:
    document = yaml.safe_load(Path("data_contracts/flights.odcs.yaml").read_text(encoding="utf-8"))
    rule = {"type": "custom", "engine": "oncelake", "name": "reaches out", "implementation": sql}
    document["schema"][0].setdefault("quality", []).append(rule)
    path = tmp_path / "flights.odcs.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    with pytest.raises(ContractError, match=r"schema.quality: custom: reaches out: expected an expression"):
        load_contract(path)
