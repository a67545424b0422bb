"""One case under one arm with one setting, in virtual time: attainment, replica-hours, moves of replicas and target."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path

from benchmarks.capacity.cases import STATED_S, WARM_UP_S, Case, Extent
from benchmarks.capacity.oracle import Known, plan
from outrider.replay import policies
from outrider.replay.experiment import CONTROL_S, DRAIN_S, SCRAPE_S, WINDOW_S, autoscaler_config
from outrider.replay.summary import is_good
from outrider.replay.virtual import Rendered, VirtualOperator, read_manifest, render
from outrider.simulator.autoscaler import AutoscalerConfig, Plan, Signal
from outrider.simulator.fleet import Controller, Fleet, FleetConfig
from outrider.simulator.noise import MODEST
from outrider.simulator.profile import Profile, load_profile
from outrider.simulator.request import Request, RequestRecord
from outrider.simulator.results import FleetResult, FleetSample
from outrider.simulator.workload import Phase, fitted

MANIFEST = Path(__file__).parent / "service.yaml"
SIGNALS: Mapping[str, Signal] = {
    "in-flight": "in-flight",
    "queue-10": "waiting",
    "kv-80": "kv-cache",
    "request-rate": "requests",
    "tokens": "tokens",
}
ONE_SETTING: Mapping[str, float] = {"queue-10": 10.0, "kv-80": 80.0}
"""Baselines that come with their target."""
ARMS: Mapping[str, str] = {
    "in-flight": "requests running or waiting, a fixed target a replica",
    "queue-10": "requests waiting, target 10 a replica",
    "kv-80": "use of the KV cache, target 80 %",
    "request-rate": "requests a second at the gateway over the last minute, a fixed target a replica",
    "tokens": "output tokens a second over the last minute, a fixed target a replica",
    "oracle": "replicas by the true law for the load to come, a cold start ahead; the best K by the true times",
    "outrider": "the ScaledObject as rendered (in flight, waiting, KV cache), its target kept by Outrider",
}
BASELINES = tuple(SIGNALS)
EVERYWHERE = ("outrider", "in-flight")
"""Played at every cold start, the thriftiest setting left out; the others at `STATED_S` alone."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of it after the warm-up. Shares are 0 to 1 of the requests that arrived then."""

    case: str
    group: str
    arm: str
    setting: float
    """The target, for the oracle the share of its law's capacity; 0 for Outrider, which sets its own."""
    cold_start_s: float
    seed: int
    tpot_ms: int
    """The objective."""
    replica_hours: float
    misses: float
    """Requests that missed TPOT or TTFT, or were not answered."""
    late: float
    """Those that missed TTFT, or were not answered."""
    starting: float
    """Those that missed, and arrived while a replica was starting."""
    missed: frozenset[str]
    """Ids of the requests that missed."""
    num_requests: int
    most_replicas: int
    reversals: int
    """Moves of the number of replicas against the direction of the move before."""
    patches: int
    """Changes of the target."""
    hours: float
    """How long was measured."""
    replicas: tuple[tuple[float, int, float], ...]
    """Seconds after the warm-up, replicas and target by minute."""


def replays(extent: Extent) -> Iterator[partial[Replay]]:
    """All of them, the longest first, to be called."""
    for case in sorted(extent.cases, key=lambda one: -one.source.duration_s * one.slowed):
        for cold_start_s in (STATED_S,) if case.group == "constant" else extent.cold_starts_s:
            for seed in range(extent.seeds):
                for arm, settings in _arms(case, cold_start_s).items():
                    for setting in settings:
                        yield partial(play, case, arm, setting, cold_start_s, seed)


def _arms(case: Case, cold_start_s: float) -> Mapping[str, Sequence[float]]:
    if case.group == "constant":
        return {"outrider": (0.0,)}
    played = {"outrider": (0.0,), **{name: (target,) for name, target in ONE_SETTING.items()}, **case.settings}
    if cold_start_s == STATED_S:
        return played
    return {arm: played[arm][:-1] if len(played[arm]) > 1 else played[arm] for arm in EVERYWHERE}


@cache
def service(tpot_ms: int, cold_start_s: float) -> Rendered:
    """The service with a TPOT objective, rendered once a process; its operator has seen a pod start."""
    manifest = read_manifest(MANIFEST)
    manifest["spec"]["objectives"]["tpotMilliseconds"] = tpot_ms
    return render(manifest, CONTROL_S, cold_start_s)


@cache
def card(slowed: float) -> Profile:
    """The measured card, so many times slower."""
    return load_profile().slowed(slowed)


def play(case: Case, arm: str, setting: float, cold_start_s: float, seed: int) -> Replay:
    """Replay a case."""
    rendered, profile = service(case.tpot_ms, cold_start_s), card(case.slowed)
    requests = list(fitted(case.source.requests(seed), rendered.settings.max_model_len))
    known = Known(profile, rendered.settings, rendered.config.allowed)
    bounds = (max(1, rendered.resolved.min_replicas), rendered.resolved.max_replicas)
    assert rendered.resolved.tpot_s is not None

    def planned(share: float) -> Plan:
        acceptance, tpot_s = partial(_acceptance_at, case.source.phases), rendered.resolved.tpot_s
        assert tpot_s is not None
        return plan(requests, known, acceptance, tpot_s, share, cold_start_s, bounds)

    controller, scaler = _steered(case, arm, setting, rendered, profile)
    fleet = Fleet(
        FleetConfig(
            rendered.settings, profile, replicas=planned(START_SHARE).at(0.0), autoscaler=scaler or planned(setting),
            scrape_s=SCRAPE_S, control_s=CONTROL_S, window_s=WINDOW_S + 2 * SCRAPE_S, pod_start_s=cold_start_s,
            drain_s=DRAIN_S, noise=MODEST, seed=seed,
        ),
        controller,
    )  # fmt: skip
    result = fleet.run(requests, case.source.duration_s)
    assert rendered.resolved.ttft_s is not None
    return _told(case, arm, setting, cold_start_s, seed, requests, result, rendered)


START_SHARE = 0.8
"""All arms start with the replicas of this plan."""


def _acceptance_at(phases: Sequence[Phase], time_s: float) -> tuple[float, ...]:
    return phases[bisect_right([phase.from_s for phase in phases], time_s) - 1].acceptance


def _steered(
    case: Case, arm: str, setting: float, rendered: Rendered, profile: Profile
) -> tuple[Controller, AutoscalerConfig | None]:
    """Who sets the schedule, and the autoscaler; None: a plan instead.

    Baselines get Outrider's schedules: arms differ by replicas alone.
    """
    if arm == "oracle":
        acceptance = partial(_acceptance_at, case.source.phases)
        controller = policies.arm("oracle", rendered, profile, acceptance, window_s=WINDOW_S).controller
        assert controller is not None
        return controller, None
    operator = VirtualOperator(rendered.config, WINDOW_S)
    ours = autoscaler_config(rendered, float(operator.state.target))
    if arm == "outrider":
        return operator, ours
    fixed = replace(ours, target=setting, signal=SIGNALS[arm], waiting_target=None, kv_cache_target=None)
    return policies.ScheduleOnly(operator), fixed


def _told(
    case: Case,
    arm: str,
    setting: float,
    cold_start_s: float,
    seed: int,
    requests: Sequence[Request],
    result: FleetResult,
    rendered: Rendered,
) -> Replay:
    resolved, end_s = rendered.resolved, case.source.duration_s
    timeline = [sample for sample in result.timeline if WARM_UP_S <= sample.time_s <= end_s]
    records = {one.request.id: one for one in result.records}
    counted = [one for one in requests if one.arrival_s >= WARM_UP_S]
    missed = [one for one in counted if not _good(records.get(one.id), resolved.tpot_s, resolved.ttft_s)]
    late = [one for one in missed if not _good(records.get(one.id), None, resolved.ttft_s)]
    times = [sample.time_s for sample in timeline]
    starting = [one for one in missed if _starting(timeline, times, one.arrival_s)]
    return Replay(
        case.name, case.group, arm, setting, cold_start_s, seed, case.tpot_ms,
        replica_hours=(timeline[-1].replica_seconds - timeline[0].replica_seconds) / 3600.0,
        misses=len(missed) / len(counted),
        late=len(late) / len(counted),
        starting=len(starting) / len(counted),
        missed=frozenset(one.id for one in missed),
        num_requests=len(counted),
        most_replicas=max(sample.replicas for sample in timeline),
        reversals=reversals([sample.replicas for sample in timeline]),
        patches=sum(a.in_flight_target != b.in_flight_target for a, b in pairwise(timeline)),
        hours=(timeline[-1].time_s - timeline[0].time_s) / 3600.0,
        replicas=tuple(
            (sample.time_s - WARM_UP_S, sample.replicas, sample.in_flight_target or 0.0)
            for sample in timeline[:: int(60.0 / SCRAPE_S)]
        ),
    )  # fmt: skip


def _good(record: RequestRecord | None, tpot_s: float | None, ttft_s: float | None) -> bool:
    return record is not None and is_good(record, tpot_s, ttft_s)


def _starting(timeline: Sequence[FleetSample], times: Sequence[float], arrival_s: float) -> bool:
    """Whether the scrape after an arrival saw more replicas than ready ones."""
    sample = timeline[min(bisect_right(times, arrival_s), len(timeline) - 1)]
    return sample.replicas > sample.ready


def reversals(replicas: Sequence[int]) -> int:
    """How often a number turns: moves against the direction of the move before.

    >>> reversals([3, 4, 5, 5, 4, 4, 5])
    2
    """
    moves = [after - before for before, after in pairwise(replicas) if after != before]
    return sum((one > 0) != (other > 0) for one, other in pairwise(moves))
