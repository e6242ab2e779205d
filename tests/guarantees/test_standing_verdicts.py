"""A day is certified only if the version that readers get holds its own build."""

from datetime import UTC, date, datetime
from typing import Literal

import pytest

from pipelines.config.loader import load_config
from pipelines.errors import SourceError
from pipelines.ledger.certifications import (
    Certified,
    Verdict,
    certified_in,
    history_of,
    newest_certified,
    standing,
)

CONFIG = load_config("flights", environ={})
ONE, TWO, THREE = (date(2013, 1, n) for n in (1, 2, 3))


def verdict(
    day: date, at: int, base: int | None = None, status: Literal["certified", "failed"] = "certified"
) -> Verdict:
    return Verdict(
        pipeline="flights",
        day=day,
        status=status,
        run_id="run",
        batch_version=at,
        bronze_version=0,
        records=0,
        rows=0,
        duplicates=0,
        conflicts=0,
        late=0,
        quarantined=0,
        other_days=0,
        bronze=0,
        decided_at=datetime(2013, 1, 6, tzinfo=UTC),
        base_version=base,
    )


@pytest.mark.parametrize(
    ("ledger", "state"),
    [
        pytest.param([], None, id="nothing is certified"),
        pytest.param(
            [verdict(ONE, 2, -1), verdict(TWO, 4, 2)], Certified(4, (ONE, TWO)), id="one on another"
        ),
        pytest.param(
            [verdict(ONE, 2, -1), verdict(TWO, 7, 2), verdict(THREE, 5, 2)],
            Certified(7, (ONE, TWO)),
            id="a run that was overtaken gave its verdict after the other",
        ),
        pytest.param(
            [verdict(ONE, 2, -1), verdict(TWO, 7, 2), verdict(THREE, 9, 2)],
            Certified(9, (ONE, THREE)),
            id="a run that was overtaken wrote over the other",
        ),
        pytest.param(
            [verdict(ONE, 2), verdict(TWO, 4), verdict(THREE, 6, 4)],
            Certified(6, (ONE, TWO, THREE)),
            id="verdicts of code that did not tell what they were built upon",
        ),
        pytest.param(
            [verdict(ONE, 2, -1), verdict(ONE, 9, 2, "failed")],
            Certified(2, (ONE,)),
            id="a version that failed is nobody's base",
        ),
    ],
)
def test_the_certified_state_is_what_the_readers_version_was_built_upon(
    ledger: list[Verdict], state: Certified | None
) -> None:
    assert certified_in(standing(CONFIG, ledger)) == state


def test_a_day_whose_newest_verdict_does_not_stand_is_as_the_one_before_says() -> None:
    ledger = standing(CONFIG, [verdict(ONE, 2, -1), verdict(ONE, 5, 2), verdict(TWO, 7, 2)])
    assert newest_certified(ledger)[ONE].batch_version == 2


def test_it_is_said_of_which_days_a_verdict_does_not_stand(caplog: pytest.LogCaptureFixture) -> None:
    standing(CONFIG, [verdict(ONE, 5, -1), verdict(TWO, 7, -1)])
    assert "2013-01-01: certified at a version that readers do not get" in caplog.text
    assert "rebuild each day: oncelake nightly_batch --pipeline flights --date DAY" in caplog.text


def test_verdicts_that_others_were_built_upon_are_missed_when_they_are_gone() -> None:
    nights = [verdict(date(2013, 1, n), 2 * n, 2 * n - 2 if n > 1 else -1) for n in range(1, 6)]
    assert len(history_of(CONFIG, 10, nights)) == 5
    for gone in range(1, 4):
        rest = [*nights[:gone], *nights[gone + 1 :]]
        with pytest.raises(SourceError, match=f"are gone: found none on version {2 * gone + 2} of"):
            history_of(CONFIG, 10, rest)


def test_a_gap_that_later_runs_have_covered_is_none() -> None:
    days = [verdict(ONE, 2, -1), verdict(TWO, 6, 4), verdict(ONE, 8, 6)]
    assert certified_in(history_of(CONFIG, 8, days)) == Certified(8, (ONE, TWO))


def test_verdicts_of_code_that_did_not_say_are_not_missed() -> None:
    assert len(history_of(CONFIG, 6, [verdict(ONE, 2), verdict(THREE, 6)])) == 2
