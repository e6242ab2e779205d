"""What librdkafka says of settings that it cannot read does not repeat secrets."""

import pytest

from pipelines.config.loader import load_config
from pipelines.errors import ConfigError
from pipelines.publishing.cluster import asking
from pipelines.publishing.settings import sink_of


@pytest.mark.parametrize("setting", ["sasl.oauthbearer.method", "sasl.mechanism"])
def test_a_secret_that_librdkafka_cannot_read_is_not_shown(setting: str) -> None:
    settings = [
        "publish.topic=events",
        "publish.options.security.protocol=SASL_SSL",
        f"publish.secrets.{setting}=hush-hush",
    ]
    sink = sink_of(load_config("flights", environ={}, settings=settings))
    with (
        pytest.raises(ConfigError, match=r"librdkafka refuses them: .*\*\*\*\*\*\*") as refused,
        asking(sink),
    ):
        pass
    assert "hush" not in str(refused.value)
