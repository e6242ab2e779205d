"""What is a secret is told by the type of a setting, and each way to notify people has been thought about."""

import pytest

from pipelines.config.setting_kinds import all_settings, has_form, holds_secret
from pipelines.config.values import Form, looks_secret

# Whoever adds a way to notify people: a token, or an address that holds one, is a `SecretStr`.
NO_SECRETS_OF_NOTIFY = {"notify.when", "notify.timeout"}


def test_the_settings_that_hold_secrets_are_these() -> None:
    assert {key for key, _ in all_settings() if holds_secret(key)} == {
        "kafka.secrets.*",
        "kafka.clusters.*.secrets.*",
        "registry.secrets.*",
        "publish.secrets.*",
        "notify.webhook",
        "notify.headers.*",
    }


def test_each_setting_of_notify_is_a_secret_or_known_to_be_none() -> None:
    # The arguments of a program are looked at one by one.
    open_ones = {
        key
        for key, _ in all_settings()
        if key.startswith("notify.") and not holds_secret(key) and not has_form(key, Form.PROGRAM)
    }
    assert open_ones == NO_SECRETS_OF_NOTIFY


def test_no_setting_sounds_like_a_secret_and_is_none() -> None:
    assert {key for key, _ in all_settings() if looks_secret(key) and not holds_secret(key)} == set()


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("kafka.clusters.eu.secrets.sasl.password", True),
        ("kafka.clusters.eu.secrets.odd\nname", True),
        ("notify.headers.Authorization", True),
        ("notify.webhook", True),
        ("notify.webhook.more", False),
        ("kafka.options.security.protocol", False),
        ("kafka.secrets", False),
        ("kafka.clusters.eu.west.topic", False),
    ],
)
def test_a_setting_is_known_by_its_whole_key(key: str, expected: bool) -> None:
    assert holds_secret(key) is expected
