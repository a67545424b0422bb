"""Bring the parts of a cluster up, in the order that they need one another, and tell when each is ready."""

from __future__ import annotations

import importlib.util
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.testbed import control_plane, keda, kwok, prometheus
from tests.testbed.api import Api, ApiError, certificate_user, write_kubeconfig
from tests.testbed.errors import ClusterError, last_lines
from tests.testbed.layout import KEDA_NAMESPACE, Layout
from tests.testbed.processes import ProcessTable
from tests.testbed.state import INFRASTRUCTURE
from tests.testbed.tools import ENGINES, KEDA, KWOK, PROMETHEUS

TIMEOUT_S = 180.0
"""How long is waited for what should come: it only keeps a test from hanging. All that is waited for takes seconds on
two idle cores; where the cores are shared, any process may stand still for ten or twenty of them at the worst time."""
SIMULATOR = "engines"
"""The name of the simulator among a cluster's processes."""

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Options:
    """What can be chosen about a cluster beside its parts."""

    dilation: float = 1.0
    """How many times slower than the measured profile the simulated engines run."""
    scrape_interval_s: float = 2.0
    nodes: int = 2
    gpus_per_node: int = 8
    hpa_sync_s: float = 3.0
    """How often the autoscaler looks; a real one does every 15 s."""
    hpa_downscale_s: float = 10.0
    """For how long it remembers the highest wish before it scales down; a real one 300 s."""
    request_timeout_s: float = 60.0
    """How long the API server lets a request take, such as one for a metric whose adapter does not answer."""


def check(parts: frozenset[str]) -> None:
    """See that what is not built here can be started, before minutes of building are spent.

    Raises:
        ClusterError: the simulator cannot be imported.
    """
    if ENGINES in parts and (
        importlib.util.find_spec("outrider") is None or importlib.util.find_spec("outrider.simulator.__main__") is None
    ):
        raise ClusterError("outrider.simulator cannot be run", "Install the project: pip install -e '.[operator]'")


def administrator(layout: Layout) -> Api:
    """Write the administrator's kubeconfig, and return the calls that go with it."""
    certificates = layout.certificates
    user = certificate_user(certificates.administrator)
    write_kubeconfig(layout.kubeconfig, layout.server, certificates.authority, "outrider-testbed", user)
    return Api(layout.server, certificates.authority, certificates.administrator)


def start(layout: Layout, table: ProcessTable, api: Api, parts: frozenset[str], options: Options) -> None:
    """Start everything; on return the API server answers, and the rest is on its way."""
    table.start("etcd", control_plane.etcd(layout))
    table.start("kube-apiserver", control_plane.apiserver(layout, options.request_timeout_s))
    wait_until(table, "answer from the API server", lambda: _apiserver_ready(api))
    if KWOK in parts:
        table.start(
            "kube-controller-manager",
            control_plane.controller_manager(layout, options.hpa_sync_s, options.hpa_downscale_s),
        )
        table.start("kube-scheduler", control_plane.scheduler(layout))
        for index, pod_range in enumerate(layout.slot.node_ranges(options.nodes)):
            api.apply(f"/api/v1/nodes/gpu-{index}", kwok.node(index, pod_range, options.gpus_per_node))
        table.start("kwok", kwok.arguments(layout))
    if PROMETHEUS in parts:
        table.start("prometheus", prometheus.arguments(layout, options.scrape_interval_s))
    if KEDA in parts:
        _start_keda(layout, table, api)
    if ENGINES in parts:
        simulator: list[str | Path] = [sys.executable, "-m", "outrider.simulator", "--kubeconfig", layout.kubeconfig]
        table.start(SIMULATOR, [*simulator, "--dilation", str(options.dilation), "--log-level", "info"])


def _start_keda(layout: Layout, table: ProcessTable, api: Api) -> None:
    api.apply(
        f"/api/v1/namespaces/{KEDA_NAMESPACE}",
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": KEDA_NAMESPACE}},
    )
    definitions = list(keda.custom_resources(layout.tools))
    for definition in definitions:
        api.apply(_definition_path(definition["metadata"]["name"]), definition)
    # KEDA gives up when its kinds are not served yet.
    wait_until(table, "KEDA custom resources", lambda: all(_served(api, definition) for definition in definitions))
    environment = keda.environment(layout)
    table.start("keda-operator", keda.operator(layout), environment)
    table.start("keda-adapter", keda.adapter(layout), environment)
    service, api_service = keda.registration(layout)
    api.apply(f"/api/v1/namespaces/{KEDA_NAMESPACE}/services/{service['metadata']['name']}", service)
    api.apply(_API_SERVICE_PATH, api_service)


def wait_ready(layout: Layout, table: ProcessTable, api: Api, parts: frozenset[str], timeout_s: float) -> None:
    """Wait until every part does its work: not only until it listens."""
    checks: list[tuple[str, Callable[[], bool]]] = [("answer from the API server", lambda: _apiserver_ready(api))]
    if KWOK in parts:
        checks.append(
            ("default service account", lambda: _exists(api, "/api/v1/namespaces/default/serviceaccounts/default"))
        )
        checks.append(("node that takes pods", lambda: _nodes_ready(api)))
    if PROMETHEUS in parts:
        checks.append(("answer from Prometheus", lambda: _answers(f"{layout.prometheus_url}/-/ready")))
    if KEDA in parts:
        checks.append(("external metrics from KEDA", lambda: _condition(api, _API_SERVICE_PATH, "Available")))
        checks.append(
            ("answer from the KEDA operator", lambda: _answers(f"http://{layout.address('keda-health')}/readyz"))
        )
    for what, condition in checks:
        wait_until(table, what, condition, timeout_s)


def wait_until(table: ProcessTable, what: str, condition: Callable[[], bool], timeout_s: float = TIMEOUT_S) -> None:
    """Wait for ``condition``, but no longer than the processes of the cluster live.

    A refused call to the API server counts as not yet: a busy one may need a moment.

    Raises:
        ClusterError: time is over, or a process has ended; shows the end of its log.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        late, refusal = (
            time.monotonic() > deadline,
            "",
        )  # asked first: the last look is never before the end of the time
        try:
            if condition():
                return
        except ApiError as error:
            refusal = f" ({error})"
        for name in table.lost():
            if name in INFRASTRUCTURE or name == SIMULATOR:
                log, status = table.logs / f"{name}.log", table.exit_status(name)
                raise ClusterError(f"{name} ended with status {status}. The last lines of {log}:\n{last_lines(log)}")
        if late:
            raise ClusterError(f"no {what} after {timeout_s:.0f} s{refusal}", f"The logs are in {table.logs}.")
        time.sleep(_POLL_S)


_API_SERVICE_PATH = f"/apis/apiregistration.k8s.io/v1/apiservices/{keda.API_SERVICE}"


def _definition_path(name: str) -> str:
    return f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"


def _apiserver_ready(api: Api) -> bool:
    """Whether it serves requests and has made the namespace that everybody starts in."""
    return api.text("GET", "/readyz") == "ok" and _exists(api, "/api/v1/namespaces/default")


def _exists(api: Api, path: str) -> bool:
    return bool(api.get(path))  # One that is not there is a refused call.


def _condition(api: Api, path: str, kind: str) -> bool:
    # A definition that was just made has no conditions in so many words: null.
    conditions = api.get(path).get("status", {}).get("conditions") or []
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _served(api: Api, definition: Mapping[str, Any]) -> bool:
    """Whether a kind is established, and also among those that the API server lists: that comes a moment later."""
    meta, spec = definition["metadata"], definition["spec"]
    if not _condition(api, _definition_path(meta["name"]), "Established"):
        return False
    listed = [api.get(f"/apis/{spec['group']}/{one['name']}")["resources"] for one in spec["versions"] if one["served"]]
    return all(any(kind["name"] == spec["names"]["plural"] for kind in kinds) for kinds in listed)


def _nodes_ready(api: Api) -> bool:
    nodes = api.get("/api/v1/nodes")["items"]
    return all(_condition(api, f"/api/v1/nodes/{each['metadata']['name']}", "Ready") for each in nodes) and not any(
        each["spec"].get("taints") for each in nodes
    )


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2):
            return True
    except (urllib.error.URLError, OSError):
        return False
