"""What holds for any samples: nothing negative, no rate above 1, order without effect, windows that add up."""

from __future__ import annotations

from math import inf, isclose

from hypothesis import given
from hypothesis import strategies as st

from outrider.core.counters import increase, increase_once
from outrider.core.observation import Observation, observe, observe_since
from outrider.core.series import Series

from .builders import series

DRAFTED = "outrider_engine_draft_tokens_per_pos_total"
COUNTERS = (
    "vllm:generation_tokens_total",
    "vllm:spec_decode_num_drafts_total",
    "vllm:spec_decode_num_draft_tokens_total",
    "vllm:spec_decode_num_accepted_tokens_total",
    "vllm:num_preemptions_total",
)
GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc")
PER_POSITION = (DRAFTED, "vllm:spec_decode_num_accepted_tokens_per_pos_total")

anything = st.one_of(st.floats(0, 1e9), st.sampled_from([0.0, 1.0, float("nan"), inf, -inf, -5.0]))
trains = st.lists(anything, min_size=1, max_size=8).map(
    lambda values: [(5.0 * i, value) for i, value in enumerate(values, 1)]
)


@st.composite
def fleets(draw: st.DrawFn) -> list[Series]:
    """One to three engines on two pods; every family may be there or not, with any values."""
    found: list[Series] = []
    for engine in range(draw(st.integers(1, 3))):
        where = {"pod": f"chat-{engine % 2}", "engine": str(engine // 2)}
        found += [series(name, draw(trains), **where) for name in COUNTERS + GAUGES if draw(st.booleans())]
        for name in PER_POSITION:
            for position in range(draw(st.integers(0, 3))):
                found.append(series(name, draw(trains), position=str(position), **where))
    return found


@given(fleets())
def test_nothing_is_negative_and_no_rate_is_above_one(samples: list[Series]) -> None:
    found = observe(samples, 0.0, 40.0, stale_after_s=inf)
    if not isinstance(found, Observation):
        return
    counts = (found.generation_tokens, found.num_drafts, found.num_accepted_tokens, found.num_preemptions, found.batch)
    assert all(0.0 <= count < inf for count in counts + found.drafted_per_pos + found.accepted_per_pos)
    assert all(a <= d for a, d in zip(found.accepted_per_pos, found.drafted_per_pos, strict=True))
    assert found.acceptance_rate is None or 0.0 <= found.acceptance_rate <= 1.0
    assert found.kv_cache_usage is None or 0.0 <= found.kv_cache_usage <= 1.0
    assert 1.0 - 1e-9 <= found.imbalance <= len(found.engines) + 1e-9


@given(fleets(), st.randoms(use_true_random=False))
def test_the_order_of_series_and_engines_does_not_matter(samples: list[Series], random: object) -> None:
    shuffled = list(samples)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert repr(observe(shuffled, 0.0, 40.0)) == repr(observe(samples, 0.0, 40.0))


@given(fleets(), st.lists(st.floats(0, 40), min_size=1, max_size=3))
def test_windows_read_together_are_those_read_alone(samples: list[Series], moments_s: list[float]) -> None:
    alone = [observe(samples, since_s, 40.0) for since_s in moments_s]
    assert repr(observe_since(samples, moments_s, 40.0)) == repr(alone)


@given(trains, st.floats(0, 45), st.lists(st.floats(0, 45), max_size=3))
def test_the_parts_of_a_window_add_up_to_the_whole(
    samples: list[tuple[float, float]], split_s: float, restarts: list[float]
) -> None:
    train = tuple(samples)
    whole = increase(train, 0.0, 45.0, restarts)
    parts = [increase(train, 0.0, split_s, restarts), increase(train, split_s, 45.0, restarts)]
    assert isclose(sum(part or 0.0 for part in parts), whole or 0.0, abs_tol=1e-3)
    assert (whole is None) == (parts == [None, None])


@given(st.lists(trains, min_size=1, max_size=4))
def test_one_counter_told_of_several_times_rises_as_the_highest_of_them(many: list[list[tuple[float, float]]]) -> None:
    alone = [increase(tuple(train), 0.0, 45.0) for train in many]
    together = increase_once([(tuple(train), ()) for train in many], 0.0, 45.0)
    known = [rise for rise in alone if rise is not None]
    assert together == (max(known) if known else None) or isclose(together or 0.0, max(known))


@given(st.lists(st.floats(0, 1e6), min_size=2, max_size=8), st.floats(0, 1e6))
def test_a_counter_that_only_rises_shifts_without_effect(steps: list[float], offset: float) -> None:
    total, samples = offset, []
    for i, step in enumerate(steps):
        total += step
        samples.append((5.0 * i, total))
    rise = increase(tuple(samples), 0.0, 100.0)
    assert rise is not None
    assert isclose(rise, sum(steps[1:]), rel_tol=1e-6, abs_tol=1e-3)
