"""KEDA's operator and metrics adapter, and the objects by which the API server finds the adapter."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.layout import KEDA_NAMESPACE, LOCALHOST, Layout
from tests.testbed.tools import Toolset

API_SERVICE = "v1beta1.external.metrics.k8s.io"
_SERVICE = "keda-metrics-apiserver"

_ENVIRONMENT: Mapping[str, str] = {
    "KEDA_CLUSTER_OBJECT_NAMESPACE": KEDA_NAMESPACE,
    "POD_NAMESPACE": KEDA_NAMESPACE,
    "POD_NAME": "keda-operator",
    "WATCH_NAMESPACE": "",
}


def custom_resources(tools: Toolset) -> Iterator[dict[str, Any]]:
    """The CRDs of KEDA's module."""
    for path in tools.assets("keda-operator"):
        yield yaml.safe_load(path.read_text())


def registration(layout: Layout) -> tuple[dict[str, Any], dict[str, Any]]:
    """The Service and the APIService of the adapter.

    There is no pod network, so the Service is another name for this machine; the API server still checks the adapter's
    certificate against the Service's own name.
    """
    port = layout.slot.port("keda-adapter")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _SERVICE, "namespace": KEDA_NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    }
    api_service = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": API_SERVICE},
        "spec": {
            "group": "external.metrics.k8s.io",
            "version": "v1beta1",
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "service": {"name": _SERVICE, "namespace": KEDA_NAMESPACE, "port": port},
            "caBundle": base64.b64encode(layout.certificates.authority.read_bytes()).decode(),
        },
    }
    return service, api_service


def environment(layout: Layout) -> dict[str, str]:
    """What both programs read from their environment; the adapter's cache takes its kubeconfig from there only."""
    return {**_ENVIRONMENT, "KUBECONFIG": str(layout.kubeconfig)}


def operator(layout: Layout) -> list[str | Path]:
    """The operator's command line."""
    return [
        layout.tools["keda-operator"],
        f"--kubeconfig={layout.kubeconfig}",
        f"--metrics-bind-address={layout.address('keda-metrics')}",
        f"--health-probe-bind-address={layout.address('keda-health')}",
        f"--metrics-service-bind-address={layout.address('keda-grpc')}",
        f"--cert-dir={certificate_folder(layout)}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
    ]


def adapter(layout: Layout) -> list[str | Path]:
    """The adapter's command line."""
    folder = certificate_folder(layout)
    return [
        layout.tools["keda-adapter"],
        f"--lister-kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        f"--secure-port={layout.slot.port('keda-adapter')}",
        f"--bind-address={LOCALHOST}",
        f"--port={layout.slot.port('keda-adapter-metrics')}",
        f"--metrics-service-address=localhost:{layout.slot.port('keda-grpc')}",
        f"--client-ca-file={folder / 'ca.crt'}",
        f"--tls-cert-file={folder / 'tls.crt'}",
        f"--tls-private-key-file={folder / 'tls.key'}",
        f"--cert-dir={folder}",
    ]


def certificate_folder(layout: Layout) -> Path:
    """The certificates under the names that both programs look for."""
    folder = layout.data / "keda"
    if not folder.exists():
        folder.mkdir()
        shutil.copy(layout.certificates.keda.certificate, folder / "tls.crt")
        shutil.copy(layout.certificates.keda.key, folder / "tls.key")
        shutil.copy(layout.certificates.authority, folder / "ca.crt")
    return folder
