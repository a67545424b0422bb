"""Stand-ins for the operator's neighbours: an API server, Prometheus, engines and a clock.

They keep what they are told and let a test ask for it. What a test has to read is short: `FakeKube.fail` and
`FakeEngines.fault` break things, `FakeKube.meanwhile` lets something happen while a call is under way, and ``journal``
lists the writes of all neighbours in the order in which they arrived.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from outrider.adapters.engine import Acknowledgement
from outrider.core.glance import GLANCED
from outrider.core.schedule import Schedule
from outrider.core.series import Series
from outrider.errors import Conflict, EngineError, KeyRefused, KubeError, NotFound, OperatorError, StaleGeneration

Manifest = dict[str, Any]
Path = tuple[str, ...]
ObjectKey = tuple[str, str, str]
"""Kind, namespace, name."""

NOW_S = 1_800_000_000.0
WITHOUT_GENERATION = frozenset({"ConfigMap", "Secret", "Service", "ServiceAccount", "Event", "Pod"})
OPTIONAL_KINDS = {"ScaledObject": "keda.sh/v1alpha1", "PodMonitor": "monitoring.coreos.com/v1"}
OWNERS: Path = ("metadata", "ownerReferences")


class FakeClock:
    """Wall-clock time that moves when a test moves it."""

    def __init__(self, now_s: float = NOW_S) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds


@dataclass(frozen=True, slots=True)
class Write:
    """A write that the API server carried out."""

    verb: str
    target: str
    """``Kind/name``, and ``/status`` where that was written."""
    manager: str
    manifest: Manifest


@dataclass(slots=True)
class _Fault:
    error: Callable[[], Exception]
    verb: str | None
    target: str | None
    times: int | None

    def hits(self, verb: str, target: str) -> bool:
        about = (None, target, target.partition("/")[0])
        if self.times == 0 or (self.verb or verb) != verb or self.target not in about:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class FakeKube:
    """Objects by kind, namespace and name, with server-side apply as far as Outrider relies on it.

    A manager owns the leaves of what it applied (lists count as leaves). A leaf that its last owner stops sending goes,
    and ``spec.replicas`` of a Deployment then falls back to 1. Generations rise with the spec, resource versions with
    every change. ``listeners`` hear of each change as a watch would tell them.
    """

    def __init__(self, journal: list[str] | None = None) -> None:
        self.journal = [] if journal is None else journal
        self.objects: dict[ObjectKey, Manifest] = {}
        self.writes: list[Write] = []
        self.reads: list[str] = []
        self.listed: list[str] = []
        """Kinds that were listed, in order."""
        self.served = {(version, kind) for kind, version in OPTIONAL_KINDS.items()}
        self.listeners: list[Callable[[str, Manifest], object]] = []
        self._owners: dict[ObjectKey, dict[str, set[Path]]] = {}
        self._faults: list[_Fault] = []
        self._meanwhile: dict[tuple[str, str], Callable[[], object]] = {}
        self._version = self._uids = 0

    # What the operator calls.

    async def get(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        self.reads.append(f"{kind}/{name}")
        self._raise("get", f"{kind}/{name}")
        found = copy.deepcopy(self.objects.get((kind, namespace or "", name)))
        self._while("get", f"{kind}/{name}")
        return found

    async def apply(self, manifest: Mapping[str, Any], *, manager: str = "outrider", subresource: str = "") -> Manifest:
        key, target = _key(manifest), _target(manifest) + (f"/{subresource}" if subresource else "")
        self._raise("apply", target)
        if key not in self.objects and (subresource or not self._knows(manifest)):
            raise NotFound("NotFound", f"{target} not found", 404)
        live = copy.deepcopy(self.objects.get(key) or self._blank(manifest))
        if manifest["metadata"].get("resourceVersion", live["metadata"].get("resourceVersion")) != live["metadata"].get(
            "resourceVersion"
        ):
            raise Conflict("Conflict", f"{target}: the object has been modified", 409)
        self._merge(key, live, _leaves(manifest), f"{manager}/{subresource}" if subresource else manager)
        self._store(key, live)
        self._note("apply", target, manager, manifest)
        self._while("apply", target)
        return copy.deepcopy(live)

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        key, target = _key(manifest), _target(manifest)
        self._raise("create", target)
        if key in self.objects:
            raise Conflict("Conflict", f"{target} already exists", 409)
        self._store(key, self._blank(manifest) | copy.deepcopy(_rest(manifest)), metadata=manifest["metadata"])
        self._note("create", target, "outrider", manifest)
        return copy.deepcopy(self.objects[key])

    async def delete(self, api_version: str, kind: str, namespace: str, name: str, uid: str) -> None:
        self._raise("delete", f"{kind}/{name}")
        live = self.objects.get((kind, namespace, name))
        if live is not None and live["metadata"]["uid"] == uid:
            self._note("delete", f"{kind}/{name}", "outrider", live)
            self.take_away(kind, name, namespace)

    async def serves(self, api_version: str, kind: str) -> bool:
        self._raise("serves", kind)
        return (api_version, kind) in self.served

    # What everybody else does.

    def put(self, body: Mapping[str, Any]) -> Manifest:
        """Somebody else creates or replaces an object; UID and generation stay as given, and so does the status."""
        status = {name: value for name, value in self.objects.get(_key(body), {}).items() if name == "status"}
        self._store(_key(body), copy.deepcopy({**status, **body}))
        return copy.deepcopy(self.objects[_key(body)])

    def edit(
        self, kind: str, name: str, changes: Mapping[str, Any], manager: str | None = "kubectl", namespace: str = "ml"
    ) -> None:
        """Somebody else changes fields; with ``manager`` None no owner is noted, as some scalers leave it."""
        key = (kind, namespace, name)
        live, leaves = copy.deepcopy(self.objects[key]), _leaves(changes)
        for path, value in leaves.items():
            _set(live, path, value)
            for paths in self._owners.setdefault(key, {}).values():
                paths.discard(path)
        if manager is not None:
            self._owners[key].setdefault(manager, set()).update(leaves)
        self._store(key, live)

    def take_away(self, kind: str, name: str, namespace: str = "ml") -> None:
        """An object vanishes."""
        key = (kind, namespace, name)
        live = self.objects.pop(key)
        self._owners.pop(key, None)
        self._tell("DELETED", live)

    def vanish(self, kind: str, name: str, namespace: str = "ml") -> None:
        """An object goes while no watch looks."""
        del self.objects[kind, namespace, name]

    async def list(
        self, api_version: str, kind: str, namespace: str | None = None, label_selector: str = ""
    ) -> list[Manifest]:
        self.listed.append(kind)
        self._raise("list", kind)
        return [
            {name: value for name, value in body.items() if name not in ("apiVersion", "kind")}
            for (found, where, _), body in self.objects.items()
            if found == kind and namespace in (None, where)
        ]

    def fail(
        self,
        error: Callable[[], Exception],
        verb: str | None = None,
        target: str | None = None,
        times: int | None = None,
    ) -> None:
        """Answer calls with this error: those of a verb, to a target or a kind, a number of times, or all."""
        self._faults.append(_Fault(error, verb, target, times))

    def heal(self) -> None:
        """Answer as usual again."""
        self._faults.clear()

    def meanwhile(self, verb: str, target: str, action: Callable[[], object]) -> None:
        """Once: let something happen after such a call was carried out and before its answer arrives."""
        self._meanwhile[verb, target] = action

    # What a test asks.

    def live(self, kind: str, name: str, namespace: str = "ml") -> Manifest:
        """An object that must be there."""
        return copy.deepcopy(self.objects[kind, namespace, name])

    def applied(self, manager: str = "outrider") -> list[str]:
        """Targets that a manager applied, in order."""
        return [write.target for write in self.writes if write.verb == "apply" and write.manager == manager]

    def created(self, kind: str) -> list[Manifest]:
        """What was created of a kind, in order."""
        return [write.manifest for write in self.writes if write.verb == "create" and write.manifest["kind"] == kind]

    def replicas(self, name: str = "chat") -> int:
        """``spec.replicas`` of a Deployment."""
        count: int = self.live("Deployment", name)["spec"]["replicas"]
        return count

    # Inside.

    def _knows(self, manifest: Mapping[str, Any]) -> bool:
        kind = manifest["kind"]
        return kind not in OPTIONAL_KINDS or (manifest["apiVersion"], kind) in self.served

    def _blank(self, manifest: Mapping[str, Any]) -> Manifest:
        meta = {name: manifest["metadata"][name] for name in ("name", "namespace")}
        return {"apiVersion": manifest["apiVersion"], "kind": manifest["kind"], "metadata": meta}

    def _merge(self, key: ObjectKey, live: Manifest, wanted: dict[Path, Any], manager: str) -> None:
        owners = self._owners.setdefault(key, {})
        for path in owners.get(manager, set()) - wanted.keys():
            if not any(path in paths for other, paths in owners.items() if other != manager):
                _remove(live, path)
        for path, value in wanted.items():
            if path == OWNERS:
                value = _joined_owners(_get(live, OWNERS) or [], value)
            elif _get(live, path) != value:
                for paths in owners.values():
                    paths.discard(path)
            _set(live, path, value)
        owners[manager] = set(wanted)
        if key[0] == "Deployment":
            live["spec"].setdefault("replicas", 1)

    def _store(self, key: ObjectKey, body: Manifest, metadata: Mapping[str, Any] | None = None) -> None:
        before, meta = self.objects.get(key), body["metadata"]
        meta.update(copy.deepcopy(dict(metadata or {})))
        if before is None:
            self._uids += 1
            meta.setdefault("uid", f"uid-{self._uids}")
            if key[0] not in WITHOUT_GENERATION:
                meta.setdefault("generation", 1)
        elif "generation" in before["metadata"] and before.get("spec") != body.get("spec"):
            meta["generation"] = max(meta.get("generation", 0), before["metadata"]["generation"] + 1)
        meta["managedFields"] = [
            {"manager": manager, "fieldsV1": _fields(paths)} for manager, paths in self._owners.get(key, {}).items()
        ]
        if before is not None and _without_version(before) == _without_version(body):
            meta["resourceVersion"] = before["metadata"]["resourceVersion"]
            self.objects[key] = body
            return
        self._version += 1
        meta["resourceVersion"] = str(self._version)
        self.objects[key] = body
        self._tell("ADDED" if before is None else "MODIFIED", body)

    def _tell(self, event_type: str, body: Manifest) -> None:
        for listener in self.listeners:
            listener(event_type, copy.deepcopy(body))

    def _note(self, verb: str, target: str, manager: str, manifest: Mapping[str, Any]) -> None:
        self.writes.append(Write(verb, target, manager, copy.deepcopy(dict(manifest))))
        self.journal.append(f"{verb} {target}")

    def _raise(self, verb: str, target: str) -> None:
        fault = next((fault for fault in self._faults if fault.hits(verb, target)), None)
        if fault is not None:
            raise fault.error()

    def _while(self, verb: str, target: str) -> None:
        action = self._meanwhile.pop((verb, target), None)
        if action is not None:
            action()


class FakeMetrics:
    """Prometheus: what it answers, and what it was asked."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], list[Series]] = {}
        self.error: OperatorError | None = None
        self.asked: list[tuple[float, float]] = []
        """Span and time of each call, seconds."""
        self.asked_of: list[set[str] | None] = []
        """The services that it was about, by name; None for all."""
        self.glances = 0
        """How often it was asked for a few numbers."""
        self.compared: list[tuple[list[tuple[str, str]], float, float]] = []
        """The same of calls for comparisons, after the services that they were for."""

    async def engine_series(
        self, window_s: float, at_s: float, services: Collection[tuple[str, str]] | None = None
    ) -> Mapping[tuple[str, str], list[Series]]:
        self.asked.append((window_s, at_s))
        self.asked_of.append(None if services is None else {name for _, name in services})
        if self.error is not None:
            raise self.error
        return {key: found for key, found in self.series.items() if services is None or key in services}

    async def glance(self, window_s: float, at_s: float) -> Mapping[tuple[str, str], list[Series]]:
        self.glances += 1
        if self.error is not None:
            raise self.error
        return {key: list(_newest(found, at_s - window_s, at_s)) for key, found in self.series.items()}

    async def compared_series(
        self, services: Collection[tuple[str, str]], window_s: float, at_s: float
    ) -> Mapping[tuple[str, str], list[Series]]:
        self.compared.append((sorted(services), window_s, at_s))
        if self.error is not None:
            raise self.error
        return {key: self.series[key] for key in services if key in self.series}


def _newest(found: Iterable[Series], after_s: float, until_s: float) -> Iterator[Series]:
    for one in found:
        samples = tuple(sample for sample in one.samples if after_s < sample[0] <= until_s)
        if one.name in GLANCED and samples:
            yield replace(one, samples=samples)


@dataclass(slots=True)
class FakeEngine:
    """What one engine holds."""

    generation: int = -1
    schedule: Schedule | None = None
    lease_s: int = 0


@dataclass(slots=True)
class FakeEngines:
    """Engines by IP address. Each takes what is newer, renews what is the same, and refuses the rest, as the plugin
    does."""

    journal: list[str] = field(default_factory=list)
    engines: dict[str, FakeEngine] = field(default_factory=dict)
    faults: dict[str, EngineError] = field(default_factory=dict)
    """Answers of engines that are not well, by address."""
    key: str | None = None
    """The key that all of them want, if it matters."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """Address and generation of each call."""
    meanwhile: Callable[[], object] | None = None
    """Happens while the next call is under way."""

    async def put_schedule(
        self, address: str, key: str, generation: int, schedule: Schedule, lease_s: int
    ) -> Acknowledgement:
        self.asked.append((address, generation))
        action, self.meanwhile = self.meanwhile, None
        if action is not None:
            action()
        if address in self.faults:
            raise self.faults[address]
        if self.key is not None and key != self.key:
            raise KeyRefused("AdminKeyRefused", f"engine {address}: unknown key")
        engine = self.engines.setdefault(address, FakeEngine())
        same = generation == engine.generation and schedule == engine.schedule
        if generation <= engine.generation and not same:
            raise StaleGeneration("StaleGeneration", f"engine {address} has a later one", engine.generation)
        engine.generation, engine.schedule, engine.lease_s = generation, schedule, lease_s
        self.journal.append(f"put {address} generation {generation}")
        return Acknowledgement(generation, 0.004)

    def calls(self, address: str) -> list[int]:
        """Generations that an engine was asked to take, in order."""
        return [generation for asked, generation in self.asked if asked == address]


def _key(body: Mapping[str, Any]) -> ObjectKey:
    return body["kind"], body["metadata"]["namespace"], body["metadata"]["name"]


def _target(body: Mapping[str, Any]) -> str:
    return f"{body['kind']}/{body['metadata']['name']}"


def _rest(body: Mapping[str, Any]) -> Manifest:
    return {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "metadata")}


def _leaves(body: Mapping[str, Any]) -> dict[Path, Any]:
    identity = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}
    return {path: value for path, value in _walk(body, ()) if path not in identity}


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _walk(inner, (*path, name))
    else:
        yield path, copy.deepcopy(value)


def _get(body: Manifest, path: Sequence[str]) -> Any:
    place: Any = body
    for name in path:
        place = place.get(name) if isinstance(place, dict) else None
    return place


def _set(body: Manifest, path: Path, value: Any) -> None:
    place = body
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = copy.deepcopy(value)


def _remove(body: Manifest, path: Path) -> None:
    parent = _get(body, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)


def _joined_owners(old: Sequence[Manifest], new: Sequence[Manifest]) -> list[Manifest]:
    joined = [*{owner["uid"]: owner for owner in (*old, *new)}.values()]
    if sum(bool(owner.get("controller")) for owner in joined) > 1:
        raise KubeError("ApplyRefused", "Only one reference can have Controller set to true", 422)
    return joined


def _fields(paths: set[Path]) -> Manifest:
    fields: Manifest = {}
    for path in paths:
        place = fields
        for name in path:
            place = place.setdefault(f"f:{name}", {})
    return fields


def _without_version(body: Manifest) -> str:
    meta = {name: value for name, value in body["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    return json.dumps({**body, "metadata": meta}, sort_keys=True)
