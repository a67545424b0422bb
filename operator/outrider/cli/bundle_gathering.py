"""Where the files of a support bundle come from. What may not be read is named, and the rest gathered all the same."""

from __future__ import annotations

import asyncio
import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Protocol

from outrider import __version__
from outrider.adapters.prometheus_questions import Course
from outrider.api import API_VERSION, KIND
from outrider.cli.bundle import Bundle
from outrider.cli.connection import Cluster, Manifest, Reach, store
from outrider.cli.exits import Unusable
from outrider.errors import KubeError, MetricsError, NotFound
from outrider.reconcile.registry import SERVICE_LABEL

CHILDREN = (
    ("apps/v1", "Deployment"), ("apps/v1", "ReplicaSet"), ("v1", "Pod"), ("v1", "Service"), ("v1", "ConfigMap"),
    ("keda.sh/v1alpha1", "ScaledObject"), ("policy/v1", "PodDisruptionBudget"),
    ("networking.k8s.io/v1", "NetworkPolicy"), ("monitoring.coreos.com/v1", "PodMonitor"),
)  # fmt: skip
"""Secrets are not among them: nobody who helps needs one."""
DEFINITIONS = ("speculativeinferenceservices.serving.outrider.dev", "scaledobjects.keda.sh")
ENGINE_METRICS = '{__name__=~"vllm:.*|outrider_engine_.*",serving_outrider_dev_service!=""}'
OPERATOR_METRICS = '{__name__=~"outrider_.*",__name__!~"outrider_engine_.*"}'
LIBRARIES = ("kopf", "kubernetes", "pydantic", "prometheus-api-client", "aiohttp", "numpy", "scipy")
OPERATOR_LABEL = "app.kubernetes.io/name=outrider"
LOG_LINES = 5000
ENGINE_LOG_LINES = 500


class LogCluster(Cluster, Protocol):
    """The calls that gathering makes."""

    async def version(self) -> Manifest:
        """What the API server says of itself."""

    async def logs(self, namespace: str, pod: str, container: str, *, lines: int, previous: bool = False) -> str:
        """The last lines of a container."""


class Gathering:
    """Fills a bundle, part by part."""

    def __init__(self, kube: LogCluster, reach: Reach, bodies: Sequence[Manifest]) -> None:
        self._kube, self._reach, self._bodies = kube, reach, bodies
        self._namespaces = sorted({str(one["metadata"]["namespace"]) for one in bodies})
        self.bundle = Bundle()

    async def everything(self) -> Bundle:
        """All parts."""
        await self._versions()
        for body in self._bodies:
            await self._service(body)
        for namespace in self._namespaces:
            await self._part(f"events of {namespace}", self._list("v1", "Event", namespace), self._events(namespace))
        await self._operator()
        await self._metrics()
        return self.bundle

    async def _part(self, what: str, asking: Awaitable[Any], keep: Callable[[Any], None]) -> None:
        """Ask, and keep the answer; without one say so. A kind that is not installed is no news."""
        try:
            keep(await asking)
        except NotFound:
            return
        except KubeError as error:
            self.bundle.missing.append(f"{what}: {error.message}")

    def _list(
        self, api_version: str, kind: str, namespace: str | None, selector: str = ""
    ) -> Awaitable[list[Manifest]]:
        return self._kube.list(api_version, kind, namespace, selector)

    def _objects(self, name: str) -> Callable[[list[Manifest]], None]:
        return lambda found: self.bundle.add_objects(name, found)

    def _events(self, namespace: str) -> Callable[[list[Manifest]], None]:
        def keep(found: list[Manifest]) -> None:
            ordered = sorted(found, key=lambda one: str(one.get("lastTimestamp") or one.get("eventTime") or ""))
            self.bundle.add_objects(f"{namespace}/events.yaml", ordered)

        return keep

    async def _versions(self) -> None:
        libraries = {}
        for name in LIBRARIES:
            try:
                libraries[name] = version(name)
            except PackageNotFoundError:
                libraries[name] = "not installed"
        document: dict[str, Any] = {
            "outrider": __version__, "python": sys.version.split()[0], "system": platform.platform(), **libraries,
        }  # fmt: skip

        def keep(found: Manifest) -> None:
            document["kubernetes"] = found.get("gitVersion", "unknown")

        await self._part("the version of Kubernetes", self._kube.version(), keep)
        for name in DEFINITIONS:
            asking = self._kube.get("apiextensions.k8s.io/v1", "CustomResourceDefinition", None, name)
            await self._part(f"the definition {name}", asking, lambda found, name=name: _served(document, name, found))  # type: ignore[misc]
        self.bundle.add_document("versions.json", document)

    async def _service(self, body: Manifest) -> None:
        metadata = body["metadata"]
        namespace, name = str(metadata["namespace"]), str(metadata["name"])
        self.bundle.add_objects(
            f"{namespace}/{name}/resource.yaml", [{"apiVersion": API_VERSION, "kind": KIND, **body}]
        )
        for api_version, kind in CHILDREN:
            asking = self._list(api_version, kind, namespace, f"{SERVICE_LABEL}={name}")
            file = f"{namespace}/{name}/{kind.lower()}.yaml"

            def keep(found: list[Manifest], api: str = api_version, kind: str = kind, file: str = file) -> None:
                # Items of a list come without these two.
                self.bundle.add_objects(file, [{"apiVersion": api, "kind": kind, **one} for one in found])

            await self._part(f"{kind} of {namespace}/{name}", asking, keep)
        scaler = self._kube.get("autoscaling/v2", "HorizontalPodAutoscaler", namespace, f"keda-hpa-{name}")
        await self._part(
            f"the HPA of {namespace}/{name}",
            scaler,
            lambda found: self.bundle.add_objects(f"{namespace}/{name}/hpa.yaml", [found] if found else []),
        )
        await self._logs(f"{namespace}/{name}/logs", namespace, f"{SERVICE_LABEL}={name}", ENGINE_LOG_LINES)

    async def _operator(self) -> None:
        """The operator's own objects and log, where it runs as a pod that we may see."""
        try:
            found = await self._list("apps/v1", "Deployment", None, OPERATOR_LABEL)
        except KubeError as error:
            self.bundle.missing.append(f"the operator's Deployment and log: {error.message}")
            return
        if not found:
            self.bundle.missing.append(
                f"the operator's log: no Deployment in the cluster has the label {OPERATOR_LABEL}"
            )
        for one in found:
            namespace = str(one["metadata"]["namespace"])
            self.bundle.add_objects(f"operator/{namespace}/deployment.yaml", [one])
            await self._logs(f"operator/{namespace}/logs", namespace, OPERATOR_LABEL, LOG_LINES)

    async def _logs(self, folder: str, namespace: str, selector: str, lines: int) -> None:
        try:
            pods = await self._list("v1", "Pod", namespace, selector)
        except KubeError as error:
            self.bundle.missing.append(f"logs of {selector} in {namespace}: {error.message}")
            return
        for pod in pods:
            name, status = str(pod["metadata"]["name"]), pod.get("status", {})
            restarts = {one["name"]: one.get("restartCount", 0) for one in status.get("containerStatuses", [])}
            for container in (one["name"] for one in pod["spec"]["containers"]):
                for previous in (False, True) if restarts.get(container) else (False,):
                    file = f"{folder}/{name}-{container}{'-before-restart' if previous else ''}.log"
                    asking = self._kube.logs(namespace, name, container, lines=lines, previous=previous)
                    await self._part(f"{file}", asking, lambda text, file=file: self.bundle.add_text(file, text))  # type: ignore[misc]

    async def _metrics(self) -> None:
        """What the metrics store knows at this moment, as text in the form of a metrics page."""
        try:
            source = await store(self._kube, self._reach, self._bodies)
            names = "|".join(self._namespaces)
            engines = ENGINE_METRICS[:-1] + f',namespace=~"{names}"}}'
            found = await asyncio.gather(*(source.now(query) for query in (engines, OPERATOR_METRICS)))
        except (Unusable, MetricsError) as error:
            self.bundle.missing.append(f"metrics: {error}")
            return
        for name, rows in zip(("engines", "operator"), found, strict=True):
            self.bundle.add_text(f"metrics/{name}.txt", "".join(sorted(map(_line, rows))))


def _served(document: dict[str, Any], name: str, found: Manifest | None) -> None:
    if found is None:
        document[name] = "not installed"
        return
    labels = found["metadata"].get("labels", {})
    versions = [one["name"] for one in found.get("spec", {}).get("versions", []) if one.get("served")]
    document[name] = {"versions": versions, "release": labels.get("app.kubernetes.io/version")}


def _line(row: Course) -> str:
    labels = ",".join(f'{key}="{value}"' for key, value in sorted(row.labels.items()) if key != "__name__")
    time_s, value = row.samples[-1] if row.samples else (0.0, 0.0)
    return f"{row.labels.get('__name__', '')}{{{labels}}} {value:.10g} {round(1000 * time_s)}\n"
