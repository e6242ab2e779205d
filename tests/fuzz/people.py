"""Texts that people write: contracts, configuration, suites, command lines; and what browsers send."""

import math
import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import Mock
from wsgiref.types import StartResponse

import click
import yaml
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr

from pipelines.cli.backfill import parse_span
from pipelines.config.loader import load_config
from pipelines.config.model import PipelineConfig
from pipelines.config.values import parse_bytes
from pipelines.console.site import Desk
from pipelines.contracts.contract import DataContract
from pipelines.contracts.descriptions import descriptions_of
from pipelines.durations import format_interval, parse_interval
from pipelines.errors import ConfigError, ContractError
from pipelines.expectations.suite_files import own_expectations, suite_path, write_suites
from pipelines.formats.contract_files import load_contract
from pipelines.lineage.key_filter import asked_key, of_key
from pipelines.racks.resolver import NoAnswer, of_file
from pipelines.yaml import parse_yaml
from tests.fuzz.mutants import ODD, as_yaml, at, broken, paths
from tests.fuzz.target import YAML, Target, require_told

CONTRACTS: Final = (
    *(Path("data_contracts/flights.odcs.yaml"), Path("data_contracts/weather.odcs.yaml")),
    Path("tests/support/contracts/orders.odcs.yaml"),
)
SETTINGS: Final[dict[str, Any]] = {
    "contract": "flights.odcs.yaml",
    "accept_risks": ["acks_not_all"],
    "lake": {"root": "/lake"},
    "kafka": {
        "bootstrap_servers": "a:9092,b:9092",
        "topic": "flights",
        "max_offsets_per_trigger": 1000,
        "template": "nightly",
        "rack": {"mode": "off", "variable": "NODE_RACK"},
        "options": {"security.protocol": "SASL_SSL", "client.id": "x"},
        "secrets": {"sasl.jaas.config": "hush"},
    },
    "registry": {"url": "http://registry:8081", "timeout": "5 seconds", "options": {"max.retries": "3"}},
    "ingest": {"trigger_interval": "1 minute 30 seconds", "offsets_group": None},
    "backfill": {"chunk_offsets": 10, "max_offsets_per_second": 5, "client_id": "{env}.{pipeline}"},
    "speed": {"watermark_delay": "6 hours", "state_partitions": 4, "max_bytes_per_trigger": "512m"},
    "decode": {"max_future": "1 day"},
    "quarantine": {"max_share": 0.25, "min_records": 5, "dead_letter_topic": "broken"},
    "batch": {"dedup_horizon_days": 1, "lookback_days": 3, "seal_by": "kafka", "fewer_records": "refuse"},
    "audit": {"known_gaps": [{"partition": 0, "first": 1, "last": 2, "why": "lost"}], "examples": 3},
    "maintain": {"bronze_retention": "400 days", "vacuum_after": "1 week", "compact": True},
    "serving": {"view": "lake.flights", "table": False, "database": "lake"},
    "publish": {"topic": "out", "format": "avro", "slots": 2, "options": {"linger.ms": "5"}},
    "notify": {
        "when": ["failed"],
        "command": ["/opt/tell.sh", "x"],
        "webhook": "https://x.invalid/a",
        "headers": {"Authorization": "hush"},
    },
    "lag": {"raise_after": 3, "clear_after": 5},
    "metrics": {"port": 9000, "host": "::1"},
    "spark": {"master": "local[*]", "conf": {"spark.driver.memory": "3g"}},
}
_UNITS: Final = {"millisecond": 1, "second": 10**3, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_UNITS_MS: Final = {**_UNITS, "week": 7 * 86_400_000}
_TRUTHS: Final = {
    **dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True),
    **dict.fromkeys(("false", "f", "no", "n", "off", "0"), False),
}
_YAML_SIGNS: Final = "ab:-[]{}&*!|>'\"#?,\n 0123.~<=%@`\t\\\x85\ufeff\u2028é"


def _yaml_documents() -> list[Any]:
    files = [*CONTRACTS, *sorted(Path("conf").rglob("*.yml"))]
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in files]


def check_yaml(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    try:
        parsed = parse_yaml(text, "conf/x.yml", ConfigError)
    except ConfigError as refusal:
        require_told(refusal, YAML)
        return
    # Each part stands where it was written, and says what its letters say.
    written = yaml.load(text, yaml.BaseLoader)  # noqa: S506 - it makes texts of all
    if "<<" not in text:
        assert list(paths(parsed)) == list(paths(written))
        assert _says(parsed, written)
        for path in paths(parsed):
            assert _says(at(parsed, path), at(written, path)), path


def _says(value: Any, letters: Any) -> bool:
    match value:
        case dict() | list():
            says = type(value) is type(letters) and len(value) == len(letters)
        case str():
            says = value == letters
        case None:
            says = letters is None or letters.lower() in ("", "~", "null")
        case bool():
            says = str(value).lower() == letters.lower()
        case date():
            says = str(value)[:4] == letters[:4]
        case int():
            says = str(value) == re.sub(r"^\+|^-(?=0)", "", letters)
        case _:
            written = float(letters.lower().replace(".inf", "inf").replace(".nan", "nan"))
            says = str(value) == str(written)
    return bool(says)


def check_contract(raw: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "c.odcs.yaml"
        path.write_bytes(raw)
        try:
            contract = load_contract(path)
        except ContractError as refusal:
            require_told(refusal, "c.odcs.yaml")
            return
        _require_contract(contract)
        descriptions_of(contract)


def _require_contract(contract: DataContract) -> None:
    document = parse_yaml(Path(contract.path).read_text(encoding="utf-8"), "c", ContractError)
    assert (contract.id, contract.version) == (document["id"], document["version"])
    names = [each["name"] for each in document["schema"][0]["properties"]]
    assert contract.columns == names
    assert contract.event_time in names
    assert contract.key
    assert contract.zone.key == contract.day_time_zone
    for each in document["schema"][0]["properties"]:
        if each.get("primaryKey") in (True, "true", "yes", "on"):
            assert each["name"] in contract.key
        if each.get("enum"):
            values = tuple(value["value"] for value in each["enum"])
            (rule,) = [r for r in contract.row_rules if (r.column, r.kind) == (each["name"], "values")]
            assert rule.value == values
            assert list(map(type, rule.value)) == list(map(type, values))


def check_configuration(raw: bytes) -> None:
    with TemporaryDirectory() as folder:
        conf = Path(folder) / "conf"
        (conf / "base/pipelines").mkdir(parents=True)
        (conf / "local").mkdir()
        path = conf / "base/pipelines/flights.yml"
        path.write_bytes(raw)
        try:
            config = load_config("flights", conf_dir=conf, environ={"X": "a value"})
        except ConfigError as refusal:
            require_told(refusal, "flights.yml", hides=_secret(raw))
            return
        said = parse_yaml(path.read_text(encoding="utf-8"), "c", ConfigError)
    _require_meant(config, said)
    _use(config)


def _secret(raw: bytes) -> str | None:
    """The secret of `SETTINGS`, if it stands only where a secret is expected, or beside its name."""
    try:
        said = yaml.safe_load(raw)
    except yaml.YAMLError:
        return None
    places = [path for path in paths(said) if at(said, path) == "hush"]
    is_named = all({"sasl.jaas.config", "Authorization"} & {*path} for path in places)
    return "hush" if is_named and len(places) == raw.count(b"hush") else None


def _use(config: PipelineConfig) -> None:
    """What is computed from a configuration without a cluster can be."""
    assert "\0" not in config.root
    assert config.streams
    assert config.offsets_group is None or "{" not in config.offsets_group
    assert config.backfill_kafka.options["client.id"]
    assert config.speed.eviction_slack <= config.speed.watermark_delay
    assert config.publish is None or 0 < config.publish.max_bytes < 2**63
    assert parse_bytes(config.speed.max_bytes_per_trigger or "1b") < 2**63
    for words in (
        config.kafka.options,
        config.spark.conf,
        config.registry.options if config.registry else {},
    ):
        assert "".join([*words, *words.values()]).encode() is not None


def _require_meant(section: BaseModel, said: dict[str, Any]) -> None:
    for key, value in said.items():
        _require_same(getattr(section, key), value, key)


def _require_same(found: Any, value: Any, where: str) -> None:
    match found:
        case BaseModel():
            _require_meant(found, value)
        case dict():
            assert found.keys() == value.keys()
            for key, inner in found.items():
                _require_same(inner, value[key], f"{where}.{key}")
        case tuple():
            assert len(found) == len(value), where
            for inner, own in zip(found, value, strict=True):
                _require_same(inner, own, where)
        case _:
            assert _is_meant(found, value), (where, found, value)


def _is_meant(found: Any, value: Any) -> bool:
    """Whether a setting is what a person means by a value, by rules of its own."""
    text = value.replace("${X}", "a value") if isinstance(value, str) else value
    match found:
        case SecretStr():
            return _is_meant(found.get_secret_value(), text)
        case bool():
            return _TRUTHS.get(str(text).lower()) is found or (value == found and value in (0, 1))
        case int() | float():
            is_number = isinstance(text, str | int | float) and not isinstance(text, bool)
            return is_number and math.isclose(float(found), float(text), rel_tol=1e-15)
        case timedelta():
            return isinstance(text, str) and found == _length(text)
        case str():
            return found == (str(text).lower() if isinstance(text, bool) else text)
        case _:
            return found is None and text is None


def _length(text: str) -> timedelta | None:
    parts = re.findall(r"(\d+) ?([a-z]+?)s?(?: +|$)", text)
    if re.sub(r"(\d+) ?([a-z]+)(?: +|$)", "", text) or not parts or not {u for _, u in parts} <= {*_UNITS_MS}:
        return None
    milliseconds = sum(int(number) * _UNITS_MS[unit] for number, unit in parts)
    return timedelta(milliseconds=milliseconds) if milliseconds < 10**15 else None


def _dotted(tree: Any, above: str = "") -> Iterator[str]:
    for key, value in tree.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{above}{key}.")


def check_setting(raw: bytes) -> None:
    # As Python hands a command line over.
    text = raw.decode("utf-8", "surrogateescape")
    try:
        config = load_config("flights", settings=[text], environ={})
    except ConfigError as refusal:
        require_told(refusal, "--set ")
        return
    _use(config)


def check_interval(raw: bytes) -> None:
    text = raw.decode("utf-8", "replace")
    try:
        length = parse_interval(text)
    except ValueError as refusal:
        require_told(ConfigError(str(refusal)), f"expected an interval such as '2 hours', got {text!r}")
        return
    assert length == _length(text)
    assert parse_interval(format_interval(length)) == length


@cache
def _contracts() -> tuple[DataContract, ...]:
    return tuple(map(load_contract, CONTRACTS))


def check_key(raw: bytes) -> None:
    text = raw.decode("utf-8", "surrogateescape")
    for contract in _contracts():
        try:
            parts = asked_key(contract, [text])
        except ConfigError as refusal:
            require_told(refusal, "--key ")
            continue
        of_key(contract, parts).encode()
        assert [part.path for part in parts] == [text.partition("=")[0]]


def check_span(raw: bytes) -> None:
    words = [word or None for word in raw.decode("utf-8", "surrogateescape").split("|")]
    since, until, *offsets = [*words, None, None][: max(len(words), 2)]
    try:
        span = parse_span(since, until, tuple(filter(None, offsets)))
    except click.UsageError as refusal:
        require_told(ConfigError(refusal.message), "--from", "--to", "--offsets")
        return
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert all(moment >= epoch for moment in (span.since, span.until) if moment)


def check_suite(raw: bytes) -> None:
    contract = _contracts()[0]
    with TemporaryDirectory() as folder:
        path = suite_path(Path(folder), "flights", "rows")
        path.parent.mkdir(parents=True)
        path.write_bytes(raw)
        try:
            own_expectations(Path(folder), "flights", contract)
            write_suites(Path(folder), "flights", contract)
        except ConfigError as refusal:
            require_told(refusal, str(path))
            return
        assert write_suites(Path(folder), "flights", contract) == []
        own_expectations(Path(folder), "flights", contract)


def check_request(raw: bytes) -> None:
    """The server has read the request line; path and host are text, a character for each byte."""
    host, _, path = raw.decode("latin-1").partition("|")
    respond = Mock(spec=StartResponse)
    environ = {"REQUEST_METHOD": "GET", "HTTP_HOST": host, "PATH_INFO": path, "QUERY_STRING": path}
    with TemporaryDirectory() as folder:
        reports = Path(folder) / "reports"
        reports.mkdir()
        (reports / "in.html").write_text("a report")
        (Path(folder) / "out.html").write_text("hush")
        desk = Desk(lambda: None, 10, reports, frozenset({"localhost"}))
        body = b"".join(desk.answer(environ, respond))
    assert b"hush" not in body
    status = int(respond.call_args.args[0].split()[0])
    assert status in (200, 404, 421)
    assert body
    assert status != 200 or host.lower().strip().startswith("localhost")


def check_rack_file(raw: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "labels"
        path.write_bytes(raw)
        for place in (folder, str(path)):
            try:
                rack = of_file(place)
            except NoAnswer as why:
                require_told(ConfigError(str(why)), "empty", "expected the name of a rack", "labels has none")
                continue
            assert rack.isascii()
            assert rack.isprintable()
            assert rack.encode() in raw


def _texts(*words: str) -> st.SearchStrategy[bytes]:
    """Texts that are nearly these, and any others."""
    some = st.one_of(*(broken(word.encode()) for word in words))
    return st.one_of(some, some, st.text(max_size=20).map(lambda text: text.encode()), st.binary(max_size=20))


_NEEDED: Final = {
    "contract": "flights.odcs.yaml",
    "lake": {"root": "/lake"},
    "kafka": {"bootstrap_servers": "a:9092", "topic": "flights"},
    "speed": {"watermark_delay": "6 hours"},
}
_SECTIONS: Final = [
    {"publish": SETTINGS["publish"], "registry": SETTINGS["registry"]},
    *({name: section} for name, section in SETTINGS.items() if name != "publish"),
]
_KEYS: Final = (
    "flight=1545",
    "carrier=UA",
    "scheduled_departure=2013-01-01T05:15:00-05:00",
    "scheduled_departure=2013-01-01 10:15:00 UTC",
    "order.id=o-7",
)
_OPTIONS: Final = st.tuples(st.sampled_from(list(_dotted(SETTINGS))), st.sampled_from(ODD)).map(
    lambda pair: f"{pair[0]}={pair[1]}".encode("utf-8", "surrogateescape")
)
_SUITES: Final = [
    yaml.safe_load(path.read_text(encoding="utf-8"))
    for path in sorted(Path("conf/base/gx/expectations/flights").glob("*.json"))
]
_OWN: Final = {
    "name": "flights.rows",
    "expectations": [
        {"type": "expect_column_mean_to_be_between", "kwargs": {"column": "distance", "min_value": 1.5}}
    ],
}

TARGETS: Final = {
    "yaml": Target(
        check_yaml,
        _yaml_documents(),
        as_yaml,
        st.text(alphabet=_YAML_SIGNS, max_size=40).map(lambda text: text.encode()),
    ),
    "contract": Target(
        check_contract, [yaml.safe_load(path.read_text(encoding="utf-8")) for path in CONTRACTS], as_yaml
    ),
    "configuration": Target(check_configuration, [_NEEDED | each for each in _SECTIONS], as_yaml),
    "setting": Target(
        check_setting, texts=st.one_of(_OPTIONS, _texts("kafka.topic=a", "speed.watermark_delay=2 hours"))
    ),
    "interval": Target(check_interval, texts=_texts("2 hours", "1 day 12 hours", "500 milliseconds")),
    "key": Target(check_key, texts=_texts(*_KEYS)),
    "span": Target(
        check_span,
        texts=_texts("2013-01-01|2013-01-02T05:00:00Z", "||0:100..199|1:5", "1969-12-31T23:59:59.999Z|"),
    ),
    "suite": Target(check_suite, [*_SUITES, _OWN]),
    "request": Target(
        check_request,
        texts=_texts("localhost:8080|/reports/in.html", "localhost|/reports/../out.html", "[::1]:1|/x"),
    ),
    "rack_file": Target(
        check_rack_file, texts=_texts('topology.kubernetes.io/zone="eu-1a"\na="b"', "eu-1a\n")
    ),
}
