"""A login that the environment lets telemetry or run events send in plain text is found, and never shown."""

from pathlib import Path

import pytest

from pipelines.spark.plain_endpoints import plain_endpoints

HUSH = "hush-hush"
OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"
METRICS = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT"
HEADERS = "OTEL_EXPORTER_OTLP_HEADERS"
URL = "OPENLINEAGE_URL"
KEY = {"OPENLINEAGE_API_KEY": HUSH}
COLLECTOR = "http://collector:4318"
LOGIN = {HEADERS: f"X-Scope=lake,Authorization=Basic%20{HUSH}"}
PART = "OPENLINEAGE__TRANSPORT__TRANSPORTS__TEAM__"


def found(environ: dict[str, str]) -> dict[str, str]:
    """By variable, what is said of it."""
    risks = list(plain_endpoints(environ))
    for each in risks:
        assert each.name == "login_in_plain_text"
        assert HUSH not in repr(each)
    return {each.setting: f"{each.found}; {each.fix}" for each in risks}


@pytest.mark.parametrize(
    ("environ", "where", "said"),
    [
        ({OTLP: COLLECTOR, **LOGIN}, OTLP, f"{COLLECTOR}, with the header X-Scope; set it to https://"),
        ({METRICS: COLLECTOR, OTLP: "https://other", **LOGIN}, METRICS, COLLECTOR),
        (
            {OTLP: COLLECTOR, "OTEL_EXPORTER_OTLP_TRACES_HEADERS": f"api-key={HUSH}"},
            OTLP,
            "with the header api-key",
        ),
        ({OTLP: f"http://me:{HUSH}@collector:4318/v1"}, OTLP, f"{COLLECTOR}, with a login in the address"),
        ({URL: "http://lineage:5000/x", **KEY}, URL, "http://lineage:5000, with OPENLINEAGE_API_KEY"),
        ({URL: f"http://me:{HUSH}@lineage:5000"}, URL, "http://lineage:5000, with a login in the address"),
        (
            {URL: "https://a", f"{PART}URL": "http://b:1", f"{PART}AUTH": f'{{"apiKey": "{HUSH}"}}'},
            f"{PART}URL",
            f"http://b:1, with {PART}AUTH",
        ),
    ],
)
def test_a_login_that_others_can_read_is_found_by_its_variable(
    environ: dict[str, str], where: str, said: str
) -> None:
    told = found(environ)
    assert {*told} == {where}
    assert said in told[where]


@pytest.mark.parametrize(
    "environ",
    [
        {},
        # Nobody logs in.
        {OTLP: COLLECTOR},
        {URL: "http://lineage:5000"},
        {OTLP: COLLECTOR, HEADERS: ""},
        # It is encrypted, or stays here.
        {OTLP: "https://collector:4318", **LOGIN},
        {OTLP: "http://localhost:4318", **LOGIN},
        {URL: "http://127.0.0.1:5000", **KEY},
        {URL: "https://lineage", **KEY},
        # Nothing is sent there.
        {OTLP: COLLECTOR, **LOGIN, "OTEL_SDK_DISABLED": "true"},
        {OTLP: COLLECTOR, **LOGIN, "OTEL_METRICS_EXPORTER": "none", "OTEL_TRACES_EXPORTER": "console"},
        {URL: "http://lineage:5000", **KEY, "OPENLINEAGE_DISABLED": "True"},
        {f"{PART}URL": "http://b:1", f"{PART}AUTH": HUSH},
        {"OPENLINEAGE_CONFIG": "/no/such/file"},
        {URL: "http://[lineage", **KEY},
    ],
)
def test_a_login_that_is_encrypted_stays_here_or_is_not_sent_is_no_risk(environ: dict[str, str]) -> None:
    assert found(environ) == {}


def test_a_file_of_the_client_is_looked_through(tmp_path: Path) -> None:
    file = tmp_path / "openlineage.yml"
    file.write_text(
        f"""transport:
  type: composite
  transports:
    - {{type: http, url: "http://one:1", auth: {{type: api_key, apiKey: {HUSH}}}}}
    - {{type: http, url: "http://two:1"}}
    - {{type: http, url: "https://three:1", auth: {{type: api_key, apiKey: {HUSH}}}}}
    - {{type: async_http, url: "http://four:1", custom_headers: {{X-Key: {HUSH}}}}}
""",
        encoding="utf-8",
    )
    assert found({"OPENLINEAGE_CONFIG": str(file)}) == {
        "OPENLINEAGE_CONFIG.transport.transports.0.url": "http://one:1, with auth; set it to https://,"
        " and change the login",
        "OPENLINEAGE_CONFIG.transport.transports.3.url": "http://four:1, with custom_headers; set it to"
        " https://, and change the login",
    }
    file.write_text("transport: [", encoding="utf-8")
    assert found({"OPENLINEAGE_CONFIG": str(file)}) == {}
