"""One control pass for one service: learn, judge, decide, and say why.

    window, increment ─▶ learn ─▶ predict ─▶ judge the last change ─▶ guards ─▶ schedule ─▶ capacity ─▶ target

The schedule comes first and the target follows: K is spent before GPUs, and never both in the same minute, so that each
can be judged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from outrider.core import acceptance, guards, latency, objective, verification
from outrider.core import target as targets
from outrider.core.acceptance import MIN_DRAFTS, Estimate
from outrider.core.capacity import UNKNOWN, Capacity, capacity
from outrider.core.decision import Change, Hold, Proposal
from outrider.core.guards import Facts
from outrider.core.objective import Yield
from outrider.core.observation import Observation
from outrider.core.series import Missing
from outrider.core.state import HISTORY, ControllerConfig, ControllerState
from outrider.core.target import Target, largest_batch

Guard = Callable[[Proposal, Facts], Proposal]

CHAINS: dict[str, tuple[Guard, ...]] = {
    "Goodput": (
        guards.fresh_data,
        guards.last_change,
        guards.probe_when_blind,
        guards.enough_evidence,
        guards.alarm,
        guards.highest_goodput,
        guards.barred,
        guards.no_rise_under_queue,
        guards.limit_rise,
        guards.dead_band,
        guards.dwell,
    ),
    "AcceptanceThreshold": (
        guards.fresh_data,
        guards.probe_when_blind,
        guards.acceptance_threshold,
        guards.short_dwell,
    ),
}
"""The order in which each policy asks its guards; a hold ends the discussion."""

MIN_REQUESTS = 20.0
"""Finished requests that a window needs before its TPOT percentile says anything."""
INTERFERENCE_GAIN = 0.3
"""Weight of a new window in the measured interference."""
MAX_RATIO = 4.0
"""A window whose TPOT is this many times the decode steps' was an outage, not a law."""


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
    state, bounds_change = _within_bounds(config, state, now_s)
    state, jumped = _learn(state, increment)
    predicted = _predict(config, state)
    settled = not jumped and state.acceptance.suspicion == 0
    if settled and not isinstance(window, Missing) and predicted is not None:
        state = replace(state, interference_s=_interference_s(config, state, window, predicted))
    verdict = None
    if state.trial is not None:
        verdict, trial = verification.judge(state.trial, config, increment, predicted, now_s)
        state = replace(state, trial=trial)
    facts = Facts(config, state, now_s, window, predicted, jumped, verdict)
    proposal = _discuss(facts)
    if verdict in ("better", "undecided") or jumped:
        state = replace(state, trial=None)
    state, schedule_change = _move_schedule(facts, state, proposal)
    able = _capacity(config, state, window, predicted)
    target = targets.judge(config, state, able, window, now_s, settled=settled)
    state, target_change = _move_target(state, able, target, now_s)
    able = replace(able, reason=f"{able.reason}; {target.why}") if target.why else able
    moved = (bounds_change, schedule_change, target_change)
    changes = tuple(change for change in moved if change is not None)
    state = replace(state, history=(*reversed(changes), *state.history)[:HISTORY])
    return _outcome(state, proposal, able, changes, window)


def _within_bounds(
    config: ControllerConfig, state: ControllerState, now_s: float
) -> tuple[ControllerState, Change | None]:
    """Return to the initial schedule when the resource no longer allows the present one."""
    if config.frozen:
        return state, None
    fixed = config.mode in ("Fixed", "Off", "Observe") and state.schedule != config.initial
    outside = (
        not set(state.schedule.values) <= set(config.values)
        or max(state.schedule.values) < config.min_speculative_tokens
    )
    if not fixed and not outside and state.schedule.max_batch_size == config.max_batch_size:
        return state, None
    reason = f"mode {config.mode} runs the schedule of the resource" if fixed else "the resource's bounds changed"
    change = Change(now_s, "Schedule", str(state.schedule), str(config.initial), reason)
    moved = replace(
        state,
        schedule=config.initial,
        generation=state.generation + 1,
        schedule_changed_s=now_s,
        trial=None,
        probing=False,
    )
    return moved, change


def _learn(state: ControllerState, increment: Observation | Missing) -> tuple[ControllerState, bool]:
    until_s = state.learned_until_s
    if isinstance(increment, Missing) or (until_s is not None and increment.until_s <= until_s):
        return state, False
    elapsed_s = increment.until_s - (increment.since_s if until_s is None else until_s)
    accepted, jumped = acceptance.update(
        state.acceptance, increment.drafted_per_pos, increment.accepted_per_pos, elapsed_s
    )
    many = increment.num_drafts >= MIN_DRAFTS / 4
    return replace(
        state,
        acceptance=accepted,
        latency=latency.update(state.latency, increment.cells, elapsed_s),
        learned_until_s=increment.until_s,
        drafts_seen_s=increment.until_s if many else state.drafts_seen_s,
        jumped_s=increment.until_s if jumped else state.jumped_s,
    ), jumped


def _predict(config: ControllerConfig, state: ControllerState) -> Yield | None:
    model = latency.fit(state.latency, config.capture_size)
    if model is None:
        return None
    # The present schedule may hold a K that the resource has given up since: a frozen service keeps it.
    values = sorted({*config.values, *state.schedule.values, *(state.trial.before.values if state.trial else ())})
    lengths = [acceptance.acceptance_length(state.acceptance, k).value for k in values]
    return objective.predict(model, lengths, values, config.max_batch_size)


def _discuss(facts: Facts) -> Proposal:
    proposal = Proposal(facts.state.schedule)
    if facts.config.mode in ("Fixed", "Off"):
        return proposal.say(f"mode {facts.config.mode}: the schedule is the resource's")
    for guard in CHAINS[facts.config.policy]:
        proposal = guard(proposal, facts)
        if proposal.held:
            break
    return proposal


def _move_schedule(facts: Facts, state: ControllerState, proposal: Proposal) -> tuple[ControllerState, Change | None]:
    frozen = facts.config.frozen or facts.config.mode == "Observe"
    if frozen or proposal.held or proposal.schedule == state.schedule:
        return state, None
    before, after, now_s = state.schedule, proposal.schedule, facts.now_s
    rolled_back = facts.verdict == "worse"
    probing = proposal.settled and not rolled_back
    trial = None
    if not proposal.settled and facts.config.policy == "Goodput":
        trial = verification.begin(before, facts.seen, facts.outlook, now_s)
    moved = replace(
        state,
        schedule=after,
        generation=state.generation + 1,
        schedule_changed_s=now_s,
        trial=trial,
        probing=probing,
        bars=verification.bar(state, facts.seen.batch, now_s) if rolled_back else state.bars,
    )
    reason = next(
        (step for step in proposal.steps if "→" in step or step.startswith(("rolled", "probe"))), proposal.steps[-1]
    )
    return moved, Change(now_s, "Schedule", str(before), str(after), reason)


def _interference_s(
    config: ControllerConfig, state: ControllerState, window: Observation, predicted: Yield
) -> float | None:
    """Follow the measured interference, in windows under one schedule that hold enough finished requests.

    Right after a jump of acceptance the requests that finish have lived under both regimes: they tell nothing of
    either.
    """
    measured_s, in_flight = window.tpot.quantile(config.percentile), window.running / len(window.engines)
    changed_s = state.schedule_changed_s
    moved = (changed_s is not None and changed_s > window.since_s) or (
        state.jumped_s is not None and state.jumped_s > window.since_s - window.seconds
    )
    if measured_s is None or window.tpot.count < MIN_REQUESTS or moved or in_flight < 1:
        return state.interference_s
    decode_s = predicted.at(state.schedule, in_flight)
    seen_s = min(MAX_RATIO * decode_s, max(decode_s, measured_s)) - decode_s
    before_s = seen_s / in_flight if state.interference_s is None else state.interference_s
    return before_s + INTERFERENCE_GAIN * (seen_s / in_flight - before_s)


def _capacity(
    config: ControllerConfig, state: ControllerState, window: Observation | Missing, predicted: Yield | None
) -> Capacity:
    if isinstance(window, Missing) or predicted is None:
        return replace(UNKNOWN, requests_per_replica=state.target, reason="held: no measurement to base it on")
    kv_tokens = [engine.kv_cache_tokens for engine in window.engines if engine.kv_cache_tokens]
    return capacity(
        predicted.under(state.schedule),
        tpot_objective_s=config.tpot_objective_s,
        interference_s=state.interference_s or 0.0,
        measured_batch=largest_batch(state),
        kv_cache_tokens=min(kv_tokens) if kv_tokens else None,
        tokens_per_request=_tokens_per_request(window),
    )


def _tokens_per_request(window: Observation) -> float | None:
    """Mean tokens of KV cache that a running request holds."""
    held = sum((engine.kv_cache_usage or 0.0) * (engine.kv_cache_tokens or 0.0) for engine in window.engines)
    return held / window.running if held > 0 and window.running >= 1 else None


def _move_target(
    state: ControllerState, able: Capacity, target: Target, now_s: float
) -> tuple[ControllerState, Change | None]:
    if target.value == state.target:
        return state, None
    moved = replace(state, target=target.value, target_changed_s=now_s)
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
