"""No pipeline holds up the others: who does not answer, or fails, keeps its old figures and is told."""

import queue
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from pipelines.console.readings import Readings, why
from pipelines.errors import InfrastructureError
from testbed.waiting import wait_until

ANSWER_S = 60.0


class Sources:
    """Figures that count how often they were read; some fail, some wait to be let go."""

    def __init__(self, *names: str) -> None:
        self.order: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.failing: dict[str, Exception] = {}
        self.gates: dict[str, threading.Event] = {}
        self.readings = Readings(
            {name: lambda before, name=name: self.read(name, before) for name in names},  # type: ignore[misc]
            ANSWER_S,
            threading.Event(),
        )

    def read(self, name: str, before: int | None) -> int:
        self.order.put(name)
        if gate := self.gates.get(name):
            gate.wait(60)
        if error := self.failing.get(name):
            raise error
        return (before or 0) + 1

    def value(self, name: str) -> int | None:
        return self.readings.of(name, datetime.now(UTC)).value

    def turn(self) -> None:
        """Asks, and waits until all is read."""
        self.readings.ask()
        wait_until(lambda: self.readings.is_done(datetime.now(UTC)), "all is read", 30)


@pytest.fixture
def stopped() -> Iterator[list[threading.Event]]:
    """Gates that are opened at the end, so that no thread is left waiting."""
    gates: list[threading.Event] = []
    yield gates
    for gate in gates:
        gate.set()


def test_each_turn_gets_what_the_one_before_has_found() -> None:
    sources = Sources("a", "b", "c")
    assert sources.value("a") is None
    sources.turn()
    sources.turn()
    assert [sources.value(name) for name in "abc"] == [2, 2, 2]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (InfrastructureError("the cluster\ndoes not answer"), "the cluster\ndoes not answer"),
        (OSError("x"), "x"),
    ],
)
def test_who_fails_keeps_the_old_figures_until_it_does_not(error: Exception, said: str) -> None:
    sources = Sources("a", "b")
    sources.turn()
    at = sources.readings.of("a", datetime.now(UTC)).at
    sources.failing["a"] = error
    sources.turn()
    failed = sources.readings.of("a", datetime.now(UTC))
    assert (failed.value, failed.at, failed.failure) == (1, at, said)
    assert sources.value("b") == 2
    sources.failing.clear()
    sources.turn()
    assert sources.readings.of("a", datetime.now(UTC)).failure is None


def test_who_does_not_answer_is_told_and_the_others_go_on(stopped: list[threading.Event]) -> None:
    sources = Sources("a", "b", "c")
    sources.turn()
    sources.gates["a"] = threading.Event()
    stopped.append(sources.gates["a"])
    sources.readings.ask()
    wait_until(lambda: (sources.value("b"), sources.value("c")) == (2, 2), "the others are read", 30)
    now = datetime.now(UTC)
    assert sources.readings.of("a", now).asked_at is None
    assert not sources.readings.is_done(now)
    later = now + timedelta(seconds=ANSWER_S + 1)
    slow = sources.readings.of("a", later)
    assert (slow.value, slow.asked_at is not None) == (1, True)
    assert slow.is_old(later, 3_600.0)
    # Nobody waits for it any longer.
    assert sources.readings.is_done(later)
    # It is not asked a second time meanwhile.
    sources.readings.ask()
    wait_until(lambda: (sources.value("b"), sources.value("c")) == (3, 3), "the others are read again", 30)
    sources.gates["a"].set()
    wait_until(lambda: sources.value("a") == 2, "it has answered", 30)


def test_if_no_thread_gets_an_answer_what_waits_is_not_waited_for(stopped: list[threading.Event]) -> None:
    sources = Sources("a", "b", "c")
    for name in "ab":
        sources.gates[name] = threading.Event()
        stopped.append(sources.gates[name])
    sources.readings.ask()
    assert {sources.order.get(timeout=30), sources.order.get(timeout=30)} == {"a", "b"}
    now = datetime.now(UTC)
    assert not sources.readings.is_done(now)
    assert sources.readings.is_done(now + timedelta(seconds=ANSWER_S + 1))


def test_a_cause_that_may_hold_personal_data_is_logged_and_not_shown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    error = ValueError("cannot cast 'Jane Doe' to INT")
    assert "Jane Doe" in why(error)
    shown = why(error, withholds=True)
    assert shown.startswith("ValueError: the log says why")
    assert "Jane Doe" not in shown
    assert "Jane Doe" in caplog.text
    assert why(InfrastructureError("no answer"), withholds=True) == "no answer"
