"""GPUs that several services share: nobody is starved, nothing is wasted, and nothing swings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from outrider.core.budget import SETTLE_S, Claim, Shares, fair, shared

NAMES = ("chat", "code", "search", "translate")


def claim(name: str, wanted: int, present: int = 0, **changes: Any) -> Claim:
    """A service of one GPU a replica, and up to eight of them."""
    return replace(Claim(name, gpus=1, least=0, most=8, wanted=wanted, present=present), **changes)


@st.composite
def claims(draw: st.DrawFn, gpus: int | None = None) -> list[Claim]:
    """One to four services of any kind."""
    found = []
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        least = draw(st.integers(0, 2))
        found.append(
            Claim(
                name,
                gpus=gpus or draw(st.sampled_from([1, 2, 4])),
                least=least,
                most=draw(st.integers(least, 10)),
                wanted=draw(st.integers(0, 12)),
                present=draw(st.integers(0, 10)),
                weight=draw(st.sampled_from([0.5, 1.0, 2.0, 10.0])),
                shortfall=draw(st.sampled_from([0.0, 0.2, 1.0, 7.0])),
            )
        )
    return found


BUDGETS = st.integers(0, 40)


def used(found: Sequence[Claim], most: Any) -> int:
    return sum(one.gpus * most[one.name] for one in found)


@pytest.mark.parametrize(
    ("found", "gpus", "expected"),
    [
        pytest.param([claim("a", 2), claim("b", 3)], 8, {"a": 4, "b": 4}, id="enough: the rest is room for both"),
        pytest.param([claim("a", 8), claim("b", 8)], 8, {"a": 4, "b": 4}, id="too little: halves"),
        pytest.param([claim("a", 8, weight=3), claim("b", 8)], 8, {"a": 6, "b": 2}, id="three times the weight"),
        pytest.param([claim("a", 8, shortfall=1.0), claim("b", 8)], 9, {"a": 6, "b": 3}, id="objectives missed"),
        pytest.param([claim("a", 1), claim("b", 8)], 8, {"a": 1, "b": 7}, id="who needs little leaves the rest"),
        pytest.param([claim("a", 8, gpus=4), claim("b", 8)], 16, {"a": 2, "b": 8}, id="shares are counted in GPUs"),
        pytest.param([claim("a", 8, weight=100), claim("b", 8)], 8, {"a": 7, "b": 1}, id="nobody is starved"),
        pytest.param([claim("a", 8, least=3), claim("b", 8, least=6)], 8, {"a": 3, "b": 6}, id="owners' least"),
        pytest.param([claim("a", 8), claim("b", 0)], 6, {"a": 6, "b": 0}, id="who needs none has none"),
    ],
)
def test_fair_shares(found: list[Claim], gpus: int, expected: dict[str, int]) -> None:
    assert fair(found, gpus) == expected


@given(claims(), BUDGETS)
def test_shares_keep_bounds_and_the_budget(found: list[Claim], gpus: int) -> None:
    shares = fair(found, gpus)
    assert all(one.least <= shares[one.name] <= one.most for one in found)
    assert used(found, shares) <= max(gpus, sum(one.gpus * one.least for one in found))


@given(claims(), BUDGETS)
def test_nobody_who_needs_one_is_without_while_ones_fit(found: list[Claim], gpus: int) -> None:
    shares = fair(found, gpus)
    if sum(one.gpus * max(one.least, min(1, one.need)) for one in found) <= gpus:
        assert all(shares[one.name] >= 1 for one in found if one.need >= 1)


@given(claims(), BUDGETS)
def test_nothing_is_left_over_that_somebody_needs(found: list[Claim], gpus: int) -> None:
    shares = fair(found, gpus)
    left = gpus - used(found, shares)
    assert all(one.gpus > left for one in found if shares[one.name] < one.need)


@given(claims(gpus=1), BUDGETS)
def test_a_gpu_more_takes_from_nobody(found: list[Claim], gpus: int) -> None:
    before, after = fair(found, gpus), fair(found, gpus + 1)
    assert all(after[one.name] >= min(before[one.name], one.need) for one in found)


@given(claims(gpus=1), BUDGETS)
def test_more_weight_is_never_worse(found: list[Claim], gpus: int) -> None:
    heavier = [replace(found[0], weight=found[0].weight * 2), *found[1:]]
    assert min(fair(heavier, gpus)[NAMES[0]], found[0].need) >= min(fair(found, gpus)[NAMES[0]], found[0].need)


def follow(found: Sequence[Claim], shares: Shares) -> list[Claim]:
    """The services after autoscalers did what their load needs, within their shares."""
    return [replace(one, present=min(one.need, shares.most[one.name])) for one in found]


@given(claims(), BUDGETS)
@example(  # one replica of "chat" takes two of "search", and only the first of them is weaker than it
    [
        claim("chat", 4, gpus=4, most=4, weight=2.0, shortfall=0.2),
        claim("code", 5, gpus=2, most=5, shortfall=1.0),
        claim("search", 8, 7, gpus=2, shortfall=1.0),
    ],
    38,
)
def test_under_steady_claims_it_comes_to_rest_and_stays(found: list[Claim], gpus: int) -> None:
    shares, now_s = None, 0.0
    for _ in range(60):
        shares = shared(shares, found, gpus, now_s)
        found, now_s = follow(found, shares), now_s + SETTLE_S
    assert shares is not None
    settled = [one.present for one in found]
    for _ in range(4):
        shares = shared(shares, found, gpus, now_s)
        found, now_s = follow(found, shares), now_s + SETTLE_S
        assert [one.present for one in found] == settled
        assert shares.reason == ""


@given(claims(), BUDGETS, st.lists(st.lists(st.integers(0, 12), min_size=4, max_size=4), max_size=12))
def test_the_budget_is_kept_while_loads_change(found: list[Claim], gpus: int, loads: list[list[int]]) -> None:
    shares, now_s = None, 0.0
    for load in loads:
        found = [replace(one, wanted=wanted) for one, wanted in zip(found, load, strict=False)]
        shares, now_s = shared(shares, found, gpus, now_s), now_s + 60.0
        assert all(one.least <= shares.most[one.name] <= one.most for one in found)
        least, ran = (sum(one.gpus * number for one, number in zip(found, many, strict=True))
                      for many in ([one.least for one in found], [one.held for one in found]))  # fmt: skip
        assert used(found, shares.most) <= max(gpus, least, ran)
        found = follow(found, shares)


@given(claims(), BUDGETS)
def test_who_asks_for_no_more_than_there_is_loses_nothing(found: list[Claim], gpus: int) -> None:
    if used(found, {one.name: max(one.need, one.held) for one in found}) <= gpus:
        shares = shared(Shares({}, 0.0), found, gpus, 10 * SETTLE_S)
        assert all(shares.most[one.name] >= max(one.need, one.held) for one in found)


def test_a_running_replica_goes_when_it_is_needed_more_for_long_and_one_at_a_time() -> None:
    found, shares, seen = [claim("a", 8, 8), claim("b", 8, 0)], None, []
    for minute in range(0, 51, 5):
        shares = shared(shares, found, 8, 60.0 * minute)
        seen.append((minute, shares.most["a"], shares.most["b"]))
        found = follow(found, shares)
    taken = [(minute, a) for (_, before, _), (minute, a, _) in pairwise(seen) if a < before]
    assert taken == [(5, 7), (15, 6), (25, 5), (35, 4)], "the first one soon, since b has none at all"
    assert seen[-1][1:] == (4, 4)


def test_a_load_that_swings_faster_than_that_moves_no_running_replica() -> None:
    found, shares = [claim("a", 6, 6), claim("b", 2, 2)], None
    for minute in range(60):
        found = [found[0], replace(found[1], wanted=8 if minute % 10 < 8 else 2)]
        shares = shared(shares, found, 8, 60.0 * minute)
        assert (shares.most["a"], shares.reason) == (6, "")
        found = follow(found, shares)


def test_room_for_bursts_costs_nobody_a_running_replica() -> None:
    """With the one GPU of a's room the rest would be too little for b, and c would have to give up a replica."""
    found = [claim("a", 0, most=1), claim("b", 4, gpus=4), claim("c", 0, 2, gpus=4)]
    assert shared(None, found, 24, 0.0) == Shares({"a": 0, "b": 4, "c": 2})


def test_gpus_of_one_replica_are_kept_together_for_who_needs_several() -> None:
    """Given on as they come free they would never be enough for a replica of four GPUs."""
    found = [claim("a", 2, 2, gpus=2), claim("b", 1, gpus=4), claim("c", 2, gpus=2)]
    shares, now_s = None, 0.0
    for _ in range(6):
        shares = shared(shares, found, 8, now_s)
        found, now_s = follow(found, shares), now_s + SETTLE_S
    assert [one.present for one in found] == [1, 1, 1]


def test_a_budget_that_shrinks_takes_replicas_one_a_minute() -> None:
    found, shares, seen = [claim("a", 4, 4), claim("b", 4, 4)], None, []
    for half_minute in range(8):
        shares = shared(shares, found, 5, 30.0 * half_minute)
        seen.append((shares.most["a"], shares.most["b"]))
        found = follow(found, shares)
    assert seen == [(4, 4), (4, 4), (3, 4), (3, 4), (3, 3), (3, 3), (2, 3), (2, 3)]
    assert shared(Shares({"a": 4, "b": 4}), [claim("a", 4, 4), claim("b", 4, 4)], 5, 0.0).reason == ""


def test_a_reading_of_less_for_a_moment_costs_nobody_a_replica() -> None:
    found, shares = [claim("a", 4, 4), claim("b", 4, 4)], None
    for step, gpus in enumerate([8, 6, 8, 8, 6, 6, 8, 8]):
        shares = shared(shares, found, gpus, 15.0 * step)
        assert shares.most == {"a": 4, "b": 4}


def test_an_autoscaler_that_is_slow_does_not_get_the_replica_back() -> None:
    found = [claim("a", 8, 8), claim("b", 8, 0)]
    waiting = shared(None, found, 8, 0.0)
    gone = shared(waiting, found, 8, 60.0)
    assert (gone.most["a"], gone.donor) == (7, "a")
    later = shared(gone, found, 8, 75.0)
    assert later.most == {"a": 7, "b": 1}
    assert not later.donor


def test_an_objective_that_is_met_only_with_a_replica_does_not_carry_it_to_and_fro() -> None:
    """Seven replicas, and both services need four to meet their objective: each turn is twice as long as the last."""
    found, shares, moved = [claim("a", 8, 4), claim("b", 8, 3)], None, []
    for minute in range(24 * 60):
        found = [replace(one, shortfall=0.0 if one.present >= 4 else 0.5) for one in found]
        shares = shared(shares, found, 7, 60.0 * minute)
        moved += [minute] if shares.donor else []
        found = follow(found, shares)
    gaps = [after - before for before, after in pairwise(moved)]
    assert moved[0] == 10
    assert len(moved) <= 14
    assert all(after >= before for before, after in pairwise(gaps))
    assert gaps[-1] >= 300


@pytest.mark.parametrize("seed", range(5))
def test_loads_that_flutter_move_no_running_replica_and_hardly_a_bound(seed: int) -> None:
    chance = random.Random(seed)
    found, shares, changes = [claim("a", 4, 4), claim("b", 4, 4)], None, 0
    for step in range(480):
        found = [
            replace(one, wanted=4 + chance.choice((-1, 0, 0, 1)), shortfall=chance.uniform(0, 0.1)) for one in found
        ]
        before, shares = shares, shared(shares, found, 10, 15.0 * step)
        assert shares.reason == ""
        changes += before is not None and before.most != shares.most
        found = follow(found, shares)
    assert changes <= 4


def test_who_needs_more_gets_room_before_it_asks_again() -> None:
    before = Shares({"a": 10, "b": 6})
    found = [claim("a", 2, 2, most=16), claim("b", 8, 6, most=16)]
    assert shared(before, found, 16, 0.0).most == {"a": 6, "b": 10}


def test_what_ends_by_itself_is_given_on_at_once() -> None:
    found = [claim("a", 2, 4), claim("b", 8, 4)]
    waiting = shared(None, found, 8, 0.0)
    assert waiting.most == {"a": 4, "b": 4}
    assert shared(waiting, [claim("a", 2, 2), claim("b", 8, 4)], 8, 60.0).most == {"a": 2, "b": 6}
