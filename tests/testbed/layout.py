"""What the parts of a cluster know of one another: folders, ports, programs and certificates of one run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.testbed import pki
from tests.testbed.slots import Slot
from tests.testbed.tools import Toolset

LOCALHOST = "127.0.0.1"
KEDA_NAMESPACE = "keda"
KEDA_SERVER_NAMES = ("keda-metrics-apiserver.keda.svc", "keda-operator.keda.svc", "localhost")
"""The API server checks the adapter's certificate against the first; the adapter dials the operator by the last."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """The authorities, certificates and keys of a cluster, all files under ``pki/``."""

    authority: Path
    front_authority: Path
    """Signs only the aggregation layer's client: an aggregated server that trusts it trusts the user names it passes
    on.
    """
    apiserver: pki.Pair
    administrator: pki.Pair
    front_proxy: pki.Pair
    keda: pki.Pair
    token_key: Path
    token_public_key: Path


@dataclass(frozen=True, slots=True)
class Layout:
    """One cluster's place on this machine."""

    folder: Path
    slot: Slot
    tools: Toolset
    certificates: Certificates

    @property
    def server(self) -> str:
        return f"https://{LOCALHOST}:{self.slot.port('apiserver')}"

    @property
    def prometheus_url(self) -> str:
        return f"http://{LOCALHOST}:{self.slot.port('prometheus')}"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def data(self) -> Path:
        """What may be thrown away when the cluster ends: databases and certificates."""
        return self.folder / "data"

    def address(self, port_name: str) -> str:
        return f"{LOCALHOST}:{self.slot.port(port_name)}"


def make_certificates(folder: Path) -> Certificates:
    """Make all keys and certificates of a new cluster in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    authority, front = pki.Authority(folder, "ca"), pki.Authority(folder, "front-ca")
    private, public = pki.signing_keys(folder)
    apiserver_hosts = ("localhost", LOCALHOST, "10.0.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    return Certificates(
        authority=authority.certificate,
        front_authority=front.certificate,
        apiserver=authority.issue("apiserver", subject="kube-apiserver", hosts=apiserver_hosts),
        administrator=authority.issue("administrator", subject="administrator", group="system:masters"),
        front_proxy=front.issue("front-proxy", subject="front-proxy"),
        keda=authority.issue("keda", subject="keda", hosts=(*KEDA_SERVER_NAMES, LOCALHOST)),
        token_key=private,
        token_public_key=public,
    )
