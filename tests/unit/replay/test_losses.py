"""Where each policy loses, in numbers and in words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from outrider.replay.losses import behind_best, losses
from tests.unit.replay.documents import EDGES_S, policy

RATES = st.lists(st.floats(0.0, 1e4), min_size=4, max_size=4)


def test_the_worst_stretch_is_the_one_that_cost_most_in_all() -> None:
    best, other = policy("k1", [100, 100, 100, 100]), policy("k5", [60, 100, 80, 70])
    rows = {one["name"]: one for one in losses([best, other], EDGES_S)}
    assert rows["k1"]["worst"] is None
    assert rows["k1"]["sentence"].startswith("never more than 2 % behind")
    worst = rows["k5"]["worst"]
    assert (worst["from_s"], worst["to_s"], worst["best"]) == (20.0, 40.0, "k1")
    assert rows["k5"]["lost_tokens"] == 900
    assert rows["k5"]["sentence"].startswith("00:20 to 00:40: 25 good tokens a second (25 %) behind k1; with K 3.0")


def test_policies_that_lead_in_turn_each_lose_to_the_other() -> None:
    rows = losses([policy("k1", [100, 100, 0, 0]), policy("k5", [0, 0, 100, 100])], EDGES_S)
    assert [(one["worst"]["from_s"], one["worst"]["best"]) for one in rows] == [(20.0, "k5"), (0.0, "k1")]


def test_where_tokens_do_not_differ_times_do() -> None:
    slow = policy("k0", [100] * 4, tpot=[0.02, None, 0.03, 0.02])
    row = losses([slow, policy("k3", [100] * 4)], EDGES_S)[0]
    assert row["slowness"]["mean_ratio"] == 2.333
    assert "median TPOT 2.33 times the fastest policy's, most at 00:20 (30.0 ms, k3 10.0 ms)" in row["sentence"]


def test_a_service_without_answers_loses_nothing_and_says_so() -> None:
    row = losses([policy("k0", [0.0] * 4, tpot=[None] * 4)], EDGES_S)[0]
    assert (row["lost_share"], row["worst"], row["slowness"]) == (0.0, None, None)
    assert "no answer" in row["sentence"]


@given(st.lists(RATES, min_size=1, max_size=4))
def test_nobody_is_ahead_of_the_best_and_somebody_is_level_with_it(courses: list[list[float]]) -> None:
    policies = [policy(f"k{number}", course) for number, course in enumerate(courses)]
    behind = behind_best(policies)
    for at in range(4):
        values = [course[at] for course in behind.values()]
        assert min(values) == 0.0
    rows = losses(policies, EDGES_S)
    assert all(0.0 <= one["lost_share"] <= 1.0 and one["sentence"] for one in rows)
