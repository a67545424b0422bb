"""A pod as a kubelet reads it."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from outrider.simulator.exits import EngineExit
from outrider.simulator.pod_documents import (
    ContainerConfigError,
    MountError,
    expand,
    mounted_files,
    references,
    resolve_arguments,
    resolve_environment,
)
from outrider.simulator.pod_status import ContainerState, Exit, StatusWriter, container_status
from outrider.simulator.pods import EnginePod, Probe, Wishes

NOW_S = 1_800_000_000.0
NOW = "2027-01-15T08:00:00Z"


def pod(engine: dict[str, Any] | None = None, spec: dict[str, Any] | None = None, **meta: Any) -> EnginePod:
    container = {"name": "engine", "image": "engine:1", **(engine or {})}
    return EnginePod(
        {
            "metadata": {"namespace": "ml", "name": "chat-1", "uid": "u1", **meta},
            "spec": {"nodeName": "gpu-0", "containers": [container], "enableServiceLinks": False, **(spec or {})},
            "status": {"podIP": "127.1.0.1"},
        }
    )


def secret(**values: str) -> dict[str, Any]:
    return {"data": {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("$(HOME)/models", "/home/engine/models", id="a name is put in"),
        pytest.param("$$(HOME)/models", "$(HOME)/models", id="an escaped one stays as text"),
        pytest.param("$(NOBODY)", "$(NOBODY)", id="an unknown one stays"),
        pytest.param('{"model": "a$b {x}"}', '{"model": "a$b {x}"}', id="other dollars stay"),
        pytest.param("$$", "$", id="two dollars are one"),
    ],
)
def test_names_in_arguments(text: str, expected: str) -> None:
    assert expand(text, {"HOME": "/home/engine"}) == expected


def test_arguments_come_with_the_environment_put_in() -> None:
    one = pod({"command": ["vllm", "serve"], "args": ["--model", "$(MODEL)"]})
    assert resolve_arguments(one, {"MODEL": "org/m"}) == ["vllm", "serve", "--model", "org/m"]


def test_the_environment_is_resolved() -> None:
    one = pod(
        {
            "env": [
                {"name": "PLAIN", "value": "x"},
                {"name": "BUILT", "value": "$(PLAIN)y"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
                {"name": "MODE", "valueFrom": {"configMapKeyRef": {"name": "modes", "key": "mode"}}},
                {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                {"name": "SERVICE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['app']"}}},
                {"name": "GONE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k", "optional": True}}},
            ],
            "envFrom": [{"prefix": "P_", "configMapRef": {"name": "modes"}}],
        },
        labels={"app": "chat"},
    )
    assert references(one) == {("Secret", "hub"), ("ConfigMap", "modes"), ("Secret", "none")}
    objects = {("Secret", "hub"): secret(token="t"), ("ConfigMap", "modes"): {"data": {"mode": "fast"}}}
    assert resolve_environment(one, objects) == {
        "PLAIN": "x",
        "BUILT": "xy",
        "TOKEN": "t",
        "MODE": "fast",
        "POD_IP": "127.1.0.1",
        "SERVICE": "chat",
        "P_mode": "fast",
    }


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        pytest.param({}, 'secret "hub" not found', id="no Secret"),
        pytest.param({("Secret", "hub"): secret(other="x")}, "couldn't find key token in Secret ml/hub", id="no key"),
    ],
)
def test_a_missing_reference_keeps_the_container_from_being_created(objects: Any, words: str) -> None:
    one = pod({"env": [{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]})
    with pytest.raises(ContainerConfigError, match=words):
        resolve_environment(one, objects)


def test_services_are_put_into_the_environment_unless_links_are_off() -> None:
    services = [
        {"metadata": {"name": "vllm"}, "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 80}]}},
        {"metadata": {"name": "headless"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}},
    ]
    linked = pod(spec={"enableServiceLinks": True})
    assert resolve_environment(linked, {}, services) == {
        "VLLM_SERVICE_HOST": "10.0.0.7",
        "VLLM_SERVICE_PORT": "80",
        "VLLM_PORT": "tcp://10.0.0.7:80",
    }
    assert resolve_environment(pod(), {}, services) == {}


MOUNTS: dict[str, Any] = {
    "volumeMounts": [
        {"name": "schedule", "mountPath": "/etc/outrider/schedule"},
        {"name": "admin", "mountPath": "/etc/outrider/admin/"},
        {"name": "cache", "mountPath": "/cache"},
    ]
}
VOLUMES = [
    {"name": "schedule", "configMap": {"name": "chat-schedule"}},
    {"name": "admin", "secret": {"secretName": "chat-admin", "items": [{"key": "key", "path": "key"}]}},
    {"name": "cache", "emptyDir": {}},
]


def test_mounted_documents_by_path() -> None:
    objects = {
        ("ConfigMap", "chat-schedule"): {"data": {"schedule.json": "{}"}},
        ("Secret", "chat-admin"): secret(key="k"),
    }
    assert mounted_files(pod(MOUNTS, {"volumes": VOLUMES}), objects) == {
        "/etc/outrider/schedule/schedule.json": "{}",
        "/etc/outrider/admin/key": "k",
    }


@pytest.mark.parametrize(
    ("objects", "words"),
    [
        pytest.param({}, 'configmap "chat-schedule" not found', id="no ConfigMap"),
        pytest.param(
            {("ConfigMap", "chat-schedule"): {}, ("Secret", "chat-admin"): secret(other="k")},
            "non-existent secret key: key",
            id="no such key",
        ),
    ],
)
def test_a_missing_mount_is_waited_for(objects: Any, words: str) -> None:
    with pytest.raises(MountError, match=words):
        mounted_files(pod(MOUNTS, {"volumes": VOLUMES}), objects)


def test_an_optional_mount_is_not() -> None:
    volume = {"name": "schedule", "projected": {"sources": [{"configMap": {"name": "x", "optional": True}}]}}
    assert mounted_files(pod(MOUNTS, {"volumes": [volume]}), {}) == {}


def test_probes_resolve_named_ports() -> None:
    one = pod(
        {
            "ports": [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 8001}],
            "startupProbe": {
                "httpGet": {"path": "/health", "port": "http"},
                "periodSeconds": 5,
                "failureThreshold": 60,
            },
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8001}, "failureThreshold": 2},
        }
    )
    startup = one.probe("startup")
    assert startup is not None
    assert (startup.port, startup.budget_s) == (8000, 300.0)
    assert one.probe("readiness") == Probe("/ready", 8001, failure_threshold=2)
    assert one.probe("liveness") is None


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        pytest.param({}, 0.0, id="none"),
        pytest.param({"preStop": {"sleep": {"seconds": 15}}}, 15.0, id="a sleep"),
        pytest.param({"preStop": {"exec": {"command": ["/bin/sh", "-c", "sleep 20"]}}}, 20.0, id="a command"),
    ],
)
def test_pre_stop(hook: dict[str, Any], seconds: float) -> None:
    assert pod({"lifecycle": hook}).pre_stop_s == seconds


def test_what_a_test_asks_for_by_annotation() -> None:
    prefix = "simulator.outrider.dev/"
    asked = {"load-seconds": "0.5", "crash": "exit 3: out of memory", "hang-after-seconds": "20", "plugin": "absent"}
    one = pod(annotations={prefix + name: value for name, value in asked.items()})
    assert one.wishes == Wishes(0.5, (3, "out of memory"), None, 20.0, plugin=False)
    assert pod(annotations={prefix + "behaviour": "slower-15"}).wishes.behaviour == "slower-15"
    assert pod().wishes == Wishes()


def test_what_a_test_asks_for_by_a_variable_of_the_engine_and_an_annotation_comes_first() -> None:
    env = [{"name": "SIMULATOR_LOAD_SECONDS", "value": "800"}, {"name": "SIMULATOR_SPEED", "value": "100"}]
    assert pod({"env": env}).wishes == Wishes(800.0, speed=100.0)
    one = pod({"env": env}, annotations={"simulator.outrider.dev/load-seconds": "2"})
    assert one.wishes == Wishes(2.0, speed=100.0)


@pytest.mark.parametrize(
    ("image", "unreachable"),
    [
        ("registry.invalid/engine:1", "registry.invalid/engine:1"),
        ("registry.example.com/invalid/engine:1", ""),
        ("engine:invalid", ""),
    ],
)
def test_images_of_hosts_that_cannot_be(image: str, unreachable: str) -> None:
    assert pod({"image": image}).unreachable_image == unreachable


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        pytest.param("load-seconds", "soon", "must be a number of seconds", id="words for a number"),
        pytest.param("load-seconds", "-1", "must be a number of seconds", id="a time before the start"),
        pytest.param("hang-after-seconds", "inf", "must be a number of seconds", id="never"),
        pytest.param("crash-after-seconds", "nan", "must be a number of seconds", id="no number"),
        pytest.param("crash", "boom", 'must be "exit STATUS"', id="a crash without a status"),
        pytest.param("speed", "0", "must be above", id="time that stands still"),
        pytest.param("plugin", "gone", 'can only be "absent"', id="another word for absent"),
    ],
)
def test_an_annotation_that_cannot_be_read_ends_the_container_with_its_name(name: str, value: str, words: str) -> None:
    one = pod(annotations={f"simulator.outrider.dev/{name}": value})
    with pytest.raises(EngineExit, match=words) as caught:
        _ = one.wishes
    assert name in caught.value.message


def test_a_probe_of_a_port_that_nobody_named_ends_the_container() -> None:
    one = pod({"ports": [{"name": "http", "containerPort": 8000}], "readinessProbe": {"httpGet": {"port": "admin"}}})
    with pytest.raises(EngineExit, match="'admin', which the container does not have"):
        one.probe("readiness")


def test_deletion() -> None:
    assert pod().deletion_grace_s is None
    assert pod(deletionTimestamp=NOW, deletionGracePeriodSeconds=75).deletion_grace_s == 75.0


# The status that a kubelet writes.

CRASH = Exit(1, "gated repository", NOW_S - 5, NOW_S, "simulator://u1-0")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        pytest.param(ContainerState(), {"waiting": {"reason": "ContainerCreating"}}, id="not created yet"),
        pytest.param(
            ContainerState().wait("CreateContainerConfigError", 'secret "hub" not found'),
            {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hub" not found'}},
            id="cannot be created",
        ),
        pytest.param(ContainerState().run("c", NOW_S), {"running": {"startedAt": NOW}}, id="running"),
    ],
)
def test_container_states(state: ContainerState, expected: dict[str, Any]) -> None:
    status = container_status(pod(), state)
    assert status["state"] == expected
    assert (status["ready"], status["started"], status["lastState"]) == (False, False, {})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        pytest.param("FallbackToLogsOnError", "gated repository", id="the end of the log serves as message"),
        pytest.param("File", None, id="vLLM writes no message file"),
    ],
)
def test_a_crashed_container(policy: str, message: str | None) -> None:
    one = pod({"terminationMessagePolicy": policy})
    ended = container_status(one, ContainerState().run("c", NOW_S - 5).end(CRASH))
    assert ended["state"]["terminated"]["exitCode"] == 1
    assert ended["state"]["terminated"]["reason"] == "Error"
    assert ended["state"]["terminated"].get("message") == message
    waiting = container_status(one, ContainerState().end(CRASH).wait("CrashLoopBackOff", "back-off 2s"))
    assert waiting["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    assert waiting["lastState"]["terminated"]["exitCode"] == 1


def test_a_conditions_time_moves_only_with_its_status() -> None:
    writer = StatusWriter(pod())
    running = ContainerState().run("c", NOW_S)

    def ready(state: ContainerState, now_s: float) -> tuple[str, str]:
        conditions = writer.patch(state, now_s)["status"]["conditions"]
        found = next(one for one in conditions if one["type"] == "Ready")
        return found["status"], found["lastTransitionTime"]

    assert ready(running, NOW_S) == ("False", NOW)
    assert ready(running, NOW_S + 10) == ("False", NOW)
    now_ready = ContainerState(running_since_s=NOW_S, waiting=None, started=True, ready=True)
    assert ready(now_ready, NOW_S + 20) == ("True", "2027-01-15T08:00:20Z")
    assert ready(now_ready, NOW_S + 60) == ("True", "2027-01-15T08:00:20Z")


def test_the_phase_and_other_containers() -> None:
    one = pod(spec={"containers": [{"name": "engine", "image": "e"}, {"name": "log", "image": "l"}]})
    waiting = StatusWriter(one).patch(ContainerState(), NOW_S)["status"]
    running = StatusWriter(one).patch(ContainerState().run("c", NOW_S), NOW_S)["status"]
    assert (waiting["phase"], running["phase"]) == ("Pending", "Running")
    assert [status["ready"] for status in running["containerStatuses"]] == [False, True]
