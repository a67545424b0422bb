"""Fields of the resource that go to Kubernetes as they stand, by kind of child: where to look when it refuses one."""

from __future__ import annotations

from outrider.api.resource import SpeculativeInferenceService


def fields(resource: SpeculativeInferenceService, kind: str) -> tuple[str, ...]:
    """Paths of those that this resource sets."""
    spec = resource.spec
    template = spec.pod_template
    known: dict[str, dict[str, object]] = {
        "Deployment": {
            "spec.podTemplate.metadata": template.metadata.labels or template.metadata.annotations,
            "spec.podTemplate.spec": template.spec,
            "spec.placement.affinity": spec.placement.affinity,
            "spec.placement.topologySpreadConstraints": spec.placement.topology_spread_constraints,
        },
        "Job": {"spec.rollout.quality.template": spec.rollout.quality},
        "Service": {"spec.service.annotations": spec.service.annotations},
        "NetworkPolicy": {"spec.networkPolicy.allowFrom": spec.network_policy.allow_from},
        "ScaledObject": {"spec.autoscaling.triggers": spec.autoscaling and spec.autoscaling.triggers},
    }
    return tuple(path for path, value in known.get(kind, {}).items() if value)
