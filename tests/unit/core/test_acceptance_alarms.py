"""What the estimate of acceptance notices: steps, collapse, slow decline; and that noise is none of them."""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from outrider.core.acceptance import AcceptanceState, acceptance_length, survival, update
from outrider.core.drift import MAX_DESIGN_EFFECT, PRIOR_DESIGN_EFFECT, Drift, judge
from outrider.core.survival import Counts

from .traffic import WINDOW_S, Traffic, Window, delays, false_alarms


def told(state: AcceptanceState, *windows: Window, elapsed_s: float = WINDOW_S) -> AcceptanceState:
    for drafted, accepted in windows:
        state, _ = update(state, drafted, accepted, elapsed_s)
    return state


def share(p: float, drafts: float = 1000.0) -> Window:
    return (drafts,), (p * drafts,)


STEADY = told(AcceptanceState(), *[share(0.8)] * 20)


class TestDrift:
    def test_one_strange_window_is_suspected_two_running_on_one_side_are_a_jump(self) -> None:
        once = told(STEADY, share(0.35))
        assert (once.suspicion, once.jumped, once.alarms) == (-1, False, ())
        twice, jumped = update(once, *share(0.35), WINDOW_S)
        assert jumped
        assert (twice.suspicion, twice.alarms) == (0, ("Drift",))

    def test_a_rise_is_found_as_a_fall_is(self) -> None:
        once = told(told(AcceptanceState(), *[share(0.4)] * 20), share(0.9))
        assert once.suspicion == 1
        twice = told(once, share(0.9))
        assert (twice.suspicion, twice.alarms) == (0, ("Drift",))

    def test_after_a_jump_older_counts_are_gone_and_the_noise_is_remembered(self) -> None:
        after = told(STEADY, share(0.35), share(0.35))
        assert survival(after, 1)[0].value == pytest.approx(0.35, abs=0.01)
        assert after.drafts == 1000.0
        assert after.drift.windows > STEADY.drift.windows

    def test_the_alarm_is_for_one_update(self) -> None:
        assert told(STEADY, share(0.35), share(0.35), share(0.35)).alarms == ()

    def test_an_ordinary_window_lifts_the_suspicion(self) -> None:
        assert told(STEADY, share(0.35), share(0.78)).suspicion == 0

    def test_a_suspicion_that_nothing_can_confirm_lapses(self) -> None:
        """Speculation was turned off: no drafts will ever tell."""
        for p in (0.35, 1.0):
            drift = told(STEADY, share(p), ((), ())).drift
            assert (drift.above, drift.below) == (0.0, 0.0)

    def test_steady_windows_leave_nothing_behind(self) -> None:
        assert (STEADY.drift.above, STEADY.drift.below) == (0.0, 0.0)

    def test_strange_windows_on_both_sides_are_no_jump(self) -> None:
        middle = told(AcceptanceState(), *[share(0.5)] * 10)
        for p in (0.85, 0.15, 0.85, 0.15):
            middle = told(middle, share(p))
            assert not middle.jumped

    def test_a_window_with_few_drafts_raises_no_alarm(self) -> None:
        assert told(STEADY, *[share(0.0, drafts=49.0)] * 5).suspicion == 0
        assert told(STEADY, share(0.0, drafts=50.0)).suspicion == -1

    def test_little_known_is_no_ground_for_an_alarm(self) -> None:
        assert told(AcceptanceState((199.0,), (199.0,)), share(0.1), elapsed_s=0.0).suspicion == 0
        assert told(AcceptanceState((200.0,), (200.0,)), share(0.1), elapsed_s=0.0).suspicion == -1

    def test_a_change_deeper_down_is_found_though_the_first_position_holds(self) -> None:
        known = told(AcceptanceState(), *[((8e3,) * 3, (6e3, 4.5e3, 3.4e3))] * 20)
        assert told(known, *[((8e3,) * 3, (6e3, 3.0e3, 1.0e3))] * 2).jumped

    def test_a_window_of_smaller_k_is_judged_by_the_positions_that_it_has(self) -> None:
        known = told(AcceptanceState(), *[((8e3,) * 5, (6e3, 4.5e3, 3.4e3, 2.5e3, 1.9e3))] * 20)
        assert told(known, *[((8e3,), (6e3,))] * 5).suspicion == 0

    def test_positions_tried_for_the_first_time_are_no_surprise(self) -> None:
        known = told(AcceptanceState(), *[((8e3,), (6e3,))] * 20)
        assert told(known, *[((8e3,) * 3, (6e3, 1e3, 0.0))] * 2).suspicion == 0

    def test_a_change_that_no_decision_turns_on_is_none(self) -> None:
        """A million drafts tell 0.80 from 0.81 beyond doubt, and discounting follows it anyway."""
        known = told(AcceptanceState(), *[share(0.80, 1e6)] * 20)
        assert told(known, *[share(0.81, 1e6)] * 5).suspicion == 0

    @pytest.mark.parametrize("p", [0.0, 1.0])
    def test_all_or_nothing_accepted_is_steady_too(self, p: float) -> None:
        known = told(AcceptanceState(), *[share(p)] * 20)
        assert known.suspicion == 0
        assert told(known, share(abs(p - 0.004))).suspicion == 0


KINDS = [
    pytest.param(Traffic(), id="8,000 drafts a window"),
    pytest.param(Traffic(drafts=30_000, group=20, wander=0.02), id="a large service with mixed traffic"),
    pytest.param(Traffic(wander=0.02, memory=0.9), id="a mixture that wanders for minutes"),
    pytest.param(Traffic(k=1), id="K 1"),
    pytest.param(Traffic(k=5, wander=0.02), id="K 5"),
]


class TestBySimulation:
    @pytest.mark.parametrize("traffic", KINDS)
    def test_a_step_of_0_2_is_found_in_two_windows(self, traffic: Traffic) -> None:
        for before, after in ((0.75, 0.55), (0.55, 0.75)):
            found = sorted(delays(traffic, before, after, seeds=20))
            assert found[18] <= 3
            assert median(found) <= 2

    @pytest.mark.parametrize("traffic", KINDS)
    def test_a_step_of_0_1_is_found_in_three(self, traffic: Traffic) -> None:
        found = delays(traffic, 0.75, 0.65, seeds=20)
        assert median(found) <= 3

    def test_few_drafts_delay_an_alarm_and_do_not_prevent_it(self) -> None:
        assert max(delays(Traffic(drafts=400), 0.75, 0.55, seeds=20)) <= 5

    @pytest.mark.parametrize("traffic", KINDS)
    def test_steady_traffic_raises_an_alarm_at_most_once_in_two_hours(self, traffic: Traffic) -> None:
        windows = 2_880  # 12 h
        assert false_alarms(traffic, 0.75, windows) <= 6


class TestDesignEffect:
    @pytest.mark.parametrize("group", [1, 4, 20])
    def test_it_is_measured_between_windows(self, group: int) -> None:
        state = AcceptanceState()
        for (drafted, accepted), _ in zip(
            Traffic(drafts=20_000, group=group, wander=0.0).windows(lambda _: 0.75, 1), range(400), strict=False
        ):
            state, _ = update(state, drafted, accepted, WINDOW_S)
        assert state.design_effect == pytest.approx(group, rel=0.35)

    @pytest.mark.parametrize("k", [1, 5])
    def test_independent_drafts_scatter_as_the_covariance_of_nested_positions_says(self, k: int) -> None:
        """As much from the known counts as from the window here, so that an error in either part would show."""
        draws, runs = Traffic(drafts=2_000, k=k, group=1, wander=0.0).windows(lambda _: 0.75, 4), 4_000
        squares = [judge(Drift(), Counts(*next(draws)), Counts(*next(draws)))[0].squares for _ in range(runs)]
        assert sum(squares) / runs == pytest.approx(1.0, abs=0.06)

    def test_the_prior_holds_until_then(self) -> None:
        assert AcceptanceState().design_effect == PRIOR_DESIGN_EFFECT

    def test_windows_that_agree_too_well_leave_it_at_one(self) -> None:
        assert told(AcceptanceState(), *[share(0.75)] * 300).design_effect == 1.0

    def test_a_jump_is_hardly_taken_for_noise(self) -> None:
        after = told(STEADY, share(0.1), share(0.1))
        assert after.design_effect < 2.0 * STEADY.design_effect

    def test_it_is_bounded(self) -> None:
        wild = told(AcceptanceState(), *[share(0.1, 1e6), share(0.9, 1e6)] * 100)
        assert wild.design_effect == MAX_DESIGN_EFFECT

    def test_errors_grow_with_it(self) -> None:
        calm = told(AcceptanceState(), *[share(0.75)] * 100)
        noisy = told(AcceptanceState(), *[share(0.72), share(0.78)] * 50)
        assert survival(noisy, 1)[0].error > 1.5 * survival(calm, 1)[0].error


class TestCollapse:
    def test_two_windows_without_an_accepted_draft_are_a_collapse(self) -> None:
        once = told(STEADY, share(0.0))
        assert not once.collapsed
        twice = told(once, share(0.0))
        assert twice.alarms == ("Drift", "Collapse")
        assert told(twice, share(0.0)).alarms == ("Collapse",)

    def test_a_drafter_that_never_fitted_is_one_without_a_jump(self) -> None:
        assert told(AcceptanceState(), share(0.0), share(0.0)).alarms == ("Collapse",)

    def test_rejected_windows_that_do_not_follow_one_another_are_none(self) -> None:
        assert not told(STEADY, share(0.0), share(0.5), share(0.0)).collapsed

    def test_a_poor_drafter_is_none(self) -> None:
        assert not told(AcceptanceState(), *[share(0.01)] * 10).collapsed

    def test_a_handful_among_thousands_is_one(self) -> None:
        assert told(AcceptanceState(), *[share(0.005)] * 2).collapsed

    def test_few_drafts_prove_nothing(self) -> None:
        assert not told(STEADY, *[share(0.0, drafts=199.0)] * 5).collapsed

    def test_it_lasts_while_nothing_is_drafted_and_ends_with_the_first_accepted(self) -> None:
        """K went to 0 because of it; only a probe can tell that it is over."""
        quiet = told(STEADY, share(0.0), share(0.0), *[((), ())] * 40)
        assert quiet.collapsed
        assert not told(quiet, share(0.5)).collapsed


class TestC03:
    def test_c03_acceptance_does_not_tell_of_a_throughput_collapse(self) -> None:
        """A quarter of the drafts at the same acceptance: nothing to alarm here, the rates must."""
        assert told(STEADY, *[share(0.8, 260.0)] * 5).alarms == ()


class TestC29SlowDecline:
    @staticmethod
    def alpha(length: float, k: int = 4) -> float:
        """The conditional acceptance of this acceptance length."""
        low, high = 0.0, 1.0
        for _ in range(40):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(middle**j for j in range(k + 1)) < length else (low, middle)
        return low

    def play(self, seed: int, last: float = 2.80) -> list[AcceptanceState]:
        """6 h of windows at K 4 whose acceptance length goes from 3.07 to ``last``, with noise of up to 0.1."""
        random, state, states = np.random.default_rng(seed), AcceptanceState(), []
        windows = int(6 * 3600 / WINDOW_S)
        for i in range(windows):
            alpha = self.alpha(3.07 + (last - 3.07) * i / windows + float(random.uniform(-0.1, 0.1)))
            drafted = (8_000.0,) * 4
            state, _ = update(state, drafted, tuple(8_000.0 * alpha**j for j in range(1, 5)), WINDOW_S)
            states.append(state)
        return states

    @pytest.mark.parametrize("seed", range(3))
    def test_c29_a_slow_decline_is_told_once_with_both_values(self, seed: int) -> None:
        states = self.play(seed)
        trend = states[-1].trend
        assert trend is not None
        assert trend.declining
        assert trend.baseline.value == pytest.approx(3.06, abs=0.03)
        assert trend.now.value == pytest.approx(2.82, abs=0.03)
        assert trend.change == pytest.approx(-0.08, abs=0.015)
        assert trend.num_speculative_tokens == 4
        told_of = [state.slow.declining for state in states]
        assert sum(before != after for before, after in pairwise(told_of)) == 1

    @pytest.mark.parametrize("seed", range(3))
    def test_c29_it_is_no_sudden_change(self, seed: int) -> None:
        """The estimate follows it all the way, and alarms stay as rare as in steady traffic."""
        states = self.play(seed)
        assert sum(state.jumped for state in states) <= 3
        assert acceptance_length(states[-1], 4).value == pytest.approx(2.80, abs=0.06)

    def test_c29_noise_alone_is_no_decline(self) -> None:
        states = self.play(0, last=3.07)
        assert not any(state.slow.declining for state in states)

    def test_c29_nothing_is_told_before_the_baseline_is_complete(self) -> None:
        states = self.play(0)
        assert states[118].trend is None
        assert states[120].trend is not None

    def at(self, length: float) -> Window:
        """A window without noise."""
        return (8_000.0,) * 4, tuple(8_000.0 * self.alpha(length) ** j for j in range(1, 5))

    def test_c29_a_recovery_ends_it_and_half_of_one_does_not(self) -> None:
        """Told from a loss of 5 % on, until less than 3 % is missing."""
        lost = told(AcceptanceState(), *[self.at(3.00)] * 130, *[self.at(2.80)] * 500)
        assert lost.slow.declining
        half = told(lost, *[self.at(2.88)] * 500)
        assert half.slow.declining
        assert not told(half, *[self.at(2.95)] * 500).slow.declining

    def test_c29_the_same_half_is_no_decline_to_begin_with(self) -> None:
        assert not told(AcceptanceState(), *[self.at(3.00)] * 130, *[self.at(2.88)] * 500).slow.declining

    def test_c29_the_present_is_known_as_soon_as_the_baseline_is(self) -> None:
        trend = told(AcceptanceState(), *[self.at(3.07)] * 120).trend
        assert trend is not None
        assert trend.now.value == pytest.approx(trend.baseline.value, abs=0.001)
        assert trend.now.error == pytest.approx(trend.baseline.error, rel=0.5)

    def test_c29_one_draft_token_is_enough_for_a_trend(self) -> None:
        trend = told(AcceptanceState(), *[share(0.8)] * 130).trend
        assert trend is not None
        assert trend.num_speculative_tokens == 1

    def test_c29_time_without_drafts_makes_no_baseline(self) -> None:
        idle = told(AcceptanceState(), share(0.8), *[((), ())] * 200)
        assert idle.slow.baseline_s == WINDOW_S
        assert told(idle, *[share(0.8)] * 100).trend is None


class TestC30Boundary:
    def test_c30_alternation_around_a_boundary_is_no_change_and_a_true_step_is_found_in_three_windows(self) -> None:
        state = AcceptanceState()
        for tick in range(100):
            state = told(state, share(0.49 if tick % 2 else 0.51))
            assert (state.alarms, state.suspicion) == ((), 0)
        ticks = 0
        while not state.jumped:
            state, ticks = told(state, share(0.80)), ticks + 1
        assert ticks <= 3
        assert survival(state, 1)[0].value == pytest.approx(0.80, abs=0.01)
