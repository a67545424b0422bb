"""The PodMonitor by which a Prometheus operator finds the engines, and the labels that queries rely on."""

from __future__ import annotations

from outrider.api.resource import SpeculativeInferenceService
from outrider.manifests.meta import REVISION_LABEL, SERVICE_LABEL, TRACK_LABEL, Manifest, metadata


def pod_monitor(resource: SpeculativeInferenceService, scrape_interval_s: float = 5.0) -> Manifest:
    """The PodMonitor; it bears the user's monitoring labels, by which a Prometheus selects it."""
    interval_ms = round(scrape_interval_s * 1000)
    interval = f"{interval_ms // 1000}s" if interval_ms % 1000 == 0 else f"{interval_ms}ms"
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(resource, resource.name, **dict(sorted(resource.spec.monitoring.labels.items()))),
        "spec": {
            "selector": {"matchLabels": {SERVICE_LABEL: resource.name}},
            # Prometheus writes them as serving_outrider_dev_service, …_track and …_revision.
            "podTargetLabels": [SERVICE_LABEL, TRACK_LABEL, REVISION_LABEL],
            "podMetricsEndpoints": [
                {
                    "port": "http",
                    "path": "/metrics",
                    "interval": interval,
                    # A pod that is made anew under the same name starts its counters at zero: its UID tells the two
                    # apart.
                    "relabelings": [{"sourceLabels": ["__meta_kubernetes_pod_uid"], "targetLabel": "pod_uid"}],
                }
            ],
        },
    }
