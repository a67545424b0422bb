"""The objects pass: from a resource to its children and its status.

    parse ─▶ admit ─▶ remember ─▶ children ─▶ status

Level-based: whatever woke it, it looks at everything, applies what differs, and says what it found.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from outrider import telemetry
from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.errors import Forbidden, InvalidSpec, NotFound, NotReady, OperatorError, Unavailable
from outrider.manifests import (
    candidate,
    config_maps,
    deployment,
    network_policy,
    pod_disruption_budget,
    pod_monitor,
    scaled_object,
    service,
    service_account,
    store_access,
)
from outrider.manifests.engine_container import EngineContainer
from outrider.manifests.store_access import StoreAccess
from outrider.reconcile import (
    autoscaler,
    by_rollout,
    children,
    contention,
    delivery,
    demands,
    edge,
    effective,
    evaluations,
    events,
    measures,
    persistence,
    rendering,
    replicas,
    status,
    trials,
)
from outrider.reconcile.configuration import controller_config, look_back_s
from outrider.reconcile.neighbours import Manifest, Neighbours
from outrider.reconcile.registry import Registry, Service, ServiceKey
from outrider.reconcile.rendering import Rendered
from outrider.reconcile.trials import Turn

logger = logging.getLogger(__name__)

NETWORK_POLICY = ("networking.k8s.io/v1", "NetworkPolicy")
POD_MONITOR = ("monitoring.coreos.com/v1", "PodMonitor")
SLOW_RETRY_S = 60.0
"""For faults that somebody has to mend: a missing right, an unserved kind."""


class ObjectsPass:
    """Reconciles one service at a time; ``decide_soon`` asks for a control pass when a service has just become
    known, or its first engine ready."""

    def __init__(self, registry: Registry, neighbours: Neighbours, decide_soon: Callable[[], None]) -> None:
        self._registry, self._neighbours, self._decide_soon = registry, neighbours, decide_soon

    async def run(self, key: ServiceKey) -> float | None:
        """Reconcile a service; returns seconds until it should be tried again, or None."""
        one = self._registry.get(key)
        if one is None:
            return None
        async with one.lock:
            one.looked_s = self._neighbours.clock()
            with telemetry.RECONCILE_SECONDS.time():
                fault = await edge.attempt(key, self._reconcile(one))
        return None if fault is None else self._failed(one, fault)

    async def _reconcile(self, one: Service) -> None:
        """Look at everything once; what keeps it from being done is shown in status and raised again."""
        body = one.body  # events may replace it meanwhile; status speaks of what this pass has seen
        generation, now_s = body["metadata"]["generation"], self._neighbours.clock()
        try:
            asked = rendering.render(body, self._neighbours.settings.scale_down_stabilization_s)
        except InvalidSpec as error:
            one.config = None
            await status.write(one, status.refused(one, error, generation, now_s), self._neighbours)
            await self._keep_leases(one)
            return
        turn = await self._turn(one, asked, body)
        resolved, container = turn.stable.resolved, turn.stable.container
        keda = resolved.autoscaled and await self._keda(one)
        usable = keda and one.scaling_path.too_old is None
        fault = await edge.attempt(one.key, self._carry_out(one, turn, usable))
        frozen = one.config is not None and one.config.frozen
        scaled = keda and not one.foreign_scalers
        least, now_s = resolved.min_replicas, self._neighbours.clock()
        one.contention = contention.judge(one.contention, least, now_s) if scaled else contention.NONE
        found = status.build(
            one,
            resolved,
            effective.last_applied(one) if frozen else effective.in_force(resolved, container),
            keda=keda,
            fault=fault,
            warnings=asked.warnings,
            generation=generation,
            now_s=now_s,
        )
        await status.write(one, found, self._neighbours)
        if one.ready_pods and one.metrics is not None and one.metrics.reason == "NoReadyEngine":
            self._decide_soon()  # the last control pass ran before this engine was ready
        if fault is not None:
            raise fault

    async def _keda(self, one: Service) -> bool:
        """Whether ScaledObjects can be made; with their definition went all of them, and no event need have told so."""
        one.scaling_path = self._registry.scaling_path
        served = one.scaling_path.served
        if served is None:
            served = await self._neighbours.kube.serves(*autoscaler.SCALED_OBJECT)
        if not served:
            one.forget_child(f"ScaledObject/{one.key[1]}")
            one.keda_answered = False
        return served

    async def _keep_leases(self, one: Service) -> None:
        """Engines of a resource that was spoilt go on with what they run; nothing is decided for them."""
        recorded = one.state is not None and one.recorded == (one.state.generation, one.state.target)
        if recorded and one.resource is not None:
            await children.read_admin_key(one, self._neighbours, make=False)
            await delivery.bring_up_to_date(one, self._neighbours)

    async def _carry_out(self, one: Service, turn: Turn, keda: bool) -> None:
        if one.frozen:
            await children.read_admin_key(one, self._neighbours, make=False)
        else:
            await persistence.record(one, self._neighbours)
            await self._children(one, turn.stable.resource, turn.stable.resolved, turn.stable.deployment, keda)
            await self._candidate(one, turn.candidate)
            for news in turn.news:
                await events.announce(one, news.reason, news.message, self._neighbours, warning=news.warning)
        await delivery.bring_up_to_date(one, self._neighbours)

    def _failed(self, one: Service, error: OperatorError) -> float:
        telemetry.RECONCILE_FAILURES.labels(error.reason).inc()
        extra = {"namespace": one.key[0], "service": one.key[1], "reason": error.reason}
        logger.warning("%s", error.message, extra=extra)
        if isinstance(error, NotReady | Unavailable) and error.retry_after_s is not None:
            return error.retry_after_s
        return SLOW_RETRY_S if isinstance(error, Forbidden) else 1.0

    async def _turn(self, one: Service, asked: Rendered, body: Mapping[str, Any]) -> Turn:
        """What either track is to be; what was remembered is read first."""
        settings = self._neighbours.settings
        texts = await persistence.read(one, self._neighbours) if one.state is None else {}
        frozen = settings.paused or asked.resource.spec.paused
        asked = rendering.with_choice(asked, settings.scale_down_stabilization_s, one.choice)
        if not frozen:
            await evaluations.look(one, asked, self._neighbours)
        turn = trials.turn(
            one,
            asked,
            body["spec"],
            frozen=frozen,
            look_back_s=settings.scale_down_stabilization_s,
            now_s=self._neighbours.clock(),
        )
        one.resource, one.resolved = turn.stable.resource, turn.stable.resolved
        one.controllable = turn.stable.container.controllable
        one.engine, one.wanted = turn.stable.own, turn.stable.revision
        self._remember(one, turn.stable.resolved, turn.stable.container, frozen=frozen, texts=texts)
        measures.tried(one, asked.deployment["spec"]["progressDeadlineSeconds"])
        return turn

    def _remember(
        self,
        one: Service,
        resolved: Resolved,
        container: EngineContainer,
        *,
        frozen: bool,
        texts: Mapping[str, str],
    ) -> None:
        settings = self._neighbours.settings
        one.config = controller_config(
            resolved,
            container,
            period_s=settings.control_period_s,
            frozen=frozen,
            cold_start_s=one.cold_start_s,
        )
        if not frozen or one.bounds is None:
            one.bounds = None if resolved.scaler == "Off" else (resolved.min_replicas, resolved.max_replicas)
        if one.state is None:
            one.state = persistence.load(one, one.config, texts)
            self._decide_soon()
        measures.asked(one.key, resolved, demands.beside_candidate(one, resolved))

    async def _children(
        self,
        one: Service,
        resource: SpeculativeInferenceService,
        resolved: Resolved,
        wanted: Manifest,
        keda: bool,
    ) -> None:
        """Apply all children, those first that others wait for."""
        settings, state, meta = self._neighbours.settings, one.state, one.body["metadata"]
        assert state is not None
        await children.read_admin_key(one, self._neighbours, make=True)
        document = config_maps.schedule(resource, state.generation, state.schedule, settings.lease_s)
        for manifest in (
            service_account.service_account(resource),
            document,
            service.service(resource, resolved, candidate=evaluations.may_serve(one, resource)),
            pod_disruption_budget.pod_disruption_budget(resource, resolved),
        ):
            await children.apply(one, manifest, self._neighbours)
        if keda:
            one.foreign_scalers = await autoscaler.foreign(one, self._neighbours)
        else:
            one.foreign_scalers = ()
        if not resolved.autoscaled:
            # The autoscaler must be gone before we set a number, or both would write it.
            await children.remove(one, *autoscaler.SCALED_OBJECT, resource.name, self._neighbours)
        await self._network_policy(one, resource, resolved)
        await self._deployment(one, wanted, resolved)
        if keda and not one.foreign_scalers:
            most = demands.beside_candidate(one, resolved)
            scaled = scaled_object.scaled_object(
                resource,
                dataclasses.replace(resolved, min_replicas=min(resolved.min_replicas, most)),
                target=state.target,
                prometheus_url=settings.keda_prometheus,
                polling_s=settings.keda_polling_interval_s,
                stabilization_s=look_back_s(resource.spec, resolved, one.cold_start_s),
                most=most,
                keep=autoscaler.keeps_last(one, status.metrics(one, meta["generation"], self._neighbours.clock())),
            )
            access = StoreAccess(settings.keda_trigger_authentication, settings.auth_modes, settings.prometheus_headers)
            with contextlib.suppress(NotFound):  # their definition went a moment ago; the next look tells
                await children.apply(one, store_access.with_access(scaled, access), self._neighbours)
        if await self._neighbours.kube.serves(*POD_MONITOR):
            if resolved.pod_monitor:
                monitor = pod_monitor.pod_monitor(resource, settings.scrape_interval_s)
                await children.apply(one, monitor, self._neighbours)
            else:
                await children.remove(one, *POD_MONITOR, resource.name, self._neighbours)

    async def _candidate(self, one: Service, wanted: Rendered | None) -> None:
        if wanted is not None and one.trial is not None:
            manifest = candidate.candidate(wanted.resource, wanted.resolved, wanted.container, boot=one.trial.boot)
            await children.apply(one, manifest, self._neighbours)
            return
        name = candidate.candidate_name(one.key[1])
        if f"Deployment/{name}" in one.children:  # Deployments are watched: what is not there was not seen
            await children.remove(one, "apps/v1", "Deployment", name, self._neighbours)

    async def _network_policy(self, one: Service, resource: SpeculativeInferenceService, resolved: Resolved) -> None:
        if resolved.network_policy:
            policy = network_policy.network_policy(resource, self._neighbours.settings.operator_namespace)
            await children.apply(one, policy, self._neighbours)
        elif f"NetworkPolicy/{resource.name}" in one.children:  # policies are watched: what is not there was not seen
            await children.remove(one, *NETWORK_POLICY, resource.name, self._neighbours)

    async def _deployment(self, one: Service, wanted: Manifest, resolved: Resolved) -> None:
        name = f"Deployment/{wanted['metadata']['name']}"
        if resolved.scaler != "Off":
            await replicas.hand_over(one, self._neighbours)
        else:
            wanted = deployment.with_replicas(wanted, _fixed(one, resolved, one.children.get(name)))
        before = one.children.get(name)
        if by_rollout.beside(one, resolved):
            wanted = deployment.replaced_first(wanted)
        live = await children.apply(one, wanted, self._neighbours)
        if before is not None:
            await events.rolls(one, before, live, self._neighbours)
        if resolved.autoscaled and not one.foreign_scalers:
            await replicas.start_at_minimum(resolved, live, self._neighbours)


def _fixed(one: Service, resolved: Resolved, live: Mapping[str, Any] | None) -> int:
    """Without an autoscaler: the number to keep, less the place that a candidate has."""
    number, trial = replicas.fixed(resolved, live), one.trial
    return number if trial is None or trial.freed is None else min(number, trial.freed)
