"""What a commit of Delta did to rows, as its file says."""

import json
from datetime import date

import pytest

from pipelines.delta.commits import effect_of

ADD = {"add": {"path": "a", "dataChange": True}}
REMOVE = {"remove": {"path": "b", "dataChange": True}}


@pytest.mark.parametrize(
    ("actions", "adds", "removes"),
    [
        ([ADD], True, False),
        ([REMOVE], False, True),
        ([ADD, REMOVE], True, True),
        ([{"add": {"dataChange": False}}, {"remove": {"dataChange": False}}], False, False),
        ([{"metaData": {"id": "1"}}, {"txn": {"appId": "q", "version": 1}}], False, False),
        ([{"cdc": {"path": "c", "dataChange": False}}], False, False),
    ],
)
def test_what_a_commit_did(actions: list[dict[str, object]], adds: bool, removes: bool) -> None:
    info = {"commitInfo": {"operation": "MERGE", "userMetadata": "forget r"}}
    made = effect_of(7, "\n".join(map(json.dumps, [info, *actions])))
    assert (made.adds, made.removes) == (adds, removes)
    assert (made.version, made.operation, made.note) == (7, "MERGE", "forget r")


def removed(day: str | None, *, changes: bool = True) -> dict[str, object]:
    return {"remove": {"path": "b", "dataChange": changes, "partitionValues": {"_event_date": day}}}


@pytest.mark.parametrize(
    ("actions", "days"),
    [
        ([ADD], ()),
        (
            [removed("2013-01-02"), removed("2013-01-01"), removed("2013-01-02")],
            (date(2013, 1, 1), date(2013, 1, 2)),
        ),
        ([removed("2013-01-02", changes=False)], ()),
        # Whoever reads these days alone would miss the others.
        ([removed("2013-01-02"), REMOVE], None),
        ([removed("2013-01-02"), removed(None)], None),
    ],
)
def test_of_which_days_a_commit_removed_files(
    actions: list[dict[str, object]], days: tuple[date, ...] | None
) -> None:
    assert effect_of(7, "\n".join(map(json.dumps, actions))).removed_days == days


def test_a_commit_without_a_note() -> None:
    assert effect_of(7, json.dumps({"commitInfo": {"operation": "WRITE"}})).note is None
    assert effect_of(7, "").operation == "unknown"


def test_ends_of_lines_within_a_line_are_text() -> None:
    # Java writes them as they are, and events may have them in their keys.
    stats = json.dumps({"minValues": {"carrier": "U\u2028A\x85"}}, ensure_ascii=False)
    text = json.dumps({"add": {"path": "a", "stats": stats}}, ensure_ascii=False)
    assert "\u2028" in text
    assert effect_of(7, f"{text}\n{json.dumps(REMOVE)}\n").adds


@pytest.mark.parametrize("text", ["{", "[]", '{"add": 1}', '{"add": {"path": "a"}}\n{"remo', "[" * 100_000])
def test_what_is_no_commit_is_told(text: str) -> None:
    with pytest.raises(ValueError, match=r"no action|nested too deeply|Expecting|Unterminated"):
        effect_of(7, text)
