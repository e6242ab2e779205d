"""A further value format is one module and its line in `FORMATS`; nothing else has to know its name."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from pipelines.cli.app import oncelake
from pipelines.contracts.contract import DataContract, read_contract
from pipelines.contracts.diff import contract_changes
from pipelines.errors import ConfigError, ContractError
from pipelines.formats.contract_files import load_contract
from pipelines.formats.producer_compatibility import producer_changes
from pipelines.formats.registered_formats import FORMATS, format_of, jar_classes, java_options, wire_format_of
from pipelines.formats.schema_columns import columns_of
from pipelines.records.decoder import contract_text
from pipelines.records.reasons import REASONS
from pipelines.registry.confluent import CONFLUENT
from pipelines.registry.wire_format import UNFRAMED, Writers, WriterSchema
from pipelines.steps.loading import load_pipeline
from tests.support.further_format import BY_UUID, FURTHER, KIND, SCHEMA_ID, HexJson, written

REGISTRY = "registry.url=http://registry:8081"
SCHEMA = WriterSchema(SCHEMA_ID, KIND, "carrier string\nflight int\ngate string")


@pytest.fixture
def contracts_dir(tmp_path: Path) -> Path:
    """The contract of flights, in the further format."""
    document = yaml.safe_load(Path("data_contracts/flights.odcs.yaml").read_text(encoding="utf-8"))
    document["schema"][0]["customProperties"].append({"property": "valueFormat", "value": FURTHER})
    (tmp_path / "flights.odcs.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return tmp_path


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, FURTHER, HexJson())


@pytest.fixture
def further(contracts_dir: Path, _registered: None) -> DataContract:
    return load_contract(contracts_dir / "flights.odcs.yaml")


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(oncelake, words)
    return done.exit_code, done.output


def test_a_contract_may_name_the_formats_that_it_is_read_with(contracts_dir: Path) -> None:
    path = contracts_dir / "flights.odcs.yaml"
    with pytest.raises(ContractError, match=f"expected one of json, avro, json_schema, got '{FURTHER}'"):
        load_contract(path)
    assert read_contract(path, (*FORMATS, FURTHER)).value_format == FURTHER


@pytest.mark.usefixtures("_registered")
def test_contracts_are_checked_and_the_plan_is_shown(contracts_dir: Path) -> None:
    exit_code, said = run("contract", "lint", str(contracts_dir / "flights.odcs.yaml"))
    assert exit_code == 0, said
    words = ("--pipeline", "flights", "--contracts-dir", str(contracts_dir))
    exit_code, said = run("plan", *words, "--set", REGISTRY, "--log-format", "json")
    assert exit_code == 0, said
    assert json.loads(said)["contract"]["values"] == f"{FURTHER}, schemas at http://registry:8081"


def test_its_change_is_told(further: DataContract, contract: DataContract) -> None:
    (change,) = contract_changes(contract, further)
    assert f"'json' became '{FURTHER}'" in change.what


def test_values_name_schemas_as_the_client_of_the_registry_says(
    further: DataContract, contract: DataContract, contracts_dir: Path
) -> None:
    config, loaded = load_pipeline("flights", contracts_dir=contracts_dir, settings=(REGISTRY,))
    assert loaded.value_format == FURTHER
    assert wire_format_of(config, further) == CONFLUENT
    assert wire_format_of(config, contract) == UNFRAMED
    missing = rf"registry\.url: missing; .* has valueFormat {FURTHER}, whose schemas are in a registry"
    with pytest.raises(ConfigError, match=missing):
        load_pipeline("flights", contracts_dir=contracts_dir)
    with pytest.raises(ConfigError, match=missing):
        wire_format_of(config.model_copy(update={"registry": None}), further)


def test_what_it_needs_is_asked_of_it(further: DataContract) -> None:
    assert java_options()["hex.limit"] == "64"
    assert [*jar_classes().items()] == [
        ("Avro", "org/apache/spark/sql/avro/AvroDataToCatalyst.class"),
        ("Hex", "hex/Reader.class"),
    ]
    assert json.loads(contract_text(further, timedelta(days=1)))["sends_shortest_doubles"] is False


def test_producers_are_compared_by_its_schemas(further: DataContract) -> None:
    assert columns_of(SCHEMA).simpleString() == "struct<carrier:string,flight:int,gate:string>"
    told = {change.place.rpartition(".")[2]: change.what for change in producer_changes(further, SCHEMA)}
    assert told["gate"].startswith("ignored")
    assert "required, but producers do not send it" in told["origin"]
    (change,) = producer_changes(replace(further, value_format="avro"), SCHEMA)
    assert f"reads by schemas of the kind AVRO, producers write {KIND}" in change.what
    with pytest.raises(ContractError, match=f"schema {SCHEMA_ID} of the registry: no decoding can be made"):
        columns_of(replace(SCHEMA, text="carrier varchar"))


def test_what_is_wrong_with_a_value_has_a_reason_and_names_the_schema(further: DataContract) -> None:
    faults = format_of(further).document_faults(Writers({SCHEMA_ID: SCHEMA}, BY_UUID))
    assert [fault.reason for fault in faults] == ["no_schema_id", "unknown_schema", "undecodable"]
    assert {fault.reason for fault in faults} <= set(REASONS)
    assert SCHEMA_ID in faults[1].condition


def test_a_value_is_shown_and_written_in_the_wire_format_of_its_registry(further: DataContract) -> None:
    text = format_of(further).text(BY_UUID)
    assert text is not None
    begin = re.search(r"substring\(_value, (\d+)\) AS STRING", text)
    assert begin is not None
    value = written(b"{}")
    assert value[: int(begin[1]) - 1] == BY_UUID.header(SCHEMA_ID)
    assert bytes.fromhex(value[int(begin[1]) - 1 :].decode()) == b"{}"
