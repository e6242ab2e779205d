"""What came of a run: for people, and as JSON."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chaos import resources
from chaos.journal import Journal
from chaos.resources import Holding
from demo.cast import ROOT


@dataclass(frozen=True)
class Report:
    """What came of a run.

    Attributes:
        seed: of the run.
        seconds: how long faults happened.
        sent: how many records were sent, by pipeline and sort.
        polls: how many times the reader of a pipeline read, and how many times it was refused.
        journal: faults, ends of processes and violations.
        planted: for each planted fault the rules that found it; empty without one.
        is_patched: whether the fault was in the jobs, so that the run itself has to violate something.
        took_s: how long the run took, in seconds.
        commit: the commit that was run, see `commit_of_now`.
        held: what each stream held, in a soak.
    """

    seed: int
    seconds: float
    sent: Mapping[str, Counter[str]]
    polls: Mapping[str, tuple[int, int]]
    journal: Journal
    planted: Mapping[str, Sequence[str]] = field(default_factory=dict)
    is_patched: bool = False
    took_s: float = 0.0
    commit: str = ""
    held: Mapping[str, Sequence[Holding]] = field(default_factory=dict)

    @property
    def is_good(self) -> bool:
        """Whether all planted faults were found, and nothing else is violated."""
        return all(self.planted.values()) and (self.is_patched or not self.journal.violations)

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        yield f"seed {self.seed}, {self.seconds:.0f} s of faults; the run took {self.took_s:.0f} s"
        for pipeline, sorts in self.sent.items():
            sizes = ", ".join(f"{count:,} {sort}" for sort, count in sorted(sorts.items()))
            polls, refused = self.polls[pipeline]
            yield f"{pipeline}: sent {sizes}; {polls} reads, {refused} refused"
        yield "faults:"
        for kind, outcomes in sorted(self.journal.outcomes().items()):
            said = "; ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
            yield f"  {outcomes.total():>3}  {kind}: {said}"
        yield "exit codes:"
        for job, codes in sorted(self.journal.exit_codes().items()):
            yield f"  {job}: {', '.join(f'{count} x {code}' for code, count in sorted(codes.items()))}"
        if self.held:
            yield "streams held:"
            yield from resources.lines(self.held)
        yield f"violations: {len(self.journal.violations)}"
        yield from (f"  {violation}" for violation in self.journal.violations)
        for name, rules in self.planted.items():
            yield f"planted {name}: {'found by ' + '; '.join(rules) if rules else 'NOT FOUND'}"

    def document(self) -> dict[str, object]:
        """Return the report as JSON has it."""
        return {
            "commit": self.commit,
            "seed": self.seed,
            "seconds": self.seconds,
            "took_s": round(self.took_s, 1),
            "sent": self.sent,
            "polls": self.polls,
            "faults": [asdict(each) for each in self.journal.injected],
            "ended": [asdict(each) for each in self.journal.ended],
            "violations": [asdict(each) for each in self.journal.violations],
            "planted": self.planted,
            "held": resources.document(self.held),
        }

    def write(self, file: Path) -> None:
        """Write the JSON."""
        file.write_text(json.dumps(self.document(), indent=1, default=str), encoding="utf-8")


def commit_of_now() -> str:
    """Return the commit that is checked out, marked if files were changed since; empty without Git."""
    with suppress(OSError):
        command = ["git", "describe", "--always", "--dirty"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    return ""
