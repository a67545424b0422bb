"""Problems that users of other stacks reported (C07, C10 and so on): what the children must look like."""

from __future__ import annotations

import json
from typing import Any

import pytest

from outrider.api.defaults import resolve
from outrider.engine.admission import admit
from outrider.errors import InvalidSpec
from outrider.manifests import engine_settings
from outrider.simulator.command_line import parse as start
from tests.unit.api.bodies import resource
from tests.unit.engine.kubernetes_expansion import expand
from tests.unit.manifests.builders import all_children, made
from tests.unit.manifests.golden import manifests, resources


def pod(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """The pod's spec of the minimal example with changes."""
    spec: dict[str, Any] = made(changes)["Deployment"]["spec"]["template"]["spec"]
    return spec


def engine(changes: dict[str, Any] | None = None) -> dict[str, Any]:
    """Its engine."""
    container: dict[str, Any] = pod(changes)["containers"][0]
    return container


def value(arguments: list[str], flag: str) -> str:
    """What follows a flag."""
    return arguments[arguments.index(flag) + 1]


def warnings(changes: dict[str, Any]) -> str:
    """What admission finds doubtful, as one text."""
    one = resource(changes)
    return "; ".join(admit(engine_settings.engine_config(one, resolve(one.spec))).warnings)


@pytest.mark.parametrize("name", ['org/it\'s a "draft" {x}', "/models/$(HOME)/d"])
def test_c07_the_speculative_config_is_one_argument_of_exact_json(name: str) -> None:
    container = engine({"spec.speculation.draft.id": name})
    assert "command" not in container, "no shell takes it apart"
    argument = value(container["args"], "--speculative-config")
    assert json.loads(expand(argument, {"HOME": "/root"}))["model"] == name
    assert "$(HOME)" not in argument.replace("$$(HOME)", "")


def test_c07_the_template_is_the_same_from_one_pass_to_the_next() -> None:
    changes = {"spec.engine": {"kvTransfer": {"connector": "X", "role": "Both", "extraConfig": {"b": 1, "a": [2]}}}}
    again = {"spec.engine": {"kvTransfer": {"extraConfig": {"a": [2], "b": 1}, "role": "Both", "connector": "X"}}}
    assert json.dumps(made(changes)["Deployment"]) == json.dumps(made(again)["Deployment"])


@pytest.mark.parametrize(("name", "path"), resources().items(), ids=resources().keys())
def test_c07_an_engine_takes_what_is_rendered(name: str, path: Any) -> None:
    (made_deployment,) = [one for one in manifests(path) if one["kind"] == "Deployment"]
    container = made_deployment["spec"]["template"]["spec"]["containers"][0]
    environment = {one["name"]: expand(one.get("value", "x"), {}) for one in container["env"]}
    settings = start([expand(argument, {}) for argument in container["args"]], environment)
    assert settings.port == 8000, name


@pytest.mark.parametrize("tensor", [1, 2])
def test_c10_shared_memory_is_a_volume_with_a_limit(tensor: int) -> None:
    changes: dict[str, Any] = {"spec.parallelism": {"tensor": tensor}, "spec.resources": {"memory": "64Gi"}}
    volumes = {volume["name"]: volume for volume in pod(changes)["volumes"]}
    assert volumes["shared-memory"]["emptyDir"] == {"medium": "Memory", "sizeLimit": "8Gi"}
    assert {"name": "shared-memory", "mountPath": "/dev/shm"} in engine(changes)["volumeMounts"]
    changes["spec.resources"] = {"memory": "64Gi", "sharedMemory": "64Gi"}
    assert pod(changes)["volumes"][0]["emptyDir"]["sizeLimit"] == "64Gi"
    assert "sharedMemory" not in warnings(changes)
    changes["spec.resources"] = {"memory": "64Gi", "sharedMemory": "65Gi"}
    assert "spec.resources.sharedMemory, 65Gi, is more than memory, 64Gi" in warnings(changes)


@pytest.mark.parametrize("load_s", [5, 800])
def test_c11_a_model_gets_its_time_to_load_and_not_a_moment_more_than_it_needs(load_s: int) -> None:
    container = engine({"spec.startup": {"budgetSeconds": max(60, load_s)}})
    startup = container["startupProbe"]
    assert startup["httpGet"] == {"path": "/health", "port": "http"}
    assert startup["periodSeconds"] * startup["failureThreshold"] >= load_s, "not killed while it loads"
    assert startup["periodSeconds"] + container["readinessProbe"]["periodSeconds"] < 20, "found soon after"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert "initialDelaySeconds" not in container[probe]


@pytest.mark.parametrize(
    ("rollout", "expected"),
    [
        pytest.param(None, {"maxSurge": 0, "maxUnavailable": 1}, id="no spare GPU is needed"),
        pytest.param({"maxSurge": 1, "maxUnavailable": 0}, {"maxSurge": 1, "maxUnavailable": 0}, id="unless asked for"),
        pytest.param({"maxSurge": 2}, {"maxSurge": 2, "maxUnavailable": 1}, id="one alone"),
        pytest.param({"strategy": "Recreate"}, None, id="all at once"),
    ],
)
def test_c12_a_rollout_does_not_wait_for_the_gpu_that_the_old_pod_holds(
    rollout: dict[str, Any] | None, expected: dict[str, int] | None
) -> None:
    strategy = made({"spec.rollout": rollout})["Deployment"]["spec"]["strategy"]
    if expected is None:
        assert strategy == {"type": "Recreate"}
    else:
        assert strategy == {"type": "RollingUpdate", "rollingUpdate": expected}


def test_c12_both_zero_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="must not both be 0"):
        resource({"spec.rollout": {"maxUnavailable": 0}})


@pytest.mark.parametrize("rollout", [{}, {"strategy": "Recreate"}, {"maxSurge": 1}])
def test_c12_a_slow_load_is_no_failed_rollout(rollout: dict[str, Any]) -> None:
    changes = {"spec.startup": {"budgetSeconds": 7200}, "spec.drain": {"shutdownTimeoutSeconds": 600}}
    spec = made({**changes, "spec.rollout": rollout})["Deployment"]["spec"]
    one_life_s = 7200 + spec["template"]["spec"]["terminationGracePeriodSeconds"]
    assert spec["progressDeadlineSeconds"] > one_life_s


def test_c12_nor_is_a_copy_that_comes_before_the_load() -> None:
    bucket = {"spec.model.source": {"objectStore": {"uri": "s3://models/llama"}}}
    plain, copied = (made(changes)["Deployment"]["spec"]["progressDeadlineSeconds"] for changes in ({}, bucket))
    assert copied == plain + 1800


def test_c12_how_a_rollout_goes_is_no_reason_for_one() -> None:
    def revision(changes: dict[str, Any]) -> str:
        labels: dict[str, str] = made(changes)["Deployment"]["spec"]["template"]["metadata"]["labels"]
        return labels["serving.outrider.dev/revision"]

    for changes in (
        {"spec.rollout": {"maxSurge": 1}},
        {"spec.disruption": {"maxUnavailable": 2}},
        {"spec.service": {"type": "NodePort", "sessionAffinitySeconds": 60}},
        {"spec.networkPolicy": {"enabled": True}},
        {"spec.autoscaling.kvCacheTargetPercent": 60},
    ):
        assert revision(changes) == revision({}), changes


DRAIN = {"preStopSeconds": 15, "shutdownTimeoutSeconds": 60}


def test_c13_a_grace_period_below_the_drain_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="terminationGraceSeconds must be over"):
        resource({"spec.drain": {**DRAIN, "terminationGraceSeconds": 30}})


def test_c13_the_drain_fits_into_the_grace_period() -> None:
    changes = {"spec.drain": {**DRAIN, "terminationGraceSeconds": 120}}
    assert engine(changes)["lifecycle"]["preStop"] == {"sleep": {"seconds": 15}}
    assert value(engine(changes)["args"], "--shutdown-timeout") == "60"
    assert pod(changes)["terminationGracePeriodSeconds"] == 120
    assert pod({"spec.drain": DRAIN})["terminationGracePeriodSeconds"] > 75


@pytest.mark.parametrize(("version", "drains"), [("0.11.0", False), ("0.18.0", True)])
def test_c13_a_version_without_a_drain_gets_no_flag_and_a_warning(version: str, drains: bool) -> None:
    changes = {"spec.drain": DRAIN, "spec.engine": {"version": version, "image": "x"}}
    assert ("--shutdown-timeout" in engine(changes)["args"]) is drains
    assert ("cannot finish running requests" in warnings(changes)) is not drains
    assert engine(changes)["lifecycle"]["preStop"] == {"sleep": {"seconds": 15}}


def test_c14_a_service_of_the_namespace_sets_nothing_in_the_engine() -> None:
    changes = {"metadata.name": "vllm"}
    assert pod(changes)["enableServiceLinks"] is False
    assert made(changes)["Service"]["metadata"]["name"] == "vllm"


def test_c14_derived_names_fit() -> None:
    name = "n23456789012345678901234567890123456789012345678901234"
    for child in all_children(resource({"metadata.name": name, "spec.networkPolicy": {"enabled": True}})):
        limit = 63 - len("keda-hpa-") if child["kind"] == "ScaledObject" else 63
        assert len(child["metadata"]["name"]) <= limit, child["kind"]
    with pytest.raises(InvalidSpec, match=r"metadata\.name"):
        resource({"metadata.name": f"{name}5"})


@pytest.mark.parametrize(
    ("model", "draft", "expected"),
    [
        pytest.param("fp8", None, None, id="a quantised model and a plain drafter"),
        pytest.param("awq", "awq", "awq", id="both"),
        pytest.param(None, "fp8", "fp8", id="the drafter alone"),
    ],
)
def test_c25_the_drafter_has_its_own_quantisation_or_none(
    model: str | None, draft: str | None, expected: str | None
) -> None:
    arguments = engine({"spec.model.quantization": model, "spec.speculation.draft.quantization": draft})["args"]
    assert json.loads(value(arguments, "--speculative-config")).get("quantization") == expected
    assert ("--quantization" in arguments) is (model is not None)


def test_settings_of_libraries_reach_the_engine_as_they_are() -> None:
    env = [{"name": "NCCL_IB_HCA", "value": "mlx5"}, {"name": "NCCL_DEBUG", "value": "$(X)"}]
    container = engine({"spec.engine": {"env": env}, "spec.model.kvCacheDtype": "fp8_e4m3"})
    found = {one["name"]: expand(one["value"], {}) for one in container["env"]}
    assert (found["NCCL_IB_HCA"], found["NCCL_DEBUG"]) == ("mlx5", "$(X)")
    assert value(container["args"], "--kv-cache-dtype") == "fp8_e4m3"
