"""What chaos needs of a local cluster: faults that can be put in and taken out, and services as their users left them.

`tests.testbed.chaos_watch` says what must hold meanwhile, `tests.testbed.test_chaos` plays.
"""

from __future__ import annotations

import contextlib
import re
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.testbed import operator
from tests.testbed.api import ApiError
from tests.testbed.cluster import Cluster
from tests.testbed.load import Load
from tests.testbed.service import PATHS, ServiceView
from tests.testbed.startup import SIMULATOR
from tests.testbed.store import EMPTY, Store

MINIMAL = Path(__file__).resolve().parents[2] / "examples" / "01-minimal.yaml"
NAMESPACE = "chaos"
NAMES = ("a", "b", "c")
CEILING = 5
"""``maxSpeculativeTokens`` of all services: another one is another start of the engines, which is played by edits that
roll the engines out."""
LIES = ("gone", "empty", "partial", "not-a-number", "nonsense", "refusing", "slow")
SLOW_S = 12.0
"""Longer than the operator waits for an answer."""
COLLECTED_AFTER_S = 40.0
"""The garbage collector learns of new kinds every 30 s: what belongs to one made before that stays until then."""
SETTINGS = {"OUTRIDER_KEDA_POLLING_INTERVAL_S": "3", "OUTRIDER_LOG_LEVEL": "INFO"}


class LyingStore(Store):
    """A way to Prometheus that answers wrongly in one of the ways of `LIES`; empty text for the truth."""

    lie = ""

    def tell(self, lie: str) -> None:
        """Answer so from now on."""
        self.lie, self.empty = lie, lie == "empty"
        if lie == "gone":
            self.close()
        elif not self.listens:
            self.open()

    def ask(self, path: str, body: bytes | None, content_type: str | None) -> tuple[int, bytes]:
        if self.lie == "refusing":
            return 500, b'{"status": "error", "errorType": "internal", "error": "played"}'
        if self.lie == "nonsense":
            return 200, b'{"status": "success", "data": {"result": [{"metric": 7, "values": "x"}]}}'
        if self.lie == "slow":
            time.sleep(SLOW_S)
            return 200, EMPTY
        status, text = super().ask(path, body, content_type)
        if self.lie == "partial" and b"outrider_engine" in (body or b"") + path.encode():
            return 200, EMPTY
        if self.lie == "not-a-number":
            text = re.sub(rb'"[-+.0-9e]+"\]', b'"NaN"]', text)
        return status, text


@dataclass
class Wish:
    """A service as its user left it, and what may be seen of it since."""

    view: ServiceView
    spec: dict[str, Any]
    body: dict[str, Any]
    """As the API server had it after the user's last word."""
    lately: list[dict[str, Any]]
    """Specs that engines and replicas may still follow: the last, and those before it that were not yet carried out."""
    edited_s: float
    """When the user, or somebody who tampers with children, last did something; monotonic."""
    unheard_s: float = 0.0
    """When the operator was last seen not to have looked at the user's last word; monotonic."""
    templates: dict[int, set[str]] = field(default_factory=dict)
    """Digests of the Deployment's template, by generation of the resource."""
    reached: bool = False
    """The least number of replicas was there once."""
    held: int | None = None
    """Replicas while nothing is measured: they may not fall."""
    sabotaged: bool = False
    """The user asks for engines that crash or hang."""

    def touched(self) -> None:
        """What was seen of replicas holds no longer."""
        self.edited_s, self.held, self.reached = time.monotonic(), None, False


class Stage:
    """A cluster with Outrider and all that can go wrong there."""

    def __init__(self, cluster: Cluster, store: LyingStore) -> None:
        self.cluster, self.store = cluster, store
        self.began_s = self.blind_s = time.monotonic()
        self.wishes: dict[str, Wish] = {}
        self.former: dict[str, list[dict[str, Any]]] = {}
        """Specs of deleted services by name: the simulated kubelet may mount their documents into the first pods of one
        that is made anew under that name, for some seconds."""
        self.loads: dict[str, Load] = {}
        self.running = True
        """The operator should run."""
        self.frozen = False
        """Engines answer nobody, and their nodes say that all is well."""
        self.calm_s = self.began_s
        """When the operator, its neighbours or their connections last came or went."""

    @property
    def journal(self) -> Path:
        """Where all steps are written down, beside the logs of the cluster."""
        return self.cluster.logs / "chaos.log"

    def note(self, what: str) -> None:
        """Write down what is played."""
        with self.journal.open("a", encoding="utf-8") as journal:
            journal.write(f"{time.strftime('%H:%M:%S')} {what}\n")

    def keep(self) -> None:
        """Write down all that there is, for whoever asks why an act failed."""
        kinds = "sis,deployments,replicasets,pods,configmaps,scaledobjects,events"
        found = self.cluster.kubectl("get", kinds, "-n", NAMESPACE, "-o", "yaml", check=False).stdout
        self.journal.with_suffix(".yaml").write_text(found, encoding="utf-8")

    def put(self, name: str, spec: dict[str, Any]) -> None:
        """A user applies a resource."""
        path = f"{PATHS['sis'].format(NAMESPACE)}/{name}"
        wish = self.wishes.get(name)
        if wish is not None:
            wish.lately.append(spec)
        self.cluster.api.apply(path, manifest(name, spec))
        view = ServiceView(self.cluster, NAMESPACE, name)
        body, sabotaged = view.resource(), bool(spec.get("engine", {}).get("env"))
        if wish is None:
            lately = [*self.former.pop(name, []), spec]
            self.wishes[name] = Wish(view, spec, body, lately, time.monotonic(), sabotaged=sabotaged)
            return
        wish.spec, wish.body, wish.sabotaged = spec, body, wish.sabotaged or sabotaged
        wish.touched()

    def delete(self, name: str) -> None:
        """A user deletes a resource; the load on it ends."""
        self.load(name, 0, 0.0)
        wish = self.wishes.pop(name)
        self.former[name] = wish.lately
        self.cluster.api.text("DELETE", f"{PATHS['sis'].format(NAMESPACE)}/{name}")
        self.cluster.wait_until(f"end of {name}", lambda: not wish.view.children())

    def load(self, name: str, requests: int, acceptance: float) -> None:
        """So many requests in flight from now on."""
        with contextlib.suppress(KeyError):
            self.loads.pop(name).__exit__(None, None, None)
        if requests:
            self.loads[name] = Load(self.cluster, NAMESPACE, name, requests, acceptance).__enter__()

    def tell(self, lie: str) -> None:
        """Prometheus lies so from now on, or is well again."""
        self.store.tell(lie)
        self.blind_s = time.monotonic()
        for wish in self.wishes.values():
            wish.held = None

    def end(self, number: signal.Signals) -> None:
        """The operator's process ends."""
        self.running = False
        self.cluster.stop_process(operator.PROCESS, number)

    def begin(self) -> None:
        """The operator's process starts."""
        settings = {"OUTRIDER_PROMETHEUS_URL": self.store.url, **SETTINGS}
        operator.start(self.cluster, settings)
        self.running, self.calm_s = True, time.monotonic()

    def freeze(self, yes: bool) -> None:
        """Cut engines off, or let them go on."""
        self.frozen = yes
        self.signal(SIMULATOR, signal.SIGSTOP if yes else signal.SIGCONT)

    def signal(self, process: str, number: signal.Signals) -> None:
        """Send a process of the cluster a signal."""
        next(one for one in self.cluster.processes() if one.name == process).signal(number)
        self.calm_s = time.monotonic()

    def tamper(self, name: str, kind: str, child: str, change: dict[str, Any] | None) -> None:
        """Somebody changes a child, or deletes it; one that is not there cannot be tampered with."""
        path = f"{PATHS[kind].format(NAMESPACE)}/{child}"
        with contextlib.suppress(ApiError):
            if change is None:
                self.cluster.api.text("DELETE", path)
            else:
                self.cluster.api.text("PATCH", path, change, content_type="application/merge-patch+json")
        self.wishes[name].touched()

    def heal(self) -> None:
        """Take all faults out."""
        if self.frozen:
            self.freeze(False)
        if self.store.lie:
            self.tell("")
        if not self.running:
            self.begin()


def manifest(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """The minimal example with blocks of its spec replaced; ``tuning`` goes where it belongs. Every change rolls, so
    that what engines run can be told from the last spec alone."""
    found: dict[str, Any] = yaml.safe_load(MINIMAL.read_text())
    found["metadata"] = {"name": name, "namespace": NAMESPACE, "labels": {"team": "chaos"}}
    own = {key: value for key, value in spec.items() if key != "tuning"}
    found["spec"] |= {"rollout": {"policy": "Rolling"}, **own}
    found["spec"]["speculation"] |= {"tuning": spec.get("tuning", {}), "maxSpeculativeTokens": CEILING}
    return found


@contextlib.contextmanager
def stage_on(cluster: Cluster) -> Iterator[Stage]:
    """Outrider on a cluster, ready to be played with; all threads and processes of ours end with the block."""
    cluster.kubectl("apply", "-f", str(Path(__file__).with_name("pod_monitor_crd.yaml")))
    operator.install(cluster)
    cluster.kubectl("create", "namespace", NAMESPACE)
    with LyingStore(cluster.prometheus_url, cluster.port("store")) as store:
        stage = Stage(cluster, store)
        stage.begin()
        try:
            yield stage
        finally:
            if stage.frozen:
                stage.freeze(False)
            for name in list(stage.loads):
                stage.load(name, 0, 0.0)
            if stage.running:
                operator.stop(cluster)
