"""`oncelake plan` tells of risks that the environment takes."""

import json

from click.testing import CliRunner

from pipelines.cli.plan import plan


def test_a_login_that_the_environment_sends_in_plain_text_is_a_risk_of_the_plan() -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}
    words = ["--pipeline", "flights", "--log-format", "json"]
    runner = CliRunner()
    without = json.loads(runner.invoke(plan, words, env=environ).output)
    assert "risks that are not accepted" not in without
    login = {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization=hush-hush"}
    done = runner.invoke(plan, words, env={**environ, **login})
    risks = json.loads(done.output)["risks that are not accepted"]
    assert [*risks] == ["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert "http://collector:4318, with the header Authorization" in risks["OTEL_EXPORTER_OTLP_ENDPOINT"]
    assert "hush-hush" not in done.output
