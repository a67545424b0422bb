"""Looks at K that nobody has seen lately, on a budget.

What a K yields is known where it ran and predicted elsewhere. A prediction whose error could hide a gain is worth a
short look: one control period with that K around the present batch size, then back, unless it proved better. Step times
are counted by K, so even a period that contains both schedules answers. What looks may cost is bounded: one part in a
hundred of the goodput, and nothing while objectives are missed or requests wait.
"""

from __future__ import annotations

from dataclasses import replace
from math import hypot

from outrider.core import schedule as schedules
from outrider.core.acceptance import MIN_DRAFTS
from outrider.core.decision import Proposal
from outrider.core.guards import DEAD_BAND, DOUBT, Facts, worth
from outrider.core.schedule import Schedule
from outrider.core.state import START_CREDIT_S, ControllerState
from outrider.core.target import strained

PROBE_AFTER_S = 300.0
"""Acceptance unseen for this long is looked up again: at K = 0 nothing else could ever lead back."""
BUDGET = 0.01
"""Share of goodput that probes may cost."""
USUAL_PERIOD_S = 15.0
"""A probe of a longer control period costs more, and the credit may then add up to more."""
HOPE = 1.0
"""Standard errors by which a K may be better than predicted and still be worth a look."""
KNOWN = 0.035
"""Below this relative error a K was seen well enough at a load, and a look would tell nothing new."""
BAND = 1.5
"""A probe covers batch sizes from the present one over this to so many times it."""
LOOK_S = 12.0
"""A probe lasts at least so long, whatever the control period: a shorter one is mostly noise."""
REST_S = 60.0
"""From the begin of one probe to that of the next, but after a jump: a service that is looked at all the time has no
schedule."""
LOOKS_LATER = "a look at it waits for its budget"
MAX_PERIODS = 4
"""A probe that has not answered by then goes back."""


def earn(state: ControllerState, elapsed_s: float, period_s: float) -> ControllerState:
    """Add what probes may cost for the time that passed; after a jump of acceptance a service is as good as new."""
    most_s = START_CREDIT_S * max(1.0, period_s / USUAL_PERIOD_S)
    if state.acceptance.jumped:
        return replace(state, credit_s=most_s)
    return replace(state, credit_s=min(most_s, state.credit_s + BUDGET * max(0.0, elapsed_s)))


def probe_when_blind(proposal: Proposal, facts: Facts) -> Proposal:
    """At K = 0 there are no drafts and so no acceptance: look again from time to time with the smallest K."""
    state, batch = facts.state, facts.seen.batch
    smallest = next((k for k in facts.config.allowed if k > 0), None)
    if proposal.settled or smallest is None or state.schedule.at(batch) > 0 or facts.seen.num_drafts >= MIN_DRAFTS / 4:
        return proposal
    seen_s = state.drafts_seen_s
    moments_s = [at_s for at_s in (seen_s, state.schedule_changed_s, state.probed_s) if at_s is not None]
    if seen_s is not None and facts.now_s < max(moments_s) + PROBE_AFTER_S:
        message = f"speculation is off at this load; acceptance is probed after {PROBE_AFTER_S:.0f} s without drafts"
        return proposal.hold(state.schedule, "SpeculationOff", message)
    lookup = state.schedule.lookup(facts.config.max_batch_size)[1:]
    low, high = int(batch / 2), int(batch * 2)
    probe = schedules.from_lookup(
        [smallest if k == 0 and low <= size <= high else k for size, k in enumerate(lookup, 1)]
    )
    why = "never seen" if seen_s is None else f"not seen for {PROBE_AFTER_S:.0f} s"
    return proposal.probe(probe, f"probe: acceptance {why}, trying K {smallest}")


def probe_ended(proposal: Proposal, facts: Facts) -> Proposal:
    """A probe takes its time, and one that could not answer in it goes back."""
    probe = facts.state.probe
    if proposal.settled or probe is None:
        return proposal
    if facts.now_s < probe.at_s + LOOK_S:
        return proposal.hold(facts.state.schedule, "Probing", "a look at another K is under way")
    if facts.now_s < probe.at_s + max(LOOK_S, MAX_PERIODS * facts.config.period_s):
        return proposal
    return proposal.to(probe.before, "probe ended: it saw too little to answer", settled=True)


def explore(proposal: Proposal, facts: Facts) -> Proposal:
    """Where nothing better is known, look at the K that may be better than predicted, if the budget allows it."""
    state = facts.state
    rested = facts.settling or state.probed_s is None or facts.now_s >= state.probed_s + REST_S
    if proposal.settled or not rested or state.probe is not None or strained(facts.config, facts.seen):
        return proposal
    if proposal.schedule != facts.present and worth(facts, proposal.schedule) is not None:
        return proposal
    batch = facts.size
    hopeful = [(hope, k) for k in _within_reach(facts, batch) if (hope := _hope(facts, k, batch)) is not None]
    if not hopeful:
        return proposal
    hope, k = max(hopeful)
    if cost_s(facts, k, batch) > state.credit_s:
        return proposal.say(f"K {k} may be better here; {LOOKS_LATER}")
    present = facts.present.at(batch)
    return proposal.probe(
        _with_band(facts.present, facts.config.max_batch_size, batch, k),
        f"probe: at batch {batch} K {k} may yield up to {hope:.0%} more than K {present}; looking for"
        f" {max(LOOK_S, facts.config.period_s):.0f} s",
    )


def cost_s(facts: Facts, num_speculative_tokens: int, batch: int) -> float:
    """Seconds of goodput that a probe costs if the K is as much worse than predicted as may well be."""
    present = facts.present.at(batch)
    ratio = _ratio(facts, num_speculative_tokens, batch)
    error = facts.outlook.error_between(num_speculative_tokens, present, batch)
    return max(LOOK_S, facts.config.period_s) * max(0.0, 1.0 - ratio + error)


def _within_reach(facts: Facts, batch: int) -> list[int]:
    """All K below the present one, and the next above it: positions beyond were never drafted."""
    present = facts.present.at(batch)
    barred = {
        bar.num_speculative_tokens
        for bar in facts.state.bars
        if bar.until_s > facts.now_s and bar.first <= batch <= bar.last
    }
    above = next((k for k in facts.config.allowed if k > present), present)
    return [k for k in facts.config.allowed if 0 < k <= above and k != present and k not in barred]


def _hope(facts: Facts, num_speculative_tokens: int, batch: int) -> float | None:
    """The gain that a K may bring if the prediction errs in its favour; None where a look is not worth it.

    A look tells how long steps take, and how far drafts longer than the present ones are accepted.
    """
    outlook, present = facts.outlook, facts.present.at(batch)
    index = outlook.values.index(num_speculative_tokens)
    of_time = float(outlook.time_error[index, batch - 1])
    longer = num_speculative_tokens > present
    of_length = float(outlook.length_error[index] - outlook.length_error[outlook.values.index(present)])
    if of_time < KNOWN and not (longer and of_length > KNOWN):
        return None
    error = hypot(of_time, of_length) if longer else of_time
    hope = _ratio(facts, num_speculative_tokens, batch) * (1.0 + HOPE * error) - 1.0
    # After the look both are known this well, and a smaller gain would still drown in the errors: nothing would follow.
    known = hypot(KNOWN, float(outlook.time_error[outlook.values.index(present), batch - 1]))
    return hope if hope >= max(DEAD_BAND, DOUBT * known) else None


def _ratio(facts: Facts, num_speculative_tokens: int, batch: int) -> float:
    """Predicted goodput over that of the present K."""
    row = facts.outlook.row
    return float(row(facts.present.at(batch))[batch - 1] / row(num_speculative_tokens)[batch - 1])


def _with_band(schedule: Schedule, max_batch_size: int, batch: int, k: int) -> Schedule:
    lookup = schedule.lookup(max_batch_size)[1:]
    return schedules.from_lookup(
        [k if batch / BAND <= size <= batch * BAND else old for size, old in enumerate(lookup, 1)]
    )
