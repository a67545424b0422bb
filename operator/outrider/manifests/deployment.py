"""The Deployment of a track: engines that are replaced one at a time, without a spare GPU."""

from __future__ import annotations

from collections.abc import Sequence

from outrider.api.defaults import Resolved
from outrider.api.resource import SpeculativeInferenceService
from outrider.manifests.meta import STABLE, TRACK_LABEL, Manifest, metadata, selector
from outrider.manifests.pod_template import pod_template

PROGRESS_MARGIN_S = 600  # scheduling and pulling an image of several gigabytes, before start-up begins
REVISION_HISTORY = 3


def deployment_name(service: str, track: str = STABLE) -> str:
    """Name of a track's Deployment; the stable one bears the service's name for life."""
    return service if track == STABLE else f"{service}-{track}"


def deployment(
    resource: SpeculativeInferenceService,
    settings: Resolved,
    *,
    image: str,
    args: Sequence[str],
    env: Sequence[Manifest],
    controllable: bool,
    replicas: int | None,
    track: str = STABLE,
) -> Manifest:
    """The Deployment of a rendered engine (`outrider.manifests.engine_container`).

    ``controllable`` tells that the image has our plugin; ``replicas`` is None where the autoscaler sets them, and the
    field is then left to it.
    """
    template = pod_template(resource, settings, image=image, args=args, env=env, controllable=controllable, track=track)
    manifest: Manifest = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(resource, deployment_name(resource.name, track), **{TRACK_LABEL: track}),
        "spec": {
            "selector": {"matchLabels": selector(resource, track)},
            # The default would start the new pod first, and it would wait for ever for the GPU that the old one holds.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            # Each pod that gets ready starts the clock anew, so one pod's life is the measure: drain, then start.
            "progressDeadlineSeconds": settings.startup_budget_s + settings.termination_grace_s + PROGRESS_MARGIN_S,
            "revisionHistoryLimit": REVISION_HISTORY,
            "template": template,
        },
    }
    if replicas is not None:
        manifest["spec"]["replicas"] = replicas
    return manifest
