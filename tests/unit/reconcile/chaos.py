"""An operator's passes over a service that everything happens to, step by step in virtual time.

A step is a control pass, and the objects passes that it and events cause. All comes from one random number generator,
so a seed plays the same each time.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import REGISTRY

from outrider.errors import Conflict, KubeError
from outrider.reconcile import manifest_state

from .builders import World, body, forbidden, pod, unavailable
from .chaos_plant import ABSENT, REFUSALS, SCRAPE_S, WRONG, Engine, LyingEngines, LyingMetrics

PERIOD_S = 15.0
ACT = 100
"""Steps between two ends of all faults."""
CONVERGED = 12
"""Passes after the last fault until all is well: three minutes, for data of a whole window and a minute's retry of what
was forbidden."""
LATEST = 40
"""Changes that may wait for their event."""
STATUS_BYTES, MEMORY_BYTES = 32_768, 131_072
SERIES = 2_000
"""Of the operator's own metrics, with two services."""
RESOURCE = "SpeculativeInferenceService"
CEILING = 5
EDITS: tuple[dict[str, Any], ...] = (
    {"spec.speculation.tuning": {"mode": "Adaptive"}},
    {"spec.speculation.tuning": {"mode": "Adaptive", "minSpeculativeTokens": 2}},
    {"spec.speculation.tuning": {"mode": "Adaptive", "policy": "AcceptanceThreshold", "minSpeculativeTokens": 1}},
    {"spec.speculation.tuning": {"mode": "Fixed", "initialSpeculativeTokens": 4}},
    {"spec.speculation.tuning": {"mode": "Observe", "minSpeculativeTokens": 3}},
    {"spec.objectives.tpotMilliseconds": 12},
    {"spec.objectives.tpotMilliseconds": 400},
    {"spec.autoscaling": {"minReplicas": 2, "maxReplicas": 9}},
    {"spec.autoscaling": {"minReplicas": 1, "maxReplicas": 2}},
    {"spec.autoscaling": {"mode": "Off", "minReplicas": 3}},
    {"spec.paused": True},
    {"spec.paused": False},
    {"spec.engine": {"extraArgs": ["--mod", "other"]}},
    {"spec.engine": {"maxNumSeqs": 128}},
)
WELL = {"spec.paused": False, "spec.engine": {}}
"""An edit that takes back what keeps a service from following."""


@dataclass
class Wish:
    """A service as its user left it."""

    changes: dict[str, Any]
    generation: int = 3
    body: dict[str, Any] = field(default_factory=dict)
    """As the API server has it since."""
    lately: list[dict[str, Any]] = field(default_factory=list)
    """Specs that engines may still follow: the last, and those before it that no pass has carried out yet."""
    templates: dict[int, str] = field(default_factory=dict)
    """Digest of the pod template by generation."""


class Chaos:
    """Plays; `step` and `converge` raise AssertionError where something does not hold."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.engines: dict[str, Engine] = {}
        self.wishes: dict[str, Wish] = {}
        self.seen: Counter[str] = Counter()
        """What was looked at, and what happened: a run that saw nothing has shown nothing."""
        self.slowest = 0
        """Passes from the last fault to the end of its consequences, at most."""
        self._numbers = 0
        self.world = World()
        self.metrics = LyingMetrics(self.engines, self.rng)
        self.puts = LyingEngines(self.world.journal)
        self.world.metrics, self.world.engines = self.metrics, self.puts
        self.world.restart()

    async def begin(self) -> None:
        """Two services that serve."""
        while len(self.wishes) < 2:
            await self._create()

    async def step(self) -> None:
        """Something happens, time passes, and the operator looks."""
        await self._happen()
        await self._pass(self.rng.choice((PERIOD_S, PERIOD_S, PERIOD_S, PERIOD_S, 1.0, 60.0, 400.0)))

    async def converge(self) -> None:
        """All faults end; after `CONVERGED` passes at most all is well."""
        self._heal()
        for name, wish in self.wishes.items():
            self._edit(name, wish, WELL)
        left: list[str] = []
        for number in range(1, CONVERGED + 1):
            await self._pass(PERIOD_S, calm=True)
            left = [fault for name in self.wishes for fault in self._open(name)]
            if not left:
                self.slowest = max(self.slowest, number)
                return
        raise AssertionError(f"{CONVERGED} passes after the last fault: {'; '.join(left)}")

    # What happens.

    async def _happen(self) -> None:
        rng = self.rng
        if rng.random() < 0.1:
            self.metrics.lies = set(rng.sample((*ABSENT, *WRONG), rng.choice((0, 0, 1, 1, 2))))
        for lie in self.metrics.lies:
            self.seen[f"told: {lie}"] += 1
        if rng.random() < 0.1:
            self._break_the_api_server()
        happens: dict[Callable[[], None], float] = {
            self._load: 0.3,
            self._change_an_engine: 0.15,
            self._change_pods: 0.08,
            self._edit_one: 0.05,
            self._meddle: 0.03,
            self._restart: 0.01,
        }
        for what, chance in happens.items():
            if rng.random() < chance:
                what()
        if rng.random() < 0.004:
            self._delete(rng.choice(list(self.wishes)))
            await self._create()

    def _break_the_api_server(self) -> None:
        rng = self.rng
        self.world.kube.heal()
        if rng.random() < 0.5:
            return
        error: Callable[[], Exception] = rng.choice(
            (
                unavailable,
                forbidden,
                lambda: Conflict("Conflict", "the object has been modified", 409),
                lambda: KubeError("ApplyRefused", "spec: Invalid value", 422),
            )
        )
        name = rng.choice(list(self.wishes))
        target = rng.choice((None, None, f"{RESOURCE}/{name}/status", f"ConfigMap/{name}-memory", f"Deployment/{name}"))
        self.world.kube.fail(error, rng.choice((None, "apply", "create", "get")), target)

    def _load(self) -> None:
        service, batch = self.rng.choice(list(self.wishes)), self.rng.choice((0, 3, 12, 40, 90))
        alpha = self.rng.choice((0.0, 0.2, 0.5, 0.8, 0.95))
        for engine in self.engines.values():
            if engine.service == service:
                engine.batch, engine.alpha = batch, alpha

    def _change_an_engine(self) -> None:
        engine = self.rng.choice(list(self.engines.values()))
        what = self.rng.choice(("well", "well", "restart", *REFUSALS))
        self.seen[f"engine: {what}"] += 1
        self._mend(engine)
        if what == "restart":
            self._start_again(engine)
        elif what != "well":
            self.puts.refusals[engine.address] = what

    def _mend(self, engine: Engine) -> None:
        """It refuses no longer; what it refused for good, and what it said it took, is believed until it starts
        again."""
        if self.puts.refusals.pop(engine.address, "") in ("liar", "uncontrollable", "schedule"):
            self._start_again(engine)

    def _start_again(self, engine: Engine) -> None:
        engine.start()
        self.puts.engines.pop(engine.address, None)
        self._see(engine)

    def _change_pods(self) -> None:
        service = self.rng.choice(list(self.wishes))
        mine = [engine for engine in self.engines.values() if engine.service == service]
        what = self.rng.choice(("more", "fewer", "unready"))
        if what == "more" and len(mine) < 4:
            self._add_pod(service)
        elif what == "fewer" and len(mine) > 1:
            self._remove_pod(self.rng.choice(mine))
        elif what == "unready":
            self._see(self.rng.choice(mine), ready=False)

    def _edit_one(self) -> None:
        name = self.rng.choice(list(self.wishes))
        self._edit(name, self.wishes[name], self.rng.choice(EDITS))

    def _meddle(self) -> None:
        """Somebody deletes or changes a child."""
        name = self.rng.choice(list(self.wishes))
        kind, child = self.rng.choice(
            (
                ("ConfigMap", f"{name}-schedule"),
                ("ConfigMap", f"{name}-memory"),
                ("Secret", f"{name}-admin"),
                ("Service", name),
                ("ScaledObject", name),
                ("PodDisruptionBudget", name),
            )
        )
        if (kind, "ml", child) not in self.world.kube.objects:
            return
        if kind == "ConfigMap" and self.rng.random() < 0.5:
            self.world.kube.edit(kind, child, {"data": {"memory.json": '{"version": 1, "generation": NaN'}})
        else:
            self.world.kube.take_away(kind, child)

    def _restart(self) -> None:
        """The operator's process ends and another begins."""
        self.seen["restarts"] += 1
        self.world.restart()

    # Services and pods.

    async def _create(self) -> None:
        self._numbers += 1
        name = f"s{self._numbers}"
        self.wishes[name] = Wish({})
        self._edit(name, self.wishes[name], self.rng.choice(EDITS[:4]))
        for _ in range(self.rng.randint(1, 3)):
            self._add_pod(name)

    def _edit(self, name: str, wish: Wish, changes: Mapping[str, Any]) -> None:
        wish.changes |= changes
        wish.generation += 1
        wish.body = self.world.kube.put(body(wish.changes, name, wish.generation))
        wish.lately.append(dict(wish.changes))
        self.seen["edits"] += 1

    def _delete(self, name: str) -> None:
        """The resource goes, then what belongs to it, as the garbage collector has it; pods end last."""
        del self.wishes[name]
        kube = self.world.kube
        kube.take_away(RESOURCE, name)
        for engine in [one for one in self.engines.values() if one.service == name]:
            kube.put(self._pod(engine, terminating=True))
            self._remove_pod(engine)
        for kind, _, child in [key for key in kube.objects if key[2] == name or key[2].startswith(f"{name}-")]:
            kube.take_away(kind, child)
        self.seen["deletions"] += 1

    def _add_pod(self, service: str) -> None:
        self._numbers += 1
        number = self._numbers
        engine = Engine(
            service, f"{service}-{number}", f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}", self.rng
        )
        self.engines[engine.pod] = engine
        self._see(engine)

    def _remove_pod(self, engine: Engine) -> None:
        del self.engines[engine.pod]
        self.puts.engines.pop(engine.address, None)
        self.puts.refusals.pop(engine.address, None)
        self.world.kube.take_away("Pod", engine.pod)

    def _pod(self, engine: Engine, **state: Any) -> dict[str, Any]:
        return pod(
            engine.pod,
            service=engine.service,
            address=engine.address,
            uid=engine.pod,
            restarts=engine.restarts,
            **state,
        )

    def _see(self, engine: Engine, **state: Any) -> None:
        self.world.see(self._pod(engine, **state))

    def _heal(self) -> None:
        self.metrics.lies = set()
        self.world.kube.heal()
        for engine in self.engines.values():
            self._mend(engine)
            engine.batch = engine.batch or 12
            self._see(engine)

    # What the operator does, and what must hold then.

    def _forget_events(self) -> None:
        """An API server drops them after an hour; kept, they would pass for memory that the operator takes."""
        for _, namespace, name in [key for key in self.world.kube.objects if key[0] == "Event"]:
            self.world.kube.vanish("Event", name, namespace)

    async def _pass(self, seconds: float, *, calm: bool = False) -> None:
        world = self.world
        self._serve(seconds)
        before = {name: self._frozen(name) for name in self.wishes}
        world.forget_writes()
        self._forget_events()
        self.puts.told.clear()
        await world.control.run()
        self._held(before)
        names = [name for name in self.wishes if calm or self.rng.random() < 0.15 or ("ml", name) in world.queued]
        self.rng.shuffle(names)
        for name in names:
            retry_s = await world.reconcile(name)
            self.seen["objects passes"] += 1
            self.seen["objects passes that failed"] += retry_s is not None
        self._look()

    def _serve(self, seconds: float) -> None:
        """Time passes; engines are scraped, at most a minute's worth."""
        world = self.world
        while seconds > 0:
            part_s = min(seconds, SCRAPE_S) if seconds <= 60.0 else seconds - 60.0
            world.clock.advance(part_s)
            seconds -= part_s
            for engine in self.engines.values():
                engine.work(world.clock(), part_s, self.puts.schedule(engine.address))

    def _frozen(self, name: str) -> tuple[Any, Any] | None:
        """What must stay while nothing is known: the target, and the present order of K."""
        service = self.world.registry.get(("ml", name))
        return None if service is None or service.state is None else (service.state.target, service.state.schedule)

    def _held(self, before: Mapping[str, tuple[Any, Any] | None]) -> None:
        """Without data neither the target rises nor K moves, and nobody is told a number of replicas."""
        for name, was in before.items():
            service = self.world.registry.get(("ml", name))
            if service is None or service.state is None or was is None:
                continue
            if service.metrics is None:
                self.seen["numbers of replicas"] += _desired(name) is not None
                continue
            self.seen["passes without data"] += 1
            assert service.state.target == was[0], f"{name}: the target moved from {was[0]} without data"
            told = _desired(name)
            assert told is None, f"{name}: {told} replicas are asked for without data"
            changes = () if service.outcome is None else service.outcome.changes
            asked = any("resource" in one.reason for one in changes)  # its bounds, or the schedule that it fixes
            assert asked or service.state.schedule == was[1], f"{name}: {was[1]} became {service.state.schedule}"

    def _look(self) -> None:
        world, now_s = self.world, self.world.clock()
        self.seen["steps"] += 1
        self._delivered()
        for write in world.kube.writes:
            if write.target.startswith(RESOURCE):
                assert write.target.endswith("/status"), f"wrote {write.target}"
        for name, wish in self.wishes.items():
            self._service(name, wish)
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not tasks, f"tasks are left: {tasks}"
        assert len(world.registry) == len(self.wishes), "services that are gone are remembered"
        orphans = world.registry._orphans
        assert len(orphans) <= len(self.wishes), f"children of services that are gone are remembered: {list(orphans)}"
        if self.seen["steps"] % 50 == 0:
            series = sum(len(m.samples) for m in REGISTRY.collect() if m.name.startswith("outrider"))
            assert series < SERIES, f"{series} series of our own"
        assert now_s == world.clock()

    def _delivered(self) -> None:
        service_of = {engine.address: engine.service for engine in self.engines.values()}
        for told in self.puts.told:
            name = service_of[told.address]
            allowed = set[int]().union(*(_allowed(spec) for spec in self.wishes[name].lately))
            drafts = set(told.schedule.values)
            assert drafts <= allowed, f"{name}: told {told.schedule}, and K may be {sorted(allowed)}"
            self.seen["deliveries"] += 1

    def _service(self, name: str, wish: Wish) -> None:
        kube, service = self.world.kube, self.world.service(name)
        live: Mapping[str, Any] = kube.objects[RESOURCE, "ml", name]
        assert live["spec"] == wish.body["spec"], f"{name}: the spec was changed"
        for part in ("generation", "uid", "labels", "annotations", "finalizers"):
            assert live["metadata"].get(part) == wish.body["metadata"].get(part), f"{name}: {part} was changed"
        status = live.get("status", {})
        assert len(json.dumps(status, allow_nan=False)) < STATUS_BYTES
        stored = kube.objects.get(("ConfigMap", "ml", f"{name}-memory"))
        if stored is not None:
            assert len(stored["data"]["memory.json"]) < MEMORY_BYTES
        pods = {engine.pod for engine in self.engines.values() if engine.service == name}
        for remembered in (service.acknowledged, service.refusals, service.declined, service.pods):
            assert remembered.keys() <= pods, f"{name}: pods that are gone are remembered: {remembered.keys() - pods}"
        assert len(service.unannounced) < LATEST, f"{name}: {len(service.unannounced)} events wait"
        assert len(service.warned_s) < LATEST
        assert len(service.children) < LATEST
        self._settled(name, wish, status)

    def _settled(self, name: str, wish: Wish, status: Mapping[str, Any]) -> None:
        """Earlier specs no longer count once a pass of each kind has seen the last; one generation has one template."""
        if status.get("observedGeneration") != wish.generation or _told(status, "Ready")[0] != "True":
            return
        if self._fit(name, wish):
            wish.lately = wish.lately[-1:]
        deployment = self.world.kube.objects.get(("Deployment", "ml", name))
        if deployment is None:
            return  # somebody deleted it, and the API server has not let us make it again
        template = manifest_state.digest(deployment["spec"]["template"])
        known = wish.templates.setdefault(wish.generation, template)
        wish.templates = {wish.generation: known}
        self.seen["templates"] += 1
        assert template == known, f"{name}: another pod template, and nobody edited the resource"

    def _fit(self, name: str, wish: Wish) -> bool:
        """The last control pass decided within the last spec."""
        state = self.world.service(name).state
        frozen = wish.changes.get("spec.paused", False)
        return state is not None and not frozen and set(state.schedule.values) <= _allowed(wish.changes)

    def _open(self, name: str) -> list[str]:
        """What is not yet as it should be."""
        service, status = self.world.service(name), self.world.status(name)
        found = [
            f"{name}: {type_} is {_told(status, type_)}"
            for type_ in ("Ready", "MetricsAvailable", "ScheduleApplied")
            if _told(status, type_)[0] != "True"
        ]
        assert service.state is not None
        if ("Deployment", "ml", name) not in self.world.kube.objects:
            found.append(f"{name}: its Deployment is missing")
        found += [
            f"{name}: {engine.pod} runs another schedule than {service.state.schedule}"
            for engine in self.engines.values()
            if engine.service == name and self.puts.schedule(engine.address) != service.state.schedule
        ]
        if not set(service.state.schedule.values) <= _allowed(self.wishes[name].changes):
            found.append(f"{name}: {service.state.schedule} is not within the spec")
        return found


def _desired(name: str) -> float | None:
    """The replicas that an autoscaler is told to have."""
    return REGISTRY.get_sample_value("outrider_desired_replicas", {"namespace": "ml", "service": name})


def _told(status: Mapping[str, Any], type_: str) -> tuple[str, str]:
    return next(
        ((one["status"], one["message"]) for one in status.get("conditions", []) if one["type"] == type_), ("", "")
    )


def _allowed(changes: Mapping[str, Any]) -> set[int]:
    """The K that a spec allows."""
    tuning = changes["spec.speculation.tuning"]
    if tuning["mode"] == "Fixed":
        return {tuning["initialSpeculativeTokens"]}
    return set(range(tuning.get("minSpeculativeTokens", 0), CEILING + 1))
