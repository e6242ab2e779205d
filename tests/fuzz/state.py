"""What is kept beside the tables, and may be torn or changed: checkpoints, progress, figures, commits."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from confluent_kafka import TopicPartition
from hypothesis import strategies as st
from pydantic import ValidationError

from pipelines.delta.commits import effect_of
from pipelines.delta.event_tables import aware
from pipelines.delta.stream_position import positions_of
from pipelines.delta.table_properties import from_hex, json_from_hex, parse_property, retention_in, to_hex
from pipelines.delta.transaction_numbers import number_in
from pipelines.delta.zone_rules import days_that_differ
from pipelines.errors import SourceError
from pipelines.lag.alert_file import alerts_in
from pipelines.lag.alerts import AlertPolicy, Evaluation
from pipelines.publishing.slots import SlotProgress, Written
from pipelines.report.render.index import entries, render_index
from pipelines.runtime.local_broker import running_broker
from pipelines.spark.checkpoints import (
    kafka_offsets_in,
    note_in,
    planned_at,
    query_in,
    require_commit_file,
    require_offset_file,
    sources_of,
)
from pipelines.spark.stream_progress import new_run, progress_in, refusal_in
from pipelines.supervision.output import LastError, ProgramName, label_json
from tests.fuzz.mutants import as_json, broken
from tests.fuzz.target import Target, require_told

PATH: Final = "/lake/ops/checkpoints/flights/speed"
AT: Final = "2013-01-01T05:00:00Z"
NOW: Final = datetime(2013, 1, 1, 6, tzinfo=UTC)

OF_DELTA: Final = {
    "sourceVersion": 1,
    "reservoirId": "614bb1c6-9860-4216-b679-a3c9fdeadccd",
    "reservoirVersion": 4,
    "index": -1,
    "isStartingVersion": False,
}
OF_KAFKA: Final = {"flights": {"0": 12, "1": 7}, "other": {"0": -2}}
PLAN: Final = {"batchWatermarkMs": 0, "batchTimestampMs": 1_795_628_218_338, "conf": {"a.b": "c"}}
END: Final = {"nextBatchWatermarkMs": 0}
OFFSETS: Final = f"v1\n{json.dumps(PLAN)}\n{json.dumps(OF_DELTA)}\n-"
FIGURES: Final = {
    "query": "speed",
    "host": "a",
    "pid": 7,
    **dict.fromkeys(("started_at", "written_at", "seen_at", "ended_at"), AT),
    "trigger_s": 10.0,
    "failure": "why",
    "batches": [
        {
            "number": 1,
            "at": AT,
            "seconds": 1.5,
            "records": 10,
            "phases": {"write": 1.0},
            "state": {"memory_bytes": 1, "update_s": 0.5},
            "tasks": {"tasks": 2, "longest_s": 0.5},
            "watermark": AT,
            "files_left": 3,
        }
    ],
}
REFUSAL: Final = {"at": AT, "failure": "why", "last_written_at": AT}
ALERTS: Final = {
    "states": {"speed": {"is_raised": True, "streak": 2, "changed_at": AT}},
    "outbox": [{"message": {"alert": "raised", "records": 3}, "hooks": ["notify.webhook"]}],
}
ACTIONS: Final = (
    {"commitInfo": {"operation": "WRITE", "userMetadata": "build r1 (3.4)"}},
    {"txn": {"appId": "oncelake.lease.flights", "version": 3_000_004}},
    {"add": {"path": "a.parquet", "partitionValues": {"_event_date": "2013-01-01"}, "dataChange": True}},
    {"remove": {"path": "b.parquet", "partitionValues": {"_event_date": "2013-01-02"}, "dataChange": True}},
    {"add": {"path": "c", "stats": '{"minValues":{"k":"a\u2028b\x85c"}}', "dataChange": False}},
)
COMMIT: Final = "\n".join(json.dumps(action, ensure_ascii=False) for action in ACTIONS)
RULES: Final = "0-18000 1362898800-14400 1383458400-18000"
PROGRESS: Final = SlotProgress(
    4, "q", "t", 2, part=1, written=Written(3, "abc", {"format": "json"}), run="r1", partitions=3, parts=2
)
REPORT: Final[dict[str, Any]] = {
    "pipeline": "flights",
    "day": "2013-01-01",
    "time_zone": "America/New_York",
    "generated_at": AT,
    "version": "0.1.0",
    "verdict": {"status": "certified", "failed": 0},
    "flow": {"day_records": 3, "duplicates": 1, "conflicts": 0, "batch": 2, "late": 0},
    "trend": [{"day": "2013-01-01", "quarantined": 1, "repairs": 0}],
}
BROKER: Final = {"bootstrap_servers": "localhost:9092", "pid": 2**22 + 1, "started": 1.5, "folder": "/x"}


def _text(raw: bytes) -> str:
    """As Java hands a file over."""
    return raw.decode("utf-8", "replace")


def _or_refused(read: Callable[[], Any], *places: str) -> Any:
    """What is read; None if it is refused."""
    try:
        return read()
    except SourceError as refusal:
        require_told(refusal, *places)
        return None


def check_offsets(raw: bytes) -> None:
    text = _text(raw)

    def read() -> Any:
        require_offset_file(text, PATH)
        return planned_at(text), sources_of(text), positions_of(text, PATH)

    if (found := _or_refused(read, PATH)) is not None:
        at, sources, positions = found
        assert at.tzinfo is UTC
        assert len(sources) == len(positions) >= 1


def check_end(raw: bytes) -> None:
    text = _text(raw)

    def read() -> Any:
        require_commit_file(text, f"{PATH}/commits/9")
        return json.loads(text.split("\n")[1])

    assert isinstance(_or_refused(read, PATH) or {}, dict)


def check_checkpoint(raw: bytes) -> None:
    text = _text(raw)
    query = _or_refused(lambda: query_in(text, PATH), PATH)
    assert query is None or json.loads(text)["id"] == query
    note = _or_refused(lambda: note_in(text, PATH), PATH)
    assert note is None or note == json.loads(text)
    assert note is None or int(note.get("partitions", 0)) + note.get("since", 0) >= 0
    offsets = _or_refused(lambda: kafka_offsets_in(text, PATH), PATH)
    assert offsets is None or all(type(at) is int for ends in offsets.values() for at in ends.values())


def check_progress(raw: bytes) -> None:
    of_record = _or_refused(lambda: SlotProgress.of_record(raw), "a record of the progress topic")
    if of_record is not None:
        assert SlotProgress.of_record(of_record.record()) == of_record
        said = json.loads(raw)
        assert of_record.next_batch == said["next_batch"]
        assert of_record.is_begun is said.get("is_begun", False)
        assert of_record.position >= of_record.before
    # Kafka's client takes no NUL.
    metadata = _text(raw).replace("\0", "")
    committed = TopicPartition("oncelake-progress", 0, 4, metadata)
    _or_refused(lambda: SlotProgress.of(committed), "the metadata of an offset")


def check_figures(raw: bytes) -> None:
    text = _text(raw)
    try:
        figures = progress_in(text)
    except ValidationError:
        return
    assert figures.is_of(figures)
    assert figures.silent_s(NOW) is None or figures.seen_at < NOW
    assert new_run("speed", 1.0, figures).previous_at == figures.started_at
    assert sum(batch.seconds + sum(batch.phases.values()) for batch in figures.batches) < float("inf")


def check_refusal(raw: bytes) -> None:
    try:
        refusal = refusal_in(_text(raw))
    except ValidationError:
        return
    assert refusal.at.tzinfo


def check_alerts(raw: bytes) -> None:
    try:
        book = alerts_in(_text(raw))
    except ValidationError:
        return
    policy = AlertPolicy(3, 5)
    observed = [Evaluation(subject, "bad") for subject in ("speed", "ingest")]
    after = book.after(observed, NOW, policy, ["notify.webhook"]).send_pending(lambda _message, _hooks: ())
    assert not after.outbox
    assert after.states["speed"].streak <= max(policy.raise_after, policy.clear_after)


def check_commit(raw: bytes) -> None:
    text = _text(raw)
    try:
        effect = effect_of(7, text)
    except ValueError:
        return
    actions = [json.loads(line) for line in text.split("\n") if line]
    assert effect.adds == any(action["add"].get("dataChange", True) for action in actions if "add" in action)
    try:
        number = number_in(text, "oncelake.lease.flights")
    except ValueError:
        return
    numbers = [action["txn"]["version"] for action in actions if "txn" in action]
    assert number is None or number in numbers


def check_property(raw: bytes) -> None:
    text = _text(raw)
    readers: tuple[Callable[[str], Any], ...] = (
        *(from_hex, json_from_hex, aware, date.fromisoformat, int),
        lambda rules: days_that_differ(rules, RULES),
    )
    for read in readers:
        _or_refused(partial(parse_property, "/lake/batch/flights", "oncelake.x", text, read), "oncelake.x")


def check_retention(raw: bytes) -> None:
    text = _text(raw)
    kept = retention_in(text)
    assert kept is None or text.split()[2] in ("hour", "hours", "day", "days")


def check_broker(raw: bytes) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "broker.json").write_bytes(raw)
        assert running_broker(Path(folder)) is None


def check_report(raw: bytes) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / "flights-2013-01-01.json").write_bytes(raw)
        found = entries(Path(folder))
        assert len(found.entries) + len(found.unread) == 1
        assert render_index(found)


def check_line(raw: bytes) -> None:
    """A line of a stream becomes one JSON object, whatever it is."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    line = raw.decode(errors="replace").rstrip("\r\n")
    marked = json.loads(label_json(ProgramName("flights", "speed"), line), parse_constant=refuse)
    assert (marked["pipeline"], marked["stream"]) == ("flights", "speed")
    last_error = LastError()
    last_error.look_at(line)
    assert last_error.text is None or isinstance(last_error.text, str)


def _of_texts(*texts: str) -> st.SearchStrategy[bytes]:
    return st.one_of(*(broken(text.encode()) for text in texts), st.binary(max_size=20))


def _lines(parts: list[Any]) -> bytes:
    """JSON in lines."""
    return b"\n".join(map(as_json, parts))


def _offset_file(parts: list[Any]) -> bytes:
    return b"v1\n" + _lines(parts)


TARGETS: Final = {
    "offsets": Target(
        check_offsets, [[PLAN, OF_DELTA, OF_KAFKA], [PLAN, OF_DELTA]], _offset_file, _of_texts(OFFSETS)
    ),
    "end": Target(check_end, [[END]], _offset_file, _of_texts(f"v1\n{json.dumps(END)}")),
    "checkpoint": Target(
        check_checkpoint, [{"id": "q"}, {"bronze": "x", "since": 3, "partitions": "4"}, OF_KAFKA]
    ),
    "progress": Target(check_progress, [json.loads(PROGRESS.record())]),
    "figures": Target(check_figures, [FIGURES]),
    "refusal": Target(check_refusal, [REFUSAL]),
    "alerts": Target(check_alerts, [ALERTS]),
    "commit": Target(check_commit, [list(ACTIONS)], _lines, _of_texts(COMMIT)),
    "property": Target(
        check_property,
        texts=_of_texts(RULES, "2013-01-01", AT, "12", to_hex('{"dedup key": "a"}'), to_hex("[1]")),
    ),
    "retention": Target(check_retention, texts=_of_texts("interval 168 hours", "interval 99999999999 days")),
    "broker": Target(check_broker, [BROKER]),
    "report": Target(check_report, [REPORT]),
    "line": Target(
        check_line, [{"error": "x", "job": "a", "counts": {"a": 1}}], texts=_of_texts("error: x", '{"a": 1}')
    ),
}
