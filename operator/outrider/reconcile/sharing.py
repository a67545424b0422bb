"""Shares the GPU quota of a namespace out among its services, after each control pass.

    quotas and demands ─▶ claims ─▶ core.budget.shared ─▶ a share a service ─▶ memory ─▶ maxReplicaCount

Shares of an earlier process come from the services' memory documents: until all of a namespace have been read, each
keeps the one that it had.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from outrider.core import demand
from outrider.core.budget import Claim, Shares, shared
from outrider.core.target import APART_S, TARGET_DWELL_S, URGENT_DWELL_S
from outrider.core.words import count
from outrider.reconcile import demands, rollout
from outrider.reconcile.registry import Registry, Service, ServiceKey
from outrider.reconcile.share import BudgetKey, Quota, Share, Shared

logger = logging.getLogger(__name__)

NAMED = 4
"""Other services that a sentence names."""


class Sharing:
    """Keeps the shares of all services; ``reconcile`` is told of each whose share or limit changed."""

    def __init__(self, registry: Registry, settle_s: float, reconcile: Callable[[ServiceKey], None]) -> None:
        self._registry, self._settle_s, self._reconcile = registry, settle_s, reconcile

    def run(self, now_s: float) -> None:
        """Look at every namespace once."""
        before = {service.key: service.share for service in self._registry}
        if self._registry.quotas is not None:
            self._share_out(self._registry.quotas, now_s)
        for service in self._registry:
            limited = _limited(service, now_s)
            if limited != service.limited or _most(service.share) != _most(before[service.key]):
                service.limited = limited
                self._reconcile(service.key)

    def _share_out(self, quotas: Mapping[BudgetKey, Quota], now_s: float) -> None:
        groups: dict[BudgetKey, list[Service]] = {}
        unread = {service.key[0] for service in self._registry if not _read(service)}
        for service in self._registry:
            key = _budget(service)
            if key is None or key not in quotas:
                if service.key[0] not in unread:
                    service.share = None
            elif service.key[0] not in unread:
                groups.setdefault(key, []).append(service)
        for key, services in groups.items():
            self._share(key, quotas[key], services, now_s)
        for key in [key for key in self._registry.shared if key not in quotas]:
            del self._registry.shared[key]

    def _share(self, key: BudgetKey, quota: Quota, services: list[Service], now_s: float) -> None:
        known = self._registry.shared.get(key)
        before = known.shares if known is not None else _remembered(services)
        changed_s = known.changed_s if known is not None else now_s - TARGET_DWELL_S
        claims = claims_of(services)
        after = shared(before, claims, quota.gpus, now_s, settle_s=self._settle_s)
        after = _carried_out(before, after, claims, services, changed_s, now_s)
        if before is None or after.most != before.most:
            changed_s = now_s
        self._registry.shared[key] = Shared(after, changed_s)
        if after.donor:
            logger.info("%s", after.reason, extra={"namespace": key[0], "service": after.donor, "reason": "GPUQuota"})
        for service in services:
            name = service.key[1]
            if _scaled(service):
                words = _words(quota, key[1], name, after, services)
                service.share = Share(after.most[name], after.disputed_since_s, after.gains.get(name), words)


def _carried_out(
    before: Shares | None,
    after: Shares,
    claims: Iterable[Claim],
    services: Iterable[Service],
    changed_s: float,
    now_s: float,
) -> Shares:
    """The new shares, or those before if a change is not due: each is a patch of what KEDA made its scalers of."""
    if before is None or (after.most == before.most and not after.donor):
        return after
    if after.donor and any(service.key[1] == after.donor and _changed(service, now_s) for service in services):
        return before
    needed = any(one.need > before.most.get(one.name, -1) < after.most[one.name] for one in claims)
    apart_s = URGENT_DWELL_S if needed or after.donor else TARGET_DWELL_S
    if now_s >= changed_s + apart_s or before.most.keys() != after.most.keys():
        return after
    return before if after.donor else replace(after, most=before.most)


def _changed(service: Service, now_s: float) -> bool:
    """Whether the schedule changed a moment ago, so that the effect of each could not be told."""
    changed_s = None if service.state is None else service.state.schedule_changed_s
    return changed_s is not None and now_s < changed_s + APART_S


def _read(service: Service) -> bool:
    """Whether an objects pass has seen it, and its memory."""
    return service.looked_s > 0 and (service.config is None or service.state is not None)


def _budget(service: Service) -> BudgetKey | None:
    """The quota that its pods count in; those with resource claims count in none of these."""
    resource, resolved = service.resource, service.resolved
    if resource is None or resolved is None or resource.spec.resources.resource_claims:
        return None
    return service.key[0], resolved.gpu_resource


def _remembered(services: Iterable[Service]) -> Shares | None:
    shares = {service.key[1]: service.share for service in services if service.share is not None}
    if not shares:
        return None
    since = [share.disputed_since_s for share in shares.values() if share.disputed_since_s is not None]
    return Shares(
        {name: share.most for name, share in shares.items()},
        min(since, default=None),
        {name: share.gain for name, share in shares.items() if share.gain is not None},
    )


def claims_of(services: Sequence[Service]) -> list[Claim]:
    """What the services of one quota ask for."""
    return [_claim(service, weight) for service, weight in _weighted(services)]


def _weighted(services: Sequence[Service]) -> list[tuple[Service, float]]:
    """Each priority of the services' pods counts twice the one below it: a first place, and no right to starve."""
    priorities = {service.key: max((pod.priority for pod in service.stable_pods), default=0) for service in services}
    ranks = {priority: rank for rank, priority in enumerate(sorted(set(priorities.values())))}
    return [(service, 2.0 ** ranks[priorities[service.key]]) for service in services]


def _scaled(service: Service) -> bool:
    """Whether its number of replicas follows what we say."""
    return service.bounds is not None and service.config is not None and not service.config.frozen


def _claim(service: Service, weight: float) -> Claim:
    """What a service asks for; one that does not follow us keeps what it has."""
    resolved, present = service.resolved, _present(service)
    assert resolved is not None
    name = service.key[1]
    if not _scaled(service) or service.bounds is None:
        return Claim(name, resolved.gpus, least=present, most=present, wanted=present, present=present, weight=weight)
    least, most = service.bounds
    return Claim(
        name,
        resolved.gpus,
        least=least,
        most=most,
        wanted=_wanted(service, present),
        present=present,
        weight=weight,
        shortfall=service.demand.shortfall,
    )


def _present(service: Service) -> int:
    """Replicas that it has, without those that the API server has refused: they hold nothing."""
    deployment = service.children.get(f"Deployment/{service.key[1]}")
    if deployment is None:
        return 0
    replicas: int = deployment["spec"].get("replicas", 1)
    pods = service.stable_pods
    living = sum(not pod.failed and not pod.terminating for pod in pods)
    refused = rollout.deployment_condition(deployment, "ReplicaFailure").get("status") == "True"
    if refused and not rollout.under_way(deployment, pods):
        return min(replicas, living)
    return replicas


def _wanted(service: Service, present: int) -> int:
    """Replicas that its load needs, by our count or by what else the autoscaler looks at; what it has, without data."""
    wanted = service.demand.wanted
    if wanted is None:
        return present
    hpa = service.children.get(f"HorizontalPodAutoscaler/keda-hpa-{service.key[1]}", {}).get("status", {})
    asked: int = hpa.get("desiredReplicas", 0)
    for one in hpa.get("conditions") or ():
        if (one["type"], one["status"], one.get("reason")) == ("ScalingLimited", "True", "TooManyReplicas"):
            asked += 1  # more than its bound; how many more it does not say
    return max(wanted, asked)


def _limited(service: Service, now_s: float) -> bool:
    if service.resolved is None or service.bounds is None:
        service.demand = demand.bounded(service.demand, service.demand.wanted or 0, now_s)
        return False
    most, _ = demands.bound(service, service.resolved)
    service.demand = demand.bounded(service.demand, most, now_s)
    return service.demand.capped(now_s)


def _most(share: Share | None) -> int | None:
    return None if share is None else share.most


def _words(quota: Quota, resource: str, name: str, shares: Shares, services: Iterable[Service]) -> str:
    """The quota, and what the other services have of it."""
    told = f"ResourceQuota {quota.name} allows {quota.hard} {resource}"
    if quota.others:
        told += f", of which pods that are no replicas hold {quota.others}"
    others = [f"{service.key[1]} {shares.most[service.key[1]]}" for service in services if service.key[1] != name]
    if others:
        more = len(others) - NAMED
        told += f"; of the others may have {', '.join(others[:NAMED])}" + (
            f" and {count(more, 'more service')} the rest" if more > 0 else ""
        )
    return told
