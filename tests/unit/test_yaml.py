"""YAML is refused with its place, whatever is wrong with it, and nothing of what stands there is shown."""

import pytest

from pipelines.errors import ConfigError
from pipelines.yaml import parse_yaml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kafka:\n  secrets:\n    a: "hush" x', "in line 3, column 15"),
        ("a: @hush", "in line 1, column 4"),
        ("a: 1\nb: 2\na: 3", "found a key twice in line 3, column 1"),
        ("a: 2024-13-01", "a value cannot be read (ValueError)"),
        ("a: !!bool hush", "a value cannot be read (KeyError)"),
        ("a: &a {b: *a}", "a value cannot be read (ValueError)"),
        ("[" * 5000, "a value cannot be read (RecursionError)"),
        ("a: !!python/object:os.system {}", "could not determine a constructor"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_yaml(text, "conf/x.yml", ConfigError)
    message = str(refused.value)
    assert message.startswith("conf/x.yml: not valid YAML: ")
    assert said in message
    assert "\n" not in message
    assert "hush" not in message


def test_what_can_be_read_is() -> None:
    assert parse_yaml("a: &x {b: 1}\nc: {<<: *x, b: 2}", "x", ConfigError) == {"a": {"b": 1}, "c": {"b": 2}}
    assert parse_yaml("", "x", ConfigError) is None
