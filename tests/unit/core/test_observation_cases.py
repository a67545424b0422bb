"""Cases from the field, named by their number in the project's collection."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from math import inf, isfinite, nan

import pytest

from outrider.core.observation import Observation, observe
from outrider.core.series import Missing, Series

from .builders import counters, series

TOKENS = "vllm:generation_tokens_total"
PROMPT = "vllm:prompt_tokens_total"
ITERATIONS = "vllm:iteration_tokens_total_count"
DRAFTS = "vllm:spec_decode_num_drafts_total"
DRAFT_TOKENS = "vllm:spec_decode_num_draft_tokens_total"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ACCEPTED_PER_POS = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
RUNNING, WAITING = "vllm:num_requests_running", "vllm:num_requests_waiting"
KV = "vllm:kv_cache_usage_perc"
START = "process_start_time_seconds"


def seen(samples: Sequence[Series], since_s: float = 0.0, until_s: float = 10.0) -> Observation:
    found = observe(samples, since_s, until_s)
    assert isinstance(found, Observation), found
    return found


def missing(samples: Sequence[Series], until_s: float = 10.0) -> Missing:
    found = observe(samples, 0.0, until_s)
    assert isinstance(found, Missing), found
    return found


class TestC01Overload:
    def test_c01_acceptance_is_that_of_the_window_not_of_a_lifetime(self) -> None:
        window = counters({TOKENS: (0, 279), DRAFTS: (1000, 1129), DRAFT_TOKENS: (3000, 3387), ACCEPTED: (1160, 1310)})
        gauges = [
            series(name, [(0.0, first), (10.0, last)])
            for name, first, last in ((RUNNING, 330, 337), (WAITING, 600, 633), (KV, 0.09, 0.09))
        ]
        found = seen(window + gauges)
        assert found.acceptance_rate == pytest.approx(150 / 387)
        assert found.acceptance_length == pytest.approx(1 + 150 / 129)
        assert (found.running, found.waiting, found.kv_cache_usage) == (337.0, 633.0, 0.09)


class TestC03Collapse:
    def test_c03_tokens_fall_at_the_same_load_and_acceptance(self) -> None:
        """What the verification of a change needs: rates, not acceptance, tell of the collapse."""
        tokens = series(TOKENS, [(0.0, 0.0), (10.0, 2300.0), (20.0, 2900.0)])
        drafts = series(DRAFTS, [(0.0, 0.0), (10.0, 1000.0), (20.0, 1260.0)])
        draft_tokens = series(DRAFT_TOKENS, [(0.0, 0.0), (10.0, 2000.0), (20.0, 2520.0)])
        accepted = series(ACCEPTED, [(0.0, 0.0), (10.0, 1300.0), (20.0, 1638.0)])
        running = series(RUNNING, [(0.0, 8.0), (10.0, 8.0), (20.0, 8.0)])
        samples = [tokens, drafts, draft_tokens, accepted, running]
        before, after = seen(samples, 0.0, 10.0), seen(samples, 10.0, 20.0)
        assert before.generation_tokens / before.seconds == 230.0
        assert after.generation_tokens / after.seconds == 60.0
        assert before.running == after.running
        assert before.acceptance_rate == pytest.approx(after.acceptance_rate)


class TestC19NaN:
    def test_c19_acceptance_of_an_idle_engine_is_unknown(self) -> None:
        idle = counters({TOKENS: (9, 9), DRAFTS: (5, 5), DRAFT_TOKENS: (15, 15), ACCEPTED: (7, 7)})
        found = seen(idle)
        assert (found.acceptance_rate, found.acceptance_length) == (None, None)
        assert found.imbalance == 1.0

    @pytest.mark.parametrize("bad", [nan, inf, -inf, -1.0])
    def test_c19_bad_values_in_a_scrape_are_no_samples(self, bad: float) -> None:
        samples = [
            series(TOKENS, [(0.0, 100.0), (3.0, bad), (6.0, 160.0), (10.0, 200.0)]),
            series(RUNNING, [(3.0, 4.0), (6.0, bad), (10.0, 8.0)]),
            series(KV, [(10.0, bad)]),
            series("outrider_engine_schedule_generation", [(6.0, 7.0), (10.0, bad)]),
        ]
        found = seen(samples)
        (engine,) = found.engines
        assert (found.generation_tokens, engine.running, engine.kv_cache_usage) == (100.0, 6.0, None)
        assert engine.schedule_generation == 7

    def test_c19_a_base_that_is_nan_gives_way_to_the_sample_before_it(self) -> None:
        assert seen([series(TOKENS, [(-10.0, 5.0), (0.0, nan), (10.0, 9.0)])]).generation_tokens == 4.0

    def test_c19_engines_that_export_nothing_but_nan_are_missing_data(self) -> None:
        assert missing([series(TOKENS, [(0.0, nan), (10.0, nan)])]).reason == "TooFewSamples"

    @pytest.mark.parametrize(
        ("name", "labels"),
        [
            pytest.param(ACCEPTED_PER_POS, {"position": "last"}, id="a position that is no number"),
            pytest.param(ACCEPTED_PER_POS, {"position": "-1"}, id="a position below the first"),
            pytest.param("outrider_engine_draft_tokens_per_pos_total", {"position": "9" * 12}, id="an absurd position"),
            pytest.param("outrider_engine_steps_total", {}, id="a cell without labels"),
            pytest.param("vllm:time_to_first_token_seconds_bucket", {"le": "NaN"}, id="a bucket without a bound"),
        ],
    )
    def test_c19_labels_that_make_no_sense_are_skipped(self, name: str, labels: Mapping[str, str]) -> None:
        found = seen([*counters({TOKENS: (0, 9)}), series(name, [(0.0, 0.0), (10.0, 5.0)], **labels)])
        assert (found.drafted_per_pos, found.cells, found.ttft.buckets) == ((), (), ())

    @pytest.mark.parametrize("drafts", [1e-300, 1e-6, 1.0])
    def test_c19_counters_that_contradict_one_another_tell_nothing_of_positions(self, drafts: float) -> None:
        """A billion draft tokens of next to no drafts must not become a billion positions."""
        found = seen(counters({TOKENS: (0, 9), DRAFTS: (0, drafts), DRAFT_TOKENS: (0, 1e9)}))
        assert found.drafted_per_pos == ()


def two_ranks() -> list[Series]:
    """Rank 0 with a full cache and a queue, rank 1 nearly idle."""
    ranks = {"0": (51, 117, 1.0, 100, 400, 200), "1": (3, 0, 0.05, 10, 40, 38)}
    samples = []
    for engine, (running, waiting, kv, drafts, tokens, accepted) in ranks.items():
        rises: Mapping[str, tuple[float, float]] = {
            TOKENS: (0, drafts + accepted),
            DRAFTS: (0, drafts),
            DRAFT_TOKENS: (0, tokens),
            ACCEPTED: (0, accepted),
        }
        samples += counters(rises, engine=engine)
        for name, value in ((RUNNING, running), (WAITING, waiting), (KV, kv)):
            samples.append(series(name, [(5.0, float(value)), (10.0, float(value))], engine=engine))
    return samples


class TestC26ManyEngines:
    def test_c26_one_pod_with_many_engines_is_summed_not_overwritten(self) -> None:
        found = seen(two_ranks())
        assert (found.waiting, found.running, found.in_flight) == (117.0, 54.0, 171.0)
        assert found.acceptance_rate == pytest.approx(238 / 440)
        assert found.kv_cache_usage == 1.0

    def test_c26_the_imbalance_has_a_value_and_a_name(self) -> None:
        found = seen(two_ranks())
        assert (found.busiest.pod, found.busiest.engine) == ("chat-a", "0")
        assert found.imbalance == pytest.approx(168 / 85.5)

    @pytest.mark.parametrize("seed", range(5))
    def test_c26_the_order_of_the_lines_does_not_matter(self, seed: int) -> None:
        samples = two_ranks()
        random.Random(seed).shuffle(samples)
        assert seen(samples) == seen(two_ranks())

    def test_c26_one_that_two_scrape_jobs_find_counts_once(self) -> None:
        twice = [
            Series(one.name, {**one.labels, "instance": instance, "job": job}, one.samples)
            for one in two_ranks()
            for job, instance in (("pods", "10.0.0.7:8000"), ("services", "chat:8000"))
        ]
        assert seen(twice) == seen(two_ranks())


def frozen(scrapes: int = 6, engine: str = "0", moving: Sequence[str] = (), queued: float = 15.0) -> list[Series]:
    """An engine whose gauges and counters stand, ``moving`` ones excepted, in scrapes 5 s apart, the last at 100 s."""
    times = [100.0 - 5.0 * i for i in reversed(range(scrapes))]
    values = {RUNNING: 106.0, WAITING: queued, KV: 0.904, TOKENS: 5e6, PROMPT: 1e6, ITERATIONS: 4e5, DRAFTS: 9e5}
    return [
        series(name, [(t, value + (i if name in moving else 0)) for i, t in enumerate(times)], engine=engine)
        for name, value in values.items()
    ]


class TestC27FrozenGauges:
    @pytest.mark.failure(
        "Prometheus",
        "gauges stand while nothing moves",
        k="decided without that engine",
        conditions=["MetricsAvailable False StaleGauges"],
        status="where it is the only one",
        ends="with the first counter that moves",
        guard="core/engine_reader.py:EngineReader.standstill",
    )
    def test_c27_gauges_that_stay_while_no_counter_moves_are_no_data(self) -> None:
        stale = missing(frozen(), until_s=100.0)
        assert stale.reason == "StaleGauges"
        assert "106 running and 15 waiting" in stale.message
        assert "chat-a, engine 0" in stale.message

    @pytest.mark.parametrize("counter", [TOKENS, PROMPT, ITERATIONS, DRAFTS])
    def test_c27_any_counter_that_moves_shows_that_the_engine_works(self, counter: str) -> None:
        assert seen(frozen(moving=[counter]), 80.0, 100.0).in_flight == 121.0

    def test_c27_gauges_that_move_are_not_stale(self) -> None:
        assert seen(frozen(moving=[WAITING]), 80.0, 100.0).running == 106.0

    def test_c27_an_idle_engine_is_no_frozen_one(self) -> None:
        idle = [
            series(name, [(85.0 + 5.0 * i, 0.0) for i in range(4)]) for name in (RUNNING, WAITING, KV, TOKENS, PROMPT)
        ]
        assert seen(idle, 80.0, 100.0).in_flight == 0.0

    def test_c27_three_scrapes_are_too_few_to_tell(self) -> None:
        assert seen(frozen(scrapes=3), 80.0, 100.0).in_flight == 121.0

    def test_c27_a_short_window_does_not_hide_it(self) -> None:
        """A control pass learns from the last 15 s; the scrapes before them count as well."""
        stale = observe(frozen(), 90.0, 100.0)
        assert isinstance(stale, Missing)
        assert stale.reason == "StaleGauges"

    def test_c27_the_others_go_on_without_it(self) -> None:
        found = seen(frozen() + frozen(engine="1", moving=[TOKENS], queued=2.0), 80.0, 100.0)
        assert [one.engine for one in found.engines] == ["1"]
        assert found.waiting == 2.0
        assert [fault.reason for fault in found.left_out] == ["StaleGauges"]

    def test_c27_when_counters_move_again_it_counts_at_once(self) -> None:
        again = [
            Series(one.name, one.labels, (*one.samples, (105.0, one.last[1] + (40.0 if one.name == TOKENS else 0.0))))
            for one in frozen()
        ]
        assert seen(again, 90.0, 105.0).in_flight == 121.0


def by_two_replicas(samples: Sequence[Series]) -> list[Series]:
    """What two replicas of Prometheus make of it: every series twice, the second's scrapes two seconds earlier."""
    return [
        Series(one.name, {**one.labels, "prometheus_replica": name}, tuple((t - shift, v) for t, v in one.samples))
        for one in samples
        for name, shift in (("a", 0.0), ("b", 2.0))
    ]


class TestReplicasOfPrometheus:
    def test_three_scrapes_of_each_are_too_few_to_call_an_engine_stale(self) -> None:
        """Six moments in all, and yet no more than ten seconds, which a long step may take."""
        assert seen(by_two_replicas(frozen(scrapes=3)), 80.0, 100.0).in_flight == 121.0

    def test_four_of_each_are_enough(self) -> None:
        assert missing(by_two_replicas(frozen()), until_s=100.0).reason == "StaleGauges"

    def test_a_replica_that_went_down_does_not_hide_it(self) -> None:
        down = [
            Series(
                one.name, {**one.labels, "prometheus_replica": "b"}, tuple((t - 60.0, v) for t, v in one.samples[:2])
            )
            for one in frozen()
        ]
        assert missing(frozen() + down, until_s=100.0).reason == "StaleGauges"

    @pytest.mark.parametrize("since_s", [70.0, 80.0, 83.0])
    def test_what_both_tell_counts_once(self, since_s: float) -> None:
        moving = [TOKENS, PROMPT, ITERATIONS, DRAFTS]
        once, twice = (
            seen(found, since_s, 100.0) for found in (frozen(moving=moving), by_two_replicas(frozen(moving=moving)))
        )
        assert (twice.generation_tokens, twice.num_drafts) == (once.generation_tokens, once.num_drafts)
        assert (twice.running, twice.waiting, len(twice.engines)) == (106.0, 15.0, 1)


class TestResets:
    """Resets that a plain difference hides: the counter had overtaken its old value by the next scrape."""

    @staticmethod
    def start(samples: Sequence[tuple[float, float]], **labels: str) -> Series:
        return Series(START, {"pod": "chat-a", **labels}, tuple(samples))

    def test_a_new_process_start_splits_the_counter(self) -> None:
        found = seen([*counters({TOKENS: (50, 80)}), self.start([(0.0, 1.79e9), (10.0, 1.79e9 + 7.0)])])
        assert found.generation_tokens == 80.0

    def test_the_engines_clock_may_differ_from_the_stores(self) -> None:
        """The start is 100 s in the store's future; what counts is the scrape at which it changed."""
        tokens = series(TOKENS, [(0.0, 50.0), (5.0, 80.0), (10.0, 90.0)])
        assert seen([tokens, self.start([(0.0, 0.0), (5.0, 103.0), (10.0, 103.0)])]).generation_tokens == 90.0

    def test_another_process_of_the_pod_that_restarts_is_none_of_the_engines(self) -> None:
        tokens = [
            Series(one.name, {**one.labels, "instance": "a:8000"}, one.samples) for one in counters({TOKENS: (50, 80)})
        ]
        sidecar = self.start([(0.0, 0.0), (10.0, 7.0)], instance="a:9000")
        assert seen([*tokens, sidecar]).generation_tokens == 30.0

    def test_a_new_creation_time_splits_every_counter_of_the_engine_and_no_other_engines(self) -> None:
        first = counters({TOKENS: (50, 80), DRAFTS: (10, 25), "vllm:generation_tokens_created": (1.7e9, 1.7e9 + 6)})
        other = counters({TOKENS: (50, 80), "vllm:generation_tokens_created": (1.7e9, 1.7e9)}, engine="1")
        found = seen(first + other)
        assert (found.generation_tokens, found.num_drafts) == (80.0 + 30.0, 25.0)

    def test_a_pod_that_was_replaced_under_its_name_is_another_series(self) -> None:
        """Told apart by its UID: no difference is taken between the two, and gauges are not added up."""
        old = [series(TOKENS, [(0.0, 900.0), (4.0, 940.0)], pod_uid="a"), series(RUNNING, [(4.0, 20.0)], pod_uid="a")]
        new = [series(TOKENS, [(8.0, 950.0), (10.0, 960.0)], pod_uid="b"), series(RUNNING, [(10.0, 2.0)], pod_uid="b")]
        found = seen(old + new)
        assert found.generation_tokens == 40.0 + 10.0
        assert found.running == 11.0


class TestGaps:
    @pytest.mark.failure(
        "Prometheus",
        "an engine is scraped no more",
        k="decided without it",
        status="`MetricsAvailable` names it",
        ends="with the scrape",
        guard="core/observation.py:_fault",
    )
    def test_an_engine_that_is_scraped_no_more_is_left_out_and_named(self) -> None:
        gone = [series(TOKENS, [(0.0, 0.0), (50.0, 9.0)], pod="gone"), series(RUNNING, [(50.0, 7.0)], pod="gone")]
        here = [series(TOKENS, [(50.0, 0.0), (100.0, 9.0)]), series(RUNNING, [(100.0, 3.0)])]
        found = seen(gone + here, 40.0, 100.0)
        assert found.running == 3.0
        assert [(fault.reason, "gone" in fault.message) for fault in found.left_out] == [("MetricsStale", True)]

    def test_the_most_telling_reason_stands_for_engines_that_all_failed(self) -> None:
        young = [series(TOKENS, [(100.0, 1.0)], engine="1")]
        both = missing(young + frozen(), until_s=100.0)
        assert both.reason == "StaleGauges"
        assert "none of 2 engines" in both.message

    def test_whatever_comes_out_is_finite(self) -> None:
        found = seen(two_ranks())
        assert all(isfinite(value) for value in (found.batch, found.imbalance, found.in_flight, found.seconds))
