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
from outrider.core.series import Missing
from outrider.core.state import ControllerConfig, ControllerState, Trial
from outrider.core.verification import Verdict
from outrider.core.words import count

PROBE_AFTER_S = 300.0
"""Acceptance unseen for this long is looked up again by a short probe: at K = 0 nothing else could ever lead back."""
DWELL_PERIODS = 4
"""Control periods between two changes: one is lost to the step that contains both, and two are needed to judge."""
DEAD_BAND = 0.03
"""Gain in goodput, where the service runs, that is worth a change; the error of E and T together is of that size."""
DEAD_BAND_ELSEWHERE = 0.15
"""Gain at any other batch size that is worth one: rows must be right before a burst arrives, but rest on
extrapolation."""


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
    jumped: bool
    """Acceptance changed abruptly in this pass, and older evidence was dropped."""
    verdict: Verdict | None
    """On the last change, if it is on trial."""

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


def probe_when_blind(proposal: Proposal, facts: Facts) -> Proposal:
    """At K = 0 there are no drafts and so no acceptance: look again from time to time with the smallest K."""
    state, batch = facts.state, facts.seen.batch
    smallest = next((k for k in facts.config.allowed if k > 0), None)
    if proposal.settled or smallest is None or state.schedule.at(batch) > 0 or _sees_drafts(facts):
        return proposal
    since = max(state.drafts_seen_s or 0.0, state.schedule_changed_s or 0.0)
    if facts.now_s < since + PROBE_AFTER_S:
        message = f"speculation is off at this load; acceptance is probed after {PROBE_AFTER_S:.0f} s without drafts"
        return proposal.hold(state.schedule, "SpeculationOff", message)
    lookup = state.schedule.lookup(facts.config.max_batch_size)[1:]
    low, high = int(batch / 2), int(batch * 2)
    probe = schedules.from_lookup(
        [smallest if k == 0 and low <= size <= high else k for size, k in enumerate(lookup, 1)]
    )
    return proposal.to(
        probe, f"probe: acceptance not seen for {PROBE_AFTER_S:.0f} s, trying K {smallest}", settled=True
    )


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
    """While acceptance seems to jump, and in the pass that finds that it did, wait: a decision rests on one regime."""
    if proposal.settled:
        return proposal
    if facts.state.acceptance.suspicion != 0:
        message = "acceptance differs from what was seen before; the next window will tell"
        return proposal.hold(facts.state.schedule, "AcceptanceUnclear", message)
    if facts.jumped:
        return proposal.hold(
            facts.state.schedule, "AcceptanceJumped", "acceptance changed abruptly; older counts were dropped"
        )
    return proposal


def highest_goodput(proposal: Proposal, facts: Facts) -> Proposal:
    """Take the K of highest token goodput at each batch size, within the user's bounds."""
    if proposal.settled:
        return proposal
    present = proposal.schedule
    best = objective.best_schedule(facts.outlook, present, facts.config.allowed)
    if best == present:
        return proposal.say(f"{best} already yields most")
    batch = facts.seen.median_batch
    gain = objective.gain(facts.outlook, present, best)
    where = f"batch {batch}"
    if gain[min(batch, len(gain)) - 1] < DEAD_BAND:
        # Little to gain where the service runs; name the place where the change matters most.
        now, (_, batch) = batch, objective.best_band(gain)
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
                lookup[size - 1] = facts.state.schedule.at(size)
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
    rises = proposal.schedule.at(batch) > facts.state.schedule.at(batch)
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
    everything is known.
    """
    if proposal.settled:
        return proposal
    allowed = facts.config.allowed
    above = {k: next((higher for higher in allowed if higher > k), k) for k in facts.config.values}
    lookup = [
        min(wanted, above.get(present, present))
        for wanted, present in zip(
            proposal.schedule.lookup(facts.config.max_batch_size)[1:],
            facts.state.schedule.lookup(facts.config.max_batch_size)[1:],
            strict=True,
        )
    ]
    limited = schedules.from_lookup(lookup)
    if limited == proposal.schedule:
        return proposal
    return proposal.to(limited, f"rise limited to one step at a time: {limited}")


def dead_band(proposal: Proposal, facts: Facts) -> Proposal:
    """Move only for a gain that can be told from noise."""
    state = facts.state
    if proposal.settled or proposal.schedule == state.schedule:
        return proposal
    gain = objective.gain(facts.outlook, state.schedule, proposal.schedule)
    here = _weighted(gain, facts.seen)
    anywhere, batch = objective.best_band(gain)
    if here >= DEAD_BAND:
        return proposal.say(f"predicted gain {here:.0%} at the present load")
    if anywhere >= DEAD_BAND_ELSEWHERE and here >= -DEAD_BAND / 2:
        return proposal.say(f"predicted gain {anywhere:.0%} from batch {batch} on, ready for when load gets there")
    return proposal.hold(
        state.schedule, "DeadBand", f"no schedule is predicted to gain more than {DEAD_BAND:.0%} at this load"
    )


def dwell(proposal: Proposal, facts: Facts) -> Proposal:
    """Let every schedule live long enough to be judged; a probe ends as soon as it has answered."""
    changed_s, state = facts.state.schedule_changed_s, facts.state
    if proposal.settled or state.probing or proposal.schedule == state.schedule or changed_s is None:
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


def _roll_back(facts: Facts, trial: Trial) -> str:
    """Both numbers of a roll-back."""
    found = verification.compare(trial, facts.seen, facts.outlook)
    if found is None:
        return "rolled back: the change delivered less than the schedule before it"
    return (
        f"rolled back: {found.delivered:.0f} tokens/s a request after the change,"
        f" {found.expected:.0f} expected without it at batch {found.batch:.0f}"
    )


def _sees_drafts(facts: Facts) -> bool:
    return facts.seen.num_drafts >= MIN_DRAFTS / 4


def _compare(facts: Facts, old: int, new: int, batch: int) -> str:
    """Predicted TPOT of two K at one batch size."""
    old_ms, new_ms = (facts.outlook.at(schedules.constant(k, batch), batch) * 1e3 for k in (old, new))
    return f"{new_ms:.1f} ms a token predicted, {old_ms:.1f} with K {old}"


def _weighted(gain: NDArray[np.float64], window: Observation) -> float:
    """Gain averaged over the steps of the window by their batch size; over the mean batch where no steps are known."""
    batches = [(cell.mean_batch, cell.steps) for cell in window.cells] or [(window.batch, 1.0)]
    sizes = np.array([min(len(gain), max(1, round(batch))) for batch, _ in batches]) - 1
    return float(np.average(gain[sizes], weights=[steps for _, steps in batches]))
