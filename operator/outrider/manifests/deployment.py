"""The Deployment of a track: engines that are replaced one at a time, without a spare GPU."""

from __future__ import annotations

from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.manifests import weights
from outrider.manifests.engine_container import EngineContainer
from outrider.manifests.meta import STABLE, TRACK_LABEL, Manifest, metadata, selector
from outrider.manifests.pod_template import pod_template

PROGRESS_MARGIN_S = 600  # scheduling and pulling an image of several gigabytes, before start-up begins
REVISION_HISTORY = 3


def deployment_name(service: str, track: str = STABLE) -> str:
    """Name of a track's Deployment; the stable one bears the service's name for life."""
    return service if track == STABLE else f"{service}-{track}"


def deployment(
    resource: SpeculativeInferenceService, settings: Resolved, engine: EngineContainer, *, track: str = STABLE
) -> Manifest:
    """The Deployment of a rendered engine, without a number of replicas: that is the autoscaler's, or `with_replicas`.

    Raises:
        InvalidSpec: the user's own pod template has something that may not be added.
    """
    template = pod_template(
        resource,
        settings,
        image=engine.image,
        args=engine.args,
        env=engine.env,
        controllable=engine.controllable,
        track=track,
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(resource, deployment_name(resource.name, track), **{TRACK_LABEL: track}),
        "spec": {
            "selector": {"matchLabels": selector(resource, track)},
            "strategy": _strategy(settings),
            "progressDeadlineSeconds": _deadline_s(resource, settings),
            "revisionHistoryLimit": REVISION_HISTORY,
            "template": template,
        },
    }


def _deadline_s(resource: SpeculativeInferenceService, settings: Resolved) -> int:
    """Each pod that gets ready starts the clock anew, so one pod's life is the measure: drain, copy, start.

    A copy ends before the start-up probe begins to count, and is given as long again.
    """
    copy_s = settings.startup_budget_s if weights.downloads(resource) else 0
    return settings.termination_grace_s + PROGRESS_MARGIN_S + copy_s + settings.startup_budget_s


def with_replicas(manifest: Manifest, replicas: int) -> Manifest:
    """The same with a fixed number of replicas."""
    return manifest | {"spec": manifest["spec"] | {"replicas": replicas}}


def replaced_first(manifest: Manifest) -> Manifest:
    """The same with a new engine that serves before the old one goes, whatever the resource says of its own changes."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return manifest | {"spec": manifest["spec"] | {"strategy": strategy}}


def _strategy(settings: Resolved) -> Manifest:
    """Unless the user asks for it no pod starts before another stops: it would wait for ever for the GPU that the other
    one holds."""
    if settings.strategy == "Recreate":
        return {"type": "Recreate"}
    bounds = {"maxSurge": settings.max_surge, "maxUnavailable": settings.max_unavailable}
    return {"type": "RollingUpdate", "rollingUpdate": bounds}
