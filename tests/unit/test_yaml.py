"""YAML is refused with its place, whatever is wrong with it, and nothing of what stands there is shown."""

import pytest

from pipelines.errors import ConfigError
from pipelines.yaml import parse_yaml

# Each line refers ten times to the one before.
LAUGHS = "a0: &a0 {{x: hush}}\n" + "".join(
    f"a{n}: &a{n} {{{{y: 1, {{0}}[{', '.join([f'*a{n - 1}'] * 10)}]}}}}\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('kafka:\n  secrets:\n    a: "hush" x', "in line 3, column 15"),
        ("a: @hush", "in line 1, column 4"),
        ("a: 1\nb: 2\na: 3", "found a key twice in line 3, column 1"),
        ("a: 2024-13-01", "a value cannot be read (ValueError)"),
        ("a: !!bool hush", "a value cannot be read (KeyError)"),
        ("a: &a {b: *a}", "a value cannot be read (ValueError)"),
        ("a: *hush", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: !hush", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: 1\n---\nb: 2", "expected one document, found another that begins in line 2"),
        ('a: "\\ud83d"', "found half of a character"),
        ("[" * 5000, "a value cannot be read (RecursionError)"),
        (LAUGHS.format("z: "), "found aliases (*) that stand for more than 1,000,000 values in line 1"),
        (LAUGHS.format("<<: "), "found aliases (*) that stand for more than 1,000,000 values in line 1"),
        ("a: !!python/object:os.system {}", "cannot be resolved (put texts in quotes) in line 1"),
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


def test_a_number_is_what_it_looks_like() -> None:
    text = "[10, -3, +4, 0, 1.5, .5, 1.5e+3, .inf, 010, 1:30, 0x1f, 1_000, 1:30.5]"
    numbers = [10, -3, 4, 0, 1.5, 0.5, 1500.0, float("inf")]
    assert parse_yaml(text, "x", ConfigError) == [*numbers, "010", "1:30", "0x1f", "1_000", "1:30.5"]
