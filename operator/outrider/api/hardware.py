"""The parts of the spec that say on what a replica runs: resources, parallelism, placement."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.fields import (
    EXTENDED_RESOURCE,
    LABEL_KEY,
    LABEL_VALUE,
    Int,
    LabelName,
    ObjectName,
    Quantity,
    StringMap,
)
from outrider.api.raw import Raw
from outrider.api.rules import Part, Rule, Values, named

MAX_GPUS = 16  # an engine stays on one node, and none has more


class ResourceClaim(Part):
    """One claim of devices by dynamic resource allocation; each replica gets its own."""

    name: LabelName
    """Name of the claim inside the pod, up to 63 small letters, digits and dashes, for example `gpus`."""
    resource_claim_template_name: ObjectName
    """Name of the ResourceClaimTemplate in the namespace of the service, for example `two-h100`."""
    request: LabelName | None = None
    """The one request of the claim that the engine uses, for example `gpu`; all of them when left out."""


class Resources(Part):
    """What one replica takes of a node."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.gpuResource) || !has(self.resourceClaims) || size(self.resourceClaims) == 0",
            lambda resources: resources.gpu_resource is None or not resources.resource_claims,
            "gpuResource must be left out beside resourceClaims, which give the GPUs: remove one of them",
            ".gpuResource",
        ),
    )

    gpus: Annotated[Int, Field(ge=1, le=MAX_GPUS)] | None = None
    """GPUs of one replica, 1 to 16: parallelism.tensor x pipeline x data, which it is when left out. Beside
    resourceClaims: how many they give. For example 2."""
    gpu_resource: Annotated[str, Field(pattern=EXTENDED_RESOURCE, max_length=253)] | None = None
    """Name of the GPU resource that nodes offer, up to 253 characters, for example `amd.com/gpu`; `nvidia.com/gpu` when
    left out. Refused beside resourceClaims."""
    resource_claims: Annotated[list[ResourceClaim], Field(max_length=8), *named()] = Field(default_factory=list)
    """Up to 8 claims by dynamic resource allocation, for example
    `[{name: gpus, resourceClaimTemplateName: two-h100}]`; no GPU resource is then requested. None when left out."""
    cpu: Quantity | None = None
    """Requested processors, for example `8` or `500m`; there is no limit, which would throttle the engine's front end.
    Nothing is requested when left out."""
    memory: Quantity | None = None
    """Main memory, requested and limited, for example `64Gi`; it includes sharedMemory. Neither requested nor limited
    when left out."""
    shared_memory: Quantity | None = None
    """Upper bound of /dev/shm, by which the engine's processes pass tensors, for example `16Gi`; 8Gi when left out."""


class Parallelism(Part):
    """How one replica spreads over its GPUs."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"self.?tensor.orValue(1) * self.?pipeline.orValue(1) * self.?data.orValue(1) <= {MAX_GPUS}",
            lambda parallelism: parallelism.gpus <= MAX_GPUS,
            f"tensor x pipeline x data must be {MAX_GPUS} GPUs or less, since an engine stays on one node: lower one of"
            " them",
            "",
            Values(
                f"tensor x pipeline x data is %d GPUs, more than the {MAX_GPUS} of one node: lower one of them",
                ("self.?tensor.orValue(1) * self.?pipeline.orValue(1) * self.?data.orValue(1)",),
                lambda parallelism: (parallelism.gpus,),
            ),
        ),
    )

    tensor: Annotated[Int, Field(ge=1, le=MAX_GPUS)] | None = None
    """GPUs that share each layer, 1 to 16, for example 2; what resources.gpus leaves after pipeline and data, or 1,
    when left out."""
    pipeline: Annotated[Int, Field(ge=1, le=MAX_GPUS)] | None = None
    """Stages that the layers are cut into, each on GPUs of its own, 1 to 16, for example 2; 1 when left out."""
    data: Annotated[Int, Field(ge=1, le=MAX_GPUS)] | None = None
    """Copies of the engine inside one replica, each on GPUs of its own, 1 to 16; 1 when left out. More replicas do the
    same and can be tuned each, so leave it out unless the model needs it."""

    @property
    def copies(self) -> int:
        """By what the GPUs of a replica divide before tensor parallelism: pipeline stages times engines."""
        return (self.pipeline or 1) * (self.data or 1)

    @property
    def gpus(self) -> int:
        """GPUs that these numbers ask for, with 1 for each that was left out."""
        return (self.tensor or 1) * self.copies


class Toleration(Part):
    """A taint that replicas bear, as in a pod."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.key) || (has(self.operator) && self.operator == 'Exists')",
            lambda toleration: toleration.key is not None or toleration.operator == "Exists",
            "a toleration without key bears all taints: say so with operator: Exists, or name the key",
            ".operator",
        ),
        Rule(
            "!has(self.value) || size(self.value) == 0 || !has(self.operator) || self.operator != 'Exists'",
            lambda toleration: not toleration.value or toleration.operator != "Exists",
            "a toleration with operator: Exists bears every value: remove value, or use operator: Equal",
            ".value",
        ),
        Rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            lambda toleration: toleration.toleration_seconds is None or toleration.effect == "NoExecute",
            "tolerationSeconds only means something for a taint that evicts: set effect: NoExecute, or remove it",
            ".tolerationSeconds",
        ),
    )

    key: Annotated[str, Field(pattern=LABEL_KEY, max_length=317)] | None = None
    """Key of the taint, up to 317 characters, for example `nvidia.com/gpu`; all taints when left out."""
    operator: Literal["Exists", "Equal"] | None = None
    """How key and value are compared: Exists takes any value, Equal this one; Equal when left out."""
    value: Annotated[str, Field(pattern=LABEL_VALUE, max_length=63)] | None = None
    """Value of the taint, up to 63 characters, for example `true`; empty when left out."""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None
    """Effect of the taint: NoSchedule, PreferNoSchedule or NoExecute; all effects when left out."""
    toleration_seconds: Annotated[Int, Field(ge=0, le=2_147_483_647)] | None = None
    """For how long a NoExecute taint is borne, in seconds, 0 to 2147483647, for example 60; for ever when left out."""


class Placement(Part):
    """Which nodes may run replicas, and how the scheduler treats them."""

    node_selector: StringMap = Field(default_factory=dict)
    """Labels that a node must have, up to 32, for example `nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3`; any node
    when left out."""
    tolerations: Annotated[list[Toleration], Field(max_length=16)] = Field(default_factory=list)
    """Taints that replicas bear, up to 16, for example `[{key: nvidia.com/gpu, operator: Exists}]`; none when left
    out."""
    affinity: Raw | None = None
    """Affinity to nodes and pods, as in a pod, up to 8 KiB; passed on as it is. None when left out."""
    topology_spread_constraints: Annotated[list[Raw], Field(max_length=8)] = Field(default_factory=list)
    """How replicas spread over zones and nodes, as in a pod, up to 8, each passed on as it is, for example
    `[{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway}]`. The cluster's own
    rule when left out."""
    priority_class_name: ObjectName | None = None
    """Name of a PriorityClass, for example `serving`; the cluster's default class when left out."""
    runtime_class_name: ObjectName | None = None
    """Name of a RuntimeClass, for example `nvidia`; the node's default runtime when left out."""
    scheduler_name: ObjectName | None = None
    """Name of the scheduler that places the replicas, for example `volcano`; the cluster's default scheduler when left
    out."""
