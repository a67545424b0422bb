"""Engines with one K: what vLLM's own metrics tell of others, and when a restart for another is worth it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from outrider.core import one_k_document, one_k_evidence
from outrider.core.observation import Observation
from outrider.core.one_k import MOST_A_DAY, Decision, decide
from outrider.core.one_k_choice import RETRY_S, needed
from outrider.core.one_k_evidence import MOST_DRAFTS, Evidence
from outrider.core.one_k_state import BAR_S, DAY_S, Barred, OneK, Sight
from outrider.simulator.profile import load_profile
from tests.unit.core.builders import GONE, observation

PERIOD_S = 120.0
SETTLE_S = 1800.0
HIGH = (0.7, 0.49, 0.34, 0.24, 0.17)
LONG = (0.9, 0.81, 0.73, 0.66, 0.59)
MIDDLING = (0.5, 0.25, 0.13, 0.06, 0.03)
LOW = (0.1, 0.01, 0.001, 0.0, 0.0)
MEASURED = load_profile()


def step_s(batch: float, k: int) -> float:
    """Seconds a step on a measured card; 0 is an engine without a drafter."""
    return MEASURED.step_time_s(batch, k, 512, 600.0, drafter=k > 0)


def sight(**changes: object) -> Sight:
    """Engines with K 5, a start of two minutes."""
    fields: dict[str, object] = {
        "present": 5,
        "own": 5,
        "values": (0, 1, 2, 3, 4, 5),
        "max_batch_size": 256,
        "capture_size": 512,
        "settled": True,
        "stuck": "",
        "start_s": 120.0,
        "settle_s": SETTLE_S,
        "missed": False,
        "blocked": "",
        "acting": True,
        "now_s": 0.0,
    }
    return Sight(**{**fields, **changes})  # type: ignore[arg-type]


def seen(
    now_s: float, batch: float, k: int, survival: Sequence[float] = HIGH, *, took_s: float | None = None
) -> Observation:
    """What a plain vLLM told of the minute before."""
    steps = PERIOD_S / step_s(batch, k)
    told = observation(
        since=now_s - PERIOD_S,
        until=now_s,
        batch=batch,
        k=k,
        survival=survival,
        step_s=took_s or step_s(batch, k),
        steps=steps,
    )
    return replace(told, cells=(), num_accepted_tokens=sum(told.accepted_per_pos))


@dataclass
class Service:
    """Engines under a load that plays minute by minute; what is decided takes effect after a start."""

    changes: dict[str, object] = field(default_factory=dict)
    survival: Sequence[float] = HIGH
    took_s: Callable[[float, int], float] = step_s
    start_s: float = 300.0
    now_s: float = 0.0
    state: OneK = field(default_factory=OneK)
    present: int = 5
    ready_s: float = 0.0
    rolls: list[tuple[float, int]] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def play(self, hours: float, batch: float) -> Decision:
        """So long at this batch size."""
        for _ in range(round(hours * 3600.0 / PERIOD_S)):
            found = self.look_later(batch)
        return found

    def look_later(self, batch: float) -> Decision:
        """The next look."""
        self.now_s += PERIOD_S
        return self.look(batch)

    def look(self, batch: float) -> Decision:
        """One look."""
        settled = self.now_s >= self.ready_s
        told = seen(self.now_s, batch, self.present, self.survival, took_s=self.took_s(batch, self.present))
        given = {"present": self.present, "settled": settled, "now_s": self.now_s, **self.changes}
        found = decide(self.state, sight(**given), told)
        self.state = found.state
        self.said.append(found.reason)
        if found.rolls is not None:
            self.rolls.append((self.now_s, found.rolls))
            self.present, self.ready_s = found.rolls, self.now_s + self.start_s
        return found


def test_step_time_is_read_from_the_time_per_token_of_whole_requests() -> None:
    evidence = Evidence()
    for minute in range(1, 6):
        evidence = one_k_evidence.learn(evidence, seen(minute * PERIOD_S, 16.0, 3), 3, SETTLE_S / 2)
    ((_, k), cell), *others = evidence.cells.items()
    assert not others
    assert k == 3
    assert cell.step_time_s == pytest.approx(step_s(16.0, 3), rel=1e-6)
    assert cell.mean_batch == pytest.approx(16.0)


def test_a_window_is_learnt_from_once() -> None:
    window = seen(PERIOD_S, 16.0, 3)
    once = one_k_evidence.learn(Evidence(), window, 3, SETTLE_S / 2)
    assert one_k_evidence.learn(once, window, 3, SETTLE_S / 2) == once


def test_requests_that_lived_through_a_change_of_load_tell_nothing_of_step_times() -> None:
    known = one_k_evidence.learn(Evidence(batch=16.0), seen(PERIOD_S, 64.0, 3), 3, SETTLE_S / 2)
    assert not known.cells
    assert known.load


def test_engines_without_a_drafter_leave_what_is_known_of_acceptance_as_it_is() -> None:
    drafting = one_k_evidence.learn(Evidence(), seen(PERIOD_S, 16.0, 3), 3, SETTLE_S / 2)
    off = one_k_evidence.learn(drafting, seen(2 * PERIOD_S, 16.0, 0), 0, SETTLE_S / 2)
    assert off.counts == drafting.counts
    assert off.blind_s == PERIOD_S


def test_what_is_known_of_positions_that_are_drafted_no_longer_fades_with_time_and_not_with_looks() -> None:
    evidence = Evidence()
    for minute in range(1, 60):
        evidence = one_k_evidence.learn(evidence, seen(minute * PERIOD_S, 128.0, 5), 5, SETTLE_S / 2)
    assert evidence.counts.drafts == pytest.approx(MOST_DRAFTS, rel=0.05)
    until_s = 59 * PERIOD_S
    while until_s < 59 * PERIOD_S + SETTLE_S / 2:
        until_s += PERIOD_S
        evidence = one_k_evidence.learn(evidence, seen(until_s, 128.0, 2), 2, SETTLE_S / 2)
    drafted, accepted = evidence.counts.at(4)
    assert drafted == pytest.approx(MOST_DRAFTS / 2, rel=0.1)
    assert accepted / drafted == pytest.approx(HIGH[4], rel=0.01)


def test_another_text_voids_what_is_known_of_positions_that_are_drafted_no_longer() -> None:
    evidence = one_k_evidence.learn(Evidence(), seen(PERIOD_S, 64.0, 5, MIDDLING), 5, SETTLE_S / 2)
    same = one_k_evidence.learn(evidence, seen(2 * PERIOD_S, 64.0, 1, MIDDLING), 1, SETTLE_S / 2)
    assert same.counts.at(4)[0] > 0.0
    other = one_k_evidence.learn(evidence, seen(2 * PERIOD_S, 64.0, 1, LONG), 1, SETTLE_S / 2)
    assert other.counts.at(4)[0] == 0.0
    drafted, accepted = other.counts.at(0)
    assert accepted / drafted == pytest.approx(LONG[0])


def test_no_k_is_chosen_for_the_last_sizes_that_its_graphs_hold() -> None:
    """At 100 requests K 4 has 500 tokens a step, of 512 that graphs hold; at 105 a step takes twice as long."""
    at_edge, within = (Service(survival=LONG) for _ in range(2))
    at_edge.play(3.0, 100.0)
    within.play(3.0, 80.0)
    assert at_edge.present == 3
    assert within.present >= 4


def test_a_load_that_grows_for_hours_is_given_a_smaller_k_once() -> None:
    service = Service()
    service.play(2.0, 4.0)
    assert not service.rolls
    service.play(4.0, 128.0)
    assert len(service.rolls) == 1
    assert service.rolls[0][1] < 5
    assert service.state.delivered is not None
    assert service.state.delivered > 0.0
    assert service.said[-1].startswith("the last change gave +")


def test_the_k_comes_back_with_the_load() -> None:
    service = Service(survival=LONG)
    service.play(1.0, 4.0)
    service.play(4.0, 128.0)
    assert service.present < 5
    service.play(6.0, 4.0)
    assert service.present == 5
    assert len(service.rolls) <= MOST_A_DAY


def test_bursts_of_minutes_restart_nothing() -> None:
    service = Service()
    for _ in range(6):
        service.play(1.0, 8.0)
        service.play(4 / 60, 128.0)
    assert not service.rolls


def test_a_gain_that_does_not_earn_the_start_back_within_an_hour_is_left() -> None:
    service = Service({"start_s": 3600.0})
    service.play(6.0, 128.0)
    assert not service.rolls
    assert "a restart is worth 100%" in service.said[-1]


def test_the_cost_of_a_start_does_not_count_while_an_objective_is_missed() -> None:
    assert needed(sight(start_s=1800.0)) == 0.5
    assert needed(sight(start_s=1800.0, missed=True)) == 0.05


def test_a_missed_objective_is_answered_sooner() -> None:
    calm, missed = Service(), Service({"missed": True})
    for service in (calm, missed):
        service.play(1.0, 128.0)
    assert missed.rolls[0][0] < calm.rolls[0][0]


def test_no_more_than_a_handful_of_changes_a_day() -> None:
    service = Service()
    for hour in range(36):
        service.survival = LOW if hour % 2 else LONG
        service.play(1.0, 16.0)
        times = [at_s for at_s, _ in service.rolls if at_s > service.now_s - DAY_S]
        assert len(times) <= MOST_A_DAY
    assert any("are the most" in said for said in service.said)


def test_a_k_stays_for_the_settling_time_however_soon_another_is_wished_for() -> None:
    service = Service(survival=MIDDLING, start_s=0.0)
    while not service.rolls:
        service.look_later(128.0)
    service.survival = LONG
    service.play(3.0, 2.0)
    (first, _), (second, _), *_ = service.rolls
    assert second - first >= SETTLE_S


def test_a_k_far_beyond_what_was_drafted_is_no_candidate() -> None:
    service = Service({"own": 1, "values": (1, 5)}, survival=LONG, present=1)
    service.play(2.0, 2.0)
    assert not service.rolls


def test_k_rises_two_positions_beyond_those_that_were_drafted_at_most() -> None:
    service = Service({"own": 1}, present=1)
    service.play(2.0, 2.0)
    assert service.rolls
    assert service.rolls[0][1] <= 3


def test_a_rejecting_drafter_is_left_and_looked_at_again_after_hours_and_ever_more_seldom() -> None:
    service = Service({"values": (0, 5)}, survival=LOW)
    service.play(3.0, 120.0)
    assert [k for _, k in service.rolls] == [0]
    service.play(2 * RETRY_S / 3600.0 - 4.0, 120.0)
    tried = [at_s for at_s, k in service.rolls if k == 5]
    assert len(tried) == 1
    assert tried[0] - service.rolls[0][0] >= RETRY_S
    service.play(36.0, 120.0)
    tries = [at_s for at_s, k in service.rolls if k == 5]
    assert len(tries) >= 2
    assert tries[1] - tries[0] >= 2 * RETRY_S


def test_without_a_drafter_the_k_of_before_returns_with_the_load_it_was_good_for() -> None:
    service = Service({"values": (0, 5)}, survival=MIDDLING)
    service.play(1.0, 4.0)
    service.play(3.0, 200.0)
    assert [k for _, k in service.rolls] == [0]
    service.play(3.0, 4.0)
    assert [k for _, k in service.rolls] == [0, 5]


def test_a_change_that_lost_goes_back_and_is_barred() -> None:
    slow = Service(took_s=lambda batch, k: step_s(batch, k) * (1.0 if k == 5 else 3.0))
    while len(slow.rolls) < 2:
        slow.look_later(128.0)
    (_, k), (_, back) = slow.rolls
    assert back == 5
    assert any(said.startswith("rolled back to K 5: ") and "lost" in said for said in slow.said)
    (bar,) = slow.state.bars
    assert bar.num_speculative_tokens == k
    assert slow.state.chosen is None
    before = len(slow.rolls)
    slow.play(BAR_S / 3600.0 - 3.0, 128.0)
    assert all(later != k for _, later in slow.rolls[before:])


@pytest.mark.parametrize(("batch", "survival"), [(4.0, HIGH), (128.0, LONG)], ids=["batch", "acceptance"])
def test_what_another_load_makes_of_a_change_is_not_its_fault(batch: float, survival: Sequence[float]) -> None:
    slow = Service(took_s=lambda batch, k: step_s(batch, k) * (1.0 if k == 5 else 3.0))
    while not slow.rolls:
        slow.look_later(128.0)
    slow.survival = survival
    slow.play(2.0, batch)
    assert not slow.state.bars


def test_engines_that_do_not_come_up_are_given_the_k_of_before() -> None:
    state = OneK(chosen=2, rolling=True, before=5, moves=(0.0,))
    found = decide(state, sight(present=2, settled=False, stuck="no GPU is free", now_s=300.0), GONE)
    assert found.rolls == 5
    assert found.state.chosen is None
    assert found.state.bars == (Barred(2, 300.0 + BAR_S),)
    again = decide(found.state, sight(present=5, settled=False, stuck="no GPU is free", now_s=400.0), GONE)
    assert again.rolls is None


def test_a_k_that_fails_again_is_barred_for_longer() -> None:
    state = OneK(chosen=2, rolling=True, before=5, moves=(0.0,), bars=(Barred(2, 0.0),))
    found = decide(state, sight(present=2, settled=False, stuck="no GPU is free", now_s=300.0), GONE)
    assert found.state.bars == (Barred(2, 300.0 + 2 * BAR_S, 2),)


def test_nothing_is_learnt_while_engines_are_replaced() -> None:
    state = OneK(chosen=2, rolling=True, before=5, moves=(0.0,))
    found = decide(state, sight(present=2, settled=False, now_s=300.0), seen(300.0, 16.0, 2))
    assert found.state.evidence == state.evidence
    assert found.reason == "engines with K 2 are being started"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        pytest.param({"acting": False}, "would roll K 5→", id="whoever only observes says what it would do"),
        pytest.param({"blocked": "it waits for a GPU"}, "; it waits for a GPU", id="without room it waits"),
    ],
)
def test_what_is_worth_a_restart_and_may_not_be(changes: dict[str, object], words: str) -> None:
    service = Service(changes)
    service.play(3.0, 128.0)
    assert not service.rolls
    assert words in service.said[-1]


def test_missing_metrics_move_nothing() -> None:
    found = decide(OneK(), sight(), GONE)
    assert found.rolls is None
    assert found.reason.startswith("no decision without metrics")


def test_a_clock_that_was_ahead_does_not_end_decisions() -> None:
    service = Service()
    ahead = 40 * DAY_S
    service.state = OneK(
        moves=(ahead,), wish=(2, ahead), bars=(Barred(2, 2 * ahead),), evidence=Evidence(until_s=ahead)
    )
    service.play(6.0, 128.0)
    assert service.rolls


def test_all_of_it_is_remembered() -> None:
    service = Service()
    service.play(1.0, 4.0)
    service.play(2.0, 128.0)
    assert service.state.chosen is not None
    text = json.dumps(one_k_document.to_document(service.state))
    again = one_k_document.from_document(json.loads(text))
    assert again is not None
    assert again.chosen == service.state.chosen
    assert again.moves == service.state.moves
    assert one_k_document.to_document(again) == json.loads(text)


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(None, id="none"),
        pytest.param([], id="a list"),
        pytest.param({"chosen": -1}, id="a negative K"),
        pytest.param({"moves": ["yesterday"]}, id="a text"),
        pytest.param({"cells": [[1, 2, 0.0, 0.0, 0.0]]}, id="a cell without steps"),
        pytest.param({"seen": [1.0]}, id="too few numbers"),
        pytest.param({"bars": [[1, True, 1]]}, id="a truth value"),
    ],
)
def test_a_damaged_document_is_none(damage: object) -> None:
    document: object = damage
    if isinstance(damage, dict):
        document = one_k_document.to_document(OneK()) | damage
    assert one_k_document.from_document(document) is None
