"""Simulated engines behind real pods: what Kubernetes, Prometheus and clients see of them, in health and in trouble.

The Deployments are written by hand, so that nothing here depends on what the operator renders.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster

NAMESPACE = "engines"
TIMEOUT_S = 180.0
"""Guards against hanging; nothing that is waited for takes so long."""
SPECULATION = {
    "method": "eagle3",
    "model": "org/draft",
    "num_speculative_tokens": 3,
    "num_speculative_tokens_per_batch_size": [[1, 1, 0], [2, 2, 1], [3, 256, 3]],
}
ARGUMENTS = [
    *("--model", "org/model", "--served-model-name", "chat", "--speculative-config", json.dumps(SPECULATION)),
    *("--max-model-len", "32768", "--shutdown-timeout", "60"),
    *("--custom-histogram-buckets", '{"inter_token_latency":[0.005,0.01]}'),
]
SCHEDULE = {"generation": 1, "schedule": [[1, 256, 3]], "leaseSeconds": 600}
FAULTS = {
    "crashes-at-start": {"crash": "exit 3: out of memory"},
    "crashes-later": {"crash-after-seconds": "0.5"},
    "hangs": {"hang-after-seconds": "0"},
    "is-wrong": {"load-seconds": "soon"},
}


@pytest.fixture(scope="module")
def engines(start_cluster: StartCluster) -> Iterator[Cluster]:
    """A cluster with every Deployment of these tests applied at once, since most of their time is waiting."""
    cluster = start_cluster({"prometheus", "engines"}, scrape_interval_s=0.5)
    cluster.kubectl("create", "namespace", NAMESPACE)
    documents = [
        config("ConfigMap", "schedule", data={"schedule.json": json.dumps(SCHEDULE)}),
        config("Secret", "admin", stringData={"key": "k1"}),
        deployment("serves"),
        *(deployment(name, annotations) for name, annotations in FAULTS.items()),
        deployment("waits", token_secret="hub"),
    ]
    apply(cluster, *documents)
    yield cluster
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def config(kind: str, name: str, **content: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **content}


def deployment(name: str, annotations: dict[str, str] | None = None, token_secret: str | None = None) -> dict[str, Any]:
    """One engine pod, with probes, admin port, mounted schedule and a long preStop sleep."""
    labels = {"serving.outrider.dev/service": name, "serving.outrider.dev/track": "stable"}
    asked = {"load-seconds": "0.5", **(annotations or {})}
    environment: list[dict[str, Any]] = [
        {"name": "VLLM_PLUGINS", "value": "outrider"},
        {"name": "OUTRIDER_ADMIN_KEY_FILE", "value": "/etc/outrider/admin/key"},
        {"name": "OUTRIDER_SCHEDULE_FILE", "value": "/etc/outrider/schedule/schedule.json"},
    ]
    if token_secret is not None:
        reference = {"secretKeyRef": {"name": token_secret, "key": "token"}}
        environment.append({"name": "HF_TOKEN", "valueFrom": reference})
    container = {
        "name": "engine",
        "image": "example.org/engine:0.33.0",
        "args": ARGUMENTS,
        "env": environment,
        "ports": [{"name": "http", "containerPort": 8000}, {"name": "admin", "containerPort": 8001}],
        "startupProbe": {"httpGet": {"path": "/health", "port": "http"}, "failureThreshold": 60},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": "admin"}, "periodSeconds": 1, "failureThreshold": 1},
        "lifecycle": {"preStop": {"sleep": {"seconds": 20}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": "schedule", "mountPath": "/etc/outrider/schedule"},
            {"name": "admin", "mountPath": "/etc/outrider/admin"},
        ],
    }
    template = {
        "metadata": {
            "labels": {**labels, "app.kubernetes.io/component": "engine"},
            "annotations": {f"simulator.outrider.dev/{key}": value for key, value in asked.items()},
        },
        "spec": {
            "terminationGracePeriodSeconds": 90,
            "enableServiceLinks": False,
            "containers": [container],
            "volumes": [
                {"name": "schedule", "configMap": {"name": "schedule"}},
                {"name": "admin", "secret": {"secretName": "admin"}},
            ],
        },
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": template},
    }


def apply(cluster: Cluster, *documents: dict[str, Any]) -> None:
    items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=json.dumps(items))


def pod(cluster: Cluster, service: str) -> dict[str, Any]:
    """The one pod of a Deployment; empty while there is none."""
    selector = f"serving.outrider.dev/service={service}"
    listed = cluster.kubectl("get", "pods", "-n", NAMESPACE, "-l", selector, "-o", "json").stdout
    items: list[dict[str, Any]] = json.loads(listed)["items"]
    return items[0] if items else {}


def container(cluster: Cluster, service: str) -> dict[str, Any]:
    """The engine's container status; empty while there is none."""
    statuses: list[dict[str, Any]] = pod(cluster, service).get("status", {}).get("containerStatuses", [{}])
    return statuses[0]


def wait_ready(cluster: Cluster, service: str) -> dict[str, Any]:
    cluster.wait_until(f"ready engine of {service}", lambda: container(cluster, service).get("ready", False), TIMEOUT_S)
    return pod(cluster, service)


def last_end(cluster: Cluster, service: str) -> dict[str, Any]:
    """How the container last ended; empty if it never did."""
    status = container(cluster, service)
    ended: dict[str, Any] = status.get("lastState", {}).get("terminated") or status.get("state", {}).get(
        "terminated", {}
    )
    return ended


def call(manifest: dict[str, Any], path: str, body: object = None, *, port: int = 8000, method: str = "GET") -> Any:
    """The JSON answer of an engine at its pod's own address."""
    url = f"http://{manifest['status']['podIP']}:{port}{path}"
    headers = {"Content-Type": "application/json", "Authorization": "Bearer k1"}
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(url, data, headers, method=method if body is None or method != "GET" else "POST")
    with urllib.request.urlopen(asked, timeout=TIMEOUT_S) as response:
        return json.loads(response.read() or b"null")


def running(manifest: dict[str, Any]) -> bool:
    """Whether an engine works at a request."""
    with urllib.request.urlopen(f"http://{manifest['status']['podIP']}:8000/metrics", timeout=TIMEOUT_S) as response:
        return re.search(r"^vllm:num_requests_running\{.*\} [1-9]", response.read().decode(), re.M) is not None


def query(cluster: Cluster, promql: str) -> list[dict[str, Any]]:
    url = f"{cluster.prometheus_url}/api/v1/query?{urllib.parse.urlencode({'query': promql})}"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        found: list[dict[str, Any]] = json.load(response)["data"]["result"]
    return found


def test_a_deployment_becomes_available_and_answers_at_the_address_of_its_pod(engines: Cluster) -> None:
    engine = wait_ready(engines, "serves")
    assert engine["status"]["phase"] == "Running"
    rolled = engines.kubectl(
        "rollout", "status", "-n", NAMESPACE, "deployment/serves", f"--timeout={TIMEOUT_S:.0f}s"
    ).stdout
    assert "successfully rolled out" in rolled
    answer = call(engine, "/v1/completions", {"model": "chat", "prompt": "one two three", "max_tokens": 40})
    assert answer["usage"] == {"prompt_tokens": 3, "completion_tokens": 40, "total_tokens": 43}


def test_a_schedule_that_is_put_replaces_the_mounted_one(engines: Cluster) -> None:
    engine = wait_ready(engines, "serves")
    assert call(engine, "/schedule", port=8001)["schedule"] == SCHEDULE["schedule"]
    later = {"generation": 2, "schedule": [[1, 256, 1]], "leaseSeconds": 600}
    assert call(engine, "/schedule", later, port=8001, method="PUT")["effective"] == [1] * 256
    with pytest.raises(urllib.error.HTTPError, match="409"):
        call(engine, "/schedule", SCHEDULE, port=8001, method="PUT")


def test_prometheus_finds_the_engine_and_adds_the_labels_of_its_service(engines: Cluster) -> None:
    engine = wait_ready(engines, "serves")
    call(engine, "/v1/completions", {"prompt": "a", "max_tokens": 30})
    tpot = f'vllm:request_time_per_output_token_seconds_bucket{{namespace="{NAMESPACE}",le="0.01"}} > 0'
    labels = engines.reading("scraped answer", lambda: query(engines, tpot))[0]["metric"]
    assert labels["serving_outrider_dev_service"] == "serves"
    assert labels["serving_outrider_dev_track"] == "stable"
    assert labels["pod_uid"] == engine["metadata"]["uid"]
    assert (labels["model_name"], labels["engine"]) == ("chat", "0")
    every = tpot.replace(',le="0.01"} > 0', "}")
    bounds = query(engines, f"last_over_time({every}[1m])")
    assert {one["metric"]["le"] for one in bounds} == {"0.005", "0.01", "+Inf"}


@pytest.mark.parametrize(
    ("service", "exit_code", "words"),
    [
        pytest.param("crashes-at-start", 3, "out of memory", id="at the start"),
        pytest.param("crashes-later", 1, "crash asked for after 0.5 s", id="in service"),
        pytest.param("is-wrong", 1, "must be a number of seconds", id="by a wrong annotation"),
    ],
)
def test_a_crash_shows_in_the_status_of_the_pod(engines: Cluster, service: str, exit_code: int, words: str) -> None:
    engines.wait_until(f"end of {service}", lambda: bool(last_end(engines, service)), TIMEOUT_S)
    ended = last_end(engines, service)
    assert (ended["exitCode"], ended["reason"]) == (exit_code, "Error")
    assert words in ended["message"]


def test_an_engine_that_crashes_again_and_again_is_backed_off(engines: Cluster) -> None:
    def backs_off() -> bool:
        state = container(engines, "crashes-at-start").get("state", {})
        return bool(state.get("waiting", {}).get("reason") == "CrashLoopBackOff")

    engines.wait_until("back-off", backs_off, TIMEOUT_S)
    engines.wait_until("third start", lambda: container(engines, "crashes-at-start")["restartCount"] >= 2, TIMEOUT_S)
    available = engines.kubectl(
        "get", "-n", NAMESPACE, "deployment", "crashes-at-start", "-o", "jsonpath={.status.availableReplicas}"
    )
    assert available.stdout == ""


def test_an_engine_waits_for_a_secret_and_starts_when_it_comes(engines: Cluster) -> None:
    def why() -> dict[str, str]:
        waiting: dict[str, str] = container(engines, "waits").get("state", {}).get("waiting", {})
        return waiting

    engines.wait_until("missing Secret", lambda: why().get("reason") == "CreateContainerConfigError", TIMEOUT_S)
    assert why()["message"] == 'secret "hub" not found'
    apply(engines, config("Secret", "hub", stringData={"token": "t"}))
    wait_ready(engines, "waits")


def test_an_engine_that_hangs_stays_alive_and_becomes_unready(engines: Cluster) -> None:
    engine = wait_ready(engines, "hangs")

    def ask() -> None:
        with contextlib.suppress(OSError):  # the answer never comes; the cluster's end cuts it off
            call(engine, "/v1/completions", {"prompt": "a", "max_tokens": 5})

    asking = threading.Thread(target=ask, daemon=True)
    began_s = time.monotonic()
    asking.start()
    engines.wait_until("unready engine", lambda: not container(engines, "hangs")["ready"], TIMEOUT_S)
    assert time.monotonic() - began_s > 8  # a long step is no fault yet
    assert call(engine, "/health") is None
    assert container(engines, "hangs")["restartCount"] == 0


def test_a_deleted_engine_finishes_the_answer_in_flight_and_then_its_pod_is_gone(engines: Cluster) -> None:
    engine = wait_ready(engines, "serves")
    answers: list[Any] = []
    # The answer takes about twelve seconds: longer than this process may stand still.
    asked = {"prompt": "a", "max_tokens": 1600, "vllm_xargs": {"simulated_acceptance": "0,0,0"}}
    asking = threading.Thread(target=lambda: answers.append(call(engine, "/v1/completions", asked)))
    asking.start()
    engines.wait_until("request in flight", lambda: running(engine), TIMEOUT_S)
    engines.kubectl("delete", "-n", NAMESPACE, "deployment", "serves", "--wait=false")
    engines.wait_until(
        "pod on its way out", lambda: "deletionTimestamp" in pod(engines, "serves").get("metadata", {}), TIMEOUT_S
    )
    assert not answers
    asking.join(TIMEOUT_S)
    assert answers[0]["usage"]["completion_tokens"] == 1600
    engines.wait_until("end of the pod", lambda: not pod(engines, "serves"), TIMEOUT_S)
