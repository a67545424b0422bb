"""``make bench``: medians of several runs, printed and written to build/bench.json."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from outrider.core.controller import control
from outrider.core.observation import observe
from outrider.core.series import Series
from outrider.core.state import initial_state
from outrider.simulator.admin import AdminPort
from outrider.simulator.engine import SimulatedEngine
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.metrics import Exposition
from outrider.simulator.profile import load_profile
from outrider.simulator.settings import EngineSettings
from outrider.simulator.workload import closed_loop, conversation_trace, fitted, poisson, read_trace, replay
from tests.unit.core.builders import config, observation

RUNS = 7
OUTPUT = Path("build/bench.json")


def milliseconds(work: Callable[[], object], times: int = 1) -> float:
    """Median over the runs of the time that one call takes."""
    taken = []
    for _ in range(RUNS):
        began_s = time.perf_counter()
        for _ in range(times):
            work()
        taken.append((time.perf_counter() - began_s) / times * 1e3)
    return statistics.median(taken)


def engine_window(engines: int) -> list[Series]:
    """A minute of one service's samples, as a fleet of simulated engines exported them."""
    fleet = Fleet(FleetConfig(EngineSettings(), load_profile(), replicas=engines, scrape_s=5.0))
    fleet.run(poisson(4.0 * engines, 90.0, prompt_tokens=500, output_tokens=200), 90.0)
    return list(fleet.store.window(30.0, 90.0))


def simulated() -> dict[str, float]:
    """A second of an engine with 64 requests, a page of its metrics, and a tenth of an hour of the chat trace."""
    profile = load_profile()
    engine = SimulatedEngine(EngineSettings(), profile, seed=1)
    for request in closed_loop(64, prompt_tokens=300, output_tokens=7_500):
        engine.submit(request, request.arrival_s)
    page = Exposition(engine, AdminPort(engine), 0.0)
    chat = list(fitted(replay(read_trace(conversation_trace()), duration_s=360), 100_000))
    return {
        "engine_second_ms": milliseconds(lambda: engine.advance(engine.now_s + 1.0), 5),
        "metrics_page_ms": milliseconds(lambda: page.text(engine.now_s), 20),
        "six_minutes_of_chat_three_engines_ms": milliseconds(
            lambda: Fleet(FleetConfig(EngineSettings(), profile, replicas=3)).run(chat, 360)
        ),
    }


def main() -> None:
    """Run all of them."""
    window = engine_window(3)
    seen = observation(since=0.0, until=15.0)
    learnt = control(config(mode="Observe"), initial_state(config()), seen, seen, 15.0).state
    later = observation(since=15.0, until=30.0)
    profile = load_profile()

    def replayed() -> None:
        Fleet(FleetConfig(EngineSettings(), profile, replicas=3)).run(
            poisson(10.0, 60.0, prompt_tokens=1000, output_tokens=200), 60.0
        )

    results = {
        "observe_three_engines_ms": milliseconds(lambda: observe(window, 30.0, 90.0), 5),
        "control_one_service_ms": milliseconds(lambda: control(config(), learnt, later, later, 30.0), 20),
        "replay_one_minute_three_engines_ms": milliseconds(replayed),
        **simulated(),
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=2) + "\n")
    for name, value in results.items():
        print(f"{name:<40} {value:8.2f}")


if __name__ == "__main__":
    main()
