"""What goes into a replay of services that share a quota, and when that makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from outrider.core.budget import SETTLE_S
from outrider.core.words import count
from outrider.replay.experiment import Experiment
from outrider.replay.virtual import Rendered


@dataclass(frozen=True, slots=True)
class QuotaExperiment:
    """Services of one namespace, and the GPUs that they have together."""

    services: Mapping[str, Experiment]
    """By the resources' names, in the order in which they are told of."""
    gpus: int
    priorities: Mapping[str, int] = field(default_factory=dict)
    """Of the services' pods, as their PriorityClass has it; 0 where it is not given."""
    settle_s: float = SETTLE_S
    """The operator's setting OUTRIDER_GPU_SETTLE_S."""

    def render(self) -> dict[str, Rendered]:
        """The resources as the operator understands them; raises `outrider.errors.InvalidSpec`."""
        return {name: one.render() for name, one in self.services.items()}

    @property
    def duration_s(self) -> float:
        """The same for all services."""
        return next(iter(self.services.values())).load.duration_s


def under_quota(experiment: Experiment) -> Experiment:
    """The service as it scales under a quota: by itself, unless its resource says that nobody scales it."""
    resolved = experiment.render().resolved
    return replace(experiment, replicas=max(1, resolved.min_replicas) if resolved.scaler == "Off" else None)


def check(experiment: QuotaExperiment) -> None:
    """Whether the services can share this quota.

    Raises:
        ValueError: they cannot; the text names the field or option and what to give instead.
    """
    rendered = experiment.render()
    _one_of_each("metadata.namespace", {name: namespace_of(one) for name, one in experiment.services.items()})
    for name, one in rendered.items():
        if one.resource.spec.resources.resource_claims:
            raise ValueError(
                f"{name}: spec.resources.resourceClaims count in no quota of GPUs; replay it alone, or ask for"
                " spec.resources.gpus"
            )
    _one_of_each("spec.resources.gpuResource", {name: one.resolved.gpu_resource for name, one in rendered.items()})
    for name in experiment.priorities:
        if name not in rendered:
            raise ValueError(f"--priority {name}: no such service; there are {', '.join(rendered)}")
    _fits(experiment, rendered)


def least_replicas(experiment: Experiment, rendered: Rendered) -> int:
    """The replicas that a service begins with and keeps."""
    return experiment.bounds(rendered)[0] if experiment.replicas is None else experiment.replicas


def namespace_of(experiment: Experiment) -> str:
    """The resource's namespace."""
    namespace: str = experiment.manifest["metadata"].get("namespace", "default")
    return namespace


def _one_of_each(field_name: str, values: Mapping[str, str]) -> None:
    """A quota is of one namespace and counts one resource."""
    (first, expected), *others = values.items()
    for name, value in others:
        if value != expected:
            raise ValueError(
                f"{field_name}: {first} has {expected} and {name} has {value}; a quota is of one: make them the same,"
                " or replay them apart"
            )


def _fits(experiment: QuotaExperiment, rendered: Mapping[str, Rendered]) -> None:
    """Each service must be able to run, and the fewest replicas of all together."""
    gpus, needs = experiment.gpus, {}
    for name, one in rendered.items():
        each = one.resolved.gpus
        if each > gpus:
            raise ValueError(
                f"--gpu-quota {gpus}: a replica of {name} takes {each} (spec.resources.gpus) and would never start;"
                f" give {each} or more"
            )
        needs[name] = each * least_replicas(experiment.services[name], one)
    if sum(needs.values()) > gpus:
        told = ", ".join(f"{name} {count(need, 'GPU')}" for name, need in needs.items())
        raise ValueError(
            f"--gpu-quota {gpus}: the fewest replicas take {told} (spec.autoscaling.minReplicas); give"
            f" {sum(needs.values())} or more, or lower minReplicas"
        )
