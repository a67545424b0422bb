"""One pod of a replayed service."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from outrider.simulator.admin import AdminPort
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.metrics import Exposition
from outrider.simulator.noise import QUIET, Noise
from outrider.simulator.profile import Profile
from outrider.simulator.settings import EngineSettings


@dataclass(slots=True)
class Replica:
    """An engine with its admin port, its metrics and its place in a pod's life. Times are on the virtual clock."""

    number: int
    """In the order of creation."""
    name: str
    uid: str
    labels: Mapping[str, str]
    """What a scrape adds to every series, as the operator's PodMonitor has it."""
    engine: SimulatedEngine
    admin: AdminPort
    exposition: Exposition
    created_s: float
    ready_s: float
    starting: bool = True
    leaves_s: float | None = None
    """Set when the pod was told to go: it serves what it has until then."""

    @classmethod
    def create(
        cls,
        settings: EngineSettings,
        profile: Profile,
        name: str,
        namespace: str,
        service: str,
        *,
        seed: int,
        now_s: float,
        ready_s: float,
        number: int = 0,
        noise: Noise = QUIET,
    ) -> Replica:
        """A pod as it is created; its engine's process starts with it."""
        engine = SimulatedEngine(settings, profile, seed=seed, start_s=now_s, noise=noise)
        admin = AdminPort(engine)
        uid = f"uid-{name}"
        labels = {
            "namespace": namespace,
            "pod": name,
            "pod_uid": uid,
            "serving_outrider_dev_service": service,
            "serving_outrider_dev_track": "stable",
        }
        exposition = Exposition(engine, admin, now_s)
        return cls(number, name, uid, labels, engine, admin, exposition, now_s, ready_s, starting=ready_s > now_s)

    @property
    def serving(self) -> bool:
        """Whether the router may choose it."""
        return not self.starting and self.leaves_s is None

    @property
    def in_flight(self) -> int:
        """Requests running or waiting."""
        return self.engine.num_running + self.engine.num_waiting

    def abort_all(self, now_s: float) -> None:
        """End whatever still runs."""
        for request_id in self.engine.request_ids():
            self.engine.abort(request_id, now_s)
