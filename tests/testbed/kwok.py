"""Nodes and the part of a kubelet that kwok plays.

kwok gives each pod an address of its own and calls ordinary pods Running and Ready at once. Engine pods (label
``app.kubernetes.io/component: engine``) only get their address from it: probes, readiness, restarts and the end of such
a pod belong to the simulator, which listens on that address, or to a test that plays its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.layout import LOCALHOST, Layout

ENGINE_LABEL = "app.kubernetes.io/component"
ENGINE = "engine"
EVALUATION = "evaluation"
"""Pods of Jobs that evaluate a candidate: kwok starts them, and `tests.testbed.evaluations` runs what they are to."""
GPU_RESOURCE = "nvidia.com/gpu"
GPU_PRODUCT = "NVIDIA-H100-80GB-HBM3"

_NODE_LABEL = "type"
_NODE_LABEL_VALUE = "kwok"

# A kubelet's first word on a pod: it has an address, its containers are being created. The patch names the version of
# the pod that it was made from: kwok may still hold an older one, without the address, and would otherwise give the pod
# another address and undo what the simulator has written.
_FIRST_STATUS = """\
{{ $now := Now }}
metadata:
  resourceVersion: {{ .metadata.resourceVersion | Quote }}
status:
  phase: Pending
  startTime: {{ $now | Quote }}
  conditions:
  - {type: PodReadyToStartContainers, status: "True", lastTransitionTime: {{ $now | Quote }}}
  - {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
  - {type: Ready, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
  - {type: ContainersReady, status: "False", reason: ContainersNotReady, lastTransitionTime: {{ $now | Quote }}}
  containerStatuses:
  {{ range .spec.containers }}
  - name: {{ .name | Quote }}
    image: {{ .image | Quote }}
    imageID: ""
    ready: false
    started: false
    restartCount: 0
    state: {waiting: {reason: ContainerCreating}}
  {{ end }}
  {{ $hostIPs := NodeIPsWith .spec.nodeName }}
  hostIP: {{ index $hostIPs 0 | Quote }}
  hostIPs:
  {{ range $hostIPs }}
  - ip: {{ . | Quote }}
  {{ end }}
  {{ $meta := .metadata }}
  {{ $podIPs := PodIPsWith .spec.nodeName (or .spec.hostNetwork false) $meta.uid $meta.name $meta.namespace }}
  podIP: {{ index $podIPs 0 | Quote }}
  podIPs:
  {{ range $podIPs }}
  - ip: {{ . | Quote }}
  {{ end }}
"""


def engine_pod_address() -> dict[str, Any]:
    """The one stage of an engine pod."""
    return {
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "Stage",
        "metadata": {"name": "engine-pod-address"},
        "spec": {
            "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
            "selector": {
                "matchLabels": {ENGINE_LABEL: ENGINE},
                "matchExpressions": [
                    {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                    {"key": ".status.podIP", "operator": "DoesNotExist"},
                ],
            },
            "next": {"patches": [{"subresource": "status", "template": _FIRST_STATUS}]},
        },
    }


def without_engines(stage: Mapping[str, Any]) -> dict[str, Any]:
    """A stage of kwok's own, which leaves engine pods alone from here on, and does not end what evaluates them; stages
    of other kinds come back unchanged."""
    spec = stage["spec"]
    if spec["resourceRef"]["kind"] != "Pod":
        return dict(stage)
    selector = spec.get("selector", {})
    others = [ENGINE, EVALUATION] if stage["metadata"]["name"] == "pod-complete" else [ENGINE]
    exclusion = {"key": f'.metadata.labels["{ENGINE_LABEL}"]', "operator": "NotIn", "values": others}
    expressions = [*selector.get("matchExpressions", []), exclusion]
    return {**stage, "spec": {**spec, "selector": {**selector, "matchExpressions": expressions}}}


def stages(files: Iterable[Path]) -> list[dict[str, Any]]:
    """All stages of a cluster, from the stage files of kwok's module and ours."""
    found = [document for path in files for document in yaml.safe_load_all(path.read_text()) if document]
    return [*(without_engines(each) for each in found if each.get("kind") == "Stage"), engine_pod_address()]


def node(index: int, pod_range: str, gpus: int) -> dict[str, Any]:
    """A node ``gpu-<index>`` as large as a common eight-GPU server, with ``gpus`` devices."""
    name = f"gpu-{index}"
    size = {"cpu": "64", "memory": "512Gi", "pods": "110", "ephemeral-storage": "2Ti", GPU_RESOURCE: str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                _NODE_LABEL: _NODE_LABEL_VALUE,
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "nvidia.com/gpu.product": GPU_PRODUCT,
            },
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "spec": {"podCIDR": pod_range, "podCIDRs": [pod_range]},
        "status": {"capacity": size, "allocatable": size},
    }


def arguments(layout: Layout) -> list[str | Path]:
    """kwok's command line, after writing the stages that it reads."""
    config = layout.data / "kwok.yaml"
    config.write_text(yaml.safe_dump_all(stages(layout.tools.assets("kwok"))))
    return [
        layout.tools["kwok"],
        f"--config={config}",
        f"--kubeconfig={layout.kubeconfig}",
        f"--manage-nodes-with-label-selector={_NODE_LABEL}={_NODE_LABEL_VALUE}",
        f"--cidr={layout.slot.pod_range}",
        f"--node-ip={LOCALHOST}",
    ]
