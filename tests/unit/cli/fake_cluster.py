"""An API server and a metrics store for commands: a small HTTP server on the loopback, and services to look at."""

from __future__ import annotations

import copy
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from outrider.core import memory
from outrider.core.acceptance import AcceptanceState
from outrider.core.latency import LatencyState
from outrider.core.schedule import parse_text
from outrider.core.state import Bar, ControllerState
from outrider.core.step_cells import Cell, band
from tests.unit.api.bodies import changed, example

SERVICES = "/apis/serving.outrider.dev/v1alpha1/namespaces/{}/speculativeinferenceservices"
FLEET = "/apis/serving.outrider.dev/v1alpha1/speculativeinferenceservices"
NOW_S = 1_790_000_000.0
CONDITIONS = [
    {"type": "Ready", "status": "True", "reason": "EnginesServe", "message": "3 engines serve"},
    {"type": "MetricsAvailable", "status": "True", "reason": "Fresh", "message": ""},
]
STATUS: dict[str, Any] = {
    "observedGeneration": 3,
    "conditions": CONDITIONS,
    "replicas": {"desired": 3, "ready": 3, "updated": 3},
    "tuning": {
        "mode": "Adaptive",
        "policy": "Goodput",
        "schedule": "1-24:3 25-256:1",
        "generation": 17,
        "speculativeTokens": 3,
        "acceptanceLength": "2.41",
        "acceptanceRatePercent": 47,
        "acknowledged": "3/3",
        "reason": "1-24:3 25-256:1 already yields most",
        "lastChange": "2026-09-21T13:00:00Z",
    },
    "capacity": {
        "requestsPerReplica": 20,
        "limitedBy": "TPOT",
        "replicasForLoad": 3,
        "reason": "with 22 requests in flight a token takes 39 ms of the 40 ms allowed",
    },
    "history": [
        {
            "time": "2026-09-21T13:00:00Z",
            "kind": "Schedule",
            "from": "1-256:2",
            "to": "1-24:3 25-256:1",
            "reason": "at batch 14 K 2→3: 8 % more",
        }
    ],
    "effective": {"percentile": 95, "replicas": "1-6", "gpus": 1, "data": 1},
}


CANDIDATE: dict[str, Any] = {
    "stable": "0f3c1d7a22",
    "candidate": {
        "revision": "9be24c1177",
        "stage": "Running",
        "question": "Better",
        "boot": 2,
        "gainPercent": "3.1",
        "lowPercent": "-1.0",
        "highPercent": "7.2",
        "since": "2027-01-15T07:00:00Z",
        "reason": "the candidate's boot 2 was heard in 12 of 40 windows at like load",
    },
    "history": [
        {
            "revision": "77aa01bb33",
            "replaces": "0f3c1d7a22",
            "outcome": "Withdrawn",
            "time": "2027-01-14T07:00:00Z",
            "reason": "its engine crashed 2 times",
        }
    ],
}
"""Revisions of a service that compares a draft, and has withdrawn another."""


def service(name: str = "chat", namespace: str = "ml", changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A resource with a status, both of which may be changed at dotted paths."""
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "generation": 3}
    spec = {"spec.objectives": {"tpotMilliseconds": 40}, "spec.autoscaling": {"minReplicas": 1, "maxReplicas": 6}}
    return changed(example(), {"metadata": metadata, "status": copy.deepcopy(STATUS), **spec, **(changes or {})})


def memory_map(**more: Any) -> dict[str, Any]:
    """The memory of a service: acceptance by position, and steps with K 0 to 3 at batches of 4 to 32."""
    accepted = (700.0, 430.0, 260.0)
    cells = {
        (band(batch), k): Cell(400.0, 400.0 * (0.010 + 0.0001 * batch * (k + 1) + 0.0012 * k), 400.0 * batch)
        for batch in (4.0, 8.0, 16.0, 32.0)
        for k in (0, 1, 3)
    }
    state = ControllerState(
        schedule=parse_text("1-24:3 25-256:1"),
        generation=17,
        acceptance=AcceptanceState(drafted=(1000.0,) * 3, accepted=accepted),
        latency=LatencyState(cells=cells),
        bars=(Bar(5, 10, 30, until_s=9e9, times=2),),
        **more,
    )
    return {"metadata": {"name": "chat-memory"}, "data": {"memory.json": json.dumps(memory.to_document(state))}}


class FakeCluster:
    """Objects by path, and answers of the metrics store by a part of the query; the first that fits counts."""

    def __init__(self, *services: dict[str, Any]) -> None:
        self.objects: dict[str, Any] = {}
        self.texts: dict[str, str] = {}
        self.answers: dict[str, list[dict[str, Any]]] = {}
        self.refused: dict[str, int] = {}
        self.seen: list[str] = []
        for namespace in {one["metadata"]["namespace"] for one in services} | {"default", "ml"}:
            inside = [one for one in services if one["metadata"]["namespace"] == namespace]
            self.objects[SERVICES.format(namespace)] = {"items": inside}
        self.objects[FLEET] = {"items": list(services)}
        self.address = ""
        self.away = ""
        """A part of the paths of a Service that is not there."""

    def answer(self, path: str, form: Mapping[str, list[str]]) -> tuple[int, bytes]:
        """Status and body of a request."""
        self.seen.append(path)
        if self.away and self.away in path:
            return 404, b'{"kind": "Status", "message": "not found"}'
        if path in self.texts:
            return 200, self.texts[path].encode()
        if path.endswith(("/api/v1/query", "/api/v1/query_range")):
            return self._measured(form, ranged=path.endswith("_range"))
        if path in self.refused:
            status = self.refused[path]
            return status, json.dumps({"kind": "Status", "message": "told so"}).encode()
        if path in self.objects:
            return 200, json.dumps(self.objects[path]).encode()
        plural = path.rsplit("/", 1)[-1]
        empty = plural.endswith("s") and "chat" not in plural
        return (200, b'{"items": []}') if empty else (404, b'{"kind": "Status", "message": "not found"}')

    def _measured(self, form: Mapping[str, list[str]], *, ranged: bool) -> tuple[int, bytes]:
        query = form["query"][0]
        rows = next((rows for part, rows in self.answers.items() if part in query), [])
        if ranged:
            start, end, step = (float(form[name][0]) for name in ("start", "end", "step"))
            moments = [start + number * step for number in range(int((end - start) / step) + 1)]
            rows = [{"metric": one["metric"], "values": [[at, one["value"][1]] for at in moments]} for one in rows]
        return 200, json.dumps({"status": "success", "data": {"result": rows}}).encode()


def sample(value: float, **labels: str) -> dict[str, Any]:
    """A row of an answer about the service ml/chat."""
    metric = {"namespace": "ml", "serving_outrider_dev_service": "chat", **labels}
    return {"metric": metric, "value": [NOW_S, str(value)]}


def busy(cluster: FakeCluster) -> FakeCluster:
    """With a metrics store that has seen traffic."""
    tpot = [sample(count, le=bound) for bound, count in (("0.02", 4), ("0.03", 8), ("0.05", 10), ("+Inf", 10))]
    cells = [("16", "0", 1000.0), ("16", "3", 4000.0)]
    steps = {
        "steps_total": [sample(count, batch=batch, speculative_tokens=k, kind="decode") for batch, k, count in cells],
        "step_seconds_total": [
            sample(count * (0.0120 + 0.002 * int(k)), batch=batch, speculative_tokens=k, kind="decode")
            for batch, k, count in cells
        ],
        "step_requests_total": [
            sample(12 * count, batch=batch, speculative_tokens=k, kind="decode") for batch, k, count in cells
        ],
    }
    cluster.answers = {
        **{f'"outrider_engine_{name}"': rows for name, rows in steps.items()},
        "time_per_output_token_seconds_bucket": tpot,
        "time_to_first_token_seconds_bucket": [],
        "num_accepted_tokens_total": [sample(1.41)],
        "spec_decode_num_draft_tokens_total": [sample(3)],
        "spec_decode_num_drafts_total": [sample(1)],
        "generation_tokens_total": [sample(812.0)],
        "outrider_requests_per_replica": [sample(20)],
        "outrider_speculative_tokens": [sample(3)],
        "outrider_desired_replicas": [sample(3)],
        "count by": [sample(3)],
        "avg by": [sample(14.0)],
        "num_requests_waiting": [sample(43.0)],
    }
    return cluster


@contextmanager
def serving(cluster: FakeCluster, folder: Path) -> Iterator[Path]:
    """Serve it; gives the kubeconfig with which it is reached."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._reply(*cluster.answer(parts.path, parse_qs(parts.query)))

        def do_POST(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            self._reply(*cluster.answer(parts.path, parse_qs(parts.query) | parse_qs(body)))

        def _reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster.address = f"http://127.0.0.1:{server.server_address[1]}"
    kubeconfig = folder / "kubeconfig"
    context = {"cluster": "fake", "user": "fake", "namespace": "ml"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "fake",
        "contexts": [
            {"name": "fake", "context": context},
            {"name": "elsewhere", "context": {"cluster": "fake", "user": "fake"}},
        ],
        "clusters": [{"name": "fake", "cluster": {"server": cluster.address}}],
        "users": [{"name": "fake", "user": {}}],
    }
    kubeconfig.write_text(yaml.safe_dump(document))
    try:
        yield kubeconfig
    finally:
        server.shutdown()
        server.server_close()
