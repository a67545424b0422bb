"""The edges of the rules: where a guard just lets pass and just stops, and what it says then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from outrider.core import guards
from outrider.core.acceptance import MIN_DRAFTS, AcceptanceState
from outrider.core.decision import Proposal
from outrider.core.drift import SUSPECT, Drift
from outrider.core.schedule import parse_text
from outrider.core.state import Bar, Probe
from outrider.core.steps import StepCell

from .builders import facts, observation, yields

SIZES = 64
PRESENT = parse_text("1-64:3")
ROWS = {2: [10.0] * SIZES, 3: [10.0] * SIZES, 5: [8.0] * SIZES}


def to(schedule: str) -> Proposal:
    return Proposal(parse_text(schedule))


def held(found: Proposal) -> tuple[str, str]:
    """Reason and message of a hold, which must leave the present schedule."""
    assert found.held is not None
    assert found.schedule == PRESENT
    assert found.steps[-1] == f"hold: {found.held.message}"
    return found.held.reason, found.held.message


class TestAlarm:
    def test_a_suspicion_holds_the_present_schedule(self) -> None:
        state = AcceptanceState((9_000.0,), (6_000.0,), Drift(above=SUSPECT))
        found = guards.alarm(to("1-64:5"), facts(yields(ROWS), "1-64:3", acceptance=state))
        message = "acceptance differs from what was seen before; the next window will tell"
        assert held(found) == ("AcceptanceUnclear", message)


class TestHighestGoodput:
    def test_the_best_is_named_with_both_times_of_a_token(self) -> None:
        found = guards.highest_goodput(Proposal(PRESENT), facts(yields(ROWS), "1-64:3"))
        assert found.schedule == parse_text("1-64:5")
        assert found.steps == ("at batch 32 K 3→5: 8.0 ms a token predicted, 10.0 with K 3",)

    @pytest.mark.parametrize(
        ("jumped_s", "expected"),
        [
            pytest.param(None, "1-64:3", id="what was measured is preferred"),
            pytest.param(990.0, "1-64:5", id="but right after a jump nothing was"),
        ],
    )
    def test_errors_weigh_until_acceptance_jumps(self, jumped_s: float | None, expected: str) -> None:
        seen = facts(yields(ROWS, errors={5: 0.4}), "1-64:3", jumped_s=jumped_s)
        assert guards.highest_goodput(Proposal(PRESENT), seen).schedule == parse_text(expected)

    def test_a_look_that_finds_nothing_better_goes_back_for_good(self) -> None:
        probe = Probe(PRESENT, 980.0)
        best_as_it_is = yields({3: [8.0] * SIZES, 5: [10.0] * SIZES})
        found = guards.highest_goodput(Proposal(PRESENT), facts(best_as_it_is, "1-21:3 22-48:5 49-64:3", probe=probe))
        assert found.schedule == PRESENT
        assert found.settled
        assert found.steps == ("probe answered: 1-64:3 already yields most",)

    def test_without_a_look_it_only_says_so(self) -> None:
        found = guards.highest_goodput(Proposal(PRESENT), facts(yields({3: [8.0] * SIZES}), "1-64:3"))
        assert (found.settled, found.steps) == (False, ("1-64:3 already yields most",))

    @pytest.mark.parametrize(
        ("row_ms", "sentence"),
        [
            pytest.param(
                [9.5] * 48 + [7.0] + [9.5] * 15,
                "at batch 32 K 3→5: 9.5 ms a token predicted, 10.0 with K 3",
                id="where the service runs, if it gains there",
            ),
            pytest.param(
                [12.0] * 40 + [8.0] * 8 + [7.0] + [8.0] * 15,
                "at batch 49 (32 at present) K 3→5: 7.0 ms a token predicted, 10.0 with K 3",
                id="else where the change gains most",
            ),
        ],
    )
    def test_where_a_change_is_named(self, row_ms: list[float], sentence: str) -> None:
        seen = facts(yields({3: [10.0] * SIZES, 5: row_ms}), "1-64:3")
        assert guards.highest_goodput(Proposal(PRESENT), seen).steps == (sentence,)


class TestBarred:
    BARS = (Bar(5, 10, 20, 1_000.5, 1),)

    def test_exactly_the_barred_batch_sizes_keep_the_present_k(self) -> None:
        found = guards.barred(to("1-64:5"), facts(yields(ROWS), "1-64:3", bars=self.BARS))
        assert found.schedule == parse_text("1-9:5 10-20:3 21-64:5")
        assert found.steps == ("barred after a roll-back: K 5",)

    def test_several_bars_are_named_and_reach_no_further_than_the_engine(self) -> None:
        bars = (Bar(5, 60, 120, 1_000.5, 1), Bar(2, 1, 4, 1_000.5, 1))
        found = guards.barred(to("1-8:2 9-64:5"), facts(yields(ROWS), "1-64:3", bars=bars))
        assert found.schedule == parse_text("1-4:3 5-8:2 9-59:5 60-64:3")
        assert found.steps == ("barred after a roll-back: K 5, K 2",)

    @pytest.mark.parametrize(
        ("proposal", "bars"),
        [
            pytest.param(replace(to("1-64:5"), settled=True), BARS, id="a final word"),
            pytest.param(to("1-64:2"), BARS, id="another K"),
            pytest.param(to("1-64:5"), (Bar(5, 10, 20, 1_000.0, 1),), id="a bar that ends now"),
        ],
    )
    def test_what_no_bar_stops(self, proposal: Proposal, bars: tuple[Bar, ...]) -> None:
        assert guards.barred(proposal, facts(yields(ROWS), "1-64:3", bars=bars)) == proposal


class TestQueue:
    @pytest.mark.parametrize(
        ("proposal", "changes", "stopped"),
        [
            pytest.param(
                to("1-64:5"), {"waiting": 1.0, "tpot_objective_s": 0.0079}, True, id="one waits, and too slow"
            ),
            pytest.param(to("1-64:5"), {"waiting": 1.0, "tpot_objective_s": 0.008}, False, id="just within it"),
            pytest.param(to("1-64:5"), {"waiting": 0.9, "tpot_objective_s": 0.0079}, False, id="nobody waits"),
            pytest.param(to("1-64:5"), {"waiting": 1.0, "tpot_objective_s": None}, False, id="no objective"),
            pytest.param(to("1-64:3"), {"waiting": 1.0, "tpot_objective_s": 0.0079}, False, id="no rise"),
            pytest.param(to("1-64:2"), {"waiting": 1.0, "tpot_objective_s": 0.0079}, False, id="a fall"),
            pytest.param(
                replace(to("1-64:5"), settled=True),
                {"waiting": 1.0, "tpot_objective_s": 0.0079},
                False,
                id="a final word",
            ),
        ],
    )
    def test_a_rise_that_would_miss_the_objective(
        self, proposal: Proposal, changes: dict[str, Any], *, stopped: bool
    ) -> None:
        found = guards.no_rise_under_queue(proposal, facts(yields(ROWS), "1-64:3", **changes))
        if stopped:
            message = "with 1 request waiting, 8.0 ms a token would miss the objective"
            assert held(found) == ("QueueNotEmpty", message)
        else:
            assert found == proposal


class TestDwell:
    @pytest.mark.parametrize(("changed_s", "wait"), [(990.0, "35 s"), (955.5, "0 s")])
    def test_it_says_how_long_is_left(self, changed_s: float, wait: str) -> None:
        found = guards.dwell(to("1-64:5"), facts(yields(ROWS), "1-64:3", schedule_changed_s=changed_s))
        assert held(found) == ("Dwell", f"the schedule changed a moment ago; wait {wait} more")

    def test_three_periods_are_enough(self) -> None:
        seen = facts(yields(ROWS), "1-64:3", schedule_changed_s=955.0)
        assert guards.dwell(to("1-64:5"), seen) == to("1-64:5")

    @pytest.mark.parametrize(("changed_s", "stopped"), [(990.1, True), (990.0, False)])
    def test_the_threshold_rule_waits_ten_seconds(self, changed_s: float, *, stopped: bool) -> None:
        found = guards.short_dwell(to("1-64:5"), facts(yields(ROWS), "1-64:3", schedule_changed_s=changed_s))
        if stopped:
            assert held(found) == ("Dwell", "the schedule changed less than 10 s ago")
        else:
            assert found == to("1-64:5")


class TestThreshold:
    @pytest.mark.parametrize(
        ("rate", "expected", "words"),
        [
            pytest.param(0.76, 5, "acceptance rate 76% moves K 3→5", id="above three quarters it rises"),
            pytest.param(0.75, 3, "acceptance rate 75% keeps K 3", id="not at three quarters"),
            pytest.param(0.60, 3, "acceptance rate 60% keeps K 3", id="nor does it fall at 60 %"),
            pytest.param(0.59, 2, "acceptance rate 59% moves K 3→2", id="under 60 % it falls"),
            pytest.param(0.40, 2, "acceptance rate 40% moves K 3→2", id="by one step at 40 %"),
            pytest.param(0.39, 0, "acceptance rate 39% moves K 3→0", id="under 40 % drafting ends"),
        ],
    )
    def test_the_edges_of_the_rule(self, rate: float, expected: int, words: str) -> None:
        window = replace(observation(), drafted_per_pos=(1_000.0,), accepted_per_pos=(1_000.0 * rate,))
        found = guards.acceptance_threshold(Proposal(PRESENT), facts(yields(ROWS), "1-64:3", window=window))
        assert found.schedule.at(32) == expected
        assert found.steps == (words,)

    @pytest.mark.parametrize(("drafts", "stopped"), [(MIN_DRAFTS - 1.0, True), (MIN_DRAFTS, False)])
    def test_how_many_drafts_it_needs(self, drafts: float, *, stopped: bool) -> None:
        window = replace(observation(), num_drafts=drafts)
        found = guards.acceptance_threshold(Proposal(PRESENT), facts(yields(ROWS), "1-64:3", window=window))
        if stopped:
            assert held(found) == ("InsufficientData", "fewer than 200 drafts in the window")
        else:
            assert found.held is None

    def test_drafts_that_are_not_known_by_position_hold_it(self) -> None:
        """Engines without our plugin in a window of two K, or one family that was not scraped."""
        window = replace(observation(), num_drafts=1_000.0, drafted_per_pos=(), accepted_per_pos=())
        found = guards.acceptance_threshold(Proposal(PRESENT), facts(yields(ROWS), "1-64:3", window=window))
        words = "what was drafted in the window is not known by position"
        assert held(found) == ("InsufficientData", words)

    @pytest.mark.parametrize(("values", "top"), [((0, 7, 8, 9), 8), ((0, 7, 9), 7)])
    def test_the_ladder_ends_at_eight(self, values: tuple[int, ...], top: int) -> None:
        rows = {k: [10.0] * SIZES for k in values}
        window = replace(observation(k=7), drafted_per_pos=(1_000.0,), accepted_per_pos=(900.0,))
        found = guards.acceptance_threshold(to("1-64:7"), facts(yields(rows), "1-64:7", window=window))
        assert found.schedule.at(32) == top


class TestDeadBand:
    def test_a_look_that_gains_too_little_goes_back_for_good_and_says_so(self) -> None:
        seen = facts(yields({3: [10.0] * SIZES, 5: [9.9] * SIZES}), "1-64:5", probe=Probe(PRESENT, 980.0))
        found = guards.dead_band(to("1-64:5"), seen)
        assert found.schedule == PRESENT
        assert found.settled
        message = "probe answered: no schedule is predicted to gain more than 1.5% at this load"
        assert found.steps == (message,)

    @pytest.mark.parametrize(
        ("error", "settling", "passes"),
        [
            pytest.param(0.026, False, True, id="0.75 standard errors of 2.6 % are just less than the gain"),
            pytest.param(0.028, False, False, id="of 2.8 % just more"),
            pytest.param(0.028, True, True, id="after a jump the dead band alone counts"),
        ],
    )
    def test_the_doubt_that_a_gain_must_overcome(self, error: float, *, settling: bool, passes: bool) -> None:
        rows = {3: [10.2] * SIZES, 5: [10.0] * SIZES}
        seen = facts(yields(rows, errors={5: error}), "1-64:3", jumped_s=990.0 if settling else None)
        assert (guards.dead_band(to("1-64:5"), seen).held is None) is passes

    def test_a_gain_elsewhere_is_told_with_the_batch_where_it_begins(self) -> None:
        rows = {3: [10.0] * SIZES, 5: [10.0] * 40 + [8.0] * 24}
        seen = facts(yields(rows, measured=(21, SIZES)), "1-64:3", batch=24.0)
        found = guards.dead_band(to("1-40:3 41-64:5"), seen)
        assert found.steps == ("predicted gain 25% from batch 41 on, ready for when load gets there",)


class TestWeight:
    """The gain at the present load: over the steps of the window, each bucket's spread around its mean."""

    GAIN = np.arange(1.0, 65.0)

    @pytest.mark.parametrize(
        ("cells", "expected"),
        [
            pytest.param([(24.0, 32, 10.0)], 24.0, id="evenly around the mean"),
            pytest.param([(32.0, 32, 10.0)], 32.0, id="a full bucket has one size"),
            pytest.param([(17.0, 32, 10.0)], 17.0, id="so it is at its lower end"),
            pytest.param([(8.0, 8, 30.0), (64.0, 64, 10.0)], (30 * 8 + 10 * 64) / 40, id="by the number of steps"),
            pytest.param([(100.0, 128, 10.0)], 64.0, id="beyond the last size, the last"),
        ],
    )
    def test_by_steps(self, cells: list[tuple[float, int, float]], expected: float) -> None:
        steps = tuple(StepCell(upper, 3, False, count, count * 0.01, count * mean) for mean, upper, count in cells)
        found = guards._weighted(self.GAIN, replace(observation(), cells=steps))
        assert found == pytest.approx(expected)

    @pytest.mark.parametrize(
        ("mean", "first", "last"),
        [
            pytest.param(30.0, 28, 32, id="as far as the upper end"),
            pytest.param(19.0, 16, 22, id="as far as the lower end"),
        ],
    )
    def test_a_bucket_reaches_to_its_nearer_end(self, mean: float, first: int, last: int) -> None:
        square = self.GAIN**2
        cells = (StepCell(32, 3, False, 10.0, 0.1, 10.0 * mean),)
        found = guards._weighted(square, replace(observation(), cells=cells))
        assert found == pytest.approx(float(square[first - 1 : last].mean()))

    def test_without_cells_the_mean_batch_counts(self) -> None:
        assert guards._weighted(self.GAIN, replace(observation(batch=12.0), cells=())) == pytest.approx(12.0)
