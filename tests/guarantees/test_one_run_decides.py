"""Two runs of one pipeline, in every order of their steps: readers lose no day, and get each as audited."""

from collections.abc import Iterator

import pytest
from hypothesis import given, seed, settings
from hypothesis import strategies as st

from pipelines.nightly.commit_order import steps
from tests.support.delta_model import ModelNight, Refused, World

# Days one to three were certified before; both runs want the second, and the first fails with the third.
EARLIER = frozenset({1, 2, 3})
FIRST, SECOND = frozenset({1, 2, 3}), frozenset({2, 4})
FAILING = frozenset({3})
MOST_STATES = 50_000


class Actors:
    """Two runs and, if wanted, somebody who writes to the batch table by hand."""

    def __init__(self, *, is_fenced: bool = True, looks: bool = True) -> None:
        self.world = World(is_fenced, looks)
        self._run("earlier", EARLIER)
        self.nights = {
            "A": ModelNight(self.world, "first", FIRST, FAILING),
            "B": ModelNight(self.world, "second", SECOND),
        }
        self._steps = {name: steps(night) for name, night in self.nights.items()}
        self._ended = set[str]()
        self.certified = self.world.certified()

    def step(self, who: str) -> bool:
        """Lets one of them do one step; whether it had one left. What readers get must hold after it."""
        if who in self._ended:
            return False
        before = self.certified
        try:
            if who == "F":
                self.world.batch.append_blindly(2, "by hand")
            if who == "F" or next(self._steps[who], None) is None:
                self._ended.add(who)
        except Refused:
            self._ended.add(who)
        self.certified = self.world.certified()
        assert before.keys() <= self.certified.keys(), "days vanish from readers"
        assert not any("by hand" in by for by in self.certified.values()), "certified, and nobody audited it"
        return True

    def finish(self) -> None:
        """The next night finds all in order, whatever the two have left, and nobody is in its way."""
        self._run("next", frozenset({1, 2, 3, 4}))
        assert self.certified == dict.fromkeys((1, 2, 3, 4), "next")

    def state(self) -> str:
        """All that what happens next depends on."""
        return repr((self.world, self.world.batch, self.world.ledger, sorted(self.nights.items())))

    def _run(self, name: str, days: frozenset[int]) -> None:
        night = ModelNight(self.world, name, days)
        for _ in steps(night):
            pass
        assert night.done
        self.certified = self.world.certified()


def every_order(who: str, **world: bool) -> Iterator[Actors]:
    """Each state that the actors can come to, once."""
    seen, waiting = set[str](), [""]
    while waiting:
        prefix = waiting.pop()
        for name in who:
            actors = Actors(**world)
            for earlier in prefix:
                actors.step(earlier)
            if not actors.step(name):
                continue
            done = f"{''.join(sorted(prefix + name))} {actors.state()}"
            if done not in seen:
                seen.add(done)
                assert len(seen) < MOST_STATES
                waiting.append(prefix + name)
                yield actors


@pytest.mark.parametrize("who", ["AB", "AF", "BF"])
def test_in_every_order_of_steps_readers_keep_every_day_as_it_was_audited(who: str) -> None:
    both = 0
    for actors in every_order(who):
        both += all(night.done for night in actors.nights.values())
        actors.finish()
    # One after the other both decide: what is refused is refused for a reason.
    assert both or who != "AB"


@seed(17)
@settings(max_examples=300, deadline=None, database=None)
@given(order=st.lists(st.sampled_from("ABABABF"), max_size=60))
def test_in_any_order_of_two_runs_and_somebody_who_writes_by_hand(order: list[str]) -> None:
    actors = Actors()
    for who in order:
        actors.step(who)
    actors.finish()


def test_without_epochs_the_same_runs_lose_days() -> None:
    """The model tells a protocol that holds from one that does not."""
    with pytest.raises(AssertionError):
        for _ in every_order("AB", is_fenced=False):
            pass


def test_without_a_look_at_the_history_rows_of_others_are_certified() -> None:
    with pytest.raises(AssertionError):
        for _ in every_order("AF", looks=False):
            pass
