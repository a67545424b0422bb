"""What preflight asks of a cluster, and what it makes of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.cli import preflight_cluster
from outrider.cli.preflight_cluster import asked
from outrider.cli.preflight_examination import Knowledge, examined
from outrider.cli.preflight_outcome import Outcome
from outrider.cli.preflight_reading import Document, Unreadable
from outrider.errors import Conflict, Forbidden, KubeError, NotFound, Unavailable
from tests.unit.api.bodies import changed, example

Manifest = dict[str, Any]
TOKEN = {"spec.model.tokenSecret": {"name": "hub", "key": "token"}}
CACHE = {"spec.storage": {"modelCache": {"claimName": "weights"}}}
CLAIMS = {"spec.resources": {"gpus": 1, "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "one-h100"}]}}
TWO_GPUS = {"spec.resources": {"gpus": 2}}
QUOTA_OF_8 = {"requests.nvidia.com/gpu": "8"}
KINDS = {"SpeculativeInferenceService", "ScaledObject", "PodMonitor"}


class FakeCluster:
    """A cluster that has what it is told to have, and notes what it is sent."""

    def __init__(
        self,
        *objects: tuple[str, str, Manifest],
        nodes: list[int | None] | None = None,
        quotas: dict[str, dict[str, str]] | None = None,
        kinds: set[str] = KINDS,
        refusals: dict[str, KubeError] | None = None,
    ) -> None:
        self._objects = {(kind, name): body for kind, name, body in (("Namespace", "ml", {}), *objects)}
        self._nodes = [8, 8] if nodes is None else nodes
        self._quotas = quotas or {}
        self._kinds, self._refusals = kinds, refusals or {}
        self.sent: list[Manifest] = []
        self.selectors: list[str] = []

    def _refuse(self, kind: str) -> None:
        if kind in self._refusals:
            raise self._refusals[kind]

    async def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        self._refuse(kind)
        assert namespace == (None if kind == "Namespace" else "ml")
        return self._objects.get((kind, name))

    async def list(
        self, api_version: str, kind: str, namespace: str | None = None, label_selector: str = ""
    ) -> list[Manifest]:
        self._refuse(kind)
        if kind == "ResourceQuota":
            assert namespace == "ml"
            return [{"metadata": {"name": name}, "spec": {"hard": hard}} for name, hard in self._quotas.items()]
        self.selectors.append(label_selector)
        return [
            {"status": {"allocatable": {} if gpus is None else {"nvidia.com/gpu": str(gpus)}}} for gpus in self._nodes
        ]

    async def apply(
        self, manifest: Manifest, *, manager: str = "", subresource: str = "", dry_run: bool = False
    ) -> Manifest:
        assert dry_run, "preflight writes nothing"
        self._refuse(manifest["kind"])
        self.sent.append(manifest)
        return manifest

    async def serves(self, api_version: str, kind: str) -> bool:
        return kind in self._kinds


async def outcomes(cluster: FakeCluster, changes: dict[str, Any] | None = None) -> dict[str, Outcome]:
    document = Document("service.yaml", changed(example(), changes or {}))
    _, subject = examined(document, Knowledge())
    return {outcome.name: outcome for outcome in await asked(cluster, document, subject)}


async def test_a_cluster_that_has_everything() -> None:
    cluster = FakeCluster()
    found = await outcomes(cluster)
    assert {name: one.state for name, one in found.items()} == dict.fromkeys(
        (
            "namespace",
            "dry-run",
            "children-dry-run",
            "secrets-there",
            "claims-there",
            "kinds-served",
            "gpus-there",
            "quota-allows",
        ),
        "ok",
    )
    assert [manifest["kind"] for manifest in cluster.sent] == ["SpeculativeInferenceService", "Deployment", "Service"]


CASES: list[Any] = [
    ("namespace", {"metadata.namespace": "other"}, {}, "refused", "other does not exist"),
    ("dry-run", {}, {"kinds": set()}, "refused", "install its definition"),
    (
        "dry-run",
        {},
        {"refusals": {"SpeculativeInferenceService": KubeError("ApplyRefused", "spec.x: no", 422)}},
        "refused",
        "the API server refuses the SpeculativeInferenceService: spec.x: no",
    ),
    (
        "dry-run",
        {},
        {"refusals": {"SpeculativeInferenceService": NotFound("NotFound", "no namespace", 404)}},
        "notChecked",
        "namespace ml does not exist",
    ),
    (
        "dry-run",
        {},
        {"refusals": {"SpeculativeInferenceService": Forbidden("Forbidden", "may not patch", 403)}},
        "notChecked",
        "you may not look: may not patch",
    ),
    ("dry-run", {"metadata.name": None}, {}, "notChecked", "metadata.name is not given"),
    (
        "children-dry-run",
        {},
        {"refusals": {"Deployment": Conflict("Conflict", "bad affinity", 409)}},
        "refused",
        "the API server refuses the Deployment: bad affinity",
    ),
    (
        "children-dry-run",
        {"spec.service": {"annotations": {"a": "b"}}},
        {"refusals": {"Service": KubeError("ApplyRefused", "bad annotation", 422)}},
        "refused",
        "the API server refuses the Service: bad annotation",
    ),
    (
        "children-dry-run",
        {"spec.networkPolicy": {"allowFrom": [{"podSelectors": {}}]}},
        {"refusals": {"NetworkPolicy": KubeError("ApplyRefused", "no podSelectors", 422)}},
        "refused",
        "the API server refuses the NetworkPolicy: no podSelectors",
    ),
    ("children-dry-run", {"spec.networkPolicy": {"enabled": True}}, {}, "ok", "takes the Deployment"),
    (
        "children-dry-run",
        {},
        {"refusals": {"Service": Forbidden("Forbidden", "may not patch", 403)}},
        "notChecked",
        "you may not look: may not patch",
    ),
    ("children-dry-run", {"spec.engine": {"extraArgs": ["--swap-space=4"]}}, {}, "notChecked", "admission refuses"),
    ("secrets-there", TOKEN, {}, "refused", "spec.model.tokenSecret: there is no Secret hub"),
    ("secrets-there", TOKEN, {"objects": [("Secret", "hub", {"data": {}})]}, "refused", "has no key token"),
    ("secrets-there", TOKEN, {"objects": [("Secret", "hub", {"data": {"token": "eA=="}})]}, "ok", "is there"),
    (
        "secrets-there",
        {"spec.engine": {"env": [{"name": "K", "secret": {"name": "clients", "key": "key"}}]}},
        {},
        "refused",
        "spec.engine.env: there is no Secret clients",
    ),
    (
        "secrets-there",
        {"spec.engine": {"imagePullSecrets": ["registry"]}},
        {},
        "refused",
        "spec.engine.imagePullSecrets: there is no Secret registry",
    ),
    (
        "secrets-there",
        {"spec.model.source": {"objectStore": {"uri": "s3://m/a", "credentialsSecret": "reader"}}},
        {},
        "refused",
        "spec.model.source.objectStore.credentialsSecret: there is no Secret reader",
    ),
    (
        "secrets-there",
        TOKEN,
        {"refusals": {"Secret": Forbidden("Forbidden", "may not get secrets", 403)}},
        "notChecked",
        "you may not look: may not get secrets",
    ),
    ("claims-there", CACHE, {}, "refused", "there is no PersistentVolumeClaim weights"),
    ("claims-there", CACHE, {"objects": [("PersistentVolumeClaim", "weights", ["ReadWriteMany"])]}, "ok", "is there"),
    (
        "claims-there",
        CACHE,
        {"objects": [("PersistentVolumeClaim", "weights", ["ReadWriteOnce"])]},
        "warning",
        "can be mounted by one node only (ReadWriteOnce), and there may be 6 replicas",
    ),
    (
        "claims-there",
        CACHE | {"spec.autoscaling": None},
        {"objects": [("PersistentVolumeClaim", "weights", ["ReadWriteOnce"])]},
        "ok",
        "is there",
    ),
    (
        "claims-there",
        CACHE,
        {"objects": [("PersistentVolumeClaim", "weights", ["ReadWriteOncePod"])]},
        "refused",
        "by one pod only",
    ),
    (
        "claims-there",
        {"spec.speculation.draft.source": {"volume": {"claimName": "drafts"}}},
        {},
        "refused",
        "spec.speculation.draft.source.volume.claimName: there is no PersistentVolumeClaim drafts",
    ),
    (
        "claims-there",
        {"spec.storage": {"compileCache": {"claimName": "kernels"}}},
        {},
        "refused",
        "spec.storage.compileCache.claimName: there is no",
    ),
    ("kinds-served", {}, {"kinds": KINDS - {"ScaledObject"}}, "warning", "install KEDA"),
    ("kinds-served", {"spec.autoscaling": None}, {"kinds": KINDS - {"ScaledObject"}}, "ok", "or not needed"),
    ("kinds-served", {}, {"kinds": KINDS - {"PodMonitor"}}, "warning", "does not know the kind PodMonitor"),
    (
        "kinds-served",
        {"spec.monitoring": {"podMonitor": False}},
        {"kinds": KINDS - {"PodMonitor"}},
        "ok",
        "or not needed",
    ),
    ("gpus-there", {}, {"nodes": [4, 2, None]}, "ok", "room for 6 replicas of 1 nvidia.com/gpu"),
    ("gpus-there", {}, {"nodes": [4, 1]}, "warning", "room for 5 replicas of 1 GPUs, and there may be 6"),
    ("gpus-there", {"spec.resources": {"gpus": 4}}, {"nodes": [2, 2]}, "refused", "offers more than 2 nvidia.com/gpu"),
    ("gpus-there", {}, {"nodes": []}, "refused", "offers more than 0"),
    ("gpus-there", CLAIMS, {}, "refused", "there is no ResourceClaimTemplate one-h100"),
    ("quota-allows", {}, {}, "ok", "no ResourceQuota of the namespace bounds requests.nvidia.com/gpu"),
    ("quota-allows", {}, {"quotas": {"memory": {"requests.memory": "1Ti"}}}, "ok", "no ResourceQuota"),
    ("quota-allows", CLAIMS, {"quotas": {"team": QUOTA_OF_8}}, "ok", "no GPU resource is requested"),
    ("quota-allows", TWO_GPUS, {"quotas": {"team": QUOTA_OF_8}}, "ok", "allows 8 nvidia.com/gpu, room for 4 replicas"),
    (
        "quota-allows",
        TWO_GPUS | {"spec.autoscaling.minReplicas": 5},
        {"quotas": {"team": QUOTA_OF_8, "wide": {"requests.nvidia.com/gpu": "1k"}}},
        "warning",
        "spec.autoscaling.minReplicas: the fewest replicas need 10 GPUs, and ResourceQuota team allows 8",
    ),
    (
        "quota-allows",
        {"spec.resources": {"gpus": 16}},
        {"quotas": {"team": QUOTA_OF_8}},
        "warning",
        "spec.resources.gpus: the fewest replicas need 16 GPUs",
    ),
    ("gpus-there", CLAIMS, {"objects": [("ResourceClaimTemplate", "one-h100", {})]}, "ok", "is there"),
]


@pytest.mark.parametrize(
    ("name", "changes", "cluster", "state", "words"),
    [pytest.param(*case, id=f"{case[0]}-{position}") for position, case in enumerate(CASES)],
)
async def test_checks(name: str, changes: dict[str, Any], cluster: dict[str, Any], state: str, words: str) -> None:
    objects = [
        (kind, one, {"spec": {"accessModes": body}} if isinstance(body, list) else body)
        for kind, one, body in cluster.get("objects", ())
    ]
    if "metadata.namespace" in changes:
        found = {one.name: one for one in await asked(Elsewhere(), Document("x", changed(example(), changes)), None)}
    else:
        given = {key: value for key, value in cluster.items() if key != "objects"}
        found = await outcomes(FakeCluster(*objects, **given), changes)
    assert found[name].state == state, found[name].verdicts
    assert any(words in verdict.message for verdict in found[name].verdicts), found[name].verdicts


class Elsewhere(FakeCluster):
    """A cluster whose only namespace is another one."""

    async def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        return None


async def test_nodes_are_asked_for_by_the_selector_of_the_service() -> None:
    cluster = FakeCluster()
    await outcomes(cluster, {"spec.placement": {"nodeSelector": {"pool": "h100", "a": "b"}}})
    assert cluster.selectors == ["a=b,pool=h100"]


async def test_what_is_sent_is_what_the_user_wrote_and_what_the_operator_would_make_of_it() -> None:
    cluster = FakeCluster()
    written = {"metadata.uid": "5f0c", "metadata.resourceVersion": "7", "status": {"replicas": {}}}
    await outcomes(cluster, written)
    service, deployment, _ = cluster.sent
    assert service["metadata"] == {"name": "chat", "namespace": "ml"}
    assert "status" not in service
    assert service["spec"] == example()["spec"]
    assert deployment["metadata"]["name"] == "chat"
    assert all(owner["uid"] for owner in deployment["metadata"]["ownerReferences"])


async def test_a_resource_without_a_namespace_goes_to_the_default_one() -> None:
    cluster = Elsewhere()
    await asked(cluster, Document("x", changed(example(), {"metadata.namespace": None})), None)
    assert cluster.sent[0]["metadata"]["namespace"] == "default"


async def test_of_a_resource_whose_form_is_wrong_the_api_server_is_asked_alone() -> None:
    found = await outcomes(FakeCluster(), {"spec.xyzzy": 1})
    assert list(found) == ["namespace", "dry-run"]


async def test_a_cluster_that_does_not_answer_is_no_verdict() -> None:
    silent = FakeCluster(refusals={"Namespace": Unavailable("APIServerUnreachable", "no answer")})
    with pytest.raises(Unavailable):
        await outcomes(silent)


def test_without_a_kubeconfig_the_command_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Unreadable, match=r"--cluster: .*: name the file .* in KUBECONFIG"):
        preflight_cluster.ask([])
