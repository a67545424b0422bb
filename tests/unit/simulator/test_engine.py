"""The engine in virtual time: what it counts adds up, and it schedules, drafts and preempts as vLLM does."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from outrider.core.schedule import constant
from outrider.simulator.counters import EngineCounters
from outrider.simulator.engine import RequestTooLong, SimulatedEngine
from outrider.simulator.profile import Curve
from outrider.simulator.request import RequestRecord
from outrider.simulator.step_times import StepTimes
from outrider.simulator.workload import closed_loop, poisson
from tests.unit.simulator.builders import calls, engine, profile, request, settings, steps, submit_all

LONG_S = 10_000.0  # later than any of these workloads ends


@st.composite
def workloads(draw: st.DrawFn) -> list[tuple[float, int, int]]:
    gaps = draw(st.lists(st.floats(0, 0.5), min_size=1, max_size=25))
    at_s, found = 0.0, []
    for gap in gaps:
        at_s += gap
        found.append((at_s, draw(st.integers(1, 3000)), draw(st.integers(1, 200))))
    return found


@given(
    workload=workloads(),
    schedule=st.sampled_from(["1-256:0", "1-256:6", "1-2:5 3-8:2 9-256:0", "1-3:0 4-256:3"]),
    blocks=st.sampled_from([26_000, 450]),
)
@hypothesis_settings(max_examples=40)
def test_everything_that_was_generated_is_accounted_for(
    workload: list[tuple[float, int, int]], schedule: str, blocks: int
) -> None:
    target = engine(schedule, num_gpu_blocks=blocks)
    records = submit_all(
        target, [request(n, at=at, prompt=prompt, output=out) for n, (at, prompt, out) in enumerate(workload)]
    )
    target.advance(LONG_S)
    counters = target.counters
    assert counters.generation_tokens == sum(output for _, _, output in workload)
    assert counters.prompt_tokens == sum(prompt for _, prompt, _ in workload)
    assert counters.generation_tokens == (
        counters.num_accepted_tokens + counters.bonus_tokens - counters.discarded_tokens
    )
    accepted, drafted = counters.accepted_per_pos.tolist(), counters.drafted_per_pos.tolist()
    assert sum(accepted) == counters.num_accepted_tokens
    assert accepted == sorted(accepted, reverse=True)
    assert all(kept <= proposed for kept, proposed in zip(accepted, drafted, strict=True))
    assert counters.num_drafts == drafted[0]
    assert (target.num_running, target.num_waiting, target.kv_cache_usage) == (0, 0, 0.0)
    assert [record.output_tokens for record in records] == [record.request.output_tokens for record in records]
    for record in records:
        assert record.request.arrival_s <= record.scheduled_s < record.first_token_s <= record.finished_s


def test_the_same_seed_gives_the_same_tokens_at_the_same_times() -> None:
    def run(seed: int) -> list[tuple[str, float]]:
        records = submit_all(
            target := engine("1-8:5 9-256:2", seed=seed),
            poisson(20, 5, prompt_tokens=300, output_tokens=80, seed=3),
        )
        target.advance(LONG_S)
        return [(record.request.id, record.finished_s) for record in records]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_looking_often_changes_nothing() -> None:
    once, often = engine(seed=4), engine(seed=4)
    for target in (once, often):
        for number in range(5):
            target.submit(request(number, output=200), 0.0)
    once.advance(3.0)
    for tick in range(3001):
        often.advance(tick / 1000)
    assert once.counters.generation_tokens == often.counters.generation_tokens
    assert once.counters.cells == often.counters.cells


@given(workload=workloads(), schedule=st.sampled_from(["1-256:3", "1-2:5 3-8:2 9-256:0"]), looks=st.integers(1, 40))
@hypothesis_settings(max_examples=25)
def test_steps_drawn_ahead_are_the_steps_one_by_one_whoever_looks_in_between(
    workload: list[tuple[float, int, int]], schedule: str, looks: int
) -> None:
    def run(longest: int, looks: int) -> tuple[EngineCounters, list[RequestRecord]]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("outrider.simulator.engine.LONGEST_STRETCH", longest)
            target = engine(schedule, num_gpu_blocks=450, seed=3)
            records = submit_all(
                target, [request(n, at=at, prompt=prompt, output=out) for n, (at, prompt, out) in enumerate(workload)]
            )
            for look in range(looks):
                target.advance(target.now_s + 0.02 * look)
                assert 0 <= target.kv_cache_usage <= 1
                assert target.counters.generation_tokens >= 0
            target.advance(LONG_S)
            return target.counters, records

    counters, records = run(1, 0)
    at_once, same_records = run(64, looks)
    assert records == same_records
    assert counters.cells == at_once.cells
    assert counters.accepted_per_pos.tolist() == at_once.accepted_per_pos.tolist()
    assert counters.histograms == at_once.histograms


def test_the_closed_loop_of_the_measurement_gives_its_throughput() -> None:
    """32 requests at K = 3 and about 1,161 tokens of context: 8,074 tokens a second on the card."""
    target = engine(3)
    submit_all(target, closed_loop(32, prompt_tokens=900, output_tokens=20_000))
    target.advance(1.5)
    before = target.counters.generation_tokens
    target.advance(2.5)
    assert target.counters.generation_tokens - before == pytest.approx(8074.1, rel=0.03)


def test_accepted_positions_follow_the_curve_that_a_request_brings() -> None:
    curve = (0.9, 0.5, 0.1)
    target = engine(3)
    submit_all(target, [request(n, output=4000, acceptance=curve) for n in range(8)])
    target.advance(LONG_S)
    shares = target.counters.accepted_per_pos[:3] / target.counters.drafted_per_pos[:3]
    assert shares.tolist() == pytest.approx(curve, abs=0.02)


def test_k_0_makes_no_drafts_and_one_token_a_step() -> None:
    target = engine(0)
    submit_all(target, [request(output=50)])
    target.advance(LONG_S)
    assert target.counters.num_drafts == target.counters.num_draft_tokens == 0
    assert sum(cell.steps for cell in target.counters.cells.values()) == 50


def test_a_step_verifies_what_the_step_before_drafted() -> None:
    """A change reaches the next step that starts; that one still verifies the old drafts: one step of lag."""
    target = engine(3)
    submit_all(target, [request(n, output=500) for n in range(4)])
    steps(target, 10)  # the eleventh has started by now, with K = 3
    before = target.counters.drafted_per_pos.copy()
    target.set_schedule(constant(1, 256))
    steps(target, 5)
    assert target.counters.steps_by_speculative_tokens() == {1: 4, 3: 11}
    assert (target.counters.drafted_per_pos - before).tolist()[:4] == [4 * 5, 4 * 2, 4 * 2, 0]


def test_k_is_looked_up_by_all_requests_of_the_step_prefill_included() -> None:
    target = engine("1-4:3 5-256:0")
    submit_all(target, [request(n, output=500) for n in range(4)])
    steps(target, 5)
    target.submit(request("fifth"), target.now_s)
    steps(target, 2)
    assert target.counters.steps_by_speculative_tokens()[0] == 1
    assert not any(key.num_speculative_tokens == 0 for key in target.counters.cells), "that step verified 3 tokens"


def test_a_long_prompt_is_cut_into_chunks_while_others_decode() -> None:
    target = engine(3)
    records = submit_all(target, [request("short", output=2000), request("long", at=0.5, prompt=20_000, output=1)])
    target.advance(LONG_S)
    mixed = [cell for key, cell in target.counters.cells.items() if key.mixed]
    assert sum(cell.steps for cell in mixed) == 3  # the engine's very first step has no K before it
    long = next(record for record in records if record.request.id == "long")
    assert long.ttft_s == pytest.approx(profile().prefill_time_s(8000) * 2.5, rel=0.05)


def test_an_idle_engine_gives_the_measured_time_to_first_token() -> None:
    target = engine(0)
    records = submit_all(target, [request(prompt=1024, output=1)])
    target.advance(LONG_S)
    assert records[0].ttft_s == pytest.approx(0.03788)
    assert records[0].tpot_s is None


def test_requests_above_the_largest_batch_wait_their_turn() -> None:
    target = engine(2, max_num_seqs=4)
    records = submit_all(target, [request(n) for n in range(10)])
    target.advance(0.05)
    assert (target.num_running, target.num_waiting) == (4, 6)
    target.advance(LONG_S)
    assert {record.request.id for record in records[:4]} == {"0", "1", "2", "3"}


@pytest.mark.parametrize(
    ("prompt", "steps_done", "blocks"),
    [
        pytest.param(100, 0, 7, id="a prompt in prefill holds its own, a first token's and the lookahead's slots"),
        pytest.param(100, 1, 7, id="after it 1 token, with slots for it, its drafts and those of the step after"),
        pytest.param(105, 2, 8, id="two tokens later the lookahead reaches into another block"),
    ],
)
def test_kv_blocks_hold_context_drafts_and_lookahead(prompt: int, steps_done: int, blocks: int) -> None:
    """Blocks have 16 tokens; nothing is accepted here, so a step adds one token."""
    target = engine(2, ceiling=3, num_gpu_blocks=1000)
    target.submit(request(prompt=prompt, output=500, acceptance=(0, 0, 0)), 0.0)
    target.advance(0.0)
    steps(target, steps_done)
    assert target.kv_cache_usage == pytest.approx(blocks / 1000)


def test_steps_take_a_leap_where_they_outgrow_the_largest_graph() -> None:
    def step_s(requests: int) -> float:
        target = engine(3, capture_sizes=(96,))
        submit_all(target, closed_loop(requests, prompt_tokens=100, output_tokens=5000))
        steps(target, 10)
        (cell,) = (cell for key, cell in target.counters.cells.items() if not key.mixed)
        return cell.seconds / cell.steps

    assert step_s(24) < 1.05 * step_s(23)
    assert step_s(25) > 1.5 * step_s(24)


def test_a_full_cache_preempts_the_youngest_which_loses_nothing_but_time() -> None:
    target = engine(3, num_gpu_blocks=200)
    records = submit_all(target, [request(n, prompt=500, output=600) for n in range(6)])
    target.advance(LONG_S)
    assert target.counters.num_preemptions > 0
    assert {record.request.id for record in records if record.num_preemptions} <= {"1", "2", "3", "4", "5"}
    assert sorted(record.output_tokens for record in records) == [600] * 6
    assert sum(target.counters.histograms["vllm:time_to_first_token_seconds"].counts) == 6


@pytest.mark.parametrize(
    ("prompt", "output"),
    [
        pytest.param(0, 10, id="no prompt"),
        pytest.param(10, 0, id="no output"),
        pytest.param(99_000, 2000, id="longer than the model"),
        pytest.param(5000, 2000, id="larger than the whole cache"),
    ],
)
def test_what_can_never_run_is_refused(prompt: int, output: int) -> None:
    with pytest.raises(RequestTooLong):
        engine(num_gpu_blocks=300).submit(request(prompt=prompt, output=output), 0.0)


def test_an_aborted_request_goes_from_wherever_it_is() -> None:
    target = engine(3, max_num_seqs=2)
    records = submit_all(target, [request("decoding", output=5000), request("prefill", at=1, prompt=20_000)])
    target.submit(request("waiting"), 1.01)
    target.advance(1.02)
    for name in ("decoding", "prefill", "waiting", "unknown"):
        target.abort(name, 1.03)
    target.advance(LONG_S)
    assert [record.finish_reason for record in records] == ["abort"] * 3
    assert target.counters.finished["abort"] == 0
    assert (target.num_running, target.num_waiting) == (0, 0)
    assert sum(target.counters.histograms["vllm:e2e_request_latency_seconds"].counts) == 0


def test_a_hung_engine_ends_no_step_and_keeps_its_requests() -> None:
    target = engine()
    submit_all(target, [request(output=5000)])
    target.advance(1.0)
    before = target.counters.generation_tokens
    target.hang()
    target.advance(100.0)
    assert target.counters.generation_tokens == before
    assert target.num_running == 1
    assert target.next_event_s is None


def test_without_a_drafter_nothing_is_drafted_and_steps_are_shorter() -> None:
    def time_s(target: SimulatedEngine) -> float:
        records = submit_all(target, [request(output=300)])
        target.advance(LONG_S)
        return records[0].e2e_s

    off = engine(speculation=None)
    assert time_s(off) < time_s(engine(0))
    assert off.counters.drafted_per_pos.size == 0


def test_a_mixed_step_takes_the_time_of_all_its_tokens() -> None:
    times = StepTimes(profile(), settings())
    alone = times.step_s(0.0, 0, 0, 0, 1024, 0)
    assert alone == pytest.approx(profile().prefill_time_s(1024))
    assert times.step_s(0.0, 64, 3, 3, 1024, 0) == pytest.approx(
        profile().prefill_time_s(1024 + 64 * 4) + 3 * profile().draft_pass_s
    )
    assert times.step_s(0.0, 200, 3, 3, 1, 0) >= times.step_s(0.0, 200, 3, 3, 0, 0)


def test_where_a_prompt_costs_what_a_profile_says_a_mixed_step_takes_decoding_and_prompt_together() -> None:
    card = replace(profile(), prompt_s=1e-4, jump_s=5e-3)
    times = StepTimes(card, settings())
    decoding = times.step_s(0.0, 64, 3, 3, 0, 0)
    assert times.step_s(0.0, 64, 3, 3, 250, 0) == pytest.approx(decoding + 0.025), "506 tokens fit the graph of 512"
    assert times.step_s(0.0, 64, 3, 3, 300, 0) == pytest.approx(decoding + 0.03 + 5e-3), "556 do not"
    beyond = times.step_s(0.0, 200, 3, 3, 0, 0)
    assert times.step_s(0.0, 200, 3, 3, 100, 0) == pytest.approx(beyond + 0.01), "decoding alone is past the graphs"
    assert card.slowed(2.0).prompt_s == 2e-4
    assert card.slowed(2.0).jump_s == 1e-2


def test_beside_decoding_a_short_prompt_does_not_wait_for_its_launch() -> None:
    card = replace(profile(), prompt_s=1e-6, beside_tokens=(0.0, 1000.0), beside_seconds=(0.02, 0.12))
    times = StepTimes(card, settings())
    assert times.step_s(0.0, 0, 0, 0, 100, 0) == pytest.approx(profile().prefill_time_s(100)), "alone, as before"
    assert times.step_s(0.0, 1, 0, 0, 499, 0) == pytest.approx(0.07), "500 tokens, half way"
    assert times.step_s(0.0, 1, 0, 0, 1999, 0) == pytest.approx(0.22), "past the last row at its rate"
    assert card.slowed(2.0).beside_seconds == (0.04, 0.24)


def test_where_the_jump_is_known_a_batch_just_past_the_graphs_takes_no_more_than_the_trend_and_the_jump() -> None:
    inside, beyond = Curve((1.0, 10.0), (0.001, 0.010)), Curve((40.0, 50.0), (0.1, 0.11))
    card = replace(profile(), in_graph={0: inside, 1: inside}, beyond_graph={1: beyond}, context_s=0.0)
    assert card.step_time_s(20, 1, 30, 0) == pytest.approx(0.1), "the first row's time"
    jumping = replace(card, jump_s=0.005)
    assert jumping.step_time_s(20, 1, 30, 0) == pytest.approx(0.025)
    assert jumping.step_time_s(40, 1, 30, 0) == pytest.approx(0.1), "from the first row on the rows count"
    assert replace(card, jump_s=0.5).step_time_s(20, 1, 30, 0) == pytest.approx(0.1), "never above the first row"


@pytest.mark.parametrize(("ahead", "late_steps"), [(False, 0), (True, 1)])
def test_with_steps_scheduled_ahead_a_request_waits_one_step_more(ahead: bool, late_steps: int) -> None:
    target = engine(0, schedules_ahead=ahead)
    submit_all(target, [request("first", output=500)])
    steps(target, 10)
    running_end_s = target.next_event_s
    assert running_end_s is not None
    arrival_s = (target.now_s + running_end_s) / 2.0
    records = submit_all(target, [request("second", at=arrival_s, output=1)])
    target.advance(LONG_S)
    second = next(record for record in records if record.request.id == "second")
    step_s = profile().step_time_s(1, 0, 512, 140)
    assert second.scheduled_s == pytest.approx(running_end_s + late_steps * step_s, rel=1e-3)


def test_with_steps_scheduled_ahead_an_engine_that_falls_idle_takes_the_next_request_at_once() -> None:
    target = engine(0, schedules_ahead=True)
    records = submit_all(target, [request("first", output=1), request("second", at=0.001, output=1)])
    target.advance(LONG_S)
    first, second = records
    assert second.scheduled_s == first.finished_s
    assert [cell.steps for cell in target.counters.cells.values()] == [2], "no empty step between them"


def test_one_inter_token_sample_a_request_and_step_not_a_token() -> None:
    target = engine(5)
    submit_all(target, [request(output=400)])
    target.advance(LONG_S)
    samples = sum(target.counters.histograms["vllm:inter_token_latency_seconds"].counts)
    assert samples == sum(target.counters.steps_by_speculative_tokens().values()) - 1
    assert samples < 300


def test_the_work_of_a_step_does_not_grow_with_its_requests_nor_with_what_was_served() -> None:
    def work(target: SimulatedEngine, until_s: float) -> float:
        before = sum(cell.steps for cell in target.counters.cells.values())
        made = calls(lambda: target.advance(until_s))
        return made / (sum(cell.steps for cell in target.counters.cells.values()) - before)

    few, many = engine(3), engine(3)
    for target, number in ((few, 8), (many, 64)):
        submit_all(target, closed_loop(number, prompt_tokens=300, output_tokens=20_000))
        target.advance(2.0)
    first = work(many, 4.0)
    assert first < 1.5 * work(few, 4.0)
    many.advance(30.0)
    assert work(many, 32.0) < 1.1 * first
