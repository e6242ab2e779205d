"""Messages show the first of many, and say how much they leave out."""

from pipelines.message_texts import first_items, number_text, shortened


def test_what_is_left_out_is_counted() -> None:
    assert first_items([], 2, "days") == ""
    assert first_items(["a", "b"], 2, "days") == "a; b"
    assert first_items(["a", "b", "c", "d"], 2, "days") == "a; b; and 2 more days"


def test_long_values_are_cut_off() -> None:
    assert shortened("ab", 4) == "'ab'"
    assert shortened("abc", 4) == "'abc…"


def test_numbers_keep_their_digits() -> None:
    assert [number_text(value) for value in (3.0, 0.1, 1e-7)] == ["3", "0.1", "1e-07"]
