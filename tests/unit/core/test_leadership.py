"""Who may act: never two, whatever calls are late or lost, and whatever clocks differ by less than the terms allow."""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterator
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.leadership import Record, Sight, Terms, acts_until_s, free_from_s, see

TERMS = Terms()
ANNA, BERT = "anna", "bert"


class TestTerms:
    def test_those_of_kubernetes_own_controllers_by_default(self) -> None:
        assert (TERMS.lease_s, TERMS.renew_within_s, TERMS.retry_s) == (15.0, 10.0, 2.0)

    @pytest.mark.parametrize(
        "terms",
        [
            pytest.param((10.0, 10.0, 2.0), id="others take it at the moment when the holder ends"),
            pytest.param((15.0, 2.0, 2.0), id="no time for a second attempt"),
            pytest.param((15.0, 10.0, 0.0), id="no pause"),
        ],
    )
    def test_others_that_leave_no_room_are_refused(self, terms: tuple[float, float, float]) -> None:
        with pytest.raises(ValueError, match="0 < retry_s < renew_within_s < lease_s"):
            Terms(*terms)


class TestWaiting:
    @pytest.mark.parametrize(
        ("sight", "free_s"),
        [
            pytest.param(None, -math.inf, id="no lease: at once"),
            pytest.param(Sight(Record("", "1"), 100.0), -math.inf, id="given back: at once"),
            pytest.param(Sight(Record(ANNA, "1"), 100.0), -math.inf, id="my own, from before I was started again"),
            pytest.param(Sight(Record(BERT, "1"), 100.0), 115.0, id="another's: when it has stood still for long"),
            pytest.param(Sight(Record(BERT, "1", 60.0), 100.0), 160.0, id="another's, who asks for more time"),
            pytest.param(Sight(Record(BERT, "1", 1.0), 100.0), 115.0, id="another's, who asks for less"),
        ],
    )
    def test_from_when_on_it_may_be_taken(self, sight: Sight | None, free_s: float) -> None:
        assert free_from_s(sight, ANNA, TERMS) == free_s

    def test_any_change_begins_the_wait_anew(self) -> None:
        first = see(None, Record(BERT, "1"), 100.0)
        assert see(first, Record(BERT, "2"), 108.0) == Sight(Record(BERT, "2"), 108.0)

    def test_the_same_again_does_not(self) -> None:
        first = see(None, Record(BERT, "1"), 100.0)
        assert see(first, Record(BERT, "1"), 108.0) == first

    def test_a_lease_that_somebody_deletes_is_waited_for_all_the_same(self) -> None:
        """Its holder makes it again within two seconds; until then it acts."""
        first = see(None, Record(BERT, "1"), 100.0)
        assert see(first, None, 108.0) == first

    def test_the_holder_acts_for_less_long_than_others_wait(self) -> None:
        assert acts_until_s(100.0, TERMS) == 110.0 < free_from_s(Sight(Record(BERT, "1"), 100.0), ANNA, TERMS)


class World:
    """An API server with one lease, calls that take their time, and all times at which anybody could act."""

    def __init__(self, random: Random) -> None:
        self.random, self.now_s, self.version, self.holder = random, 0.0, 0, ""
        self.acting: list[tuple[str, float, float]] = []
        """Who, from when, and until when, on the world's clock."""

    def run(self, operators: list[Iterator[float]], until_s: float) -> None:
        turn = count()
        queue = [(0.0, next(turn), operator) for operator in operators]
        while queue and queue[0][0] < until_s:
            self.now_s, _, operator = heapq.heappop(queue)
            heapq.heappush(queue, (self.now_s + next(operator), next(turn), operator))

    def late_s(self) -> float:
        return self.random.choice((0.001, 0.001, 0.01, 0.05, 0.2, 1.0, 20.0, 30.0)) * self.random.random()

    def write(self, version: int, holder: str) -> bool:
        if version != self.version:
            return False
        self.version, self.holder = version + 1, holder
        return True


def operator(world: World, name: str, rate: float) -> Generator[float, None, None]:
    """One operator after another in the same place; yields how long until it goes on."""
    offset_s = world.random.uniform(-1e6, 1e6)

    def clock_s() -> float:
        return offset_s + rate * world.now_s

    for life in count():
        me, sight, acts_s = f"{name}-{life}", None, -math.inf
        while True:
            yield world.late_s()
            record, version = Record(world.holder, str(world.version), TERMS.lease_s), world.version
            yield world.late_s()
            sight = see(sight, record, clock_s())
            if clock_s() >= free_from_s(sight, me, TERMS):
                asked_s = clock_s()
                yield world.late_s()
                done = world.write(version, me)
                yield world.late_s()
                if done and world.random.random() > 0.2:  # else the answer is lost
                    acts_s = acts_until_s(asked_s, TERMS)
                    world.acting.append((me, world.now_s, (acts_s - offset_s) / rate))
                    if world.random.random() < 0.05:  # it is stopped, and gives the lease back
                        world.acting = [(who, a, min(b, world.now_s) if who == me else b) for who, a, b in world.acting]
                        yield world.late_s()
                        world.write(world.version if world.holder == me else -1, "")
                        break
            yield TERMS.retry_s / rate
            if acts_s != -math.inf and clock_s() >= acts_s:
                break


def overlaps(acting: list[tuple[str, float, float]]) -> list[tuple[str, str]]:
    """Pairs that could act at the same time."""
    return [
        (who, other)
        for at, (who, began_s, ended_s) in enumerate(acting)
        for other, from_s, to_s in acting[at + 1 :]
        if who.split("-")[0] != other.split("-")[0] and max(began_s, from_s) < min(ended_s, to_s)
    ]


FASTEST = TERMS.lease_s / TERMS.renew_within_s - 0.01


@given(
    seed=st.integers(min_value=0, max_value=2**32),
    rates=st.lists(st.floats(min_value=1.0, max_value=FASTEST), min_size=2, max_size=4),
)
def test_two_never_act_at_once(seed: int, rates: list[float]) -> None:
    world = World(Random(seed))
    world.run([operator(world, f"operator{n}", rate) for n, rate in enumerate(rates)], until_s=1200.0)
    assert overlaps(world.acting) == []


def test_in_such_a_world_operators_do_act_and_take_over() -> None:
    """Else the property before would hold of a world in which nothing happens."""
    world = World(Random(1))
    world.run([operator(world, f"operator{n}", 1.0) for n in range(3)], until_s=3600.0)
    assert len({who for who, began_s, ended_s in world.acting if ended_s > began_s}) > 20
    assert len({who.split("-")[0] for who, _, _ in world.acting}) == 3


def test_a_clock_that_runs_faster_than_the_terms_allow_is_what_they_cannot_bear() -> None:
    """The bound is sharp: this is where the promise ends, and the property would see it broken."""
    found = []
    for seed in range(40):
        world = World(Random(seed))
        world.run([operator(world, "slow", 1.0), operator(world, "fast", 2.5)], until_s=1800.0)
        found += overlaps(world.acting)
    assert found
