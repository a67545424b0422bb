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
from outrider.simulator.fleet import Fleet, FleetConfig
from outrider.simulator.profile import load_profile
from outrider.simulator.settings import EngineSettings
from outrider.simulator.workload import poisson
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


def main() -> None:
    """Run all of them."""
    window = engine_window(3)
    seen = observation(since=0.0, until=15.0)
    learnt = control(config(mode="Observe"), initial_state(config()), seen, seen, 15.0).state
    later = observation(since=15.0, until=30.0)
    profile = load_profile()

    def replay() -> None:
        Fleet(FleetConfig(EngineSettings(), profile, replicas=3)).run(
            poisson(10.0, 60.0, prompt_tokens=1000, output_tokens=200), 60.0
        )

    results = {
        "observe_three_engines_ms": milliseconds(lambda: observe(window, 30.0, 90.0), 5),
        "control_one_service_ms": milliseconds(lambda: control(config(), learnt, later, later, 30.0), 20),
        "replay_one_minute_three_engines_ms": milliseconds(replay),
    }
    OUTPUT.parent.mkdir(exist_ok=True)
    OUTPUT.write_text(json.dumps(results, indent=2) + "\n")
    for name, value in results.items():
        print(f"{name:<40} {value:8.2f}")


if __name__ == "__main__":
    main()
