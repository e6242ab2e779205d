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
        ("a: !!bool hush", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: &a {b: *a}", "found an alias (*) that refers to itself in line 1, column 4"),
        ("a: !!int 010", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: !!null hush", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: !!binary aHVzaA==", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: !!set {hush}", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: {<<: &x {b: 1}, <<: *x}", "found a key twice in line 1, column 20"),
        ("1: hush", "found a key that is no text (put it in quotes) in line 1, column 1"),
        ("2013-01-01: hush", "found a key that is no text (put it in quotes) in line 1, column 1"),
        ("? [hush]\n: 1", "found a key that is no text (put it in quotes) in line 1, column 3"),
        ('a: "hush\\0"', "found the character \\0, which no value may have in line 1, column 4"),
        ("a: " + "[" * 65 + "]" * 65, "found more than 64 levels in line 1, column"),
        ("a: " + "9" * 5000, "a value cannot be read (ValueError)"),
        ("a: *hush", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: !hush", "cannot be resolved (put texts in quotes) in line 1, column 4"),
        ("a: 1\n---\nb: 2", "expected one document, found another that begins in line 2"),
        ('a: "\\ud83d"', "found half of a character"),
        ("[" * 5000, "a value cannot be read (RecursionError)"),
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


def test_yaml_anchors_and_empty_documents_are_parsed() -> None:
    assert parse_yaml("a: &x {b: 1}\nc: {<<: *x, b: 2}", "x", ConfigError) == {"a": {"b": 1}, "c": {"b": 2}}
    assert parse_yaml("", "x", ConfigError) is None


def test_a_number_is_what_it_looks_like() -> None:
    text = "[10, -3, +4, 0, 1.5, .5, 1.5e+3, .inf, 010, 1:30, 0x1f, 1_000, 1:30.5]"
    numbers = [10, -3, 4, 0, 1.5, 0.5, 1500.0, float("inf")]
    assert parse_yaml(text, "x", ConfigError) == [*numbers, "010", "1:30", "0x1f", "1_000", "1:30.5"]


def test_a_word_is_a_word_and_no_truth() -> None:
    text = "[no, yes, on, Off, NO, y, true, False]"
    assert parse_yaml(text, "x", ConfigError) == ["no", "yes", "on", "Off", "NO", "y", True, False]


def test_a_few_lines_of_aliases_that_stand_for_a_billion_values_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ConfigError, match=r"found more than 500,000 values, with those of aliases \(\*\)"):
        parse_yaml("\n".join(lines), "x", ConfigError)
