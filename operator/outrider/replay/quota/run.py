"""The replay of services that share a quota: fleets that step together, and the operator's sharing between them.

    fleets ─▶ what the operator would see of them ─▶ reconcile.sharing ─▶ the most that each autoscaler may make

The quota itself holds as the API server has it: a pod beyond it is not made, and pods that drain still count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from outrider.core.budget import fair
from outrider.reconcile import demands
from outrider.reconcile.engine_pod import EnginePod
from outrider.reconcile.registry import Registry, Service
from outrider.reconcile.share import BudgetKey, Quota
from outrider.reconcile.sharing import Sharing, claims_of
from outrider.replay.experiment import Experiment, Run, Tell, built, done, told
from outrider.replay.quota.experiment import QuotaExperiment, namespace_of
from outrider.replay.virtual import Rendered, VirtualOperator
from outrider.simulator.fleet import Fleet
from outrider.simulator.replica import Replica
from outrider.simulator.together import run_together

POLICY = "outrider"
"""Shares are worked out from what its control law finds; other rules know no capacity."""
QUOTA_NAME = "simulated"


@dataclass(frozen=True, slots=True)
class Standing:
    """One service beside its share, in one control period. Numbers are replicas."""

    most: int
    """That it may have from now on."""
    wanted: int | None
    """That its load needs, by the operator's count; None before it has data."""
    below: bool
    """It had fewer than its need and its fair share (`outrider.core.budget.fair`), whichever is less."""
    reason: str = ""
    """Of the condition CapacityLimited; empty while that is not True."""
    message: str = ""


@dataclass(frozen=True, slots=True)
class Move:
    """A running replica that was given up for another service."""

    at_s: float
    donor: str
    gainer: str
    """Who got more by it; empty where nobody did."""
    reason: str


@dataclass(frozen=True, slots=True)
class QuotaRun:
    """What came of it, by service, and what was shared out when."""

    runs: Mapping[str, Run]
    looks: tuple[tuple[float, Mapping[str, Standing]], ...]
    """One a control period, within the experiment's time."""
    moves: tuple[Move, ...]


def run(experiment: QuotaExperiment, tell: Tell) -> QuotaRun:
    """Replay all services together."""
    town = _Town(experiment)
    first, *others = town.watched.values()
    requests = {first.name: told(first.experiment, first.rendered, tell)} | {
        one.name: told(one.experiment, one.rendered, lambda _share: None) for one in others
    }
    run_together({name: one.fleet for name, one in town.watched.items()}, requests, experiment.duration_s, town.share)
    tell(1.0)
    runs = {name: done(one.fleet, POLICY, one.most) for name, one in town.watched.items()}
    return QuotaRun(runs, tuple(town.looks), tuple(town.moves))


@dataclass(slots=True)
class _Watched:
    """A fleet, and the service that the operator's registry would hold of it."""

    name: str
    experiment: Experiment
    rendered: Rendered
    fleet: Fleet
    service: Service
    priority: int
    most: int | None = field(init=False)
    """The resource's own bound; None where nobody scales."""

    def __post_init__(self) -> None:
        self.most = None if self.fleet.scaler is None else self.fleet.scaler.most
        resolved, service = self.rendered.resolved, self.service
        if self.most is not None:
            resolved = replace(resolved, max_replicas=self.most)
            service.bounds = self.experiment.bounds(self.rendered)
        service.resource, service.resolved, service.config = self.rendered.resource, resolved, self.rendered.config
        service.looked_s = 1.0  # an objects pass has seen it

    @property
    def held(self) -> int:
        """GPUs of its pods, those that drain too."""
        return len(self.fleet.pods) * self.rendered.resolved.gpus

    def see(self, now_s: float) -> None:
        """Take over what watches and the control pass would have told by now."""
        operator, service, fleet = self.fleet.controller, self.service, self.fleet
        assert isinstance(operator, VirtualOperator)
        service.state, service.outcome = operator.state, operator.outcome
        service.pods = {one.name: self._pod(one) for one in fleet.pods}
        service.children = {f"Deployment/{self.name}": self._deployment()}
        if fleet.scaler is not None and self.rendered.resolved.autoscaled:
            service.children[f"HorizontalPodAutoscaler/keda-hpa-{self.name}"] = self._hpa()
        demands.observe(service, operator.window, now_s)

    def obey(self) -> None:
        """The bound of the ScaledObject follows the share."""
        if self.fleet.scaler is not None:
            assert self.service.resolved is not None
            self.fleet.scaler.most, _ = demands.bound(self.service, self.service.resolved)

    def _pod(self, one: Replica) -> EnginePod:
        leaves = one.leaves_s is not None
        return EnginePod(one.name, one.uid, None, not one.starting, leaves, "", priority=self.priority)

    def _deployment(self) -> Mapping[str, Any]:
        staying = sum(one.leaves_s is None for one in self.fleet.pods)
        refused = [{"type": "ReplicaFailure", "status": "True"}] if staying < self.fleet.asked else []
        return {"metadata": {}, "spec": {"replicas": self.fleet.asked}, "status": {"conditions": refused}}

    def _hpa(self) -> Mapping[str, Any]:
        scaler = self.fleet.scaler
        assert scaler is not None
        limited = scaler.wanted is not None and scaler.most is not None and scaler.wanted > scaler.most
        conditions = [{"type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas"}] if limited else []
        return {"status": {"desiredReplicas": self.fleet.asked, "conditions": conditions}}


class _Town:
    """The namespace: its services, its quota, and the operator's sharing."""

    def __init__(self, experiment: QuotaExperiment) -> None:
        registry = Registry()
        self._gpus, self._duration_s = experiment.gpus, experiment.duration_s
        self.watched: dict[str, _Watched] = {}
        self.looks: list[tuple[float, Mapping[str, Standing]]] = []
        self.moves: list[Move] = []
        for name, one in experiment.services.items():
            rendered = one.render()
            body = {"metadata": {"namespace": namespace_of(one), "name": name, "uid": name, "generation": 1}}
            key, _ = registry.resource_event("ADDED", body)
            service = registry.get(key)
            assert service is not None
            fleet, priority = built(one, rendered, POLICY), experiment.priorities.get(name, 0)
            self.watched[name] = _Watched(name, one, rendered, fleet, service, priority)
            self._key: BudgetKey = (key[0], rendered.resolved.gpu_resource)
            fleet.admit = lambda gpus=rendered.resolved.gpus: self._held + gpus <= self._gpus  # type: ignore[misc]
        registry.quotas = {self._key: Quota(QUOTA_NAME, experiment.gpus, others=0)}
        self._registry, self._sharing = registry, Sharing(registry, experiment.settle_s, lambda _key: None)

    @property
    def _held(self) -> int:
        return sum(one.held for one in self.watched.values())

    def share(self, now_s: float) -> None:
        """One look: all services have decided, and no autoscaler has had its turn."""
        for one in self.watched.values():
            one.see(now_s)
        claims = claims_of([one.service for one in self.watched.values()])
        goal = fair(claims, self._gpus)
        before = self._registry.shared.get(self._key)
        self._sharing.run(now_s)
        for one in self.watched.values():
            one.obey()
        if now_s > self._duration_s:
            return
        below = {one.name: one.present < min(goal[one.name], one.need) for one in claims}
        self.looks.append((now_s, {name: _standing(one, below[name]) for name, one in self.watched.items()}))
        after = self._registry.shared[self._key].shares
        if after.donor and before is not None and after is not before.shares:
            more = [name for name, most in after.most.items() if most > before.shares.most.get(name, most)]
            self.moves.append(Move(now_s, after.donor, ", ".join(more), after.reason))


def _standing(one: _Watched, below: bool) -> Standing:
    service, resolved = one.service, one.service.resolved
    assert resolved is not None
    most = one.fleet.asked if one.fleet.scaler is None else one.fleet.scaler.most
    assert most is not None
    limited = demands.limited(service, resolved, 1)
    if limited is None:
        return Standing(most, service.demand.wanted, below)
    return Standing(most, service.demand.wanted, below, limited.reason, limited.message)
