"""A wrong setting is refused in one message: where it stands, what was found and what was expected."""

import pytest

from pipelines.config.loader import load_config
from pipelines.errors import ConfigError


def refusal(*settings: str) -> str:
    with pytest.raises(ConfigError) as refused:
        load_config("flights", settings=settings, environ={})
    return str(refused.value)


@pytest.mark.parametrize(
    ("setting", "where", "found"),
    [
        ("=hush", "--set", "no key before ="),
        (" = hush", "--set", "no key before ="),
        ("", "--set", "nothing"),
        ("kafka.topic", "--set kafka.topic", "no ="),
        ("kafka.topic hush", "--set kafka.topic", "no ="),
        ("kafka.=hush", "--set kafka.", "a key with an empty part"),
        ("kafka..topic=hush", "--set kafka..topic", "a key with an empty part"),
    ],
)
def test_a_setting_that_is_no_key_and_value_is_refused_with_what_is_one(
    setting: str, where: str, found: str
) -> None:
    said = "expected --set key=value, such as --set kafka.topic=flights"
    assert refusal(setting) == f"{where}: {said}, got {found}"
