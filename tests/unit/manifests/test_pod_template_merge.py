"""What users add to the pod template: what is merged, what is refused and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from outrider.errors import InvalidSpec
from tests.unit.manifests.builders import made


def template(added: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The pod template of the minimal example with an own template."""
    found: dict[str, Any] = made({"spec.podTemplate": added, **changes})["Deployment"]["spec"]["template"]
    return found


def spec(added: dict[str, Any]) -> dict[str, Any]:
    """The pod's spec with parts of a user's own."""
    found: dict[str, Any] = template({"spec": added})["spec"]
    return found


def engine(**fields: Any) -> dict[str, Any]:
    """An own template with something for the engine's container."""
    return {"containers": [{"name": "engine", **fields}]}


def sidecar(**fields: Any) -> dict[str, Any]:
    """An own template with a further container."""
    return {"containers": [{"name": "guard", "image": "guard:1", **fields}]}


def revision(found: dict[str, Any]) -> str:
    """The label that names a template."""
    label: str = found["metadata"]["labels"]["serving.outrider.dev/revision"]
    return label


@pytest.mark.parametrize(
    ("added", "expected"),
    [
        pytest.param({"dnsPolicy": "None"}, {"dnsPolicy": "None"}, id="a scalar that we do not set"),
        pytest.param({"hostAliases": [{"ip": "10.0.0.7"}]}, {"hostAliases": [{"ip": "10.0.0.7"}]}, id="a list"),
        pytest.param({"fieldOfTomorrow": {"a": 1}}, {"fieldOfTomorrow": {"a": 1}}, id="what only the server can judge"),
    ],
)
def test_what_we_have_no_opinion_on_is_passed_on(added: dict[str, Any], expected: dict[str, Any]) -> None:
    assert spec(added) == {**spec({}), **expected}


def test_nothing_added_is_nothing_changed() -> None:
    plain = template()
    assert template({}) == template({"metadata": {}, "spec": {}}) == plain
    assert template({"spec": {"containers": [], "volumes": [], "initContainers": []}}) == plain


def test_volumes_and_containers_come_after_ours() -> None:
    found = spec(
        {
            "volumes": [{"name": "spool", "emptyDir": {}}],
            "containers": [{"name": "guard", "image": "guard:1"}],
            "initContainers": [{"name": "prepare", "image": "prepare:1"}],
        }
    )
    assert [volume["name"] for volume in found["volumes"]][-2:] == ["admin", "spool"]
    assert [container["name"] for container in found["containers"]] == ["engine", "guard"]
    assert [container["name"] for container in found["initContainers"]] == ["prepare"]
    bucket = {"spec.model.source": {"objectStore": {"uri": "s3://b/p"}}}
    prepared = template({"spec": {"initContainers": [{"name": "prepare", "image": "prepare:1"}]}}, **bucket)
    assert [one["name"] for one in prepared["spec"]["initContainers"]] == ["download", "prepare"]


def test_the_engine_gets_mounts_and_devices_beside_its_own() -> None:
    mount = {"name": "prompts", "mountPath": "/prompts"}
    plain = spec({})["containers"][0]
    found = spec(engine(volumeMounts=[mount], resources={"limits": {"example.com/rdma": "1"}}))["containers"][0]
    assert found["volumeMounts"] == [*plain["volumeMounts"], mount]
    assert found["resources"]["limits"] == {**plain["resources"]["limits"], "example.com/rdma": "1"}
    assert found["resources"]["requests"] == plain["resources"]["requests"]
    rest = {name: value for name, value in found.items() if name not in ("volumeMounts", "resources")}
    assert rest == {name: value for name, value in plain.items() if name not in ("volumeMounts", "resources")}


def test_labels_and_annotations_are_added_and_ours_stay() -> None:
    found = template({"metadata": {"labels": {"team": "chat"}, "annotations": {"example.com/a": "b"}}})["metadata"]
    ours = template()["metadata"]["labels"]
    assert {**found["labels"], "serving.outrider.dev/revision": ""} == {
        **ours,
        "team": "chat",
        "serving.outrider.dev/revision": "",
    }
    assert found["annotations"] == {"example.com/a": "b"}
    assert "annotations" not in template()["metadata"]


def test_whatever_is_added_makes_another_revision() -> None:
    found = [
        template(),
        template({"metadata": {"labels": {"team": "chat"}}}),
        template({"metadata": {"labels": {"team": "code"}}}),
        template({"metadata": {"annotations": {"team": "chat"}}}),
        template({"spec": {"dnsPolicy": "None"}}),
    ]
    assert len({revision(one) for one in found}) == len(found)


def test_containers_of_the_users_own_keep_the_restricted_profile() -> None:
    loose = spec(sidecar(securityContext={"runAsUser": 5, "capabilities": {"add": ["NET_BIND_SERVICE"]}}))
    assert loose["containers"][1]["securityContext"] == {
        "runAsUser": 5,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
    }
    assert spec(sidecar())["containers"][1]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an account with rights": ({"serviceAccountName": "admin"}, "serviceAccountName .* without rights; remove"),
    "its old name": ({"serviceAccount": "admin"}, "serviceAccount is set by the operator"),
    "a token": ({"automountServiceAccountToken": True}, "no token of the API server; remove it"),
    "the node's network": ({"hostNetwork": True}, "hostNetwork shares the node's own"),
    "the node's processes": ({"hostPID": True}, "hostPID shares the node's own"),
    "the node's messages": ({"hostIPC": True}, "hostIPC shares the node's own"),
    "grace": ({"terminationGracePeriodSeconds": 5}, r"set from spec\.drain\.terminationGraceSeconds"),
    "tolerations": ({"tolerations": []}, r"set from spec\.placement\.tolerations"),
    "scheduler": ({"schedulerName": "x"}, r"set from spec\.placement\.schedulerName"),
    "pull secrets": ({"imagePullSecrets": []}, r"set from spec\.engine\.imagePullSecrets"),
    "claims": ({"resourceClaims": []}, r"set from spec\.resources\.resourceClaims"),
    "service links": ({"enableServiceLinks": True}, "a Service called vllm would stop the engine"),
    "a node by name": ({"nodeName": "n1"}, r"use spec\.placement\.nodeSelector"),
    "root for all": ({"securityContext": {"runAsUser": 0}}, r"securityContext\.runAsUser .* use spec\.security"),
    "a kernel setting": ({"securityContext": {"sysctls": []}}, r"securityContext\.sysctls"),
    "a folder of the node": ({"volumes": [{"name": "x", "hostPath": {"path": "/"}}]}, r"volumes\[x\]: hostPath is no"),
    "a volume of ours": ({"volumes": [{"name": "admin", "emptyDir": {}}]}, r"volumes\[admin\]: .* take another"),
    "a volume twice": ({"volumes": [{"name": "x"}, {"name": "x"}]}, "volumes has a name twice"),
    "a token by a volume": (
        {"volumes": [{"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        "a serviceAccountToken without an audience",
    ),
    "a token of the API server by its name": (
        {
            "volumes": [
                {
                    "name": "x",
                    "projected": {
                        "sources": [
                            {"serviceAccountToken": {"path": "t", "audience": "https://kubernetes.default.svc"}}
                        ]
                    },
                }
            ]
        },
        "or with the API server's own, is one of the API server; name another",
    ),
    "a certificate of the API server's clients": (
        {
            "volumes": [
                {
                    "name": "x",
                    "projected": {
                        "sources": [{"podCertificate": {"signerName": "kubernetes.io/kube-apiserver-client-pod"}}]
                    },
                }
            ]
        },
        "kube-apiserver-client-pod opens the API server; name another signer",
    ),
    "volumes that are no list": ({"volumes": "x"}, "volumes must be a list of objects with a name"),
    "a container without a name": ({"containers": [{"image": "x"}]}, "containers must be a list"),
    "a security context that is no object": ({"securityContext": "x"}, "securityContext must be an object"),
    "the engine as what starts first": ({"initContainers": [{"name": "engine"}]}, r"initContainers\[engine\]: .* own"),
    "the engine's variables": (engine(env=[]), r"containers\[engine\]\.env .* use spec\.engine\.env"),
    "its variables by the dozen": (engine(envFrom=[]), r"containers\[engine\]\.envFrom .* use spec\.engine\.env"),
    "its image": (engine(image="x"), r"use spec\.engine\.image"),
    "its arguments": (engine(args=[]), r"use spec\.engine\.extraArgs"),
    "its end": (engine(lifecycle={}), r"use spec\.drain"),
    "its start": (engine(startupProbe={}), r"use spec\.startup\.budgetSeconds"),
    "its probes": (engine(livenessProbe={}), r"livenessProbe is the operator's to set; remove it"),
    "its rights": (engine(securityContext={"privileged": True}), r"use spec\.security"),
    "its memory": (engine(resources={"limits": {"memory": "1Gi"}}), r"limits\.memory .* use spec\.resources\.memory"),
    "its processors": (engine(resources={"requests": {"cpu": "1"}}), r"requests\.cpu .* use spec\.resources\.cpu"),
    "its GPUs": (engine(resources={"limits": {"nvidia.com/gpu": "8"}}), r"use spec\.resources\.gpus"),
    "its claims": (engine(resources={"claims": [{"name": "x"}]}), r"claims in spec\.resources"),
    "a mount on ours": (engine(volumeMounts=[{"name": "x", "mountPath": "/dev/shm/"}]), "would hide .* /dev/shm;"),
    "a mount above ours": (engine(volumeMounts=[{"name": "x", "mountPath": "/etc"}]), "/etc would hide"),
    "a mount on everything": (engine(volumeMounts=[{"name": "x", "mountPath": "/"}]), "/ would hide"),
    "a mount inside our documents": (
        engine(volumeMounts=[{"name": "x", "mountPath": "/etc/outrider/admin/key"}]),
        "would hide the operator's /etc/outrider/admin",
    ),
    "a mount on ours, the long way": (
        engine(volumeMounts=[{"name": "x", "mountPath": "/srv/..//etc/outrider/schedule/."}]),
        "/etc/outrider/schedule would hide",
    ),
    "mounts that are no list": (engine(volumeMounts={}), "volumeMounts: must be a list"),
    "a privileged sidecar": (
        sidecar(securityContext={"privileged": True}),
        r"containers\[guard\]: .*privileged breaks",
    ),
    "escalation": (sidecar(securityContext={"allowPrivilegeEscalation": True}), "allowPrivilegeEscalation breaks"),
    "a sidecar as root": (sidecar(securityContext={"runAsUser": 0}), "runAsUser breaks"),
    "root allowed": (sidecar(securityContext={"runAsNonRoot": False}), "runAsNonRoot breaks"),
    "no filter": (sidecar(securityContext={"seccompProfile": {"type": "Unconfined"}}), "seccompProfile breaks"),
    "a capability": (sidecar(securityContext={"capabilities": {"add": ["SYS_PTRACE"]}}), "may only have NET_BIND"),
    "capabilities that are none": (sidecar(securityContext={"capabilities": {"add": [{}]}}), "may only have NET_BIND"),
    "a port of the node": (sidecar(ports=[{"containerPort": 9000, "hostPort": 9000}]), "remove hostPort"),
    "a probe of another host": (
        sidecar(livenessProbe={"httpGet": {"host": "169.254.169.254", "port": 80}}),
        r"containers\[guard\]: livenessProbe\.httpGet\.host makes the node ask",
    ),
    "a hook to another host": (
        sidecar(lifecycle={"preStop": {"tcpSocket": {"host": "10.0.0.1", "port": 80}}}),
        r"lifecycle\.preStop\.tcpSocket\.host .* remove host",
    ),
    "GPUs past the scheduler": (
        sidecar(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]),
        "NVIDIA_VISIBLE_DEVICES .* request GPUs in resources",
    ),
    "GPUs from where nobody sees it": (
        sidecar(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "valueFrom": {}}]),
        "NVIDIA_VISIBLE_DEVICES .* remove it",
    ),
    "the operator's key": (
        sidecar(volumeMounts=[{"name": "admin", "mountPath": "/key"}]),
        "admin holds the operator's key",
    ),
    "the name of our port": (sidecar(ports=[{"name": "http", "containerPort": 9000}]), "take another name and number"),
    "the number of our port": (sidecar(ports=[{"name": "x", "containerPort": 8001}]), "take another name and number"),
}


@pytest.mark.parametrize(("added", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_refused(added: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec, match=rf"^spec\.podTemplate\.spec\..*{words}") as caught:
        spec(added)
    assert caught.value.reason == "PodTemplateRefused"


ADMITTED: dict[str, dict[str, Any]] = {
    "a volume from a claim": {"volumes": [{"name": "x", "persistentVolumeClaim": {"claimName": "x"}}]},
    "a token for somebody else": {
        "volumes": [
            {"name": "x", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "sts"}}]}}
        ]
    },
    "groups of files": {"securityContext": {"supplementalGroups": [5], "fsGroupChangePolicy": "OnRootMismatch"}},
    "a mount below a folder of ours": engine(volumeMounts=[{"name": "x", "mountPath": "/var/cache/engine/x"}]),
    "a mount beside ours": engine(volumeMounts=[{"name": "x", "mountPath": "/etc/outrider-prompts"}]),
    "a device": engine(resources={"requests": {"example.com/rdma": "1"}, "limits": {"example.com/rdma": "1"}}),
    "a sidecar with a port": sidecar(ports=[{"name": "guard", "containerPort": 8002}]),
    "a sidecar with a user": sidecar(securityContext={"runAsUser": 1, "runAsNonRoot": True}),
    "a sidecar with a profile": sidecar(securityContext={"seccompProfile": {"type": "RuntimeDefault"}}),
    "a sidecar with a probe": sidecar(livenessProbe={"httpGet": {"host": "", "port": 8002}}),
    "a sidecar without GPUs": sidecar(env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}]),
    "a sidecar with a mount": sidecar(volumeMounts=[{"name": "schedule", "mountPath": "/schedule"}]),
    "a low port": sidecar(securityContext={"capabilities": {"add": ["NET_BIND_SERVICE"]}}),
}


@pytest.mark.parametrize("added", ADMITTED.values(), ids=ADMITTED.keys())
def test_admitted(added: dict[str, Any]) -> None:
    assert spec(added) != spec({})


MISSHAPEN: dict[str, dict[str, Any]] = {
    "capabilities": sidecar(securityContext={"capabilities": {"add": 5}}),
    "a security context": sidecar(securityContext=5),
    "ports": sidecar(ports=5),
    "variables": sidecar(env=5),
    "mounts": sidecar(volumeMounts=5),
    "probes": sidecar(livenessProbe=5, lifecycle=5),
    "sources of a volume": {"volumes": [{"name": "x", "projected": {"sources": 5}}]},
}


@pytest.mark.parametrize("added", MISSHAPEN.values(), ids=MISSHAPEN.keys())
def test_what_has_not_the_form_of_a_pod_is_left_to_the_server(added: dict[str, Any]) -> None:
    assert spec(added) != spec({})


@pytest.mark.parametrize(
    "key", ["serving.outrider.dev/service", "serving.outrider.dev/x", "app.kubernetes.io/managed-by"]
)
def test_labels_by_which_pods_are_found_are_ours(key: str) -> None:
    with pytest.raises(InvalidSpec, match=rf"spec\.podTemplate\.metadata\.labels: {key} is set by the operator"):
        template({"metadata": {"labels": {key: "x"}}})
    assert template({"metadata": {"labels": {"app.kubernetes.io/name": "x"}}})


def test_annotations_that_loosen_the_profile_are_refused() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/engine"
    with pytest.raises(InvalidSpec, match=rf"metadata\.annotations: {key} would loosen"):
        template({"metadata": {"annotations": {key: "unconfined"}}})


def test_every_fault_is_named_at_once() -> None:
    with pytest.raises(InvalidSpec, match=r"hostNetwork.*; spec\.podTemplate\.spec\.containers\[engine\]\.env"):
        spec({"hostNetwork": True, **engine(env=[])})
