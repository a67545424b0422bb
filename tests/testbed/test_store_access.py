"""A Prometheus behind TLS of the company's own authority, client certificates and passwords: the real one, asked by the
operator and by the real KEDA."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed import operator
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.layout import KEDA_NAMESPACE, LOCALHOST
from tests.testbed.pki import Authority
from tests.testbed.service import ServiceView

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
STORE = "guarded-prometheus"
REFERENCE = "outrider-prometheus"
PASSWORD, RENEWED = "hunter2", "hunter3"
HASHES = {
    PASSWORD: "$2b$04$8JPu/CADyyiU82HEit.vmOn1UTgMkBBKewf.w19ucdpMbnQROTcE2",
    RENEWED: "$2b$04$nFU0fOePnVa.ZNBPpmx0vOFTYe0RCEzlr7DR.xC/wtKk4qqwXnV6y",
}
"""Their bcrypt, of the lowest cost."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A cluster whose Prometheus wants to know who asks."""

    cluster: Cluster
    settings: dict[str, str]
    """The operator's."""
    web: Path
    """What Prometheus reads at every request."""
    tls: dict[str, str]
    password: Path
    """The file that the operator reads."""
    secret: dict[str, str]
    """What KEDA shows beside the password, by parameter."""

    def want(self, password: str) -> None:
        """Have the store let in who shows this password, and a certificate of the company's."""
        users = {"outrider": HASHES[password]}
        self.web.write_text(yaml.safe_dump({"tls_server_config": self.tls, "basic_auth_users": users}))

    def show(self, password: str) -> None:
        """Have the operator and KEDA show it, as a Secret that is renewed does."""
        self.password.write_text(password)
        secret = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": REFERENCE, "namespace": KEDA_NAMESPACE},
            "stringData": self.secret | {"password": password},
        }
        self.cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(secret))


@pytest.fixture(scope="module")
def guarded(start_cluster: StartCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """The cluster, the guarded store, the reference in KEDA's namespace, and an operator that asks that store."""
    folder = tmp_path_factory.mktemp("store")
    authority = Authority(folder, "company")
    server = authority.issue("server", subject="prometheus", hosts=[LOCALHOST])
    ours, kedas = authority.issue("outrider", subject="outrider"), authority.issue("keda", subject="keda")
    tls = {
        "cert_file": str(server.certificate),
        "key_file": str(server.key),
        "client_ca_file": str(authority.certificate),
        "client_auth_type": "RequireAndVerifyClientCert",
    }
    secret = {
        "username": "outrider",
        "ca": authority.certificate.read_text(),
        "cert": kedas.certificate.read_text(),
        "key": kedas.key.read_text(),
    }
    cluster = start_cluster({"keda", "prometheus", "engines"}, scrape_interval_s=0.5)
    settings = {
        "OUTRIDER_PROMETHEUS_URL": f"https://{LOCALHOST}:{cluster.port(STORE)}",
        "OUTRIDER_PROMETHEUS_USERNAME": "outrider",
        "OUTRIDER_PROMETHEUS_PASSWORD_FILE": str(folder / "password"),
        "OUTRIDER_PROMETHEUS_CA_FILE": str(authority.certificate),
        "OUTRIDER_PROMETHEUS_CLIENT_CERTIFICATE_FILE": str(ours.certificate),
        "OUTRIDER_PROMETHEUS_CLIENT_KEY_FILE": str(ours.key),
        "OUTRIDER_PROMETHEUS_HEADERS": "X-Scope-OrgID=ml",
        "OUTRIDER_KEDA_TRIGGER_AUTHENTICATION": REFERENCE,
    }
    found = Guarded(cluster, settings, folder / "web.yaml", tls, folder / "password", secret)
    found.want(PASSWORD)
    found.show(PASSWORD)
    cluster.start_guarded_prometheus(STORE, found.web)
    parameters = [{"parameter": name, "name": REFERENCE, "key": name} for name in (*secret, "password")]
    reference = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ClusterTriggerAuthentication",
        "metadata": {"name": REFERENCE},
        "spec": {"secretTargetRef": parameters},
    }
    cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump(reference))
    operator.install(cluster)
    operator.start(cluster, settings)
    yield found
    operator.stop(cluster)


def test_operator_and_keda_show_who_they_are_and_nobody_else_sees_it(guarded: Guarded) -> None:
    cluster = guarded.cluster
    cluster.kubectl("create", "namespace", "ml")
    view = ServiceView(cluster, "ml", "chat")
    manifest: dict[str, Any] = yaml.safe_load((EXAMPLES / "01-minimal.yaml").read_text())
    manifest["metadata"]["namespace"] = "ml"
    manifest["spec"]["autoscaling"] = {"minReplicas": 2, "maxReplicas": 4}
    view.apply(manifest)
    cluster.wait_until("metrics", lambda: view.condition("MetricsAvailable") == ("True", "Fresh"))
    cluster.wait_until("scaling", lambda: view.condition("AutoscalingReady") == ("True", "Scaling"))
    trigger = view.get("scaledobject")["spec"]["triggers"][0]
    assert trigger["authenticationRef"] == {"kind": "ClusterTriggerAuthentication", "name": REFERENCE}
    assert trigger["metadata"]["authModes"] == "basic,tls"
    assert trigger["metadata"]["customHeaders"] == "X-Scope-OrgID=ml"
    secrets = cluster.kubectl("get", "secrets", "-n", "ml", "-o", "name").stdout.split()
    assert secrets == ["secret/chat-admin"], "no secret of the store's lies beside the service"

    guarded.want(RENEWED)
    cluster.wait_until("refusal", lambda: view.condition("MetricsAvailable") == ("False", "PrometheusRefused"))
    view.says("MetricsAvailable", "OUTRIDER_PROMETHEUS_PASSWORD_FILE")
    # KEDA falls back after three failures, which are 15 s from one another.
    cluster.wait_until("fallback", lambda: view.condition("AutoscalingReady") == ("False", "Fallback"), 240)
    assert view.get("deployment")["spec"]["replicas"] == 2

    guarded.show(RENEWED)
    cluster.wait_until("metrics again", lambda: view.condition("MetricsAvailable") == ("True", "Fresh"))
    cluster.wait_until("scaling again", lambda: view.condition("AutoscalingReady") == ("True", "Scaling"), 240)
    everything = operator.log(cluster) + yaml.safe_dump([view.resource(), view.get("scaledobject")])
    assert PASSWORD not in everything
    assert RENEWED not in everything


def test_a_reference_that_is_not_there_is_told_in_kedas_words(guarded: Guarded) -> None:
    cluster, view = guarded.cluster, ServiceView(guarded.cluster, "ml", "chat")
    operator.stop(cluster)
    operator.start(cluster, guarded.settings | {"OUTRIDER_KEDA_TRIGGER_AUTHENTICATION": "nobody"})
    refused = ("False", "ScaledObjectNotReady")
    cluster.wait_until("KEDA's refusal", lambda: view.condition("AutoscalingReady") == refused)
    cluster.wait_until("our own metrics", lambda: view.condition("MetricsAvailable") == ("True", "Fresh"))
    assert view.get("deployment")["spec"]["replicas"] == 2
    operator.stop(cluster)
    operator.start(cluster, guarded.settings)
    cluster.wait_until("scaling", lambda: view.condition("AutoscalingReady") == ("True", "Scaling"), 240)
