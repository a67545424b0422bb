"""The command lines of etcd, the API server, the controller manager and the scheduler."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.testbed.layout import LOCALHOST, Layout

SERVICE_RANGE = "10.0.0.0/16"

_WITHOUT_ENDPOINTS = (
    # Kubernetes refuses loopback addresses in EndpointSlices, and pods have no others here: these would only fill the
    # logs.
    "*,-endpointslice-controller,-endpointslice-mirroring-controller,-endpoints-controller"
)
_NODE_GRACE = "10m"  # A machine that is busy for a minute must not look like a cluster that has lost its nodes.


def etcd(layout: Layout) -> list[str | Path]:
    """A store that trades safety for speed: its data are thrown away with the cluster."""
    client, peer = f"http://{layout.address('etcd')}", f"http://{layout.address('etcd-peer')}"
    return [
        layout.tools["etcd"],
        f"--data-dir={layout.data / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def apiserver(layout: Layout, request_timeout_s: float) -> list[str | Path]:
    """The real API server with RBAC, aggregation and an audit log of what service accounts ask for."""
    certificates = layout.certificates
    return [
        layout.tools["kube-apiserver"],
        f"--etcd-servers=http://{layout.address('etcd')}",
        f"--secure-port={layout.slot.port('apiserver')}",
        f"--bind-address={LOCALHOST}",
        # Nobody dials the kubernetes Service here; without these two, a machine without a default route could not start
        # it.
        f"--advertise-address={LOCALHOST}",
        "--endpoint-reconciler-type=none",
        f"--tls-cert-file={certificates.apiserver.certificate}",
        f"--tls-private-key-file={certificates.apiserver.key}",
        f"--client-ca-file={certificates.authority}",
        f"--service-account-key-file={certificates.token_public_key}",
        f"--service-account-signing-key-file={certificates.token_key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--authorization-mode=RBAC",
        # As on OpenShift and hardened clusters: who makes an owner reference that blocks deletion needs a right for it.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        "--allow-privileged",
        "--profiling=false",
        f"--request-timeout={request_timeout_s}s",
        f"--requestheader-client-ca-file={certificates.front_authority}",
        "--requestheader-allowed-names=front-proxy",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={certificates.front_proxy.certificate}",
        f"--proxy-client-key-file={certificates.front_proxy.key}",
        f"--audit-policy-file={_audit_policy(layout)}",
        f"--audit-log-path={layout.logs / 'audit.log'}",
        "--audit-log-maxsize=50",  # Megabytes; one older file is kept beside it.
        "--audit-log-maxbackup=1",
    ]


def controller_manager(layout: Layout, hpa_sync_s: float, hpa_downscale_s: float) -> list[str | Path]:
    """All controllers but those of endpoints, with an autoscaler that looks more often than every 15 s."""
    return [
        layout.tools["kube-controller-manager"],
        *_as_administrator(layout),
        f"--secure-port={layout.slot.port('controllers')}",
        f"--bind-address={LOCALHOST}",
        f"--service-account-private-key-file={layout.certificates.token_key}",
        f"--root-ca-file={layout.certificates.authority}",
        f"--controllers={_WITHOUT_ENDPOINTS}",
        f"--node-monitor-grace-period={_NODE_GRACE}",
        f"--horizontal-pod-autoscaler-sync-period={hpa_sync_s}s",
        f"--horizontal-pod-autoscaler-downscale-stabilization={hpa_downscale_s}s",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--leader-elect=false",
    ]


def scheduler(layout: Layout) -> list[str | Path]:
    """The real scheduler: it leaves pods Pending when the nodes have no GPU left."""
    return [
        layout.tools["kube-scheduler"],
        *_as_administrator(layout),
        f"--secure-port={layout.slot.port('scheduler')}",
        f"--bind-address={LOCALHOST}",
        "--kube-api-qps=200",
        "--kube-api-burst=400",
        "--leader-elect=false",
    ]


def _as_administrator(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
    ]


def _audit_policy(layout: Layout) -> Path:
    """Write down who asked what, for service accounts only: enough to compare a role with the calls made under it."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "userGroups": ["system:serviceaccounts"]}, {"level": "None"}],
    }
    path = layout.data / "audit-policy.yaml"
    path.write_text(yaml.safe_dump(policy))
    return path
