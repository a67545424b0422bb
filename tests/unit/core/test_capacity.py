"""How much one replica may carry: the first limit that is met, and its name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.capacity import UNKNOWN, Capacity, capacity

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


times = st.lists(st.floats(1e-3, 1.0), min_size=8, max_size=64)


@given(times, st.floats(1.0, 2.0))
def test_slower_tokens_never_raise_the_target(tpot: list[float], worse: float) -> None:
    """Falling acceptance makes every token slower, so it can only lower what a replica may carry."""

    def target(factor: float) -> int:
        return capacity(
            np.array(tpot) * factor,
            tpot_objective_s=0.1,
            measured_batch=8.0,
            kv_cache_tokens=None,
            tokens_per_request=None,
        ).requests_per_replica

    assert target(worse) <= target(1.0)
