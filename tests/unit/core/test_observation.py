"""From raw samples to what a window held: resets, gaps, several engines, renamed metrics."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.core.observation import Histogram, Observation, increase, observe
from outrider.core.series import Missing, Series

from .builders import counters, series

TOKENS = "vllm:generation_tokens_total"
DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
DRAFTED = "outrider_engine_draft_tokens_per_pos_total"
RUNNING = "vllm:num_requests_running"
WAITING = "vllm:num_requests_waiting"
KV, OLD_KV = "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"


def seen(samples: list[Series], **options: object) -> Observation:
    found = observe(samples, 0.0, 10.0, **options)  # type: ignore[arg-type]
    assert isinstance(found, Observation), found
    return found


@pytest.mark.parametrize(
    ("values", "restarts", "expected"),
    [
        pytest.param([10, 15, 40], [], 30, id="a counter that rises"),
        pytest.param([10, 10, 10], [], 0, id="a counter at rest"),
        pytest.param([100, 5, 9], [], 9, id="a fall is a restart from zero"),
        pytest.param([100, 150, 160], [7.0], 210, id="a restart hidden by a counter that overtook its old value"),
        pytest.param([100, 150, 160], [3.0], 160, id="the process start tells between which samples it was"),
        pytest.param([100, 110, 120], [0.0], 20, id="a start before the first sample is no restart"),
        pytest.param([100], [], None, id="one sample says nothing about a rise"),
        pytest.param([], [], None, id="no sample says nothing at all"),
    ],
)
def test_increase_of_a_counter(values: list[float], restarts: list[float], expected: float | None) -> None:
    samples = tuple((5.0 * i, float(value)) for i, value in enumerate(values))
    assert increase(samples, 0.0, 10.0, restarts) == expected


def test_neighbouring_windows_lose_and_repeat_nothing() -> None:
    samples = tuple((float(t), float(t * t)) for t in range(0, 21, 2))
    first, second = increase(samples, 0.0, 9.0), increase(samples, 9.0, 20.0)
    assert first is not None
    assert second is not None
    assert first + second == 400.0


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=20))
def test_an_increase_is_never_negative(values: list[float]) -> None:
    rise = increase(tuple((float(i), value) for i, value in enumerate(values)), 0.0, 100.0)
    assert rise is not None
    assert rise >= 0.0


@pytest.mark.parametrize(
    ("samples", "reason"),
    [
        pytest.param([], "NoSeries", id="nothing at all"),
        pytest.param([series(TOKENS, [(9.0, 1.0)], pod="other")], "NoSeries", id="only pods that do not count"),
        pytest.param([series(TOKENS, [(1.0, 1.0), (2.0, 5.0)])], "MetricsStale", id="the last scrape is long ago"),
        pytest.param([series(TOKENS, [(9.0, 1.0)])], "TooFewSamples", id="an engine that was scraped once"),
        pytest.param([series(RUNNING, [(8.0, 1.0), (9.0, 1.0)])], "TooFewSamples", id="gauges alone"),
    ],
)
def test_missing_data_is_a_value_with_a_reason(samples: list[Series], reason: str) -> None:
    missing = observe(samples, 0.0, 10.0, pods={"chat-a"}, stale_after_s=5.0)
    assert isinstance(missing, Missing)
    assert missing.reason == reason
    assert str(missing)


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param([OLD_KV], 0.12, id="0.8.5 has the old name"),
        pytest.param([OLD_KV, KV], 0.12, id="0.9.2 has both, and they count once"),
        pytest.param([KV], 0.12, id="0.11 and later have the new one"),
        pytest.param([], None, id="an engine without either is unknown, not empty"),
    ],
)
def test_kv_cache_use_under_either_name(names: list[str], expected: float | None) -> None:
    """C18."""
    gauges = [series(name, [(5.0, 0.12), (10.0, 0.12)]) for name in names]
    assert seen(counters({TOKENS: (0, 9)}) + gauges).kv_cache_usage == expected


def test_a_fleet_in_mid_rollout_gives_one_value_an_engine() -> None:
    old = [*counters({TOKENS: (0, 9)}, pod="old"), series(OLD_KV, [(9.0, 0.2)], pod="old")]
    new = [*counters({TOKENS: (0, 9)}, pod="new"), series(KV, [(9.0, 0.4)], pod="new")]
    assert [engine.kv_cache_usage for engine in seen(old + new).engines] == [0.4, 0.2]


def drafts(drafted: float, tokens: float, accepted: tuple[float, ...]) -> list[Series]:
    base = counters({TOKENS: (0, 9), DRAFTS: (0, drafted), DRAFT_TOKENS: (0, tokens)})
    return base + [series(ACCEPTED, [(0.0, 0.0), (10.0, n)], position=str(j)) for j, n in enumerate(accepted)]


def test_the_plugin_gives_the_right_denominator_when_k_varied() -> None:
    """159 of 160 drafts that proposed four tokens had all of them accepted; over all 824 drafts it would read 0.19."""
    plugin = [series(DRAFTED, [(0.0, 0.0), (10.0, n)], position=str(j)) for j, n in enumerate((824, 400, 300, 160))]
    found = seen(drafts(824, 1684, (800, 390, 295, 159)) + plugin)
    assert found.drafted_per_pos == (824, 400, 300, 160)
    assert found.accepted_per_pos == (800, 390, 295, 159)


def test_without_the_plugin_a_window_of_one_k_counts() -> None:
    found = seen(drafts(100, 300, (70, 50, 30)))
    assert found.drafted_per_pos == (100, 100, 100)


def test_without_the_plugin_a_window_of_several_k_says_nothing_of_positions() -> None:
    assert seen(drafts(100, 250, (70, 50, 30))).drafted_per_pos == ()


def test_without_drafts_there_are_no_positions() -> None:
    found = seen(drafts(0, 0, (0, 0)))
    assert (found.drafted_per_pos, found.num_drafts) == ((), 0.0)


def test_more_accepted_than_drafted_at_a_position_is_cut_to_all_of_them() -> None:
    """The acknowledgement of a step in flight may be counted a scrape before its draft."""
    assert seen(drafts(100, 100, (101,))).accepted_per_pos == (100,)


def steps(bucket: int, k: int, kind: str, count: float, seconds: float, requests: float) -> list[Series]:
    labels = {"batch": str(bucket), "speculative_tokens": str(k), "kind": kind}
    values = {
        "outrider_engine_steps_total": count,
        "outrider_engine_step_seconds_total": seconds,
        "outrider_engine_step_requests_total": requests,
    }
    return [series(name, [(0.0, 0.0), (10.0, value)], **labels) for name, value in values.items()]


def test_step_cells_keep_decode_and_mixed_apart_and_know_the_mean_batch() -> None:
    found = seen(
        counters({TOKENS: (0, 9)})
        + steps(32, 3, "decode", 300, 3.3, 9000)
        + steps(32, 3, "mixed", 50, 2.0, 1500)
        + steps(8, 5, "decode", 100, 0.9, 600)
        + steps(64, 3, "decode", 0, 0, 0)
    )
    assert [(c.batch_bucket, c.num_speculative_tokens, c.mixed) for c in found.cells] == [
        (8, 5, False),
        (32, 3, False),
        (32, 3, True),
    ]
    assert found.cells[1].mean_batch == 30.0
    assert found.cells[1].step_time_s == pytest.approx(0.011)
    assert found.batch == pytest.approx(11100 / 450)
    assert found.median_batch == 30


def test_without_step_cells_the_batch_is_the_running_requests_of_an_engine() -> None:
    found = seen([*counters({TOKENS: (0, 9)}), series(RUNNING, [(5.0, 20.0), (10.0, 30.0)])])
    assert found.batch == 25.0
    assert found.median_batch == 25


def test_an_idle_engine_has_a_median_batch_of_one() -> None:
    assert seen(counters({TOKENS: (0, 9)})).median_batch == 1


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        pytest.param({"num_gpu_blocks": "1000", "block_size": "16"}, 16000.0, id="blocks times their size"),
        pytest.param({"num_gpu_blocks": "None", "block_size": "16"}, None, id="a block count that is no number"),
        pytest.param({"block_size": "16"}, None, id="no block count"),
    ],
)
def test_size_of_the_kv_cache(labels: dict[str, str], expected: float | None) -> None:
    info = series("vllm:cache_config_info", [(9.0, 1.0)], **labels)
    assert seen([*counters({TOKENS: (0, 9)}), info]).engines[0].kv_cache_tokens == expected


def test_the_generation_that_an_engine_runs_is_its_last_sample() -> None:
    gauge = series("outrider_engine_schedule_generation", [(5.0, 3.0), (10.0, 4.0)])
    assert seen([*counters({TOKENS: (0, 9)}), gauge]).engines[0].schedule_generation == 4


def test_a_generation_from_before_the_window_tells_nothing_of_it() -> None:
    gauge = series("outrider_engine_schedule_generation", [(-5.0, 3.0)])
    assert seen([*counters({TOKENS: (0, 9)}), gauge]).engines[0].schedule_generation is None


@pytest.mark.parametrize(
    ("times_s", "since_s"),
    [
        pytest.param((-20.0, -4.0, 6.0), -4.0, id="the last sample before the window"),
        pytest.param((0.0, 6.0), 0.0, id="one at its begin"),
        pytest.param((2.0, 6.0), 2.0, id="the first in it where there is none before"),
    ],
)
def test_what_an_engine_did_is_counted_from_its_oldest_sample(times_s: tuple[float, ...], since_s: float) -> None:
    (engine,) = seen([series(TOKENS, [(time_s, 9.0) for time_s in times_s])]).engines
    assert engine.since_s == since_s


def test_an_engine_has_its_own_steps_without_prefill_by_k() -> None:
    cells = steps(8, 3, "decode", 100, 1, 800) + steps(16, 3, "decode", 50, 1, 800) + steps(8, 3, "mixed", 9, 1, 72)
    others = [replace(one, labels=dict(one.labels) | {"pod": "chat-b"}) for one in steps(8, 5, "decode", 70, 1, 560)]
    found = seen([*counters({TOKENS: (0, 9)}), *counters({TOKENS: (0, 9)}, pod="chat-b"), *cells, *others])
    assert [engine.steps for engine in found.engines] == [{3: 150.0}, {5: 70.0}]


def test_process_starts_come_without_an_engine_label_and_split_counters() -> None:
    start = Series("process_start_time_seconds", {"pod": "chat-a"}, ((0.0, -100.0), (10.0, 6.0)))
    assert seen([*counters({TOKENS: (50, 80)}), start]).generation_tokens == 80.0


HISTOGRAM = Histogram(10.0, 0.5, ((0.04, 4.0), (0.06, 8.0), (0.1, 10.0), (float("inf"), 10.0)))


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.2, 0.02), (0.4, 0.04), (0.6, 0.05), (0.9, 0.08), (1.0, 0.1)],
)
def test_quantiles_are_interpolated_within_their_bucket(share: float, expected: float) -> None:
    assert HISTOGRAM.quantile(share) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("bound", "expected"),
    [(0.02, 0.2), (0.04, 0.4), (0.05, 0.6), (0.1, 1.0), (5.0, 1.0)],
)
def test_shares_are_interpolated_within_their_bucket(bound: float, expected: float) -> None:
    assert HISTOGRAM.share_at_most(bound) == pytest.approx(expected)


def test_observations_beyond_the_last_finite_bound_read_as_that_bound() -> None:
    beyond = Histogram(10.0, 9.0, ((0.1, 4.0), (float("inf"), 10.0)))
    assert beyond.quantile(0.9) == 0.1
    assert beyond.share_at_most(0.5) == 0.4
    assert beyond.share_at_most(float("inf")) == 1.0


def test_an_empty_histogram_knows_nothing() -> None:
    empty = Histogram()
    assert (empty.mean, empty.quantile(0.5), empty.share_at_most(1.0)) == (None, None, None)


def test_histograms_of_all_engines_are_added_up() -> None:
    rows = [
        series(f"vllm:request_time_per_output_token_seconds_{suffix}", [(0.0, 0.0), (10.0, value)], pod=pod, **labels)
        for pod in ("chat-a", "chat-b")
        for suffix, value, labels in (
            ("count", 4.0, {}),
            ("sum", 0.2, {}),
            ("bucket", 3.0, {"le": "0.05"}),
            ("bucket", 4.0, {"le": "+Inf"}),
        )
    ]
    found = seen(counters({TOKENS: (0, 9)}) + counters({TOKENS: (0, 9)}, pod="chat-b") + rows)
    assert found.tpot == Histogram(8.0, pytest.approx(0.4), ((0.05, 6.0), (float("inf"), 8.0)))  # type: ignore[arg-type]
    assert found.tpot.mean == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("other", "first_ran", "steps"),
    [
        pytest.param([(0.0, 500.0), (5.0, 600.0), (10.0, 600.0)], [(10.0, 90.0)], 90.0, id="it appeared since"),
        pytest.param([(5.0, 600.0), (10.0, 600.0)], [(5.0, 40.0), (10.0, 90.0)], 50.0, id="it begins with the others"),
        pytest.param([(0.0, 500.0), (5.0, 600.0)], [(9.5, 90.0)], None, id="no other of its scrape"),
        pytest.param([(10.0, 600.0)], [(10.0, 90.0)], None, id="nothing before"),
    ],
)
def test_what_a_counter_tells_that_appears_with_its_first_count(
    other: list[tuple[float, float]], first_ran: list[tuple[float, float]], steps: float | None
) -> None:
    """A K that runs for the first time is what a look is for: its steps must not wait for the scrape after."""
    rows = [
        series(f"outrider_engine_{name}_total", samples, batch="8", kind="decode", speculative_tokens=k)
        for name in ("steps", "step_seconds", "step_requests")
        for k, samples in (("3", other), ("5", first_ran))
    ]
    found = seen(counters({TOKENS: (0, 9)}) + rows)
    assert [cell.steps for cell in found.cells if cell.num_speculative_tokens == 5] == (
        [] if steps is None else [steps]
    )
