"""The Deployment and its pod template: the rules that real clusters taught."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.manifests.builders import made_deployment


def template(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The pod template."""
    found: dict[str, Any] = made_deployment(changes)["spec"]["template"]
    return found


def pod(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The pod's spec."""
    spec: dict[str, Any] = template(changes)["spec"]
    return spec


def engine(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Its only container."""
    (container,) = pod(changes)["containers"]
    assert isinstance(container, dict)
    return container


def revision(changes: dict[str, Any] | None = None) -> str:
    """The label that names the template."""
    label: str = template(changes)["metadata"]["labels"]["serving.outrider.dev/revision"]
    return label


def test_replicas_are_left_to_the_autoscaler() -> None:
    assert "replicas" not in made_deployment(replicas=None)["spec"]
    assert made_deployment(replicas=3)["spec"]["replicas"] == 3


def test_a_rollout_needs_no_spare_gpu() -> None:
    strategy = made_deployment()["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


@pytest.mark.parametrize("budget_s", [60, 1800, 7200])
def test_a_slow_load_is_no_failed_rollout(budget_s: int) -> None:
    spec = made_deployment({"spec.startup": {"budgetSeconds": budget_s}})["spec"]
    assert spec["progressDeadlineSeconds"] > budget_s + spec["template"]["spec"]["terminationGracePeriodSeconds"]


def test_the_selector_is_service_and_track_and_nothing_that_may_change() -> None:
    spec = made_deployment()["spec"]
    assert spec["selector"]["matchLabels"] == {
        "serving.outrider.dev/service": "chat",
        "serving.outrider.dev/track": "stable",
    }
    assert spec["template"]["metadata"]["labels"].items() >= spec["selector"]["matchLabels"].items()


def test_a_candidate_has_a_name_and_a_selector_of_its_own_and_the_same_revision() -> None:
    stable, candidate = made_deployment(), made_deployment(replicas=1, track="candidate")
    assert candidate["metadata"]["name"] == "chat-candidate"
    assert candidate["spec"]["selector"] != stable["spec"]["selector"]
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in (stable, candidate)]
    assert len({label["serving.outrider.dev/revision"] for label in labels}) == 1


@pytest.mark.parametrize("changes", [{}, {"spec.parallelism": {"tensor": 1}}], ids=["default", "tensor 1"])
def test_shared_memory_is_mounted_whatever_the_parallelism(changes: dict[str, Any]) -> None:
    volumes = {volume["name"]: volume for volume in pod(changes)["volumes"]}
    assert volumes["shared-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in engine(changes)["volumeMounts"]


def test_probes_give_a_slow_model_its_budget_and_find_a_fast_one_at_once() -> None:
    container = engine({"spec.startup": {"budgetSeconds": 802}})
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= 802
    assert startup["periodSeconds"] <= 10
    assert startup["httpGet"] == {"path": "/health", "port": "http"}
    assert not [
        name for name in ("startupProbe", "readinessProbe", "livenessProbe") if "initialDelaySeconds" in container[name]
    ]
    liveness = container["livenessProbe"]
    assert liveness["httpGet"]["path"] == "/health"
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 120


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, {"path": "/ready", "port": "admin"}, id="our image is asked by the plugin"),
        pytest.param(
            {"spec.engine": {"image": "registry.example.com/vllm:0.33.0"}},
            {"path": "/health", "port": "http"},
            id="another image by vLLM itself",
        ),
    ],
)
def test_readiness(changes: dict[str, Any], expected: dict[str, str]) -> None:
    assert engine(changes)["readinessProbe"]["httpGet"] == expected


def test_a_pod_leaves_the_endpoints_before_it_stops_and_has_time_to_finish() -> None:
    drain = {"preStopSeconds": 15, "shutdownTimeoutSeconds": 60, "terminationGraceSeconds": 120}
    container = engine({"spec.drain": drain})
    assert container["lifecycle"]["preStop"] == {"sleep": {"seconds": 15}}
    assert container["args"][container["args"].index("--shutdown-timeout") + 1] == "60"
    assert pod({"spec.drain": drain})["terminationGracePeriodSeconds"] == 120


def test_services_of_the_namespace_do_not_become_settings_of_the_engine() -> None:
    assert pod({"metadata.name": "vllm"})["enableServiceLinks"] is False


def test_the_pod_is_restricted_and_has_no_token() -> None:
    spec, security = pod(), engine()["securityContext"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert security["capabilities"] == {"drop": ["ALL"]}
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True


def test_what_the_engine_writes_has_a_volume_to_go_to() -> None:
    container = engine()
    mounts = [mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    environment = {variable["name"]: variable.get("value") for variable in container["env"]}
    for name in ("HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "TMPDIR", "VLLM_RPC_BASE_PATH"):
        assert environment[name].startswith(tuple(mounts)), name


def test_documents_are_mounted_as_folders_so_that_they_are_refreshed() -> None:
    assert not [mount for mount in engine()["volumeMounts"] if "subPath" in mount]


def test_gpus_are_requested_as_they_are_limited() -> None:
    resources = engine({"spec.resources": {"gpus": 2, "cpu": 8, "memory": "64Gi"}})["resources"]
    assert resources == {
        "requests": {"nvidia.com/gpu": "2", "memory": "64Gi", "cpu": "8"},
        "limits": {"nvidia.com/gpu": "2", "memory": "64Gi"},
    }


def test_secrets_are_references_and_not_optional() -> None:
    container = engine(
        {
            "spec.model.tokenSecret": {"name": "hub-token", "key": "token"},
            "spec.engine": {"env": [{"name": "VLLM_API_KEY", "secret": {"name": "clients", "key": "key"}}]},
        }
    )
    references = {variable["name"]: variable["valueFrom"] for variable in container["env"] if "valueFrom" in variable}
    assert references == {
        "HF_TOKEN": {"secretKeyRef": {"name": "hub-token", "key": "token", "optional": False}},
        "VLLM_API_KEY": {"secretKeyRef": {"name": "clients", "key": "key", "optional": False}},
    }


def test_arguments_pass_no_shell() -> None:
    assert "command" not in engine()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec.objectives": {"tpotMilliseconds": 7}}, id="objectives"),
        pytest.param({"spec.autoscaling": {"minReplicas": 2, "maxReplicas": 9}}, id="bounds of the replicas"),
        pytest.param({"spec.speculation.tuning.mode": "Observe"}, id="observing"),
        pytest.param({"spec.speculation.tuning": {"policy": "AcceptanceThreshold"}}, id="policy"),
        pytest.param({"spec.paused": True}, id="pause"),
        pytest.param({"spec.monitoring": {"labels": {"a": "b"}}}, id="monitoring"),
        pytest.param({"metadata.generation": 9}, id="generation"),
        pytest.param({"spec.speculation.tuning": None}, id="a default written out or not"),
    ],
)
def test_what_can_be_changed_without_restarting_engines(changes: dict[str, Any]) -> None:
    assert revision(changes) == revision()


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"spec.speculation.maxSpeculativeTokens": 4}, id="ceiling"),
        pytest.param({"spec.speculation.tuning.mode": "Off"}, id="off"),
        pytest.param({"spec.model.revision": "v2"}, id="weights"),
        pytest.param({"spec.engine": {"maxNumSeqs": 64}}, id="batch size"),
    ],
)
def test_what_restarts_engines(changes: dict[str, Any]) -> None:
    assert revision(changes) != revision()


def test_the_revision_of_the_minimal_example_is_the_one_of_the_first_release() -> None:
    # A change here restarts every engine of every such service when the operator is upgraded.
    assert revision() == "59db64af95"
