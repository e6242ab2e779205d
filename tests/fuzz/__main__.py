"""Fuzz for some time, and store an input that fails: `python -m tests.fuzz --seconds 600 --seed 0`."""

import argparse
import logging
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256

from hypothesis import HealthCheck, given, seed, settings

from tests.fuzz.mutants import ODD
from tests.fuzz.target import Target
from tests.fuzz.targets import CORPUS, TARGETS

_ROUND = 200


@dataclass
class Fuzzing:
    """Inputs of a target until some time is over or one fails.

    Attributes:
        target: what gets them.
        inputs: how many it got.
        failed: the smallest one that fails; None if all are well.
        number: the seed of the last round; None before the first.
    """

    target: Target
    inputs: int = 0
    failed: bytes | None = None
    number: int | None = None

    def run(self, until: float, number: int) -> None:
        """Give it each document with one part changed, and then what comes at random, in rounds."""
        for raw in self.target.cases(ODD):
            self._holds(partial(self._check, raw))
            if self.failed is not None or time.monotonic() >= until:
                return
        while self.failed is None and time.monotonic() < until:
            self.number = number
            self._holds(self._round(number))
            number += 1

    def _round(self, number: int) -> Callable[[], None]:
        @seed(number)
        @settings(
            max_examples=_ROUND,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            report_multiple_bugs=False,
        )
        @given(self.target.inputs)
        def play(raw: bytes) -> None:
            self._check(raw)

        return play

    def _check(self, raw: bytes) -> None:
        self.inputs += 1
        try:
            self.target.check(raw)
        except BaseException:
            # Hypothesis plays the smallest one again at its end.
            self.failed = raw
            raise

    def _holds(self, play: Callable[[], None]) -> None:
        try:
            play()
        except Exception:  # noqa: BLE001 - whatever a check raises is what is looked for
            traceback.print_exc()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="for all targets together")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--target", action="append", choices=sorted(TARGETS), help="default: all")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    names, failures = options.target or list(TARGETS), 0
    print(f"{'target':15} {'inputs':>9}  {'rounds from seed':>16}")
    for name in names:
        fuzzing = Fuzzing(TARGETS[name])
        fuzzing.run(time.monotonic() + options.seconds / len(names), options.seed)
        seeds = "" if fuzzing.number is None else f"{options.seed} to {fuzzing.number}"
        print(f"{name:15} {fuzzing.inputs:>9,}  {seeds:>16}", flush=True)
        if fuzzing.failed is not None:
            failures += 1
            path = CORPUS / name / f"new-{sha256(fuzzing.failed).hexdigest()[:12]}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(fuzzing.failed)
            print(f"  fails: {path}; name it after what is wrong, and keep it")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
