"""The parts of the spec about what surrounds the engines: storage, network, security, monitoring, further pod
fields."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from outrider.api.fields import Annotations, Bool, Int, ObjectName, Quantity, StringMap
from outrider.api.raw import LargeRaw, Raw
from outrider.api.rules import Part, Rule

ServiceType = Literal["ClusterIP", "NodePort", "LoadBalancer"]
Identity = Annotated[Int, Field(ge=1, le=2_147_483_647)]


class ModelCache(Part):
    """The folder that downloaded weights are kept in: a claim that outlives pods, or space of the node."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "has(self.claimName) != has(self.sizeLimit)",
            lambda cache: (cache.claim_name is None) != (cache.size_limit is None),
            "give modelCache either claimName or sizeLimit; for the node's space without a limit leave modelCache out",
        ),
    )

    claim_name: ObjectName | None = None
    """Name of a PersistentVolumeClaim that keeps weights between pods, for example `weights`; replicas on several nodes
    need one that many nodes can write. Space of the node, gone with the pod, when left out."""
    size_limit: Quantity | None = None
    """Most space of the node that downloaded weights may take, for example `200Gi`; a pod that takes more is evicted.
    No limit when left out."""


class CompileCache(Part):
    """The folder that compiled kernels and graphs are kept in."""

    claim_name: ObjectName
    """Name of a PersistentVolumeClaim, for example `kernels`. What is in it is code: let no other team write to it."""


class Storage(Part):
    """What outlives a pod, so that the next one starts faster."""

    model_cache: ModelCache | None = None
    """Where downloaded weights are kept: a claim or limited space of the node, for example `{claimName: weights}`;
    space of the node, without a limit, when left out."""
    compile_cache: CompileCache | None = None
    """Where compiled kernels are kept, for example `{claimName: kernels}`; compiled anew in each pod when left out."""


class ServiceSettings(Part):
    """The Service by which clients reach the engines."""

    type: ServiceType | None = None
    """Type of the Service: ClusterIP for the cluster alone, NodePort or LoadBalancer for others as well. ClusterIP when
    left out."""
    annotations: Annotations = Field(default_factory=dict)
    """Annotations of the Service, up to 32, for example those that a cloud's load balancer reads; none when left
    out."""
    session_affinity_seconds: Annotated[Int, Field(ge=1, le=86_400)] | None = None
    """For how long a client's address keeps its replica, whose prefix cache then helps, in seconds, 1 to 86400, for
    example 600; each connection goes to any replica when left out."""


class NetworkPolicySettings(Part):
    """Who may reach the engines over the network."""

    enabled: Bool | None = None
    """Whether the operator makes a NetworkPolicy; when left out, only if allowFrom names someone."""
    allow_from: Annotated[list[Raw], Field(max_length=16)] = Field(default_factory=list)
    """Who may send requests, up to 16 peers as in a NetworkPolicy, each passed on as it is, for example
    `[{namespaceSelector: {matchLabels: {team: chat}}}]`; everybody when left out."""


class Security(Part):
    """As whom the engines run, and whose code."""

    run_as_user: Identity | None = None
    """User id of the engine's processes, 1 to 2147483647, any but root; 1000 when left out."""
    run_as_group: Identity | None = None
    """Group id of the engine's processes, 1 to 2147483647; 1000 when left out."""
    fs_group: Identity | None = None
    """Group id that owns the pod's volumes, 1 to 2147483647; 1000 when left out."""
    trust_remote_code: Bool | None = None
    """Whether the engine may run Python code of the model's repository, with all that the pod may do; false when left
    out. Pin model.revision when it is true."""


class Monitoring(Part):
    """How Prometheus finds the engines."""

    pod_monitor: Bool | None = None
    """Whether the operator makes a PodMonitor, where that kind is installed; true when left out. Without one, scrape
    port 8000 of the pods in another way, or nothing is tuned."""
    labels: StringMap = Field(default_factory=dict)
    """Labels of the PodMonitor by which a Prometheus selects it, up to 32, for example `release: prometheus`; none when
    left out."""


class PodTemplateMetadata(Part):
    """Labels and annotations of the pods, beside the operator's own."""

    labels: StringMap = Field(default_factory=dict)
    """Further labels of the pods, up to 32, for example `team: chat`, but none of the operator's own; none when left
    out."""
    annotations: Annotations = Field(default_factory=dict)
    """Further annotations of the pods, up to 32, for example `sidecar.istio.io/inject: "false"`; none when left out."""


class PodTemplate(Part):
    """What this resource has no field for: parts of a pod that are passed on and judged by Kubernetes."""

    metadata: PodTemplateMetadata = Field(default_factory=PodTemplateMetadata)
    """Labels and annotations of the pods, for example `{labels: {team: chat}}`; none of the user's when left out."""
    spec: LargeRaw = Field(default_factory=dict)
    """Parts of a pod's spec, up to 32 KiB and passed on as they are, for example further volumes or containers; fields
    that the operator sets are refused. Nothing is added when left out."""
