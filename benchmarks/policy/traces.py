"""Fleets that scale under recorded load: what share of requests misses its objectives, at equal replica-hours.

Outrider sets the autoscaler's target itself. A baseline knows none, so it is played with several fixed ones, from
careful to thrifty; between them its misses are read off at the replica-hours that Outrider took.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

from benchmarks.frontier import Frontier, floored
from benchmarks.policy.cases import BAD, CEILING, GOOD, MANIFEST
from outrider.replay import policies
from outrider.replay.experiment import CONTROL_S, DRAIN_S, SCRAPE_S, WINDOW_S, autoscaler_config
from outrider.replay.virtual import Rendered, VirtualOperator, read_manifest, render
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.noise import MODEST
from outrider.simulator.profile import load_profile
from outrider.simulator.traces import trace
from outrider.simulator.workload import Phase, fitted, geometric, with_phases

BASELINES = ("no-drafter", "k1", "k2", "k3", "k5", "vllm-table", "acceptance-threshold", "smartspec", "ema")


@dataclass(frozen=True, slots=True)
class TraceCase:
    """A stretch of a trace with a step of acceptance in its middle."""

    trace: str
    rate_factor: float
    offset_s: float
    """Where its busiest stretch begins, in the trace's own time."""
    tpot_ms: int
    """The objective; long prompts hold up the steps of others, so one that every trace can meet would bind nowhere."""
    before: float
    after: float
    """Conditional acceptance up to the middle, and from there on."""
    targets: tuple[int, ...]
    """In-flight requests a replica that the baselines' autoscalers are given."""


TRACES = (
    TraceCase("azure-conversation", 2.0, 600.0, 15, GOOD, BAD, (8, 16, 28, 48)),
    TraceCase("azure-code", 1.0, 0.0, 50, BAD, GOOD, (2, 4, 8, 16, 32)),
    TraceCase("mooncake-conversation", 0.4, 2280.0, 40, GOOD, BAD, (2, 4, 8, 16, 32)),
    TraceCase("servegen-small", 0.02, 40_200.0, 15, BAD, GOOD, (8, 16, 28, 48)),
)


@dataclass(frozen=True, slots=True)
class TraceExtent:
    """How much of the traces is played."""

    traces: tuple[TraceCase, ...]
    duration_s: float
    seeds: int


FULL = TraceExtent(TRACES, 1200.0, 1)
QUICK = TraceExtent((TRACES[1],), 240.0, 1)


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of one arm with one target on one trace."""

    trace: str
    arm: str
    seed: int
    target: float
    """At the end; only Outrider's moves."""
    replica_hours: float
    misses: float
    """Share of the requests that missed TPOT or TTFT, or were not answered, 0 to 1."""
    num_requests: int
    most_replicas: int


def replays(extent: TraceExtent) -> Iterator[partial[Replay]]:
    """All of them, to be called."""
    for seed in range(extent.seeds):
        for case in extent.traces:
            yield partial(play, case, "outrider", None, seed, extent.duration_s)
            for arm in BASELINES:
                for target in case.targets:
                    yield partial(play, case, arm, target, seed, extent.duration_s)


@cache
def service(tpot_ms: int) -> Rendered:
    """The service of the benchmark with another TPOT objective, rendered once a process."""
    manifest = read_manifest(MANIFEST)
    manifest["spec"]["objectives"]["tpotMilliseconds"] = tpot_ms
    return render(manifest, CONTROL_S)


def play(case: TraceCase, name: str, target: int | None, seed: int, duration_s: float) -> Replay:
    """An autoscaled fleet through the trace; without a ``target`` the arm must set its own."""
    rendered, card = service(case.tpot_ms), load_profile()
    resolved = rendered.resolved
    phases = [Phase(at_s, geometric(one, CEILING)) for at_s, one in ((0.0, case.before), (duration_s / 2, case.after))]
    arm = policies.arm(
        name, rendered, card, lambda now_s: phases[now_s >= phases[1].from_s].acceptance, window_s=WINDOW_S
    )
    if target is None:
        assert isinstance(arm.controller, VirtualOperator)
        target = arm.controller.state.target
    recorded = trace(case.trace).requests(duration_s, rate_factor=case.rate_factor, offset_s=case.offset_s, seed=seed)
    autoscaler = autoscaler_config(rendered, float(target))
    fleet = Fleet(
        FleetConfig(
            arm.settings, card, replicas=resolved.min_replicas, autoscaler=autoscaler, scrape_s=SCRAPE_S,
            control_s=CONTROL_S, window_s=WINDOW_S + 2 * SCRAPE_S, drain_s=DRAIN_S, noise=MODEST, seed=seed,
        ),
        arm.controller,
    )  # fmt: skip
    result = fleet.run(with_phases(fitted(recorded, arm.settings.max_model_len), phases), duration_s)
    assert resolved.tpot_s is not None
    assert resolved.ttft_s is not None
    return Replay(
        case.trace, name, seed, result.timeline[-1].in_flight_target or 0.0, result.replica_seconds / 3600.0,
        1.0 - result.slo_attainment(tpot_s=resolved.tpot_s, ttft_s=resolved.ttft_s), result.num_arrived,
        max(sample.replicas for sample in result.timeline),
    )  # fmt: skip


class Frontiers:
    """The replays by trace, and what baselines miss at Outrider's replica-hours."""

    def __init__(self, found: Sequence[Replay]) -> None:
        self._found = tuple(found)
        self.traces = tuple(dict.fromkeys(one.trace for one in found))

    def seeds(self, name: str) -> list[int]:
        """Seeds that a trace was played with."""
        return sorted({one.seed for one in self._found if one.trace == name})

    def outrider(self, name: str, seed: int) -> Replay:
        """Outrider's one replay."""
        return self._of(name, "outrider", seed)[0]

    def baseline(self, name: str, arm: str, seed: int) -> list[Replay]:
        """A baseline's replays, those that took fewest replica-hours first."""
        return sorted(self._of(name, arm, seed), key=lambda one: one.replica_hours)

    def misses(self, name: str, arm: str, seed: int) -> float:
        """A baseline's share of misses at Outrider's replica-hours."""
        return self._frontier(name, arm, seed).misses_at(self.outrider(name, seed).replica_hours)

    def within(self, name: str, arm: str, seed: int) -> bool:
        """Whether the baseline's targets span Outrider's replica-hours."""
        return self._frontier(name, arm, seed).spans(self.outrider(name, seed).replica_hours)

    def best(self, name: str, seed: int) -> str:
        """The baseline that misses least there."""
        return min(BASELINES, key=lambda arm: self.misses(name, arm, seed))

    def ratio(self, name: str, seed: int) -> float:
        """Outrider's misses over that baseline's."""
        return _floored(self.outrider(name, seed)) / self.misses(name, self.best(name, seed), seed)

    def _frontier(self, name: str, arm: str, seed: int) -> Frontier:
        return Frontier.of([(one.replica_hours, _floored(one)) for one in self._of(name, arm, seed)])

    def _of(self, name: str, arm: str, seed: int) -> list[Replay]:
        return [one for one in self._found if (one.trace, one.arm, one.seed) == (name, arm, seed)]


def _floored(one: Replay) -> float:
    return floored(one.misses, one.num_requests)
