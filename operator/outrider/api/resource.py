"""The SpeculativeInferenceService as the operator reads it: metadata that it needs, and the spec, parsed once.

Labels, annotations and status of the object are not read: the first two are the user's and never copied to children,
the last is our own output and never an input to a decision.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.api import KIND, faults
from outrider.api.engine import EngineSettings
from outrider.api.fields import Bool
from outrider.api.hardware import Parallelism, Placement, Resources
from outrider.api.life import Disruption, Drain, Rollout, Startup
from outrider.api.model import Model
from outrider.api.rules import Part, Rule, Values
from outrider.api.scaling import Autoscaling, Objectives
from outrider.api.speculation import Speculation
from outrider.api.surroundings import (
    Monitoring,
    NetworkPolicySettings,
    PodTemplate,
    Security,
    ServiceSettings,
    Storage,
)
from outrider.errors import InvalidSpec

MAX_NAME_LENGTH = 54  # KEDA names its HPA keda-hpa-<name>, and 63 is the limit there
_NAME = re.compile("[a-z]([-a-z0-9]*[a-z0-9])?")


_TENSOR, _PIPELINE, _DATA, _GPUS = (
    f"self.?{path}" for path in ("parallelism.?tensor", "parallelism.?pipeline", "parallelism.?data", "resources.?gpus")
)
_COPIES = f"{_PIPELINE}.orValue(1) * {_DATA}.orValue(1)"


def _shares(spec: Spec) -> int:
    """GPUs that share each layer of the model."""
    parallelism = spec.parallelism
    return parallelism.tensor or (spec.resources.gpus or parallelism.copies) // parallelism.copies


def _drafter_fits(spec: Spec) -> bool:
    draft = spec.speculation.draft
    return draft is None or draft.tensor_parallel_size in (None, 1, _shares(spec))


def _one_hub(spec: Spec) -> bool:
    model, draft = spec.model.source, None if spec.speculation.draft is None else spec.speculation.draft.source
    own, drafts = (source and source.hub and source.hub.endpoint for source in (model, draft))
    return drafts in (None, own) or (model is not None and model.hub is None)


_GPU_RULES = (
    Rule(
        f"!{_TENSOR}.hasValue() || !{_GPUS}.hasValue() || self.parallelism.tensor * {_COPIES} == self.resources.gpus",
        lambda spec: (
            spec.parallelism.tensor is None
            or spec.resources.gpus is None
            or spec.parallelism.gpus == spec.resources.gpus
        ),
        "resources.gpus must equal parallelism.tensor x pipeline x data, since each GPU of a replica takes one share:"
        " change one of them, or leave resources.gpus out",
        ".resources.gpus",
        Values(
            "resources.gpus %d must equal parallelism.tensor %d x pipeline %d x data %d, since each GPU of a replica"
            " takes one share: change one of them, or leave resources.gpus out",
            ("self.resources.gpus", "self.parallelism.tensor", f"{_PIPELINE}.orValue(1)", f"{_DATA}.orValue(1)"),
            lambda spec: (
                spec.resources.gpus,
                spec.parallelism.tensor,
                spec.parallelism.pipeline or 1,
                spec.parallelism.data or 1,
            ),
        ),
    ),
    Rule(
        f"{_TENSOR}.hasValue() || !{_GPUS}.hasValue() || self.resources.gpus % ({_COPIES}) == 0",
        lambda spec: (
            spec.parallelism.tensor is not None
            or spec.resources.gpus is None
            or spec.resources.gpus % spec.parallelism.copies == 0
        ),
        "resources.gpus must divide by parallelism.pipeline x data, so that each stage gets the same number: change one"
        " of them",
        ".resources.gpus",
        Values(
            "resources.gpus %d does not divide by parallelism.pipeline %d x data %d, so that each stage gets the same"
            " number: change one of them",
            ("self.resources.gpus", f"{_PIPELINE}.orValue(1)", f"{_DATA}.orValue(1)"),
            lambda spec: (spec.resources.gpus, spec.parallelism.pipeline or 1, spec.parallelism.data or 1),
        ),
    ),
    Rule(
        "!has(self.speculation.draft) || !has(self.speculation.draft.tensorParallelSize)"
        " || self.speculation.draft.tensorParallelSize == 1"
        f" || self.speculation.draft.tensorParallelSize == {_TENSOR}.orValue({_GPUS}.orValue({_COPIES}) / ({_COPIES}))",
        _drafter_fits,
        "speculation.draft.tensorParallelSize must be 1 or the GPUs that share the model (parallelism.tensor): an"
        " engine knows nothing between",
        ".speculation.draft.tensorParallelSize",
        Values(
            "speculation.draft.tensorParallelSize %d must be 1 or %d, the GPUs that share the model"
            " (parallelism.tensor): an engine knows nothing between",
            (
                "self.speculation.draft.tensorParallelSize",
                f"{_TENSOR}.orValue({_GPUS}.orValue({_COPIES}) / ({_COPIES}))",
            ),
            lambda spec: (spec.speculation.draft.tensor_parallel_size, _shares(spec)),
        ),
    ),
)
_REPLICA_GPUS = f"{_GPUS}.orValue({_TENSOR}.orValue(1) * {_COPIES})"
_LEAST_REPLICAS = (
    "(has(self.autoscaling.minReplicas) && self.autoscaling.minReplicas > 1 ? self.autoscaling.minReplicas : 1)"
)


def _gpus_for_least(spec: Spec) -> int:
    """GPUs of the fewest replicas that the service has when it serves."""
    least = 1 if spec.autoscaling is None else spec.autoscaling.min_replicas or 1
    return least * (spec.resources.gpus or spec.parallelism.gpus)


_BUDGET_RULE = Rule(
    "!has(self.autoscaling) || !has(self.autoscaling.gpuBudget)"
    f" || self.autoscaling.gpuBudget >= {_LEAST_REPLICAS} * {_REPLICA_GPUS}",
    lambda spec: (
        spec.autoscaling is None
        or spec.autoscaling.gpu_budget is None
        or spec.autoscaling.gpu_budget >= _gpus_for_least(spec)
    ),
    "autoscaling.gpuBudget must be enough for minReplicas, or one replica, with all of its GPUs: raise it, or lower"
    " minReplicas or resources.gpus",
    ".autoscaling.gpuBudget",
    Values(
        "autoscaling.gpuBudget %d is below the %d GPUs of minReplicas, or of one replica: raise it, or lower"
        " minReplicas or resources.gpus",
        ("self.autoscaling.gpuBudget", f"{_LEAST_REPLICAS} * {_REPLICA_GPUS}"),
        lambda spec: (spec.autoscaling.gpu_budget, _gpus_for_least(spec)),
    ),
)
_HUB_RULE = Rule(
    "!self.speculation.?draft.?source.?hub.?endpoint.hasValue()"
    " || self.speculation.draft.source.hub.endpoint == self.model.?source.?hub.?endpoint.orValue('')"
    " || (has(self.model.source) && !has(self.model.source.hub))",
    _one_hub,
    "speculation.draft.source.hub.endpoint must be that of model.source.hub, since an engine knows one hub: set both"
    " alike, or take one of them from elsewhere",
    ".speculation.draft.source",
)
_NAMES_RULE = Rule(
    "!has(self.engine) || !has(self.engine.lora) || !has(self.engine.lora.modules)"
    " || self.engine.lora.modules.all(module, module.name != self.model.?servedName.orValue(self.model.id))",
    lambda spec: (
        spec.engine.lora is None
        or all(module.name != (spec.model.served_name or spec.model.id) for module in spec.engine.lora.modules)
    ),
    "engine.lora.modules has an adapter by the name of the model itself, which would answer in its place: rename it",
    ".engine.lora.modules",
)


class Spec(Part):
    """What the user wants."""

    rules: ClassVar[tuple[Rule, ...]] = (*_GPU_RULES, _BUDGET_RULE, _HUB_RULE, _NAMES_RULE)

    model: Model
    """The model that is served, for example `{id: meta-llama/Llama-3.1-8B-Instruct, servedName: chat}`."""
    speculation: Speculation
    """How the engines speculate, for example `{method: ngram, maxSpeculativeTokens: 4}`."""
    objectives: Objectives = Field(default_factory=Objectives)
    """What users of the service should see, for example `{tpotMilliseconds: 40, ttftMilliseconds: 2000}`; when left
    out, tuning looks at goodput alone."""
    autoscaling: Autoscaling | None = None
    """Who sets the number of replicas, for example `{minReplicas: 1, maxReplicas: 6}`; one fixed replica, or as many as
    run when the block is removed, when left out."""
    resources: Resources = Field(default_factory=Resources)
    """What one replica takes of a node, for example `{gpus: 2, memory: 64Gi}`; one GPU when left out."""
    engine: EngineSettings = Field(default_factory=EngineSettings)
    """The inference engine, for example `{maxNumSeqs: 128}`; the operator's own image and settings when left out."""
    parallelism: Parallelism = Field(default_factory=Parallelism)
    """How one replica spreads over its GPUs, for example `{tensor: 2, pipeline: 2}`; all of them share each layer when
    left out."""
    placement: Placement = Field(default_factory=Placement)
    """Which nodes may run replicas, for example `{nodeSelector: {pool: h100}}`; any with free GPUs when left out."""
    storage: Storage = Field(default_factory=Storage)
    """What outlives a pod, for example `{modelCache: {claimName: weights}}`; nothing when left out."""
    rollout: Rollout = Field(default_factory=Rollout)
    """How replicas are replaced when what they run changes, for example `{maxSurge: 1, maxUnavailable: 0}`; one at a
    time, without a spare GPU, when left out."""
    disruption: Disruption = Field(default_factory=Disruption)
    """How many replicas may be evicted at a time, for example `{maxUnavailable: 2}`; one when left out."""
    drain: Drain = Field(default_factory=Drain)
    """How a replica ends, for example `{shutdownTimeoutSeconds: 300}`; requests get a minute to finish when left
    out."""
    startup: Startup = Field(default_factory=Startup)
    """How long a replica may take to load, for example `{budgetSeconds: 3600}`; half an hour when left out."""
    service: ServiceSettings = Field(default_factory=ServiceSettings)
    """The Service by which clients reach the engines, for example `{sessionAffinitySeconds: 600}`; reached in the
    cluster alone, any replica for each connection, when left out."""
    network_policy: NetworkPolicySettings = Field(default_factory=NetworkPolicySettings)
    """Who may reach the engines over the network, for example `{enabled: true}`; no NetworkPolicy is made when left
    out."""
    security: Security = Field(default_factory=Security)
    """As whom the engines run, and whose code, for example `{runAsUser: 2000}`; user and group 1000, and no code of the
    model's repository, when left out."""
    pod_template: PodTemplate = Field(default_factory=PodTemplate)
    """What this resource has no field for, for example `{metadata: {labels: {team: chat}}}`; nothing is added to the
    pods when left out."""
    monitoring: Monitoring = Field(default_factory=Monitoring)
    """How Prometheus finds the engines, for example `{labels: {release: prometheus}}`; a PodMonitor, where that kind is
    installed, when left out."""
    paused: Bool = False
    """Freezes the service as it is: nothing is changed, everything is still observed. false when left out."""


class Metadata(BaseModel):
    """What the operator needs to know of the object's metadata."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0


class SpeculativeInferenceService(BaseModel):
    """One service, parsed; build it with `parse`."""

    model_config = ConfigDict(frozen=True, extra="ignore")
    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            f"size(self.metadata.name) <= {MAX_NAME_LENGTH}",
            lambda resource: len(resource.metadata.name) <= MAX_NAME_LENGTH,
            f"metadata.name must be {MAX_NAME_LENGTH} characters or less: the autoscaler puts a prefix before it",
        ),
        Rule(
            f"self.metadata.name.matches('^{_NAME.pattern}$')",
            lambda resource: _NAME.fullmatch(resource.metadata.name) is not None,
            "metadata.name must begin with a letter and hold only small letters, digits and dashes, since a Service"
            " gets the same name",
        ),
    )

    metadata: Metadata
    spec: Spec

    @property
    def name(self) -> str:
        """Name of the service and of most of its children."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Namespace of the service and of all its children."""
        return self.metadata.namespace


def parse(body: Mapping[str, Any]) -> SpeculativeInferenceService:
    """Read an object of the API server, or one from a file.

    Raises:
        InvalidSpec: the object is of another kind, has an unknown field, or breaks a rule; the message names each
            field at fault.

    """
    if body.get("kind", KIND) != KIND:
        raise InvalidSpec("WrongKind", f"kind is {body['kind']!r}, not {KIND}")
    try:
        resource = SpeculativeInferenceService.model_validate(body)
    except ValidationError as error:
        raise InvalidSpec("InvalidSpec", _sentence(error)) from error
    broken = [rule.message for rule in resource.rules if not rule.holds(resource)]
    if broken:
        raise InvalidSpec("InvalidName", "; ".join(broken))
    return resource


def _sentence(error: ValidationError) -> str:
    """One sentence a fault, each opening with the path of the field."""
    sentences = []
    for fault in error.errors(include_url=False):
        text = faults.in_words(fault)
        if fault["type"] == "extra_forbidden":
            block = ".".join(item for item in fault["loc"][:-1] if isinstance(item, str))
            text = f"no field of this name: remove it, or see kubectl explain sis.{block} for those that there are"
        sentences.append(f"{faults.path_of(fault)}: {text}")
    return "; ".join(sentences)
