"""The same replay in virtual time: under the operator's control law, and under every fixed K with a target set by hand.

A fixed arm gets what a careful team would give it: for its K, the load on one replica is raised with the traffic from
before the drop until the objective's percentile is missed, and nine tenths of the requests in flight that still met it
become the autoscaler's target (`outrider.core.capacity` leaves the same tenth). Engines, pods, router and autoscaler
are the same for all arms. They are ranked by tokens a second times the share of requests within the TPOT objective,
over mean replicas: the tokens of those requests cannot be told from vLLM's histograms.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from typing import Any

from demo import scenario
from demo.scenario import Scenario
from outrider.core.capacity import TOLERANCE
from outrider.replay.virtual import Rendered, VirtualOperator, render
from outrider.simulator.autoscaler import AutoscalerConfig
from outrider.simulator.fleet import Controller, Fleet, FleetConfig
from outrider.simulator.profile import load_profile
from outrider.simulator.results import FleetResult, quantile
from outrider.simulator.settings import EngineSettings

RANKED_BY = "tokens_within_objective_per_replica_second"
PROCESSES = 2
LOAD_TEST_S, WARM_UP_S = 90.0, 15.0
LOWEST_RPS, HIGHEST_RPS = 0.5, 8.0
HALVINGS = 6
"""Of the interval between lowest and highest rate: within 0.12 requests a second."""
DRAIN_S = 90.0
SCALE_DOWN_PERIOD_S = 60.0
NOTE = (
    "All arms but `outrider` are replays in virtual time of the same requests on the same simulated engines, with an"
    " autoscaler that follows the in-flight trigger alone. `outrider` is the live run, read from Prometheus and the API"
    " server. Each fixed K has the target that a careful team would set by hand: 0.9 of the requests in flight at which"
    " one replica, under the traffic before the drop, still meets the objective at its percentile. Best and worst are"
    " known only afterwards: they are ranked by tokens a second times the share of requests within the TPOT objective,"
    " over mean replicas."
)


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to run the service, and what came of it."""

    tokens_per_second: float
    tpot_attainment_percent: float
    """Share of requests whose TPOT is within the objective."""
    replica_seconds: float
    """Pods that exist, added up over the live part."""
    speculative_tokens: int | None = None
    """The K of a fixed arm."""
    target: int | None = None
    """Its requests in flight per replica."""

    def tokens_within_objective_per_replica_second(self, seconds: float) -> float:
        """What arms are ranked by: tokens a second times attainment, over mean replicas."""
        return self.tokens_per_second * self.tpot_attainment_percent / 100 * seconds / self.replica_seconds

    def as_dict(self, seconds: float) -> dict[str, Any]:
        """For the summary; fields that say nothing are left out."""
        document = {name: value for name, value in asdict(self).items() if value is not None}
        return document | {RANKED_BY: round(self.tokens_within_objective_per_replica_second(seconds), 1)}


@dataclass(frozen=True, slots=True)
class Arms:
    """All arms in virtual time."""

    outrider: Arm
    changes: list[dict[str, Any]]
    """What the control law decided there."""
    fixed: Mapping[int, Arm]
    """By K."""

    def ranked(self, seconds: float) -> list[Arm]:
        """The fixed arms, best first."""
        return sorted(self.fixed.values(), key=lambda arm: -arm.tokens_within_objective_per_replica_second(seconds))


def run_arms(manifest: Mapping[str, Any], story: Scenario, tell: Callable[[str], None]) -> Arms:
    """Replay everything, two at a time; ``tell`` hears of each arm as it is done."""
    values = _rendered(manifest).config.values
    # Spawned and not forked: the live part has left threads and open connections in this process.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, context, _ignore_interrupts) as pool:
        ours = pool.submit(virtual_outrider, manifest, story)
        fixed: dict[Future[Arm], int] = {pool.submit(fixed_arm, manifest, story, k): k for k in values}
        done: dict[int, Arm] = {}
        try:
            for number, future in enumerate(as_completed(fixed), start=1):
                done[fixed[future]] = future.result()
                tell(f"replayed with K fixed at {fixed[future]} ({number} of {len(fixed)})")
            arm, changes = ours.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return Arms(arm, changes, dict(sorted(done.items())))


def _ignore_interrupts() -> None:
    """Ctrl-C reaches every process of the terminal; the one that asked for the arms answers it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def virtual_outrider(manifest: Mapping[str, Any], story: Scenario) -> tuple[Arm, list[dict[str, Any]]]:
    """The replay under the operator's control law."""
    rendered = _rendered(manifest)
    controller = VirtualOperator(rendered.config, window_s(rendered))
    result = replay(rendered, story, rendered.settings, controller.state.target, controller)
    changes = [
        {"time_s": one.at_s, "kind": one.kind, "from": one.before, "to": one.after, "reason": one.reason}
        for one in controller.changes
    ]
    return _arm(rendered, result), changes


def fixed_arm(manifest: Mapping[str, Any], story: Scenario, num_speculative_tokens: int) -> Arm:
    """The replay with one K and the target that suits it."""
    rendered = _rendered(manifest)
    settings = rendered.with_constant(num_speculative_tokens)
    target = target_by_load_test(rendered, story, settings)
    result = replay(rendered, story, settings, target)
    return _arm(rendered, result, num_speculative_tokens, target)


def target_by_load_test(rendered: Rendered, story: Scenario, settings: EngineSettings) -> int:
    """Requests in flight at the highest rate that one replica serves within the objective, less a tenth."""
    low, high, carried = LOWEST_RPS, HIGHEST_RPS, 1.0
    for _ in range(HALVINGS):
        rate_rps = (low + high) / 2
        requests = scenario.steady(story, rate_rps, LOAD_TEST_S)
        config = FleetConfig(settings, profile(), scrape_s=scenario.SCRAPE_INTERVAL_S, seed=story.seed)
        result = Fleet(config).run(requests, LOAD_TEST_S)
        objective_s, percentile = rendered.config.tpot_objective_s, rendered.config.percentile
        tpot_s = quantile(result.tpots_s(), percentile)
        if objective_s is None or tpot_s is None or tpot_s <= objective_s:
            low = rate_rps
            seen = [one for one in result.timeline if WARM_UP_S <= one.time_s < LOAD_TEST_S]
            carried = sum(one.running + one.waiting for one in seen) / len(seen)
        else:
            high = rate_rps
    return max(1, int((1.0 - TOLERANCE) * carried))


def replay(
    rendered: Rendered, story: Scenario, settings: EngineSettings, target: float, controller: Controller | None = None
) -> FleetResult:
    """The main service's requests on a fleet that an autoscaler sizes."""
    resolved = rendered.resolved
    autoscaler = AutoscalerConfig(
        target=target,
        min_replicas=max(1, resolved.min_replicas),
        max_replicas=resolved.max_replicas,
        sync_s=scenario.KEDA_POLLING_S,
        scale_up_window_s=0.0,
        scale_down_window_s=float(rendered.look_back_s),
        scale_down_period_s=SCALE_DOWN_PERIOD_S,
    )
    config = FleetConfig(
        settings,
        profile(),
        replicas=max(1, resolved.min_replicas),
        autoscaler=autoscaler,
        scrape_s=scenario.SCRAPE_INTERVAL_S,
        control_s=scenario.CONTROL_PERIOD_S,
        window_s=window_s(rendered) + 2 * scenario.SCRAPE_INTERVAL_S,
        pod_start_s=scenario.POD_START_S,
        drain_s=DRAIN_S,
        seed=story.seed,
        namespace=scenario.NAMESPACE,
        service=scenario.SERVICE,
    )
    return Fleet(config, controller).run(story.requests(), story.seconds)


def _rendered(manifest: Mapping[str, Any]) -> Rendered:
    """What the operator of the live part makes of the resource, once it has seen a pod start."""
    seen = scenario.POD_START_S, scenario.SCALE_DOWN_STABILIZATION_S
    return render(manifest, scenario.CONTROL_PERIOD_S, *seen)


def profile() -> Any:
    """The measured card, slowed as in the live part."""
    return load_profile().slowed(scenario.DILATION)


def window_s(rendered: Rendered) -> float:
    """The window of the operator's settings: four scrapes at least, two control periods."""
    return max(4.0 * scenario.SCRAPE_INTERVAL_S, 2.0 * rendered.config.period_s)


def _arm(rendered: Rendered, result: FleetResult, k: int | None = None, target: int | None = None) -> Arm:
    objective_s = rendered.config.tpot_objective_s
    attainment = 1.0 if objective_s is None else result.tpot_attainment(objective_s)
    return Arm(
        tokens_per_second=round(result.generation_tokens / result.duration_s, 1),
        tpot_attainment_percent=round(100 * attainment, 1),
        replica_seconds=round(result.replica_seconds, 1),
        speculative_tokens=k,
        target=target,
    )
