"""Days that publishing follows, and the version of the batch table that the topic has of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from pipelines.ledger.certifications import Verdict, certified_in, newest_certified


@dataclass(frozen=True)
class Settled:
    """The days that a stream has settled.

    Attributes:
        version: The version of the batch table that the topic follows on these days; -1 before there is one.
            One version stands for all days, since a rebuild first undoes what was not certified
            (`pipelines.nightly.recovery`).
        days: The days, in order.
        commit: The hash of the commit that made the version, see `commit_hash`; None if unknown.
        left: Those of the days of which a micro-batch sends nothing, since they were certified before the
            stream was started for the first time.
    """

    version: int = -1
    days: tuple[date, ...] = ()
    commit: str | None = None
    left: tuple[date, ...] = ()

    def since(self, ledger: Iterable[Verdict]) -> "Settled | None":
        """Return the days that were certified since, at the current version; None if there are none.

        Args:
            ledger: Verdicts as `history` gives them.
        """
        ledger = list(ledger)
        state = certified_in(ledger)
        if state is None or state.version <= self.version:
            return None
        newest = newest_certified(ledger)
        return Settled(
            state.version,
            tuple(day for day, verdict in newest.items() if verdict.batch_version > self.version),
            state.commit,
        )

    def and_then(self, newer: "Settled | None") -> "Settled":
        """Return these days and those that were settled after them."""
        if newer is None:
            return self
        return Settled(newer.version, tuple(sorted({*self.days, *newer.days})), newer.commit)
