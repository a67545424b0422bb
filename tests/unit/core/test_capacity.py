"""How much one replica may carry: the first limit that is met, and its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from outrider.core.capacity import UNKNOWN, Capacity, capacity, least_replicas
from outrider.core.target import replicas_for
from tests.unit.core.test_first_token import seen

LINE_S = np.arange(1, 257) * 1e-4  # a tenth of a millisecond a token for each request in the batch


def able(**changes: Any) -> Capacity:
    facts: dict[str, Any] = {
        "tpot_objective_s": 0.010,
        "measured_batch": 256.0,
        "kv_cache_tokens": None,
        "tokens_per_request": None,
    }
    tpot_s = changes.pop("tpot_s", LINE_S)
    return capacity(tpot_s, **{**facts, **changes})


@pytest.mark.parametrize(
    ("changes", "requests", "limited_by"),
    [
        pytest.param({}, 90, "TPOT", id="100 requests reach the objective, and a tenth is left to the HPA's tolerance"),
        pytest.param({"tpot_s": 2 * LINE_S}, 45, "TPOT", id="tokens that take twice as long halve it"),
        pytest.param({"tpot_objective_s": 1.0}, 230, "BatchSize", id="an easy objective leaves the engine's own limit"),
        pytest.param({"tpot_objective_s": None}, 230, "BatchSize", id="no objective, no latency limit"),
        pytest.param({"tpot_objective_s": 1e-5}, 1, "TPOT", id="an objective that even one request misses"),
        pytest.param(
            {"kv_cache_tokens": 32_000.0, "tokens_per_request": 1_000.0},
            25,
            "KVCache",
            id="28 requests fill the KV cache",
        ),
        pytest.param({"kv_cache_tokens": 32_000.0}, 90, "TPOT", id="an unknown use of KV cache limits nothing"),
    ],
)
def test_the_first_limit_decides(changes: dict[str, Any], requests: int, limited_by: str) -> None:
    found = able(**changes)
    assert (found.requests_per_replica, found.limited_by) == (requests, limited_by)
    assert found.reason


def test_beyond_what_was_measured_the_prediction_is_raised() -> None:
    assert able(measured_batch=10.0).requests_per_replica < able(measured_batch=100.0).requests_per_replica


@pytest.mark.parametrize(("load", "replicas"), [(0.0, 1), (90.0, 1), (91.0, 2), (450.0, 5)])
def test_replicas_that_a_load_needs(load: float, replicas: int) -> None:
    assert able().replicas_for(load) == replicas


def test_before_anything_is_measured_a_default_stands_in() -> None:
    assert UNKNOWN.limited_by == "Default"


# The time to the first token.

FIRST = seen((10.0, 0.2), (50.0, 0.6))
"""0.1 s, and a hundredth more for each request in flight."""


def test_the_first_token_limits_where_it_comes_too_late_first() -> None:
    found = able(ttft_objective_s=0.5, first_token=FIRST)
    assert (found.limited_by, found.requests_per_replica) == ("TTFT", 36)
    assert "the first token takes the 500 ms allowed" in found.reason


def test_an_easy_objective_of_the_first_token_leaves_the_other_limits() -> None:
    assert able(ttft_objective_s=5.0, first_token=FIRST) == able()


def test_unknown_first_tokens_limit_nothing_and_the_reason_says_so() -> None:
    found = able(ttft_objective_s=0.001)
    assert (found.limited_by, found.requests_per_replica) == ("TPOT", 90)
    assert found.reason.endswith("no limit by TTFT: too few first tokens were seen")


def test_first_tokens_that_are_missed_already_leave_one_request() -> None:
    assert able(ttft_objective_s=0.001, first_token=FIRST).requests_per_replica == 1


# Room for bursts.


def test_room_for_a_load_that_rises_by_a_fifth() -> None:
    """100 requests reach the objective; a fifth more load puts 1.2² as many in flight."""
    found = able(rise=1.2)
    assert found.requests_per_replica == int(100 / 1.44 * 0.9)
    assert "rises by 20% while a replica starts leaves 69" in found.reason


# What stays: replicas by the work that they do.


@pytest.mark.parametrize(
    ("load_tps", "replicas"),
    [
        pytest.param(0.0, 1, id="no load"),
        pytest.param(9_000.0, 1, id="just within one replica's yield at its target"),
        pytest.param(9_500.0, 2, id="a little beyond it"),
        pytest.param(45_000.0, 5, id="many"),
    ],
)
def test_replicas_that_bear_a_load(load_tps: float, replicas: int) -> None:
    tpot_s = np.full(256, 0.01)  # 100 tokens a second of each request
    assert least_replicas(load_tps, tpot_s, 90, measured_batch=256.0) == replicas


def test_fewer_replicas_slow_each_request_and_requests_in_flight_do_not_tell() -> None:
    """Two replicas with 20 in flight each yield 2 · 20 / 3 ms; one alone would need more than 100 in flight for it, and
    in-flight over target said that it would do."""
    tpot_s = 1e-3 + LINE_S
    load_tps = 2 * 20 / tpot_s[19]
    assert replicas_for(40.0, 90) == 1
    assert least_replicas(load_tps, tpot_s, 90, measured_batch=256.0) == 2


# Properties.

times = st.lists(st.floats(1e-3, 1.0), min_size=8, max_size=64)
rises = st.floats(1.0, 1.5)


@given(times, st.data())
def test_slower_tokens_never_raise_the_target(tpot: list[float], data: st.DataObject) -> None:
    """Falling acceptance makes tokens slower, at some batch sizes more than at others: what a replica may carry can
    only fall."""
    worse = data.draw(st.lists(st.floats(1.0, 3.0), min_size=len(tpot), max_size=len(tpot)))
    rise = data.draw(rises)

    def target(tpot_s: NDArray[np.float64]) -> int:
        return able(tpot_s=tpot_s, tpot_objective_s=0.1, measured_batch=8.0, rise=rise).requests_per_replica

    assert target(np.array(tpot) * np.array(worse)) <= target(np.array(tpot))


@given(times, st.floats(0.01, 1.0), st.floats(1.0, 5.0), rises)
def test_an_easier_objective_never_lowers_the_target(
    tpot: list[float], objective_s: float, easier: float, rise: float
) -> None:
    def target(factor: float) -> int:
        return able(
            tpot_s=np.array(tpot),
            tpot_objective_s=objective_s * factor,
            ttft_objective_s=objective_s * factor,
            first_token=FIRST,
            rise=rise,
        ).requests_per_replica

    assert target(1.0) <= target(easier)


@given(times, rises, rises)
def test_more_room_for_bursts_never_raises_the_target(tpot: list[float], one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert able(tpot_s=np.array(tpot), rise=large).requests_per_replica <= (
        able(tpot_s=np.array(tpot), rise=small).requests_per_replica
    )


@given(times, st.floats(0.0, 1e5), st.floats(1.0, 3.0), st.floats(1.0, 3.0), st.integers(1, 64))
def test_more_load_or_slower_tokens_never_send_a_replica_away(
    tpot: list[float], load_tps: float, more: float, worse: float, target: int
) -> None:
    tpot_s = np.array(tpot)
    stay = least_replicas(load_tps, tpot_s, target, measured_batch=8.0)
    assert stay <= least_replicas(load_tps * more, tpot_s, target, measured_batch=8.0)
    assert stay <= least_replicas(load_tps, tpot_s * worse, target, measured_batch=8.0)


@given(st.floats(1e-3, 1e-2), st.floats(1e-5, 1e-3), st.integers(2, 60), st.integers(1, 8), st.floats(0.05, 2.0))
def test_who_is_sent_away_does_not_have_to_come_back(
    fixed_s: float, shared_s: float, target: int, replicas: int, share: float
) -> None:
    """On a linear law: if one replica fewer may bear the load, then none of those left has more than its target."""
    sizes = np.arange(1, 257)
    tpot_s = fixed_s + shared_s * sizes
    load_tps = share * replicas * target / tpot_s[target - 1]
    if least_replicas(load_tps, tpot_s, target, measured_batch=256.0) > replicas:
        return
    each_tps = load_tps / replicas
    in_flight = each_tps * fixed_s / (1.0 - each_tps * shared_s)  # B = X·(fixed + shared·B)
    assert in_flight <= target * (1.0 + 1e-9)
