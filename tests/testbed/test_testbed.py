"""The local cluster keeps its promises: what works on it, and that it leaves nothing behind.

Engine pods have no simulator here: the tests play the kubelet's part themselves, to see that nothing else does.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import interrupts
from tests.testbed import rights
from tests.testbed.cluster import Cluster
from tests.testbed.fixtures import StartCluster
from tests.testbed.places import REPOSITORY
from tests.testbed.processes import ProcessTable
from tests.testbed.state import ClusterState, read_state

TIMEOUT_S = 180.0
"""Guards against hanging; nothing that is waited for takes so long."""

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def bare_cluster(start_cluster: StartCluster) -> Cluster:
    """Everything but the simulator, with so few GPUs that they run out."""
    return start_cluster({"kwok", "prometheus", "keda"}, gpus_per_node=2, hpa_sync_s=1, scrape_interval_s=0.5)


@pytest.fixture
def namespace(bare_cluster: Cluster, request: pytest.FixtureRequest) -> str:
    """A namespace of the test's own, ready to take pods."""
    name: str = request.node.name.replace("_", "-").removeprefix("test-")[:50]
    bare_cluster.kubectl("create", "namespace", name)
    bare_cluster.wait_until(
        "service account in the namespace",
        lambda: bare_cluster.kubectl("get", "-n", name, "serviceaccount", "default", check=False).returncode == 0,
    )
    return name


def deployment(name: str, replicas: int, *, gpus: int = 0, labels: dict[str, str] | None = None) -> str:
    """A Deployment of pods with one container."""
    pod_labels = {"app": name, **(labels or {})}
    container = {"name": "engine", "image": "example.org/engine:1", "ports": [{"name": "http", "containerPort": 8000}]}
    return json.dumps(
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {
                    "metadata": {"labels": pod_labels},
                    "spec": {"containers": [{**container, "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}]},
                },
            },
        }
    )


def pods(cluster: Cluster, namespace: str) -> list[dict[str, Any]]:
    """All pods of a namespace."""
    listed = cluster.kubectl("get", "pods", "-n", namespace, "-o", "json").stdout
    found: list[dict[str, Any]] = json.loads(listed)["items"]
    return found


def query(cluster: Cluster, promql: str) -> list[dict[str, Any]]:
    """The series of an instant query."""
    url = f"{cluster.prometheus_url}/api/v1/query?{urllib.parse.urlencode({'query': promql})}"
    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response:
        found: list[dict[str, Any]] = json.load(response)["data"]["result"]
    return found


def test_the_api_server_alone_validates_and_stores(api_cluster: Cluster) -> None:
    versions = json.loads(api_cluster.kubectl("version", "-o", "json").stdout)
    assert versions["serverVersion"]["gitVersion"] == versions["clientVersion"]["gitVersion"]
    assert versions["serverVersion"]["minor"] == "37"

    refused = api_cluster.kubectl("apply", "--server-side", "-f", "-", input=deployment("x", -1), check=False)
    assert "must be greater than or equal to 0" in refused.stderr
    api_cluster.kubectl("apply", "--server-side", "-f", "-", input=deployment("x", 1))
    assert api_cluster.kubectl("get", "deployment", "x", "-o", "name").stdout.strip() == "deployment.apps/x"


def test_a_service_account_may_do_what_its_roles_say_and_no_more(api_cluster: Cluster) -> None:
    api_cluster.kubectl("create", "serviceaccount", "reader")
    api_cluster.kubectl("create", "role", "reader", "--verb=list", "--resource=configmaps")
    api_cluster.kubectl("create", "rolebinding", "reader", "--role=reader", "--serviceaccount=default:reader")
    kubeconfig = api_cluster.service_account_kubeconfig("default", "reader")

    api_cluster.kubectl("get", "configmaps", f"--kubeconfig={kubeconfig}")
    refused = api_cluster.kubectl("get", "secrets", f"--kubeconfig={kubeconfig}", check=False)

    assert 'User "system:serviceaccount:default:reader" cannot list resource "secrets"' in refused.stderr

    def calls() -> list[dict[str, Any]]:
        return list(rights.events(api_cluster.logs / "audit.log"))

    def asked() -> set[tuple[str, int]]:
        told = [call for call in calls() if "objectRef" in call]
        return {(call["objectRef"]["resource"], call["responseStatus"]["code"]) for call in told}

    # A call is written down after it was answered.
    api_cluster.wait_until("both calls in the log", lambda: {("configmaps", 200), ("secrets", 403)} <= asked())
    assert {call["user"]["username"] for call in calls()} == {"system:serviceaccount:default:reader"}


def test_ordinary_pods_run_at_once_on_addresses_of_their_own(bare_cluster: Cluster, namespace: str) -> None:
    bare_cluster.kubectl("apply", "-n", namespace, "-f", "-", input=deployment("web", 12))
    bare_cluster.kubectl("rollout", "status", "-n", namespace, "deployment/web", f"--timeout={TIMEOUT_S:.0f}s")

    running = pods(bare_cluster, namespace)
    addresses = {pod["status"]["podIP"] for pod in running}
    assert {pod["spec"]["nodeName"] for pod in running} == {"gpu-0", "gpu-1"}
    assert len(addresses) == 12
    assert all(address.startswith(bare_cluster.pod_range.removesuffix("0.0/16")) for address in addresses)


def test_pods_wait_when_the_gpus_run_out(bare_cluster: Cluster, namespace: str) -> None:
    bare_cluster.kubectl("apply", "-n", namespace, "-f", "-", input=deployment("greedy", 5, gpus=1))

    def settled() -> bool:
        found = pods(bare_cluster, namespace)
        return sorted(pod["status"]["phase"] for pod in found) == ["Pending", *4 * ["Running"]] and any(
            condition.get("reason") == "Unschedulable"
            for pod in found
            for condition in pod["status"].get("conditions", [])
        )

    bare_cluster.wait_until("five pods, one of them without a GPU", settled, TIMEOUT_S)
    bare_cluster.kubectl("delete", "-n", namespace, "deployment", "greedy", "--wait=false")


def test_an_engine_pod_gets_an_address_and_is_otherwise_left_alone(bare_cluster: Cluster, namespace: str) -> None:
    labels = {"app.kubernetes.io/component": "engine"}
    bare_cluster.kubectl("apply", "-n", namespace, "-f", "-", input=deployment("chat", 1, labels=labels))
    bare_cluster.wait_until(
        "address of the engine pod",
        lambda: any("podIP" in pod["status"] for pod in pods(bare_cluster, namespace)),
        TIMEOUT_S,
    )
    (pod,) = pods(bare_cluster, namespace)
    name, address = pod["metadata"]["name"], pod["status"]["podIP"]
    assert pod["status"]["phase"] == "Pending"
    assert pod["status"]["hostIP"] == "127.0.0.1"
    assert pod["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "ContainerCreating"}}
    conditions = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"
    assert conditions["Ready"] == "False"

    written = {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [
            {
                "name": "engine",
                "image": "example.org/engine:1",
                "imageID": "",
                "ready": True,
                "restartCount": 3,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }
        ],
    }
    patch = ["patch", "-n", namespace, "pod", name, "--subresource=status", "-p", json.dumps({"status": written})]
    bare_cluster.kubectl(*patch)
    # Each of these is an event that kwok looks at; were it to answer, it would do so before the pod further down runs.
    bare_cluster.kubectl("label", "-n", namespace, "pod", name, "touched=yes")
    bare_cluster.kubectl("delete", "-n", namespace, "pod", name, "--wait=false")
    bare_cluster.kubectl("apply", "-n", namespace, "-f", "-", input=deployment("later", 1))
    bare_cluster.kubectl("rollout", "status", "-n", namespace, "deployment/later", f"--timeout={TIMEOUT_S:.0f}s")

    after = json.loads(bare_cluster.kubectl("get", "-n", namespace, "pod", name, "-o", "json").stdout)
    assert after["metadata"]["deletionTimestamp"]
    assert after["status"]["podIP"] == address
    assert after["status"]["phase"] == "Running"
    assert after["status"]["containerStatuses"][0]["restartCount"] == 3

    bare_cluster.kubectl("delete", "-n", namespace, "deployment", "chat", "--cascade=orphan")
    bare_cluster.kubectl("delete", "-n", namespace, "pod", name, "--force", "--grace-period=0")


@pytest.fixture
def exporter() -> Iterator[tuple[http.server.HTTPServer, threading.Thread]]:
    """A server of one metric, on no address yet, and the thread that is to serve."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"vllm:num_requests_running 7\n"
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the tests look at the metric."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler, bind_and_activate=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    yield server, thread
    if thread.is_alive():
        server.shutdown()  # would wait for ever for one that never served
    server.server_close()


def test_prometheus_scrapes_an_engine_at_its_pod_address(
    bare_cluster: Cluster, namespace: str, exporter: tuple[http.server.HTTPServer, threading.Thread]
) -> None:
    labels = {
        "app.kubernetes.io/component": "engine",
        "serving.outrider.dev/service": "chat",
        "serving.outrider.dev/track": "stable",
    }
    bare_cluster.kubectl("apply", "-n", namespace, "-f", "-", input=deployment("chat", 1, labels=labels))
    bare_cluster.kubectl("apply", "-n", namespace, "-f", "-", input=deployment("web", 1))
    bare_cluster.wait_until(
        "pods with addresses", lambda: len([p for p in pods(bare_cluster, namespace) if "podIP" in p["status"]]) == 2
    )
    (pod,) = (p for p in pods(bare_cluster, namespace) if p["metadata"]["labels"]["app"] == "chat")
    server, thread = exporter
    server.server_address = (pod["status"]["podIP"], 8000)
    server.server_bind()
    server.server_activate()
    thread.start()

    running = f'vllm:num_requests_running{{namespace="{namespace}"}}'
    (series,) = bare_cluster.reading("scraped metric", lambda: query(bare_cluster, running))
    assert series["value"][1] == "7"
    assert series["metric"] == {
        "__name__": "vllm:num_requests_running",
        "job": "engines",
        "instance": f"{pod['status']['podIP']}:8000",
        "namespace": namespace,
        "pod": pod["metadata"]["name"],
        "pod_uid": pod["metadata"]["uid"],
        "serving_outrider_dev_service": "chat",
        "serving_outrider_dev_track": "stable",
    }
    assert len(query(bare_cluster, f'up{{namespace="{namespace}"}}')) == 1, "only engine pods are scraped"
    bare_cluster.kubectl("delete", "-n", namespace, "deployment", "chat", "--wait=false")


def test_another_target_can_be_scraped_too(bare_cluster: Cluster) -> None:
    address = bare_cluster.prometheus_url.removeprefix("http://")
    bare_cluster.add_scrape_target("itself", address, {"role": "example"})

    wanted = 'up{job="itself",role="example"} == 1'
    bare_cluster.wait_until("target that is up", lambda: bool(query(bare_cluster, wanted)), TIMEOUT_S)


def test_keda_scales_by_a_query(bare_cluster: Cluster, namespace: str) -> None:
    bare_cluster.kubectl("apply", "-n", namespace, "-f", "-", input=deployment("web", 1))
    trigger = {"serverAddress": bare_cluster.prometheus_url, "query": "vector(4)", "threshold": "1"}
    scaled = {
        "apiVersion": "keda.sh/v1alpha1",
        "kind": "ScaledObject",
        "metadata": {"name": "web"},
        "spec": {
            "scaleTargetRef": {"name": "web"},
            "minReplicaCount": 1,
            "maxReplicaCount": 6,
            "triggers": [{"type": "prometheus", "metricType": "AverageValue", "metadata": trigger}],
        },
    }
    bare_cluster.kubectl("apply", "-n", namespace, "-f", "-", input=json.dumps(scaled))

    def ready() -> bool:
        arguments = ("get", "-n", namespace, "deployment", "web", "-o", "jsonpath={.status.readyReplicas}")
        return bare_cluster.kubectl(*arguments).stdout == "4"

    bare_cluster.wait_until("four replicas", ready, TIMEOUT_S)
    path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{namespace}/s0-prometheus"
    selector = urllib.parse.urlencode({"labelSelector": "scaledobject.keda.sh/name=web"})
    # KEDA asks Prometheus anew each time, and gives it three seconds.
    (value,) = bare_cluster.reading("external metric", lambda: bare_cluster.api.get(f"{path}?{selector}")["items"])
    assert value["value"] == "4"


def test_two_clusters_live_side_by_side(api_cluster: Cluster, bare_cluster: Cluster) -> None:
    for cluster, name in ((api_cluster, "one"), (bare_cluster, "two")):
        cluster.kubectl("create", "configmap", f"only-in-{name}")

    assert api_cluster.pod_range != bare_cluster.pod_range
    assert api_cluster.port("mine") != bare_cluster.port("mine")
    assert api_cluster.kubectl("get", "configmap", "only-in-two", check=False).returncode == 1
    assert bare_cluster.kubectl("get", "configmap", "only-in-one", check=False).returncode == 1


def test_a_part_can_be_stopped_and_started_again(bare_cluster: Cluster) -> None:
    assert bare_cluster.stop_process("prometheus") == 0
    assert "prometheus" not in {process.name for process in bare_cluster.processes()}
    bare_cluster.restart_process("prometheus")
    bare_cluster.wait_ready()


_OWNER = """
from tests.testbed.cluster import Cluster
cluster = Cluster()
cluster.start()
cluster.start_process("visitor", ["sleep", "1000"])
print(cluster.run_dir, flush=True)
input()
"""


def test_a_killed_owner_leaves_no_process_and_no_key() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    folder = Path(owner.stdout.readline().strip())
    started = ProcessTable(folder).alive()
    assert {process.name for process in started} == {"etcd", "kube-apiserver", "visitor"}

    owner.kill()
    owner.communicate()

    _wait_for(lambda: not any(process.alive for process in started) and read_state(folder) is None)
    assert [path.name for path in folder.iterdir()] == ["logs"]


def command_line(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the local cluster to its end."""
    command = [sys.executable, "-m", "tests.testbed", *arguments]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


@pytest.fixture
def named() -> Iterator[str]:
    """A name for a cluster that nobody else's cluster has, ended again if the test does not."""
    name = f"run-test-{os.getpid()}"  # Like a run of Python's own, so that its logs do not stay for ever.
    yield name
    command_line("down", "--name", name)


def test_a_cluster_of_the_command_line_outlives_the_command_until_down(named: str) -> None:
    began = command_line("up", "--with", "control", "--name", named)
    assert began.returncode == 0, began.stderr
    kubeconfig = command_line("kubeconfig", "--name", named).stdout.strip()
    assert f"export KUBECONFIG={kubeconfig}\n" in began.stdout
    state = read_state(Path(kubeconfig).parent)
    assert isinstance(state, ClusterState)
    get = [state.kubectl, "get", "namespaces", f"--kubeconfig={kubeconfig}"]
    assert subprocess.run(get, capture_output=True, check=False).returncode == 0
    assert command_line("status", "--name", named).returncode == 0
    again = command_line("up", "--with", "control", "--name", named)
    assert (again.returncode, "runs" in again.stderr) == (1, True)

    started = state.table.alive()
    assert command_line("down", "--name", named).returncode == 0
    assert not any(process.alive for process in started)
    assert command_line("status", "--name", named).returncode == 1
    assert command_line("kubeconfig", "--name", named).returncode == 1


def test_ctrl_c_ends_a_cluster_in_the_foreground(named: str) -> None:
    command = [sys.executable, "-m", "tests.testbed", "up", "--with", "control", "--name", named, "--foreground"]
    with interrupts.heard():
        shell = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert shell.stdout is not None
    printed: list[str] = []
    while not printed or "Ctrl-C" not in printed[-1]:
        printed.append(shell.stdout.readline())
        assert printed[-1], "it ends before it is up"
    kubeconfig = next(line for line in printed if "KUBECONFIG" in line).strip().partition("=")[2]
    started = ProcessTable(Path(kubeconfig).parent).alive()
    assert len(started) == 2

    shell.send_signal(signal.SIGINT)
    shell.communicate(timeout=TIMEOUT_S)

    assert shell.returncode == 130
    assert not any(process.alive for process in started)


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
