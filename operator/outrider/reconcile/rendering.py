"""From a resource to what its engines are: parsed, resolved, admitted, rendered."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from outrider.api import changes
from outrider.api.defaults import Resolved, resolve
from outrider.api.resource import Spec, SpeculativeInferenceService, parse
from outrider.engine.admission import admit
from outrider.engine.config import EngineConfig
from outrider.engine.one_k import Choice, given
from outrider.errors import InvalidSpec
from outrider.manifests import deployment, engine_container, engine_settings, evaluation, scaled_object
from outrider.manifests.engine_container import EngineContainer
from outrider.manifests.meta import Manifest
from outrider.reconcile.rollout import revision

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A resource and what follows from it alone."""

    resource: SpeculativeInferenceService
    resolved: Resolved
    own: EngineConfig
    """The engine as the resource has it; the container's may have a K that was chosen for it."""
    container: EngineContainer
    deployment: Manifest
    """Of the stable track, without a number of replicas."""
    warnings: tuple[str, ...]

    @property
    def revision(self) -> str:
        """Of its pod template."""
        return revision(self.deployment)


def render(body: Mapping[str, Any], scale_down_stabilization_s: int) -> Rendered:
    """Read an object of the API server.

    Raises:
        InvalidSpec: it cannot work as it stands.
    """
    return rendered(parse(body), scale_down_stabilization_s)


def rendered(
    resource: SpeculativeInferenceService, scale_down_stabilization_s: int, choice: Choice | None = None
) -> Rendered:
    """Render a parsed resource; ``choice`` is the K of engines that must be started anew for another.

    Raises:
        InvalidSpec: it cannot work as it stands.
    """
    resolved = resolve(resource.spec, scale_down_stabilization_s)
    engine = engine_settings.engine_config(resource, resolved)
    warnings = (*admit(engine).warnings, *scaled_object.warnings(resource))
    container = engine_container.build(resource, resolved, given(engine, choice))
    evaluation.check(resource)
    wanted = deployment.deployment(resource, resolved, container)
    return Rendered(resource, resolved, engine, container, wanted, warnings)


def with_choice(asked: Rendered, scale_down_stabilization_s: int, choice: Choice | None) -> Rendered:
    """The same with the K that was chosen for its engines."""
    if given(asked.own, choice) == asked.own:
        return asked
    return rendered(asked.resource, scale_down_stabilization_s, choice)


def stable(
    spec: Mapping[str, Any], asked: Rendered, scale_down_stabilization_s: int, choice: Choice | None = None
) -> Rendered | None:
    """What stable engines of an earlier spec are while another one is asked for; None where this version of the
    operator cannot run that spec any more."""
    try:
        before = Spec.model_validate(spec)
        own = rendered(_with(asked.resource, before), scale_down_stabilization_s, choice)
        for tuning in (True, False):
            wanted = changes.kept(before, asked.resource.spec, tuning=tuning)
            try:
                found = rendered(_with(asked.resource, wanted), scale_down_stabilization_s, choice)
            except InvalidSpec:
                continue  # the wish does not go with the engines that there are
            if found.revision == own.revision:
                return found
        return own
    except (InvalidSpec, ValueError) as fault:
        logger.warning("the spec of the stable revision is not used: %s", fault)
        return None


def _with(resource: SpeculativeInferenceService, spec: Spec) -> SpeculativeInferenceService:
    return resource.model_copy(update={"spec": spec})
