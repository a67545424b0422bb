"""One service under one policy in virtual time: the fleet that is built, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from outrider.core.decision import Change
from outrider.core.words import count
from outrider.manifests.scaled_object import waiting_target
from outrider.replay import policies
from outrider.replay.load import AcceptanceClass, Load
from outrider.replay.targets import hand_set_target
from outrider.replay.virtual import Rendered, VirtualOperator, render
from outrider.simulator.autoscaler import AutoscalerConfig
from outrider.simulator.fleet import Controller, Fleet, FleetConfig
from outrider.simulator.noise import MODEST
from outrider.simulator.profile import Profile, load_profile
from outrider.simulator.request import Request
from outrider.simulator.results import FleetResult

SCRAPE_S, CONTROL_S = 5.0, 15.0
"""The operator's defaults."""
WINDOW_S = 30.0
"""What they make of the window that decisions look at: two control periods, more than four scrapes."""
DRAIN_S = 90.0  # what the operator's pods get by default: they stop taking requests, then finish theirs

COLD_START_S = 60.0
"""From a pod's creation to its readiness where nobody says: weights and graphs in warm caches."""

DEFAULT_ACCEPTANCE = (AcceptanceClass("all", 1.0, load_profile().acceptance),)
"""What the drafter of the profile reached when it was measured."""

Tell = Callable[[float], None]
"""Hears the share of a run that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Experiment:
    """A resource, its load and its surroundings: everything but the policy."""

    manifest: Mapping[str, Any]
    load: Load
    replicas: int | None = 1
    """None: the resource's autoscaler sets their number."""
    cold_start_s: float = COLD_START_S
    """From a pod's creation to its readiness."""
    max_replicas: int | None = None
    """Instead of the resource's bound."""
    gpus: int | None = None
    """How many there are for this service; None: enough."""

    def render(self) -> Rendered:
        """The resource as the operator understands it; raises `outrider.errors.InvalidSpec`."""
        return render(self.manifest, CONTROL_S, self.cold_start_s)

    def bounds(self, rendered: Rendered) -> tuple[int, int]:
        """The fewest and the most replicas of the autoscaler: replicas without GPUs would stay Pending.

        Raises:
            ValueError: the most is below the fewest; the text names the option and what to give instead.
        """
        resolved = rendered.resolved
        least = max(1, resolved.min_replicas)
        most = resolved.max_replicas if self.max_replicas is None else self.max_replicas
        if most < least:
            raise ValueError(f"--max-replicas {most}: the resource asks for at least {least}; give {least} or more")
        if self.gpus is not None and self.gpus < least * resolved.gpus:
            raise ValueError(
                f"--gpus {self.gpus}: a replica takes {resolved.gpus}, and the resource asks for at least"
                f" {count(least, 'replica')}; give {least * resolved.gpus} or more"
            )
        return least, most if self.gpus is None else min(most, self.gpus // resolved.gpus)


@dataclass(frozen=True, slots=True)
class Run:
    """One policy's replay."""

    policy: str
    result: FleetResult
    decisions: tuple[Change, ...]
    """What an Outrider controller decided, in order; other rules give no reasons."""
    max_replicas: int | None = None
    """The autoscaler's bound; None without one."""


def run(experiment: Experiment, policy: str, tell: Tell) -> Run:
    """Replay the load under one policy of `policies.POLICIES`."""
    rendered, load = experiment.render(), experiment.load
    fleet = built(experiment, rendered, policy)
    most = None if fleet.scaler is None else fleet.scaler.most
    fleet.run(told(experiment, rendered, tell), load.duration_s)
    tell(1.0)
    return done(fleet, policy, most)


def built(experiment: Experiment, rendered: Rendered, policy: str) -> Fleet:
    """The fleet of a policy, which has done nothing yet."""
    profile, load = load_profile(), experiment.load
    arm = policies.arm(policy, rendered, profile, load.acceptance_at, window_s=WINDOW_S)
    autoscaler = None
    if experiment.replicas is None:
        if isinstance(arm.controller, VirtualOperator):
            target = arm.controller.state.target
        else:
            target = hand_set_target(rendered, arm.settings, profile, load)
        least, most = experiment.bounds(rendered)
        autoscaler = replace(autoscaler_config(rendered, target), min_replicas=least, max_replicas=most)
    return Fleet(_fleet(experiment, rendered, arm, profile, autoscaler), arm.controller)


def done(fleet: Fleet, policy: str, most: int | None) -> Run:
    """What came of a fleet whose replay is over; ``most`` is the autoscaler's bound."""
    assert fleet.result is not None
    return Run(policy, fleet.result, _decisions(fleet.controller), most)


def _fleet(
    experiment: Experiment,
    rendered: Rendered,
    arm: policies.Arm,
    profile: Profile,
    autoscaler: AutoscalerConfig | None,
) -> FleetConfig:
    metadata = experiment.manifest["metadata"]
    return FleetConfig(
        arm.settings,
        profile,
        replicas=max(1, rendered.resolved.min_replicas) if experiment.replicas is None else experiment.replicas,
        autoscaler=autoscaler,
        pod_start_s=experiment.cold_start_s,
        scrape_s=SCRAPE_S,
        control_s=CONTROL_S,
        window_s=WINDOW_S + 2 * SCRAPE_S,
        drain_s=DRAIN_S,
        noise=MODEST,
        seed=experiment.load.seed,
        namespace=metadata.get("namespace", "default"),
        service=metadata["name"],
    )


def autoscaler_config(rendered: Rendered, target: float) -> AutoscalerConfig:
    """As the operator's ScaledObject sets the HPA, with ``target`` requests in flight for a replica."""
    resolved = rendered.resolved
    return AutoscalerConfig(
        target=target,
        waiting_target=waiting_target,
        kv_cache_target=float(resolved.kv_cache_target_percent),
        min_replicas=max(1, resolved.min_replicas),
        max_replicas=resolved.max_replicas,
        scale_up_window_s=0.0,
        scale_down_window_s=float(rendered.look_back_s),
    )


def told(experiment: Experiment, rendered: Rendered, tell: Tell) -> Iterator[Request]:
    """The load's requests; each hundredth of the time is told."""
    load, last = experiment.load, 0
    for request in load.requests(rendered.settings.max_model_len):
        hundredth = int(100 * request.arrival_s / load.duration_s)
        if hundredth > last:
            last = hundredth
            tell(hundredth / 100)
        yield request


def _decisions(controller: Controller | None) -> tuple[Change, ...]:
    if isinstance(controller, policies.ScheduleOnly):
        return tuple(one for one in _decisions(controller.inner) if one.kind == "Schedule")
    return tuple(controller.changes) if isinstance(controller, VirtualOperator) else ()
