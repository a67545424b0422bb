"""One control pass for one service: learn, judge, decide, and say why.

    window, increment ─▶ learn ─▶ predict ─▶ judge the last change ─▶ guards ─▶ schedule ─▶ capacity ─▶ target

The schedule comes first and the target follows: K is spent before GPUs, and never both in the same minute, so that each
can be judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from outrider.core import acceptance, bursts, exploration, guards, latency, learning, verification
from outrider.core import schedule as schedules
from outrider.core import target as targets
from outrider.core.acceptance import MIN_DRAFTS, Estimate
from outrider.core.capacity import UNKNOWN, Capacity, capacity, least_replicas
from outrider.core.decision import Change, Hold, Proposal
from outrider.core.guards import Facts
from outrider.core.objective import Yield
from outrider.core.observation import Observation
from outrider.core.past import nothing_ahead
from outrider.core.series import Missing
from outrider.core.state import HISTORY, ControllerConfig, ControllerState, Probe
from outrider.core.step_account import StepAccount, account
from outrider.core.target import Target, largest_batch

Guard = Callable[[Proposal, Facts], Proposal]

CHAINS: dict[str, tuple[Guard, ...]] = {
    "Goodput": (
        guards.fresh_data,
        guards.collapse,
        guards.last_change,
        exploration.probe_ended,
        exploration.probe_when_blind,
        guards.enough_evidence,
        guards.alarm,
        guards.highest_goodput,
        guards.barred,
        guards.no_rise_under_queue,
        guards.limit_rise,
        exploration.explore,
        guards.dead_band,
        guards.dwell,
    ),
    "AcceptanceThreshold": (
        guards.fresh_data,
        exploration.probe_ended,
        exploration.probe_when_blind,
        guards.acceptance_threshold,
        guards.short_dwell,
    ),
}
"""The order in which each policy asks its guards; a hold ends the discussion."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a pass decided. ``changes`` is empty when nothing moves; ``state`` is to be kept either way."""

    state: ControllerState
    proposal: Proposal
    capacity: Capacity
    changes: tuple[Change, ...] = ()
    acceptance_length: Estimate | None = None
    """At the median batch size's K; None while too few drafts were seen."""
    acceptance_rate: float | None = None
    """Accepted over drafted tokens in the window, 0 to 1; None without drafts."""
    num_speculative_tokens: int = 0
    """K at the median batch size of the window."""
    in_flight: float | None = None
    """Requests running or waiting; None without metrics."""
    account: StepAccount | None = None
    """Of the time since the last pass; None without decode steps, or before any were learnt from."""
    least_replicas: int = 0
    """One fewer would not bear the load of the last minutes: what runs up to this number stays. 0: not known."""

    @property
    def hold(self) -> Hold | None:
        """Why the schedule did not move, if a guard ended the discussion."""
        return self.proposal.held

    @property
    def reason(self) -> str:
        """The last sentence of the discussion."""
        return self.proposal.steps[-1] if self.proposal.steps else "nothing to decide"


def control(
    config: ControllerConfig,
    state: ControllerState,
    window: Observation | Missing,
    increment: Observation | Missing,
    now_s: float,
) -> Outcome:
    """Run one pass.

    ``window`` spans at least four scrapes and serves rates and latencies; ``increment`` spans the time since the last
    pass, so that every count is learnt once. In mode ``Observe`` everything is decided and nothing changes.
    """
    state, bounds_change = _within_bounds(config, nothing_ahead(state, now_s), now_s)
    since_s = state.learned_until_s
    found = _account(config, state, increment)
    state = learning.follow_load(config, state, window, increment)
    lesson = learning.learn(config, state, increment)
    state, predicted = lesson.state, lesson.predicted
    if since_s is not None and state.learned_until_s is not None:
        state = exploration.earn(state, state.learned_until_s - since_s, config.period_s)
    verdict = None
    if state.trial is not None:
        verdict, trial = verification.judge(state.trial, config, increment, predicted, now_s)
        state = replace(state, trial=trial)
    facts = Facts(config, state, now_s, window, predicted, verdict, lesson.shift)
    proposal = _discuss(facts)
    if verdict in ("better", "undecided") or facts.jumped:
        state = replace(state, trial=None)
    state, schedule_change = _move_schedule(facts, state, proposal)
    able = _capacity(config, state, window, predicted)
    settled = not facts.jumped and state.acceptance.suspicion == 0
    target = targets.judge(config, state, able, window, now_s, settled=settled)
    state, target_change = _move_target(state, able, target, now_s)
    able = replace(able, reason=f"{able.reason}; {target.why}") if target.why else able
    moved = (bounds_change, schedule_change, target_change)
    changes = tuple(change for change in moved if change is not None)
    lasting = [change for change in reversed(changes) if change.kind != "Probe"]
    state = replace(state, history=(*lasting, *state.history)[:HISTORY])
    outcome = _outcome(state, proposal, able, changes, window)
    return replace(outcome, account=found, least_replicas=_least(config, state, predicted, now_s))


def catch_up(config: ControllerConfig, state: ControllerState, increment: Observation | Missing) -> ControllerState:
    """Take in what happened while the last decision stood, before `control` is given what moved since.

    In one increment a collapse of one period would drown in the quiet ones before it, and be seen a period late.
    """
    since_s = state.learned_until_s
    state = learning.follow_load(config, state, increment, increment)
    state = learning.learn(config, state, increment).state
    if since_s is not None and state.learned_until_s is not None:
        state = exploration.earn(state, state.learned_until_s - since_s, config.period_s)
    return state


def _account(config: ControllerConfig, state: ControllerState, increment: Observation | Missing) -> StepAccount | None:
    """By the model of the pass before: what this one learns is no prediction any more."""
    model = None if state.fitted is None else state.fitted.model
    if model is None or isinstance(increment, Missing):
        return None
    return account(model, increment, drafter=config.values != (0,))


def _within_bounds(
    config: ControllerConfig, state: ControllerState, now_s: float
) -> tuple[ControllerState, Change | None]:
    """Leave what the resource no longer allows: for its least K at batch sizes with less, else for the initial
    schedule."""
    if config.frozen:
        return state, None
    present, least = state.schedule, min(config.allowed, default=0)
    fixed = config.mode in ("Fixed", "Off", "Observe") and present != config.initial
    if fixed or not set(present.values) <= set(config.values) or present.max_batch_size != config.max_batch_size:
        allowed = config.initial
    elif min(present.values) < least:
        allowed = schedules.from_lookup([max(k, least) for k in present.lookup(config.max_batch_size)[1:]])
    else:
        return state, None
    reason = f"mode {config.mode} runs the schedule of the resource" if fixed else "the resource's bounds changed"
    change = Change(now_s, "Schedule", str(present), str(allowed), reason)
    moved = replace(
        state,
        schedule=allowed,
        generation=state.generation + 1,
        schedule_changed_s=now_s,
        trial=None,
        probe=None,
    )
    return moved, change


def _discuss(facts: Facts) -> Proposal:
    proposal = Proposal(facts.present)
    if facts.config.mode in ("Fixed", "Off"):
        return proposal.say(f"mode {facts.config.mode}: the schedule is the resource's")
    for guard in CHAINS[facts.config.policy]:
        proposal = guard(proposal, facts)
        if proposal.held:
            break
    return proposal


def _move_schedule(facts: Facts, state: ControllerState, proposal: Proposal) -> tuple[ControllerState, Change | None]:
    frozen = facts.config.frozen or facts.config.mode == "Observe"
    confirmed = state.probe is not None and proposal.schedule != state.probe.before
    if frozen or proposal.held or (proposal.schedule == state.schedule and not confirmed):
        return state, None
    before, after, now_s = state.schedule, proposal.schedule, facts.now_s
    # A look and the way back from it leave the time of the last change as it is: nothing that lasts has changed.
    moved = replace(state, schedule=after, generation=state.generation + 1, trial=None, probe=None)
    reason = _main_sentence(proposal)
    if proposal.probing:
        credit_s = state.credit_s
        if facts.predicted is not None:
            credit_s = max(0.0, credit_s - exploration.cost_s(facts, after.at(facts.size), facts.size))
        moved = replace(moved, probe=Probe(before, now_s), probed_s=now_s, credit_s=credit_s)
        return moved, Change(now_s, "Probe", str(before), str(after), reason)
    if state.probe is not None and after == state.probe.before:
        return moved, Change(now_s, "Probe", str(before), str(after), reason)
    if facts.verdict == "worse":
        moved = replace(moved, bars=verification.bar(state, facts.seen.batch, now_s))
    elif not proposal.settled and not facts.settling and facts.config.policy == "Goodput":
        moved = replace(moved, trial=verification.begin(facts.present, facts.seen, facts.outlook, now_s))
    return replace(moved, schedule_changed_s=now_s), Change(now_s, "Schedule", str(facts.present), str(after), reason)


def _main_sentence(proposal: Proposal) -> str:
    """The one of the discussion's sentences that tells what moves."""
    final = (step for step in proposal.steps if step.startswith(("rolled", "probe")))
    moved = (step for step in proposal.steps if "→" in step)
    return next(final, None) or next(moved, proposal.steps[-1])


def _capacity(
    config: ControllerConfig, state: ControllerState, window: Observation | Missing, predicted: Yield | None
) -> Capacity:
    if isinstance(window, Missing) or predicted is None:
        return replace(UNKNOWN, requests_per_replica=state.target, reason="held: no measurement to base it on")
    kv_tokens = [engine.kv_cache_tokens for engine in window.engines if engine.kv_cache_tokens]
    sizes = np.arange(1, predicted.max_batch_size + 1)
    decode_s = predicted.under(state.schedule if state.probe is None else state.probe.before)
    return capacity(
        latency.percentile_tpot_s(state.latency, decode_s, sizes, predicted.prefill_s),
        tpot_objective_s=config.tpot_objective_s,
        measured_batch=largest_batch(state),
        kv_cache_tokens=min(kv_tokens) if kv_tokens else None,
        tokens_per_request=learning.tokens_per_request(window),
        ttft_objective_s=config.ttft_objective_s,
        first_token=state.first_token,
        rise=state.bursts.rise(max(0.0, NormalDist().inv_cdf(config.percentile))),
    )


def _least(config: ControllerConfig, state: ControllerState, predicted: Yield | None, now_s: float) -> int:
    """Replicas below which the load of the last minutes would not be borne with the target on each; 0: not known."""
    if predicted is None or bursts.outdated(state.bursts, now_s, config.lead_s):
        return 0
    sizes = np.arange(1, predicted.max_batch_size + 1)
    tpot_s = predicted.under(state.schedule if state.probe is None else state.probe.before)
    return least_replicas(
        state.bursts.recent.load_tps,
        tpot_s + (sizes - 1) * predicted.prefill_s,
        state.target,
        measured_batch=largest_batch(state),
    )


def _move_target(
    state: ControllerState, able: Capacity, target: Target, now_s: float
) -> tuple[ControllerState, Change | None]:
    if target.value == state.target:
        return state, None
    fell_s = now_s if target.value < state.target else state.target_fell_s
    moved = replace(state, target=target.value, target_changed_s=now_s, target_fell_s=fell_s)
    reason = f"{able.limited_by}: {able.reason}; {target.why}"
    return moved, Change(now_s, "Target", str(state.target), str(target.value), reason)


def _outcome(
    state: ControllerState,
    proposal: Proposal,
    able: Capacity,
    changes: tuple[Change, ...],
    window: Observation | Missing,
) -> Outcome:
    if isinstance(window, Missing):
        k = state.schedule.at(1)
        return Outcome(state, proposal, able, changes, num_speculative_tokens=k)
    k = state.schedule.at(window.median_batch)
    drafted = sum(window.drafted_per_pos)
    seen = state.acceptance.drafts >= MIN_DRAFTS
    return Outcome(
        state,
        proposal,
        able,
        changes,
        acceptance_length=acceptance.acceptance_length(state.acceptance, k) if seen else None,
        acceptance_rate=sum(window.accepted_per_pos) / drafted if drafted > 0 else None,
        num_speculative_tokens=k,
        in_flight=window.in_flight,
    )
