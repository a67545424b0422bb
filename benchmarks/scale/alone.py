"""``python -m benchmarks.scale.alone``: control passes in a process of their own, for sizes whose start takes too long.

Prometheus and the emulated engines are real neighbours, as in a whole run. The API server is not: writes are taken and
forgotten. So passes have all their arithmetic, queries and deliveries, and wait for no write.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from benchmarks.scale import objects
from benchmarks.scale.engines import pod_name, service_name
from benchmarks.scale.found import Run
from benchmarks.scale.run import start_engines
from benchmarks.scale.station import address
from benchmarks.scale.witness import Use
from outrider.adapters.engine import EngineAdmin
from outrider.adapters.prometheus import Prometheus
from outrider.api.defaults import resolve
from outrider.api.resource import parse
from outrider.cli.run import collect_rarely, take_turns
from outrider.core.state import initial_state
from outrider.manifests import engine_container, engine_settings
from outrider.reconcile.configuration import controller_config
from outrider.reconcile.control import ControlPass
from outrider.reconcile.engine_pod import EnginePod
from outrider.reconcile.neighbours import Manifest, Neighbours
from outrider.reconcile.registry import Registry, Service
from outrider.settings import Settings
from tests.testbed.cluster import Cluster

WARM_S = 45.0
"""For a window's samples to come."""
PASSES = 5


class Forgetful:
    """An API server that takes everything and keeps nothing."""

    async def get(self, *_: object) -> Manifest | None:
        """Nothing is there."""
        return None

    async def list(self, *_: object) -> list[Manifest]:
        """Nothing is there."""
        return []

    async def apply(self, manifest: Mapping[str, Any], **_: str) -> Manifest:
        """As it was sent."""
        return {**manifest, "metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": "1"}}

    async def create(self, manifest: Mapping[str, Any]) -> Manifest:
        """As it was sent."""
        return dict(manifest)

    async def delete(self, *_: object) -> None:
        """Nothing was there."""

    async def serves(self, *_: object) -> bool:
        """None of the optional kinds."""
        return False


def fill(registry: Registry, services: int, pod_range: str, period_s: float) -> None:
    """Services as they are after their objects pass, each with one ready pod."""
    for number in range(services):
        namespace, name = service_name(number)
        body = objects.resource(namespace, name)
        body["metadata"] |= {"uid": f"u-{number}", "generation": 1}
        registry.resource_event("ADDED", body)
        one = registry.get((namespace, name))
        assert one is not None
        _settle(one, address(pod_range, number), period_s)


def _settle(one: Service, at: str, period_s: float) -> None:
    resource = parse(one.body)
    resolved = resolve(resource.spec, 300)
    container = engine_container.build(resource, resolved, engine_settings.engine_config(resource, resolved))
    one.resource, one.resolved = resource, resolved
    one.config = controller_config(resolved, container, period_s=period_s, frozen=False, cold_start_s=None)
    one.state = initial_state(one.config)
    one.recorded, one.bounds = (one.state.generation, one.state.target), (1, 6)
    one.admin_key, one.saved_s, one.looked_s = "key", time.time(), time.time()
    name = pod_name(one.key[1])
    one.pods[name] = EnginePod(name, f"u-{name}", at, ready=True, terminating=False, revision="r")


async def run(services: int, pod_range: str, passes: int, settings: Settings) -> dict[str, Any]:
    """So many passes at the usual pace; durations in seconds, and what the process took."""
    registry, engines = Registry(), EngineAdmin()
    fill(registry, services, pod_range, settings.control_period_s)
    collect_rarely()
    take_turns()
    neighbours = Neighbours(Forgetful(), Prometheus(settings.prometheus), engines, time.time, settings)
    control, took = ControlPass(registry, neighbours, lambda _: None), []
    seen = 0
    for _ in range(passes):
        began_s = time.monotonic()
        await control.run()
        took.append(time.monotonic() - began_s)
        seen = sum(one.metrics is None and one.outcome is not None for one in registry)
        print(f"pass over {services} services: {took[-1]:.1f} s, {seen} with metrics", file=sys.stderr, flush=True)  # noqa: T201
        await asyncio.sleep(max(1.0, settings.control_period_s - took[-1]))
    await engines.close()
    use = Use.of("self")
    return {"passes_s": took, "with_metrics": seen, "cpu_s": use.cpu_s, "peak_rss_mib": use.peak_rss_mib}


async def measure_alone(services: int, settings: Mapping[str, str], *, scrape_interval_s: float) -> Run:
    """Passes over so many services, with a Prometheus and engines of their own."""
    with Cluster({"prometheus"}, scrape_interval_s=scrape_interval_s) as cluster:
        await start_engines(cluster, services)
        await asyncio.sleep(WARM_S)
        command = [sys.executable, "-m", "benchmarks.scale.alone", str(services), cluster.pod_range, str(PASSES)]
        cluster.start_process("passes", command, {**settings, "OUTRIDER_PROMETHEUS_URL": cluster.prometheus_url})
        while cluster.exit_status("passes") is None:  # noqa: ASYNC110  # another process ends
            await asyncio.sleep(0.5)
        log = (cluster.logs / "passes.log").read_text().splitlines()
    found = json.loads(log[-1])
    return Run(
        services, passes_alone_s=found["passes_s"], alone_with_metrics=found["with_metrics"],
        alone_cpu_s=found["cpu_s"], alone_peak_rss_mib=found["peak_rss_mib"],
    )  # fmt: skip


def main() -> None:
    """Read the command line; settings come from the environment, as the operator's do."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale.alone", description=__doc__)
    parser.add_argument("services", type=int)
    parser.add_argument("pod_range")
    parser.add_argument("passes", type=int)
    chosen = parser.parse_args()
    settings = Settings()  # type: ignore[call-arg]  # pydantic-settings fills fields from the environment
    print(json.dumps(asyncio.run(run(chosen.services, chosen.pod_range, chosen.passes, settings))))  # noqa: T201


if __name__ == "__main__":
    main()
