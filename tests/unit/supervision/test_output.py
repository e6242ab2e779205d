"""A line says of which stream it is, JSON stays JSON, and nobody waits for whoever reads it."""

import io
import json
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.supervision.output import LastError, Printer, ProgramName, label_json, label_text
from testbed.waiting import wait_until

NAME = ProgramName("flights", "ingest")
WITHIN_S = 60


@given(st.text())
def test_each_line_becomes_one_json_object_with_its_stream(line: str) -> None:
    marked = label_json(NAME, line)
    assert "\n" not in marked
    assert json.loads(marked).items() >= {"pipeline": "flights", "stream": "ingest"}.items()


def test_log_lines_keep_their_fields_when_prefixed() -> None:
    record = {"time": "2026-01-01T00:00:00.000+00:00", "level": "INFO", "message": "micro-batch 3"}
    assert json.loads(label_json(NAME, json.dumps(record))).items() >= record.items()
    assert json.loads(label_json(NAME, "WARNING: of Java"))["message"] == "WARNING: of Java"
    assert label_text(NAME, "12:00:00 INFO") == "flights/ingest | 12:00:00 INFO"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["error: no such topic"], "no such topic"),
        (['{"job": "x", "status": "failed", "error": "no such topic"}'], "no such topic"),
        (["error: first", "error: last"], "last"),
        (["12:00 INFO error: of a log line", '{"error": 5}', '{"error"'], None),
    ],
)
def test_the_last_error_is_remembered(lines: list[str], said: str | None) -> None:
    last = LastError()
    for line in lines:
        last.look_at(line)
    assert last.text == said


def test_lines_are_passed_on_whole_and_go_on_when_nobody_reads(tmp_path: Path) -> None:
    printer, path = Printer(label_text), tmp_path / "out"
    to = os.open(path, os.O_WRONLY | os.O_CREAT)
    printer.pass_on(io.BytesIO(b"one\ntw\xff\r\nlast"), to, NAME, LastError())
    printer.flush(WITHIN_S)
    os.close(to)
    assert path.read_text().splitlines() == [
        f"flights/ingest | {each}" for each in ("one", "tw\N{REPLACEMENT CHARACTER}", "last")
    ]
    reading, writing = os.pipe()
    os.close(reading)
    lines = io.BytesIO(b"x\n" * 1000)
    gone = Printer(label_text)
    gone.pass_on(lines, writing, NAME, LastError())
    gone.flush(WITHIN_S)
    os.close(writing)
    assert lines.closed


def test_a_reader_that_stands_still_stops_no_stream_and_learns_how_many_lines_it_missed(
    tmp_path: Path,
) -> None:
    reading, writing = os.pipe()
    printer = Printer(label_json, most_bytes=200_000)
    # More than a pipe and the buffer take; who reads the other output goes on.
    printer.pass_on(io.BytesIO(b"%s\n" % (b"x" * 999) * 2_000), writing, NAME, LastError())
    path = tmp_path / "other"
    other = os.open(path, os.O_WRONLY | os.O_CREAT)
    printer.pass_on(io.BytesIO(b"heard\n"), other, NAME, LastError())
    wait_until(lambda: "heard" in path.read_text(), "the other output goes on", WITHIN_S)
    read = bytearray()

    def take() -> None:
        while part := os.read(reading, 1 << 16):
            read.extend(part)

    reader = threading.Thread(target=take)
    reader.start()
    printer.flush(WITHIN_S)
    os.close(writing)
    os.close(other)
    reader.join(WITHIN_S)
    os.close(reading)
    said = [json.loads(line) for line in read.splitlines()]
    assert {(each["pipeline"], each["stream"]) for each in said} == {("flights", "ingest")}
    words = " lines were dropped here, since nobody read them in time"
    dropped = [each["message"].removesuffix(words) for each in said if each["message"].endswith(words)]
    assert dropped
    assert len(said) - len(dropped) + sum(map(int, dropped)) == 2_000
