"""The SpeculativeInferenceService as the operator reads it: metadata that it needs, and the spec, parsed once.

Labels, annotations and status of the object are not read: the first two are the user's and never copied to children,
the last is our own output and never an input to a decision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from outrider.api import KIND
from outrider.api.fields import Bool, Part, Rule
from outrider.api.speculation import Speculation
from outrider.api.workload import (
    Autoscaling,
    Drain,
    EngineSettings,
    Model,
    Monitoring,
    Objectives,
    Parallelism,
    Placement,
    Resources,
    Startup,
)
from outrider.errors import InvalidSpec

MAX_NAME_LENGTH = 54  # KEDA names its HPA keda-hpa-<name>, and 63 is the limit there


class Spec(Part):
    """What the user wants."""

    rules: ClassVar[tuple[Rule, ...]] = (
        Rule(
            "!has(self.parallelism) || !has(self.parallelism.tensor) || !has(self.resources) ||"
            " !has(self.resources.gpus)"
            " || self.parallelism.tensor == self.resources.gpus",
            lambda spec: (
                spec.parallelism.tensor is None
                or spec.resources.gpus is None
                or spec.parallelism.tensor == spec.resources.gpus
            ),
            "resources.gpus must equal parallelism.tensor, since each GPU of a replica takes one share: set one of"
            " them only",
            ".resources.gpus",
        ),
        Rule(
            "!has(self.speculation.draft) || !has(self.speculation.draft.tensorParallelSize)"
            " || self.speculation.draft.tensorParallelSize == 1"
            " || self.speculation.draft.tensorParallelSize == (has(self.parallelism) && has(self.parallelism.tensor)"
            " ? self.parallelism.tensor : (has(self.resources) && has(self.resources.gpus) ? self.resources.gpus : 1))",
            lambda spec: (
                spec.speculation.draft is None
                or spec.speculation.draft.tensor_parallel_size
                in (None, 1, spec.parallelism.tensor or spec.resources.gpus or 1)
            ),
            "speculation.draft.tensorParallelSize must be 1 or the model's own number of GPUs: an engine knows nothing"
            " between",
            ".speculation.draft.tensorParallelSize",
        ),
    )

    model: Model
    """The model that is served."""
    speculation: Speculation
    """How the engines speculate."""
    objectives: Objectives = Field(default_factory=Objectives)
    """What users of the service should see; without objectives, tuning looks at goodput alone."""
    autoscaling: Autoscaling | None = None
    """Who sets the number of replicas; one fixed replica when left out."""
    resources: Resources = Field(default_factory=Resources)
    """What one replica takes of a node."""
    engine: EngineSettings = Field(default_factory=EngineSettings)
    """The inference engine."""
    parallelism: Parallelism = Field(default_factory=Parallelism)
    """How one replica spreads over its GPUs."""
    placement: Placement = Field(default_factory=Placement)
    """Which nodes may run replicas."""
    drain: Drain = Field(default_factory=Drain)
    """How a replica ends."""
    startup: Startup = Field(default_factory=Startup)
    """How long a replica may take to load."""
    monitoring: Monitoring = Field(default_factory=Monitoring)
    """How Prometheus finds the engines."""
    paused: Bool = False
    """Freezes the service as it is: nothing is changed, everything is still observed."""


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
            "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            lambda resource: "." not in resource.metadata.name and not resource.metadata.name[:1].isdigit(),
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
    faults = []
    for fault in error.errors(include_url=False):
        path = "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in fault["loc"])
        path += str(fault.get("ctx", {}).get("path", ""))
        faults.append(f"{path.removeprefix('.')}: {fault['msg']}")
    return "; ".join(faults)
