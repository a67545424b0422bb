"""Engines and children for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from outrider.api.defaults import resolve
from outrider.api.resource import SpeculativeInferenceService
from outrider.core.schedule import parse_text
from outrider.manifests import (
    config_maps,
    deployment,
    engine_container,
    engine_settings,
    network_policy,
    pod_disruption_budget,
    pod_monitor,
    scaled_object,
    secret,
    service,
    service_account,
)
from outrider.manifests.engine_container import EngineContainer
from outrider.manifests.meta import STABLE, Manifest
from tests.unit.api.bodies import resource

PROMETHEUS = "http://prometheus-operated.monitoring:9090"


def container(changes: Mapping[str, Any] | None = None) -> EngineContainer:
    """The engine of the minimal example with changes."""
    return _container(resource(changes))


def made_deployment(
    changes: Mapping[str, Any] | None = None, replicas: int | None = None, track: str = STABLE
) -> Manifest:
    """The Deployment of the minimal example with changes."""
    return _deployment(resource(changes), replicas, track)


def all_children(one: SpeculativeInferenceService, target: int = 40) -> list[Manifest]:
    """Every child that a resource asks for, in the order in which they are applied."""
    settings = resolve(one.spec)
    children = [
        service_account.service_account(one),
        secret.admin_secret(one, "test-key"),
        config_maps.schedule(one, 17, parse_text("1-24:3 25-64:1"), 3600),
        service.service(one, settings, candidate=one.spec.rollout.quality is None),
        pod_disruption_budget.pod_disruption_budget(one, settings),
        _deployment(one, settings.min_replicas if settings.scaler == "Off" else None, STABLE),
    ]
    if settings.network_policy:
        children.append(network_policy.network_policy(one, "outrider-system"))
    if settings.autoscaled:
        children.append(
            scaled_object.scaled_object(
                one,
                settings,
                target=target,
                prometheus_url=PROMETHEUS,
                polling_s=15,
                stabilization_s=settings.scale_down_stabilization_s,
            )
        )
    if settings.pod_monitor:
        children.append(pod_monitor.pod_monitor(one, 5.0))
    return children


def made(changes: Mapping[str, Any] | None = None, target: int = 40) -> dict[str, Manifest]:
    """The same by kind, for the minimal example with changes."""
    return {manifest["kind"]: manifest for manifest in all_children(resource(changes), target)}


def _container(one: SpeculativeInferenceService) -> EngineContainer:
    settings = resolve(one.spec)
    return engine_container.build(one, settings, engine_settings.engine_config(one, settings))


def _deployment(one: SpeculativeInferenceService, replicas: int | None, track: str) -> Manifest:
    made = deployment.deployment(one, resolve(one.spec), _container(one), track=track)
    return made if replicas is None else deployment.with_replicas(made, replicas)
