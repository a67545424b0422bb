"""The rules that turn a proposed schedule into a decision, in the order in which they are asked.

Each guard takes the proposal and the facts of the pass and returns the proposal, changed or not, with a sentence when
it had something to say. To add a rule, write a function, put it in the chain of `controller.py`, and add a golden
scenario.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outrider.core import objective, verification
from outrider.core import schedule as schedules
from outrider.core.acceptance import MIN_DRAFTS
from outrider.core.decision import Proposal
from outrider.core.objective import Yield
from outrider.core.observation import Observation
from outrider.core.schedule import Schedule
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState, Probe, Trial
from outrider.core.step_time_shift import StepTimeShift
from outrider.core.verification import Verdict
from outrider.core.words import count

DWELL_PERIODS = 3
"""Control periods between two changes: one is lost to the step that contains both, and two are needed to judge."""
SETTLE_S = 60.0
"""After a jump of acceptance every pass knows more than the last, and may correct it without dwelling."""
DEAD_BAND = 0.015
"""Least gain in goodput, where the service runs, that is worth a change; a prediction must also stand out of its own
error."""
DOUBT = 0.75
"""Standard errors of a comparison that a gain must reach."""
DEAD_BAND_ELSEWHERE = 0.05
"""Gain at any other measured batch size that is worth one: rows must be right before a burst arrives."""

YIELDS_MOST, NO_GAIN = "already yields most", "no schedule is predicted to gain more than"
"""How it is said that nothing is to be done; which of the two it is changes with the noise."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the guards may look at."""

    config: ControllerConfig
    state: ControllerState
    now_s: float
    window: Observation | Missing
    """At least four scrapes, for rates and latencies."""
    predicted: Yield | None
    """None until step times were measured."""
    verdict: Verdict | None
    """On the last change, if it is on trial."""
    shift: StepTimeShift | None = None
    """Steps no longer take what they took."""

    @property
    def jumped(self) -> bool:
        """Acceptance changed abruptly in this pass, and older evidence was dropped."""
        return self.state.acceptance.jumped

    @property
    def settling(self) -> bool:
        """Acceptance jumped a moment ago: a new regime, whose first guess may be corrected at once."""
        return self.state.jumped_s is not None and self.now_s < self.state.jumped_s + SETTLE_S

    @property
    def present(self) -> Schedule:
        """What others are compared with: the schedule in force, or the one that a probe returns to."""
        return self.state.schedule if self.state.probe is None else self.state.probe.before

    @property
    def seen(self) -> Observation:
        """The window, for guards behind `fresh_data`."""
        assert isinstance(self.window, Observation)
        return self.window

    @property
    def outlook(self) -> Yield:
        """The prediction, for guards behind `enough_evidence`."""
        assert self.predicted is not None
        return self.predicted

    @property
    def size(self) -> int:
        """The median batch size of the window, as far as the prediction reaches."""
        return min(self.seen.median_batch, self.outlook.max_batch_size)


def fresh_data(proposal: Proposal, facts: Facts) -> Proposal:
    """Missing data freezes K."""
    if isinstance(facts.window, Missing):
        return proposal.hold(facts.state.schedule, facts.window.reason, f"no decision without metrics: {facts.window}")
    if facts.window.generation_tokens <= 0:
        return proposal.hold(facts.state.schedule, "Idle", "no tokens were generated in the window")
    return proposal


def last_change(proposal: Proposal, facts: Facts) -> Proposal:
    """One change at a time: wait for the verdict on the last one, and take it back if it made things worse."""
    trial, state = facts.state.trial, facts.state
    if trial is None or facts.jumped:
        return proposal
    if facts.verdict == "worse":
        return proposal.to(trial.before, _roll_back(facts, trial), settled=True)
    if facts.verdict == "open":
        return proposal.hold(state.schedule, "Verifying", "the last change is still being judged")
    return proposal


def enough_evidence(proposal: Proposal, facts: Facts) -> Proposal:
    """A schedule rests on drafts that were counted and steps that were timed."""
    if proposal.settled:
        return proposal
    if facts.state.acceptance.drafts < MIN_DRAFTS:
        message = f"fewer than {MIN_DRAFTS:.0f} drafts were counted lately"
        return proposal.hold(facts.state.schedule, "InsufficientData", message)
    if facts.predicted is None:
        return proposal.hold(facts.state.schedule, "InsufficientData", "no step times were measured yet")
    return proposal


def alarm(proposal: Proposal, facts: Facts) -> Proposal:
    """While acceptance seems to jump, wait: a decision rests on one regime. Once it has, the old one is dropped."""
    if proposal.settled:
        return proposal
    if facts.state.acceptance.suspicion != 0:
        message = "acceptance differs from what was seen before; the next window will tell"
        return proposal.hold(facts.state.schedule, "AcceptanceUnclear", message)
    if facts.shift is not None:
        proposal = proposal.say(str(facts.shift))
    if facts.jumped:
        return proposal.say("acceptance changed abruptly; older counts were dropped")
    return proposal


def collapse(proposal: Proposal, facts: Facts) -> Proposal:
    """Every draft is rejected while work goes on: drafting is pure cost, whatever was predicted.

    Once no draft is made any more nothing would ever lift the alarm: `exploration.probe_when_blind` then looks again.
    """
    off = min(facts.config.allowed)
    if not facts.state.acceptance.collapsed:
        return proposal
    flat = schedules.constant(off, facts.config.max_batch_size)
    if flat == facts.state.schedule:
        if off == 0 and facts.seen.num_drafts < MIN_DRAFTS / 4:
            return proposal
        return proposal.hold(flat, "AcceptanceCollapsed", f"every draft is rejected; K stays {off}")
    present = facts.state.schedule.at(facts.seen.median_batch)
    return proposal.to(flat, f"K {present}→{off}: every draft was rejected in two windows running", settled=True)


def highest_goodput(proposal: Proposal, facts: Facts) -> Proposal:
    """Take the K of highest token goodput at each batch size, within the user's bounds."""
    if proposal.settled:
        return proposal
    present = proposal.schedule
    best = objective.best_schedule(facts.outlook, present, facts.config.allowed, doubting=not facts.settling)
    if best == present:
        message = f"{best} {YIELDS_MOST}"
        return proposal.say(message) if facts.state.probe is None else _answered(proposal, facts.state.probe, message)
    batch = facts.seen.median_batch
    gain = objective.gain(facts.outlook, present, best)
    where = f"batch {batch}"
    if gain[min(batch, len(gain)) - 1] < DEAD_BAND:
        # Little to gain where the service runs; name the place where the change matters most.
        size = facts.config.max_batch_size
        moved = np.array(present.lookup(size)[1:]) != np.array(best.lookup(size)[1:])
        now, batch = batch, 1 + int(np.argmax(np.where(moved, gain, -np.inf)))
        where = f"batch {batch} ({now} at present)"
    old, new = present.at(batch), best.at(batch)
    return proposal.to(best, f"at {where} K {old}→{new}: {_compare(facts, old, new, batch)}")


def barred(proposal: Proposal, facts: Facts) -> Proposal:
    """Keep the present K where the proposed one proved bad a short while ago."""
    bars = [bar for bar in facts.state.bars if bar.until_s > facts.now_s]
    if proposal.settled or not bars:
        return proposal
    lookup = proposal.schedule.lookup(facts.config.max_batch_size)[1:]
    for bar in bars:
        for size in range(bar.first, min(bar.last, len(lookup)) + 1):
            if lookup[size - 1] == bar.num_speculative_tokens:
                lookup[size - 1] = facts.present.at(size)
    kept = schedules.from_lookup(lookup)
    if kept == proposal.schedule:
        return proposal
    return proposal.to(
        kept, "barred after a roll-back: " + ", ".join(f"K {bar.num_speculative_tokens}" for bar in bars)
    )


def no_rise_under_queue(proposal: Proposal, facts: Facts) -> Proposal:
    """While requests wait, K rises only if the objective is predicted to hold: a full engine has no room for a
    mistake."""
    objective_s, batch = facts.config.tpot_objective_s, facts.seen.median_batch
    rises = proposal.schedule.at(batch) > facts.present.at(batch)
    if proposal.settled or not rises or facts.seen.waiting < 1 or objective_s is None:
        return proposal
    tpot_s = facts.outlook.at(proposal.schedule, batch)
    if tpot_s <= objective_s:
        return proposal
    message = (
        f"with {count(facts.seen.waiting, 'request')} waiting, {tpot_s * 1e3:.1f} ms a token would miss the objective"
    )
    return proposal.hold(facts.state.schedule, "QueueNotEmpty", message)


def limit_rise(proposal: Proposal, facts: Facts) -> Proposal:
    """Rise by one of the engine's K at a time, at each batch size.

    Acceptance is known for positions that were tried; a longer jump up would rest on an extrapolation. Downwards
    everything is known. After a jump of acceptance nothing is: then the prediction decides at once.
    """
    if proposal.settled or facts.settling or proposal.schedule == facts.present:
        return proposal
    allowed = facts.config.allowed
    above = {k: next((higher for higher in allowed if higher > k), k) for k in facts.config.values}
    lookup = [
        min(wanted, above.get(present, present))
        for wanted, present in zip(
            proposal.schedule.lookup(facts.config.max_batch_size)[1:],
            facts.present.lookup(facts.config.max_batch_size)[1:],
            strict=True,
        )
    ]
    limited = schedules.from_lookup(lookup)
    if limited == proposal.schedule:
        return proposal
    return proposal.to(limited, f"rise limited to one step at a time: {limited}")


def dead_band(proposal: Proposal, facts: Facts) -> Proposal:
    """Move only for a gain that can be told from noise."""
    if proposal.settled or proposal.schedule == facts.present:
        return proposal
    gain = worth(facts, proposal.schedule)
    if gain is not None:
        return proposal.say(gain)
    message = f"{NO_GAIN} {_needed(facts, proposal.schedule):.1%} at this load"
    if facts.state.probe is not None:
        return _answered(proposal, facts.state.probe, message)
    return proposal.hold(facts.state.schedule, "DeadBand", message)


def worth(facts: Facts, proposed: Schedule) -> str | None:
    """What a schedule is predicted to gain over the present one, in words; None where it is not worth a change."""
    outlook = facts.outlook
    gain = objective.gain(outlook, facts.present, proposed)
    here = _weighted(gain, facts.seen)
    if here >= _needed(facts, proposed):
        return f"predicted gain {here:.1%} at the present load"
    first, last = outlook.trusted
    anywhere, batch = objective.best_band(gain[first - 1 : last])
    batch += first - 1
    doubt = outlook.error_between(facts.present.at(batch), proposed.at(batch), batch)
    if anywhere >= DEAD_BAND_ELSEWHERE + doubt and here >= -DEAD_BAND:
        return f"predicted gain {anywhere:.0%} from batch {batch} on, ready for when load gets there"
    return None


def dwell(proposal: Proposal, facts: Facts) -> Proposal:
    """Let every schedule live long enough to be judged."""
    changed_s, state = facts.state.schedule_changed_s, facts.state
    waived = proposal.settled or facts.settling or state.probe is not None
    if waived or proposal.schedule == state.schedule or changed_s is None:
        return proposal
    wait_s = changed_s + DWELL_PERIODS * facts.config.period_s - facts.now_s
    if wait_s <= 0:
        return proposal
    return proposal.hold(state.schedule, "Dwell", f"the schedule changed a moment ago; wait {wait_s:.0f} s more")


def acceptance_threshold(proposal: Proposal, facts: Facts) -> Proposal:
    """The rule known from the field: raise above 75 % accepted, lower under 60 %, off under 40 %; K from 2 to at most
    8."""
    if proposal.settled:
        return proposal
    drafted, accepted = sum(facts.seen.drafted_per_pos), sum(facts.seen.accepted_per_pos)
    if facts.seen.num_drafts < MIN_DRAFTS:
        message = f"fewer than {MIN_DRAFTS:.0f} drafts in the window"
        return proposal.hold(facts.state.schedule, "InsufficientData", message)
    if drafted <= 0:  # several K without our plugin, or a counter that was not scraped
        message = "what was drafted in the window is not known by position"
        return proposal.hold(facts.state.schedule, "InsufficientData", message)
    rate = accepted / drafted
    ladder = [k for k in facts.config.allowed if 2 <= k <= 8] or [max(facts.config.allowed)]
    present = facts.state.schedule.at(facts.seen.median_batch)
    if rate > 0.75:
        k = next((higher for higher in ladder if higher > present), max(ladder))
    elif rate < 0.40:
        k = 0 if 0 in facts.config.allowed else min(ladder)
    elif rate < 0.60:
        k = next((lower for lower in reversed(ladder) if lower < present), min(ladder))
    else:
        k = present
    flat = schedules.constant(k, facts.config.max_batch_size)
    if flat == facts.state.schedule:
        return proposal.say(f"acceptance rate {rate:.0%} keeps K {k}")
    return proposal.to(flat, f"acceptance rate {rate:.0%} moves K {present}→{k}")


def short_dwell(proposal: Proposal, facts: Facts) -> Proposal:
    """Ten seconds between changes, as that rule has it."""
    changed_s = facts.state.schedule_changed_s
    moved = proposal.schedule != facts.state.schedule
    if moved and not proposal.settled and changed_s is not None and facts.now_s < changed_s + 10.0:
        return proposal.hold(facts.state.schedule, "Dwell", "the schedule changed less than 10 s ago")
    return proposal


def _needed(facts: Facts, proposed: Schedule) -> float:
    """Gain at the present load that is worth a change, the more the less is known of both K; a change is judged, so a
    small mistake costs a minute."""
    if facts.settling:
        return DEAD_BAND  # what was measured before the jump deserves no more trust than a prediction
    old, new = facts.present.at(facts.size), proposed.at(facts.size)
    return max(DEAD_BAND, DOUBT * facts.outlook.error_between(old, new, facts.size) if old != new else 0.0)


def _answered(proposal: Proposal, probe: Probe, message: str) -> Proposal:
    """A probe that found nothing better goes back."""
    return proposal.to(probe.before, f"probe answered: {message}", settled=True)


def _roll_back(facts: Facts, trial: Trial) -> str:
    """Both numbers of a roll-back."""
    found = verification.compare(trial, facts.seen, facts.outlook)
    if found is None:
        return "rolled back: the change delivered less than the schedule before it"
    return (
        f"rolled back: {found.delivered:.0f} tokens/s a request after the change,"
        f" {found.expected:.0f} expected without it at batch {found.batch:.0f}"
    )


def _compare(facts: Facts, old: int, new: int, batch: int) -> str:
    """Predicted TPOT of two K at one batch size."""
    old_ms, new_ms = (facts.outlook.at(schedules.constant(k, batch), batch) * 1e3 for k in (old, new))
    return f"{new_ms:.1f} ms a token predicted, {old_ms:.1f} with K {old}"


def _weighted(gain: NDArray[np.float64], window: Observation) -> float:
    """Gain averaged over the steps of the window by their batch size; over the mean batch where no steps are known.

    Of a bucket's steps the mean is known: they are taken to lie evenly on both sides of it.
    """
    cells = [(cell.mean_batch, cell.batch_bucket, cell.steps) for cell in window.cells]
    sums = [0.0, *np.cumsum(gain).tolist()]
    total = weight = 0.0
    for mean, upper, steps in cells or [(window.batch, round(window.batch), 1.0)]:
        reach = max(0.0, min(upper - mean, mean - upper / 2.0 - 0.5))
        first, last = max(1, round(mean - reach)), max(1, round(mean + reach))
        first, last = min(first, len(gain)), min(last, len(gain))
        total += steps * (sums[last] - sums[first - 1]) / (last - first + 1)
        weight += steps
    return total / weight
